use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Where the tools of an administrator are, also when the PATH of the one who logged in leaves them out.
const SYSTEM_DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A machine: a root directory and the directories that its commands are looked up in.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    search: Vec<PathBuf>,
}

impl Host {
    /// This machine. Commands are looked up in PATH, then in the system's own directories.
    #[must_use]
    pub fn local() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let search = std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute())
            .chain(SYSTEM_DIRECTORIES.map(PathBuf::from))
            .collect();
        Self { root: PathBuf::from("/"), search }
    }

    /// A made machine: files below `root`, commands in the directories `search` only.
    #[must_use]
    pub fn rooted(root: impl Into<PathBuf>, search: Vec<PathBuf>) -> Self {
        Self { root: root.into(), search }
    }

    /// Where a file with this absolute path lies.
    #[must_use]
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.root.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// A file's text; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// What reading the file says.
    pub fn read(&self, absolute: impl AsRef<Path>) -> io::Result<String> {
        fs::read(self.path(absolute)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn search_path(&self) -> Vec<PathBuf> {
        self.search.clone()
    }

    /// The program a command name stands for.
    #[must_use]
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        if program.contains('/') {
            return is_executable(Path::new(program)).then(|| PathBuf::from(program));
        }
        self.search.iter().map(|directory| directory.join(program)).find(|path| is_executable(path))
    }
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tools_of_the_administrator_are_found_without_path() {
        assert!(Host::local().find("sh").is_some());
        assert_eq!(Host::local().find("no-such-program-anywhere"), None);
    }

    #[test]
    fn a_made_machine_knows_only_its_own_files_and_commands() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(root.path().join("hostname"), "made\n").unwrap();
        for (name, mode) in [("tool", 0o755), ("note", 0o644)] {
            fs::write(bin.join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let host = Host::rooted(root.path(), vec![bin.clone()]);
        assert_eq!(host.read("/hostname").unwrap(), "made\n");
        assert_eq!(host.find("tool"), Some(bin.join("tool")));
        assert_eq!(host.find("note"), None, "not executable");
        assert_eq!(host.find("sh"), None, "not of this machine");
    }
}
