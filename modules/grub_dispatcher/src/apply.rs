//! The one write.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use ansible_module::{ErrorCode, Failure};
use host::{New, write_atomic};

use crate::args::Args;
use crate::observe::State;
use crate::plan::Write;

pub(crate) fn apply(args: &Args, Write(content): &Write, state: &State) -> Result<(), Failure> {
    let path = args.path();
    if fs::read(&path).ok() != state.content {
        let msg =
            format!("{} was changed by somebody else during the run: nothing was done to it", path.display());
        return Err(Failure::new(ErrorCode::CONFLICT, msg).nothing_sent());
    }
    write_atomic(&path, content, New { mode: 0o644 }).map_err(|error| {
        let failure = Failure::new(ErrorCode::COMMAND_FAILED, error.to_string());
        if error.is_untouched() { failure.nothing_sent() } else { failure }
    })?;
    if state.content.is_none() {
        let give = fs::metadata(&args.prefix_dir)
            .and_then(|directory| chown(&path, Some(directory.uid()), Some(directory.gid())));
        give.map_err(|error| {
            let msg = format!("giving {} to the owner of its directory failed: {error}", path.display());
            Failure::new(ErrorCode::COMMAND_FAILED, msg)
        })?;
    }
    Ok(())
}
