//! One lock per object on the machine that runs the module: a VM, a subnet, a host.
//!
//! The kernel drops the lock with the process, so a killed run leaves none behind.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{ErrorCode, Failure};
use crate::run::Run;

/// Held while it lives.
#[derive(Debug)]
pub(crate) struct ObjectLock {
    _file: File,
}

/// Waits for the lock on `object` within the run's deadline.
pub(crate) fn acquire(object: &str, run: &Run) -> Result<ObjectLock, Failure> {
    let path = directory()?.join(file_name(object));
    let file = open(&path)?;
    let locked = run.deadline.block_on(move || file.lock().map(|()| file)).map_err(|expired| {
        let holder = fs::read_to_string(&path).unwrap_or_default();
        let holder = holder.trim();
        let holder = if holder.is_empty() { "unknown" } else { holder };
        Failure::from(expired)
            .while_doing(format!("another run works on {object} and holds {} (pid {holder})", path.display()))
            .with("lock", object)
    })?;
    let mut file = locked.map_err(|error| broken(&path, &error))?;
    note_holder(&mut file);
    Ok(ObjectLock { _file: file })
}

/// For the message of the next one in line only; the lock does not depend on it.
fn note_holder(file: &mut File) {
    let _ = file.set_len(0);
    let _ = file.rewind();
    let _ = write!(file, "{}", std::process::id());
}

fn open(path: &Path) -> Result<File, Failure> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(|error| broken(path, &error))
}

fn broken(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(ErrorCode::INTERNAL, format!("cannot use the lock file {}: {error}", path.display()))
}

/// A directory of this user alone: below /run/lock, else the user's runtime directory, else /tmp.
fn directory() -> Result<PathBuf, Failure> {
    let uid = rustix::process::geteuid().as_raw();
    let name = format!("homelab-anvil-{uid}");
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let bases = [Some(PathBuf::from("/run/lock")), runtime, Some(PathBuf::from("/tmp"))];
    let mut last = String::new();
    for base in bases.into_iter().flatten() {
        let directory = base.join(&name);
        let _ = DirBuilder::new().mode(0o700).create(&directory);
        match fs::symlink_metadata(&directory) {
            Ok(found) if found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0 => {
                return Ok(directory);
            }
            Ok(_) => last = format!("{} is not a directory of this user alone", directory.display()),
            Err(error) => last = format!("{}: {error}", directory.display()),
        }
    }
    Err(Failure::new(ErrorCode::INTERNAL, format!("no place for lock files: {last}")))
}

/// A readable name that cannot leave the directory.
fn file_name(object: &str) -> String {
    let safe: String = object
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.:@".contains(c) { c } else { '_' })
        .collect();
    format!("{}.lock", safe.trim_start_matches('.').chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use deadline::Deadline;

    use super::*;

    #[test]
    fn a_second_run_waits_and_then_names_the_holder() {
        let object = format!("test object {}", std::process::id());
        let run = Run::for_tests();
        let held = acquire(&object, &run).unwrap();
        let mut impatient = Run::for_tests();
        impatient.deadline = Deadline::after(Duration::from_millis(150));
        let failure = acquire(&object, &impatient).unwrap_err();
        assert_eq!(failure.code, ErrorCode::TIMEOUT);
        assert!(failure.msg.contains(&format!("pid {}", std::process::id())), "{}", failure.msg);
        drop(held);
        acquire(&object, &run).unwrap();
        let _ = fs::remove_file(directory().unwrap().join(file_name(&object)));
    }

    #[test]
    fn a_lock_file_cannot_leave_its_directory() {
        assert_eq!(file_name("vm 101 on https://pve:8006"), "vm_101_on_https:__pve:8006.lock");
        assert_eq!(file_name("../../etc/x"), "_.._etc_x.lock");
    }
}
