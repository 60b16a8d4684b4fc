//! Against the real Kea of this machine; skipped, saying so, where it is not installed.

mod real_kea;
