//! The module as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    ansible_module::main(&[proxmox_vm_info::entry()])
}
