//! `anvil-modules`: every module of the collection in one program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ansible_module::main(&bundle::modules())
}
