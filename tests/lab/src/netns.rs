//! A network namespace of a test's own, joined to this machine by one cable; root only.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

/// Whether [`Cable`] can be laid here: as root, with iproute2, where the kernel lets us make namespaces.
#[must_use]
pub fn possible() -> bool {
    let name = unique("avt");
    let made = ip(&["netns", "add", &name]).is_ok();
    made && ip(&["netns", "del", &name]).is_ok()
}

/// A veth pair: one end here with an address, the other in a new namespace, up and without one. Both are removed
/// when this is dropped.
#[derive(Debug)]
pub struct Cable {
    namespace: String,
    outside: String,
}

impl Cable {
    /// The name of the end in the namespace.
    pub const INSIDE: &'static str = "eth0";

    /// `address` in CIDR form is given to the end on this side.
    ///
    /// # Errors
    /// `ip` failed; what it said.
    pub fn lay(address: &str) -> Result<Self> {
        let cable = Self { namespace: unique("avn"), outside: unique("avo") };
        let (namespace, outside) = (cable.namespace.as_str(), cable.outside.as_str());
        ip(&["netns", "add", namespace])?;
        ip(&["link", "add", outside, "type", "veth", "peer", "name", Self::INSIDE, "netns", namespace])?;
        ip(&["addr", "add", address, "dev", outside])?;
        ip(&["link", "set", outside, "up"])?;
        ip(&["-n", namespace, "link", "set", Self::INSIDE, "up"])?;
        Ok(cable)
    }

    /// The name of the end on this side.
    #[must_use]
    pub fn outside(&self) -> &str {
        &self.outside
    }

    /// A command that runs `program` in the namespace.
    #[must_use]
    pub fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// Takes the end in the namespace down.
    ///
    /// # Errors
    /// `ip` failed; what it said.
    pub fn take_down(&self) -> Result<()> {
        ip(&["-n", &self.namespace, "link", "set", Self::INSIDE, "down"])
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.outside]);
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

/// Interface names have at most 15 characters.
fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}{:x}x{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("running ip (iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
