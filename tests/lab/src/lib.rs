//! Doubles and launchers that the tests and the demo share.

pub mod kea;

use std::io::Write;

/// Whether a test that needs an optional program may run: it skips, saying so, where `what` is missing, and fails
/// where the environment variable `CI` is set, since CI has to have everything.
///
/// # Panics
/// `what` is missing and `CI` is set.
#[must_use]
pub fn present(installed: bool, what: &str) -> bool {
    if !installed {
        assert!(std::env::var_os("CI").is_none(), "expected {what} to be installed: CI skips nothing");
        let _ = writeln!(std::io::stderr(), "skipped: {what} is not installed");
    }
    installed
}
