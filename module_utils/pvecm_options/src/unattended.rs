//! pvecm without a terminal and with an end.

use std::time::Duration;

use ansible_module::{ErrorCode, Failure, Run};
use host::{Command, Host};

use crate::command_failure;

/// What is kept of the run's time to read the state after pvecm ran out of its own: a quarter, and at most this.
const RESERVE: Duration = Duration::from_secs(20);
/// What pvecm says goes into a file: a pipe would break with this process, and pvecm with it.
const LOG: &str = "/run/homelab-anvil-pvecm.log";
const INTO_LOG: &str = r#"umask 077; exec "$@" >"$0" 2>&1"#;
/// timeout(1): the command was ended, with TERM or with KILL.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Runs `pvecm` to its end, outside /etc/pve. A session of its own has no terminal, so that neither pvecm nor an ssh
/// under it can ask anything; timeout(1) ends it, since pvecm itself waits for quorum for ever. Both outlive this
/// process: the pvecm of a run that is killed still comes to its end.
///
/// # Errors
/// `timeout`, and `command_failed` with what pvecm said.
pub fn unattended(host: &Host, arguments: &[String], run: &Run) -> Result<(), Failure> {
    let remaining = run.deadline.remaining();
    let limit = remaining.saturating_sub(RESERVE.min(remaining / 4)).as_secs_f64();
    let command = Command::new("setsid")
        .args(["--wait", "sh", "-c", INTO_LOG, LOG, "env", "--chdir=/", "SSH_ASKPASS_REQUIRE=never"])
        .args(["timeout", "--kill-after=5", &format!("{limit:.1}"), "pvecm"])
        .args(arguments);
    let output = host.run(&command, &run.deadline).map_err(command_failure)?;
    let words = format!("pvecm {}", arguments.join(" "));
    let said = host.read(LOG).unwrap_or_default();
    let said = if said.trim().is_empty() { "(nothing)" } else { said.trim() };
    match output.code() {
        Some(0) => Ok(()),
        Some(code) if TIMED_OUT.contains(&code) => {
            let msg =
                format!("`{words}` did not end within {limit:.0} s and was stopped; it last said: {said}");
            Err(Failure::new(ErrorCode::TIMEOUT, msg))
        }
        _ => Err(Failure::new(ErrorCode::COMMAND_FAILED, format!("`{words}` failed: {said}"))),
    }
}
