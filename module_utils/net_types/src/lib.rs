//! net_types
