//! ping
