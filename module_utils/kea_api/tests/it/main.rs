//! Against the real Kea of this machine; skipped, saying so, where it is not installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod real_kea;
