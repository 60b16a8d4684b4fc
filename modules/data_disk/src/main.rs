//! The module as a program of its own.

use std::process::ExitCode;

use ansible_module::Entry;
use data_disk::DataDisk;

fn main() -> ExitCode {
    ansible_module::main(&[Entry::of::<DataDisk>()])
}
