//! The module as a program of its own.

use std::process::ExitCode;

use ansible_module::Entry;
use proxmox_vm_shell::ProxmoxVmShell;

fn main() -> ExitCode {
    ansible_module::main(&[Entry::of::<ProxmoxVmShell>()])
}
