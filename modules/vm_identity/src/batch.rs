//! One look at the cluster for all hosts of a batch.
//!
//! The tasks of a batch are processes of their own, side by side. The first one asks the cluster and leaves
//! what it saw in a file of this user; each other host of the batch uses that once, in place of asking.
//! A second run of the same batch therefore asks again.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, io};

use ansible_module::{ErrorCode, Failure, Run};
use host::{FileLock, New, lock_file, write_atomic};
use serde::{Deserialize, Serialize};

use crate::cluster::Guest;

/// No longer than a user would take from one run to a change by hand and to the next run.
const FRESH: Duration = Duration::from_secs(60);

const PRIVATE: New = New { mode: 0o600 };

/// What makes two tasks parts of one batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) cluster: String,
    pub(crate) inventory: PathBuf,
    pub(crate) hosts: Vec<String>,
    pub(crate) check_mode: bool,
}

/// The file: what the first task of a batch saw, and who has not used it yet.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    batch: Batch,
    /// Seconds since 1970.
    at: u64,
    unserved: Vec<String>,
    guests: Vec<Guest>,
}

/// The guests of the cluster for `host`: what another task of the batch saw, or what `ask` sees now and
/// leaves for the hosts `waiting`.
pub(crate) fn guests(
    batch: &Batch,
    host: &str,
    waiting: &[&str],
    run: &Run,
    ask: impl FnOnce() -> Result<Vec<Guest>, Failure>,
) -> Result<Vec<Guest>, Failure> {
    if batch.hosts.len() == 1 {
        return ask();
    }
    let directory = directory()?;
    let _turn = turn(&directory, run)?;
    let file = directory.join("cluster.json");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seen = read(&file).filter(|seen| serves(seen, batch, host, now));
    let mut seen = match seen {
        Some(seen) => seen,
        None => Seen {
            batch: batch.clone(),
            at: now,
            unserved: waiting.iter().map(|host| (*host).to_owned()).collect(),
            guests: ask()?,
        },
    };
    seen.unserved.retain(|unserved| unserved != host);
    leave(&file, &seen)?;
    Ok(seen.guests)
}

fn serves(seen: &Seen, batch: &Batch, host: &str, now: u64) -> bool {
    // A clock that was set back makes it old as well.
    let fresh = now.checked_sub(seen.at).is_some_and(|age| age < FRESH.as_secs());
    fresh && seen.batch == *batch && seen.unserved.iter().any(|unserved| unserved == host)
}

fn read(file: &Path) -> Option<Seen> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn leave(file: &Path, seen: &Seen) -> Result<(), Failure> {
    if seen.unserved.is_empty() {
        return match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(file, error)),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(seen).map_err(|error| unusable(file, error))?;
    write_atomic(file, &text, PRIVATE).map(drop).map_err(|error| unusable(file, error))
}

/// Held while one task asks, so that the others of the batch wait for its answer.
fn turn(directory: &Path, run: &Run) -> Result<FileLock, Failure> {
    lock_file(&directory.join("cluster.lock"), &run.deadline).map_err(|error| {
        let code = run.check().err().map_or(ErrorCode::INTERNAL, |expired| expired.code);
        Failure::new(code, format!("waiting for another task of the batch to look at the cluster: {error}"))
    })
}

fn directory() -> Result<PathBuf, Failure> {
    let absolute = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let directory = cache.ok_or_else(|| {
        let why =
            "neither HOME nor XDG_CACHE_HOME names a directory, and tasks of a batch share a file there";
        Failure::new(ErrorCode::INTERNAL, why)
    })?;
    let directory = directory.join("homelab-anvil").join("vm_identity");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|error| unusable(&directory, error))?;
    Ok(directory)
}

fn unusable(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(
        ErrorCode::INTERNAL,
        format!("cannot share what was seen of the cluster through {}: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        Batch {
            cluster: "pve.example:8006".into(),
            inventory: "/inv".into(),
            hosts: vec!["web01".into(), "web02".into()],
            check_mode: false,
        }
    }

    fn seen() -> Seen {
        Seen { batch: batch(), at: 1000, unserved: vec!["web02".into()], guests: Vec::new() }
    }

    #[test]
    fn what_was_seen_serves_the_same_batch_for_a_minute() {
        assert!(serves(&seen(), &batch(), "web02", 1000));
        assert!(serves(&seen(), &batch(), "web02", 1059));
        assert!(!serves(&seen(), &batch(), "web02", 1060));
        assert!(!serves(&seen(), &batch(), "web02", 999), "a clock that was set back");
    }

    #[test]
    fn it_serves_each_host_once_and_no_other_batch() {
        assert!(!serves(&seen(), &batch(), "web01", 1000));
        for other in [
            Batch { cluster: "pve2.example:8006".into(), ..batch() },
            Batch { inventory: "/other".into(), ..batch() },
            Batch { hosts: vec!["web02".into()], ..batch() },
            Batch { check_mode: true, ..batch() },
        ] {
            assert!(!serves(&seen(), &other, "web02", 1000), "{other:?}");
        }
    }

    #[test]
    fn it_is_gone_when_everybody_was_served_and_a_torn_file_counts_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cluster.json");
        leave(&file, &seen()).unwrap();
        assert_eq!(read(&file), Some(seen()));
        leave(&file, &Seen { unserved: Vec::new(), ..seen() }).unwrap();
        assert!(!file.exists());
        fs::write(&file, "{\"batch\":").unwrap();
        assert_eq!(read(&file), None);
    }
}
