//! http_client
