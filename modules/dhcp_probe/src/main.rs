use std::process::ExitCode;

fn main() -> ExitCode {
    ansible_module::main(&[dhcp_probe::entry()])
}
