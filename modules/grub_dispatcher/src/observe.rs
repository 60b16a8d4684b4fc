//! Every read.

use std::fs;
use std::io;

use ansible_module::{ErrorCode, Failure, Run};
use host::{CommandError, FileLock, Host, lock_directory};
use netboot::{FIRST_MENU, Syntax, block, check_script, no_directory, with_block};

use crate::args::{Args, Presence};

/// The file as it is, and as it shall be.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// None where there is no file.
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) wanted: Option<Vec<u8>>,
    /// What the file is in GRUB's eyes before and after; only a fault asks whose it is.
    pub(crate) before: Syntax,
    pub(crate) after: Syntax,
}

pub(crate) fn lock(args: &Args, run: &Run) -> Result<FileLock, Failure> {
    if !args.prefix_dir.is_dir() {
        return Err(Failure::not_found(no_directory(&args.prefix_dir)));
    }
    lock_directory(&args.prefix_dir, &run.deadline).map_err(|error| {
        run.check().err().unwrap_or_else(|| Failure::new(ErrorCode::COMMAND_FAILED, error.to_string()))
    })
}

pub(crate) fn observe(args: &Args, host: &Host, run: &Run) -> Result<State, Failure> {
    if !args.prefix_dir.is_dir() {
        return Err(Failure::not_found(no_directory(&args.prefix_dir)));
    }
    let path = args.path();
    let content = match fs::read(&path) {
        Ok(content) => Some(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::refused(format!("{} cannot be read: {error}", path.display()))),
    };
    let wanted = wanted(args, content.as_deref())?;
    let check = |text: &Option<Vec<u8>>| match text {
        Some(text) => check_script(host, text, &run.deadline).map_err(command_failure),
        None => Ok(Syntax::NotChecked),
    };
    let after = check(&wanted)?;
    let before = if matches!(after, Syntax::Faulty(_)) { check(&content)? } else { Syntax::NotChecked };
    Ok(State { content, wanted, before, after })
}

fn wanted(args: &Args, content: Option<&[u8]>) -> Result<Option<Vec<u8>>, Failure> {
    let block = (args.state == Presence::Present).then(|| block(args.menu_timeout));
    let rest = match (content, &block) {
        (Some(content), _) => content,
        (None, Some(_)) => FIRST_MENU.as_bytes(),
        (None, None) => return Ok(None),
    };
    with_block(rest, block.as_deref()).map(Some).map_err(|broken| {
        let path = args.path();
        Failure::refused(format!("{}, {broken}; nothing was touched, correct it by hand", path.display()))
    })
}

fn command_failure(error: CommandError) -> Failure {
    match error {
        CommandError::Stopped { why, .. } => Failure::from(why).while_doing(&error),
        error => Failure::new(ErrorCode::COMMAND_FAILED, error.to_string()),
    }
}
