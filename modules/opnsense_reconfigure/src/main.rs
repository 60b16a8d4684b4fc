//! The module as a program of its own.

use std::process::ExitCode;

use ansible_module::Entry;
use opnsense_reconfigure::OpnsenseReconfigure;

fn main() -> ExitCode {
    ansible_module::main(&[Entry::of::<OpnsenseReconfigure>()])
}
