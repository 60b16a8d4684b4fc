//! Doubles and launchers that the tests and the demo share.

pub mod corosync;
pub mod dhcp;
pub mod dns;
pub mod guests;
pub mod http;
pub mod interrupt;
pub mod ipmi;
pub mod kea;
pub mod kea3;
pub mod lab;
pub mod netns;
pub mod opnsense;
pub mod play;
pub mod program;
pub mod proxy;
pub mod pve;
pub mod pve_schema;
pub mod qemu;
pub mod qemu_network;
pub mod redfish;
pub mod tls;
pub mod zfs_guest;

use std::io::Write;
use std::path::{Path, PathBuf};

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

/// The root of the checkout that the program runs in. Cargo runs tests in their package's directory. The path it
/// was compiled in comes second: clones that share a target directory share what was compiled in any of them.
#[must_use]
pub fn checkout() -> PathBuf {
    let compiled_in = Path::new(env!("CARGO_MANIFEST_DIR"));
    let started_in = std::env::current_dir().unwrap_or_default();
    let mut above = started_in.ancestors().chain(compiled_in.ancestors());
    above.find(|path| path.join("galaxy.yml").exists()).unwrap_or(compiled_in).to_owned()
}
