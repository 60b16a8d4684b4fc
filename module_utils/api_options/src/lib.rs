//! api_options
