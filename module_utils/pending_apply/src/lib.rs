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

/// The mark of one server, or of one service of it.
#[derive(Clone, Debug)]
pub struct Pending {
    file: PathBuf,
}

impl Pending {
    /// The mark of `server`, such as `opnsense fw.example:443 kea`, in this user's state directory.
    ///
    /// # Errors
    /// There is no directory that only this user can write to.
    pub fn of(server: &str) -> io::Result<Self> {
        Ok(Self::within(&state_directory()?, server))
    }

    /// The mark of `server` in a directory of the caller's choice.
    #[must_use]
    pub fn within(directory: &Path, server: &str) -> Self {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let name: String = server.chars().map(safe).collect();
        Self { file: directory.join(format!("{}.pending", name.trim_start_matches('.'))) }
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.file.exists()
    }

    /// On return the mark is on the disk: it outlives a crash of this machine.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self) -> io::Result<()> {
        if self.is_set() {
            return Ok(());
        }
        File::create(&self.file)?.sync_all()?;
        self.file.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// # Errors
    /// The file cannot be removed; one that is not there is no error.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// `$XDG_STATE_HOME/homelab.anvil`, `~/.local/state/homelab.anvil`, or, without a home, a directory of this user
/// in /var/tmp, which outlives a restart.
fn state_directory() -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let candidates =
        [state.map(|path| path.join("homelab.anvil")), Some(format!("/var/tmp/homelab.anvil-{uid}").into())];
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in candidates.into_iter().flatten() {
        match own_directory(&directory, uid) {
            Ok(()) => return Ok(directory),
            Err(error) => {
                last = io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
            }
        }
    }
    Err(last)
}

fn own_directory(directory: &Path, uid: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0 {
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
        let mark = Pending::within(Path::new("/state"), "../../etc/passwd");
        assert_eq!(mark.file, Path::new("/state/_.._etc_passwd.pending"));
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        own_directory(&directory.path().join("new/state"), uid).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = own_directory(directory.path(), uid).unwrap_err();
        assert_eq!(error.to_string(), "others could write here");
    }
}
