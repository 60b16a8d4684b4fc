//! Real machines (QEMU without KVM, UEFI firmware) that boot over a network of their own from real servers: Kea, tftpd-hpa
//! and nginx. Each test prints a line for each thing that it proved. `make e2e` runs them.

#![allow(clippy::unwrap_used)]

mod hypervisor;
mod netboot;
mod redfish;
mod site;

use std::io::Write;

/// Prints at once what libtest would keep until the end.
fn proved(what: &str) {
    let _ = writeln!(std::io::stdout(), "proved: {what}");
}
