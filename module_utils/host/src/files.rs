//! Files that are replaced whole, and locks between processes.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use deadline::Deadline;
use rustix::fs::{XattrFlags, fsetxattr, getxattr};

const SELINUX_LABEL: &str = "security.selinux";
/// No label is longer; see selinux(8).
const LONGEST_LABEL: usize = 4096;

/// What a file gets that did not exist before; one that exists keeps its mode, owner and SELinux label.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// Permission bits, the process's umask not applied.
    pub mode: u32,
}

/// Why a file was not written.
#[derive(Debug)]
pub struct WriteError {
    path: PathBuf,
    doing: &'static str,
    error: io::Error,
}

/// The one step after the file was replaced.
const LAST_STEP: &str = "syncing the directory";

impl WriteError {
    /// The file that was there is; otherwise the new one is, and a power cut may still take it away.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.doing != LAST_STEP
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} failed: {}", self.path.display(), self.doing, self.error)
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Replaces a file so that every reader sees the old content or the new one, also after a power cut:
/// a temporary file beside it, synced, renamed over it, the directory synced.
///
/// A symbolic link stays one; the file it points to is replaced. The same content is not written again.
/// A new file gets the SELinux label of its directory's default type; the label of an existing one is kept.
///
/// Returns whether it wrote.
///
/// # Errors
/// [`WriteError`]: the directory does not exist, no permission, the disk is full, or the path is
/// something else than a file.
pub fn write_atomic(path: &Path, content: &[u8], permissions: New) -> Result<bool, WriteError> {
    let fail = |doing| move |error| WriteError { path: path.to_owned(), doing, error };
    let target = follow_link(path).map_err(fail("following the symbolic link"))?;
    // Before it is opened: a pipe would wait for somebody who writes.
    if fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(fail("replacing the file")(error));
    }
    let old = match File::open(&target) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(fail("reading the file")(error)),
    };
    if let Some(mut old) = old.as_ref() {
        let mut before = Vec::new();
        old.read_to_end(&mut before).map_err(fail("reading the file"))?;
        if before == content {
            return Ok(false);
        }
    }
    replace(&target, content, |new| match &old {
        Some(old) => keep_attributes(&target, old, new),
        None => new.set_permissions(fs::Permissions::from_mode(permissions.mode)),
    })
    .map_err(|(doing, error)| fail(doing)(error))?;
    Ok(true)
}

/// Permission bits and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The process's umask is not applied.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Replaces a file as [`write_atomic`] does, with these attributes whatever was there before: at no moment is the new
/// content to be seen with others. A symbolic link is replaced by the file. The new file gets the SELinux label of
/// its directory's default type.
///
/// # Errors
/// [`WriteError`]: the directory does not exist, no permission, the disk is full, or something else than a file is
/// there.
pub fn write_exactly(path: &Path, content: &[u8], attributes: Attributes) -> Result<(), WriteError> {
    let dress = |new: &File| {
        let made = new.metadata()?;
        if (attributes.uid, attributes.gid) != (made.uid(), made.gid()) {
            fchown(new, Some(attributes.uid), Some(attributes.gid))?;
        }
        new.set_permissions(fs::Permissions::from_mode(attributes.mode))
    };
    replace(path, content, dress).map_err(|(doing, error)| WriteError { path: path.to_owned(), doing, error })
}

/// A temporary file beside the target, synced, renamed over it, the directory synced.
fn replace(
    target: &Path,
    content: &[u8],
    dress: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), (&'static str, io::Error)> {
    let fail = |doing| move |error| (doing, error);
    let directory = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::Builder::new()
        .prefix(".anvil-")
        .tempfile_in(directory)
        .map_err(fail("making a temporary file beside it"))?;
    temporary.write_all(content).map_err(fail("writing the temporary file"))?;
    dress(temporary.as_file()).map_err(fail("setting mode and owner"))?;
    temporary.as_file().sync_all().map_err(fail("syncing the temporary file"))?;
    temporary.persist(target).map_err(|e| fail("renaming the temporary file")(e.error))?;
    File::open(directory).and_then(|d| d.sync_all()).map_err(fail(LAST_STEP))
}

fn follow_link(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => fs::canonicalize(path),
        _ => Ok(path.to_owned()),
    }
}

fn keep_attributes(old_path: &Path, old: &File, new: &File) -> io::Result<()> {
    let kept = old.metadata()?;
    let made = new.metadata()?;
    if (kept.uid(), kept.gid()) != (made.uid(), made.gid()) {
        fchown(new, Some(kept.uid()), Some(kept.gid()))?;
    }
    // After the owner: chown takes the set-user-ID bits away.
    new.set_permissions(fs::Permissions::from_mode(kept.mode() & 0o7777))?;
    let mut label = vec![0; LONGEST_LABEL];
    if let Ok(length) = getxattr(old_path, SELINUX_LABEL, label.as_mut_slice()) {
        fsetxattr(new, SELINUX_LABEL, &label[..length], XattrFlags::empty())?;
    }
    Ok(())
}

/// An advisory lock; released when dropped, also by the end of the process.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

/// Waits for the exclusive lock on a file, which is made (empty, mode 0600) when it is not there.
///
/// Lock a file of its own beside the one to be replaced: a rename leaves a lock on the old content behind.
///
/// # Errors
/// [`WriteError`] when the file cannot be opened or the deadline passes while somebody else holds the lock.
pub fn lock_file(path: &Path, deadline: &Deadline) -> Result<FileLock, WriteError> {
    let fail = |error| WriteError { path: path.to_owned(), doing: "locking", error };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(fail)?;
    wait_for(file, deadline).map_err(fail)
}

/// Waits for the exclusive lock on a directory: for files that are replaced in it, where no file more may lie about.
///
/// # Errors
/// [`WriteError`] when the directory cannot be opened or the deadline passes while somebody else holds the lock.
pub fn lock_directory(path: &Path, deadline: &Deadline) -> Result<FileLock, WriteError> {
    let fail = |error| WriteError { path: path.to_owned(), doing: "locking", error };
    File::open(path).and_then(|directory| wait_for(directory, deadline)).map_err(fail)
}

fn wait_for(file: File, deadline: &Deadline) -> io::Result<FileLock> {
    let locked = deadline.block_on(move || file.lock().map(|()| file)).map_err(|expired| {
        let why = format!("another process holds the lock; {expired}");
        io::Error::new(io::ErrorKind::TimedOut, why)
    })?;
    locked.map(|file| FileLock { _file: file })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const PRIVATE: New = New { mode: 0o600 };

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_file_gets_the_given_mode_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        assert!(write_atomic(&path, b"a\n", PRIVATE).unwrap());
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"a\n".to_vec(), 0o600));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_same_content_is_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        write_atomic(&path, b"a\n", PRIVATE).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        assert!(!write_atomic(&path, b"a\n", PRIVATE).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert!(write_atomic(&path, b"b\n", PRIVATE).unwrap());
        assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
    }

    #[test]
    fn mode_and_owner_of_the_old_file_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fstab");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let foreign = std::os::unix::fs::chown(&path, Some(65534), Some(65534)).is_ok();
        write_atomic(&path, b"new", New { mode: 0o600 }).unwrap();
        assert_eq!(mode(&path), 0o640);
        if foreign {
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (65534, 65534));
        }
    }

    #[test]
    fn a_symbolic_link_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::write(&real, "old").unwrap();
        symlink("real", &link).unwrap();
        assert!(write_atomic(&link, b"new", PRIVATE).unwrap());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
    }

    #[test]
    fn what_cannot_be_replaced_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_atomic(directory.path(), b"x", PRIVATE).unwrap_err().to_string();
        assert!(error.ends_with("replacing the file failed: it is no regular file"), "{error}");
        assert!(write_atomic(directory.path(), b"x", PRIVATE).unwrap_err().is_untouched());
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let error = write_atomic(&pipe, b"x", PRIVATE).unwrap_err().to_string();
        assert!(error.ends_with("replacing the file failed: it is no regular file"), "{error}");
        let missing = directory.path().join("no/such/file");
        let error = write_atomic(&missing, b"x", PRIVATE).unwrap_err().to_string();
        assert!(error.contains("making a temporary file beside it failed"), "{error}");
        let dangling = directory.path().join("dangling");
        symlink("nowhere", &dangling).unwrap();
        let error = write_atomic(&dangling, b"x", PRIVATE).unwrap_err().to_string();
        assert!(error.contains("following the symbolic link failed"), "{error}");
    }

    #[test]
    fn exact_attributes_replace_whatever_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("grub.cfg-x");
        let made = fs::metadata(directory.path()).unwrap();
        let attributes = Attributes { mode: 0o644, uid: made.uid(), gid: made.gid() };
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write_exactly(&path, b"old", attributes).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"old".to_vec(), 0o644));
        fs::remove_file(&path).unwrap();
        fs::write(directory.path().join("other"), "other").unwrap();
        symlink("other", &path).unwrap();
        write_exactly(&path, b"new", attributes).unwrap();
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(fs::read(directory.path().join("other")).unwrap(), b"other");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        let error = write_exactly(&directory.path().join("no/file"), b"x", attributes).unwrap_err();
        assert!(error.is_untouched(), "{error}");
    }

    #[test]
    fn a_directory_is_locked_without_a_file_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock_directory(directory.path(), &Deadline::after(Duration::from_secs(5))).unwrap();
        let short = Deadline::after(Duration::from_millis(200));
        let error = lock_directory(directory.path(), &short).unwrap_err().to_string();
        assert!(error.ends_with("another process holds the lock; not done within 0.2 s"), "{error}");
        drop(held);
        lock_directory(directory.path(), &Deadline::after(Duration::from_secs(5))).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_held_lock_is_waited_for_until_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".lock");
        let held = lock_file(&path, &Deadline::after(Duration::from_secs(5))).unwrap();
        let error = lock_file(&path, &Deadline::after(Duration::from_millis(200))).unwrap_err().to_string();
        assert!(error.ends_with("another process holds the lock; not done within 0.2 s"), "{error}");
        drop(held);
        assert!(lock_file(&path, &Deadline::after(Duration::from_secs(5))).is_ok());
    }

    #[test]
    fn a_lock_lets_writers_take_turns() {
        let directory = tempfile::tempdir().unwrap();
        let (lock, file) = (directory.path().join(".lock"), directory.path().join("count"));
        fs::write(&file, "0").unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _held = lock_file(&lock, &Deadline::after(Duration::from_secs(30))).unwrap();
                    let count: u32 = fs::read_to_string(&file).unwrap().parse().unwrap();
                    write_atomic(&file, (count + 1).to_string().as_bytes(), PRIVATE).unwrap();
                });
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "8");
    }
}
