//! Which servers hold changes that are stored and not in effect yet.
//!
//! OPNsense does not say whether what it stores is what runs, and neither does Kea say whether what runs is
//! written to its file. A run that is killed between the two would leave a reservation that every later run takes
//! for done. So a mark is put on this machine's disk before the first write and taken away after the last; a run
//! that finds one knows that it has to apply, whatever it finds stored.
//!
//! The mark is known to this user on this machine only. Whoever sets and clears it holds the server's lock.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The mark of one server, or of one service of it. Only [`set`](Self::set) writes anything.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Where it may lie, best first.
    directories: Vec<PathBuf>,
    file: String,
}

impl Pending {
    /// The mark of `server`, such as `opnsense fw.example:443 kea`, in this user's state directory.
    #[must_use]
    pub fn of(server: &str) -> Self {
        Self { directories: state_directories(), file: file_name(server) }
    }

    /// The mark of `server` in a directory of the caller's choice.
    #[must_use]
    pub fn within(directory: &Path, server: &str) -> Self {
        Self { directories: vec![directory.to_owned()], file: file_name(server) }
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        let own = |directory: &&PathBuf| refuse_if_others_write(directory).is_ok();
        self.directories.iter().filter(own).any(|directory| directory.join(&self.file).exists())
    }

    /// On return the mark is on the disk: it outlives a crash of this machine.
    ///
    /// # Errors
    /// There is no directory that only this user can write to.
    pub fn set(&self) -> io::Result<()> {
        if self.is_set() {
            return Ok(());
        }
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for directory in &self.directories {
            match create(directory, &self.file) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    last = io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
                }
            }
        }
        Err(last)
    }

    /// # Errors
    /// The file cannot be removed; one that is not there is no error.
    pub fn clear(&self) -> io::Result<()> {
        for directory in &self.directories {
            match fs::remove_file(directory.join(&self.file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn create(directory: &Path, file: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    refuse_if_others_write(directory)?;
    File::create(directory.join(file))?.sync_all()?;
    File::open(directory)?.sync_all()
}

/// A readable name that cannot leave the directory.
fn file_name(server: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
    let name: String = server.chars().map(safe).collect();
    format!("{}.pending", name.trim_start_matches('.'))
}

/// `$XDG_STATE_HOME/homelab.anvil`, `~/.local/state/homelab.anvil`, or, without a home, a directory of this user
/// in /var/tmp, which outlives a restart.
fn state_directories() -> Vec<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let temporary = format!("/var/tmp/homelab.anvil-{}", rustix::process::geteuid().as_raw());
    state.map(|path| path.join("homelab.anvil")).into_iter().chain([temporary.into()]).collect()
}

fn refuse_if_others_write(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && is_own && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "others could write here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_until_it_is_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let mark = Pending::within(directory.path(), "opnsense fw.example:443 kea");
        let other = Pending::within(directory.path(), "opnsense fw.example:443 unbound");
        assert!(!mark.is_set());
        mark.clear().unwrap();
        mark.set().unwrap();
        mark.set().unwrap();
        assert!(Pending::within(directory.path(), "opnsense fw.example:443 kea").is_set());
        assert!(!other.is_set());
        mark.clear().unwrap();
        assert!(!mark.is_set());
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        assert_eq!(file_name("../../etc/passwd"), "_.._etc_passwd.pending");
        assert_eq!(file_name("opnsense [fd00::1]:443 kea"), "opnsense__fd00__1__443_kea.pending");
    }

    #[test]
    fn looking_and_clearing_make_no_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mark = Pending::within(&directory.path().join("new/state"), "fw");
        assert!(!mark.is_set());
        mark.clear().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        mark.set().unwrap();
        assert!(mark.is_set());
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let mark = Pending::within(directory.path(), "fw");
        mark.set().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!mark.is_set());
        let error = mark.set().unwrap_err().to_string();
        assert!(error.ends_with("others could write here"), "{error}");
    }
}
