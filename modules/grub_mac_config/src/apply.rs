//! Every write.

use std::fs;
use std::io;

use ansible_module::{ErrorCode, Failure, Run};
use host::{Attributes, Command, Host, write_exactly};

use crate::args::Args;
use crate::observe::{Found, State, command_failure, selinux_is_on};
use crate::plan::{Action, MODE};

pub(crate) fn apply(
    args: &Args,
    host: &Host,
    action: &Action,
    state: &State,
    run: &Run,
) -> Result<(), Failure> {
    match action {
        Action::Remove { name } => remove(args, host, name, state),
        Action::Write { name, content } => write(args, host, name, content, state, run),
    }
}

fn remove(args: &Args, host: &Host, name: &str, state: &State) -> Result<(), Failure> {
    unchanged(args, host, name, state)?;
    let path = args.prefix_dir.join(name);
    match fs::remove_file(host.path(&path)) {
        // Under another case of the same name, where case does not count, it is gone with the first.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::new(
            ErrorCode::COMMAND_FAILED,
            format!("removing {} failed: {error}", path.display()),
        )
        .nothing_sent()),
        _ => Ok(()),
    }
}

fn write(
    args: &Args,
    host: &Host,
    name: &str,
    content: &str,
    state: &State,
    run: &Run,
) -> Result<(), Failure> {
    unchanged(args, host, name, state)?;
    let path = args.prefix_dir.join(name);
    let (uid, gid) = state.owner;
    write_exactly(&host.path(&path), content.as_bytes(), Attributes { mode: MODE, uid, gid }).map_err(
        |error| {
            let failure = Failure::new(ErrorCode::COMMAND_FAILED, error.to_string());
            if error.is_untouched() { failure.nothing_sent() } else { failure }
        },
    )?;
    if selinux_is_on(host) {
        let command = Command::new("restorecon").arg(path);
        host.run(&command, &run.deadline).and_then(host::Output::ok).map_err(command_failure)?;
    }
    Ok(())
}

/// Whoever does not know our lock may have put a file of their own there since.
fn unchanged(args: &Args, host: &Host, name: &str, state: &State) -> Result<(), Failure> {
    let path = args.prefix_dir.join(name);
    let now = fs::read(host.path(&path)).ok();
    // A name that differs in case only, where case does not count, shows what was just written.
    let own =
        |content: &Vec<u8>| args.wanted.iter().any(|file| file.content.as_bytes() == content.as_slice());
    let before = match state.files.get(name) {
        Some(Found::File { content, .. }) => Some(content.clone()),
        _ => None,
    };
    if now == before || now.as_ref().is_none_or(own) {
        return Ok(());
    }
    let msg =
        format!("{} was changed by somebody else during the run: nothing was done to it", path.display());
    Err(Failure::new(ErrorCode::CONFLICT, msg).nothing_sent())
}
