//! The one write: the known_hosts file.

use std::path::{Path, PathBuf};

use ansible_module::{ErrorCode, Failure, Run};
use host::{New, lock_file, write_atomic};

use crate::args::Args;
use crate::observe;
use crate::plan::Action;

/// Under a lock, and on the file as it is now: twenty hosts may be pinned at once.
pub(crate) fn apply(action: &Action, args: &Args, run: &Run) -> Result<(), Failure> {
    let path = &args.known_hosts;
    let broken = |error: host::WriteError| {
        let failure = Failure::new(ErrorCode::COMMAND_FAILED, error.to_string());
        if error.is_untouched() { failure.nothing_sent() } else { failure }
    };
    let _lock = lock_file(&lock_path(path), &run.deadline).map_err(broken)?;
    let mut known = observe::known_hosts(args).map_err(Failure::nothing_sent)?;
    let keys = match action {
        Action::Pin(keys) => keys,
        Action::Replace(keys) => {
            known.remove(&args.address).map_err(|error| {
                Failure::refused(format!(
                    "the host keys of {} cannot be replaced in {}: {error}",
                    args.address,
                    path.display()
                ))
                .nothing_sent()
            })?;
            keys
        }
    };
    let there = known.entries(&args.address);
    let missing: Vec<_> =
        keys.iter().filter(|key| !there.iter().any(|entry| entry.key == **key)).cloned().collect();
    known.add(&args.address, &missing);
    write_atomic(path, known.to_string().as_bytes(), New { mode: 0o600 }).map_err(broken)?;
    Ok(())
}

/// A file of its own beside the one that is replaced.
fn lock_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.lock"))
}
