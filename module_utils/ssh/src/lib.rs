//! ssh
