//! Root's SSH files as they were before a join, which pvecm changes before it asks the cluster anything.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use host::{Host, New, write_atomic};
use serde::{Deserialize, Serialize};

/// What pvecm changes (PVE::Cluster::Setup `setup_sshd_config`, `setup_rootsshconfig`, `setup_ssh_keys`), and what this
/// module does. A key that pvecm makes may stay.
const FILES: [&str; 4] =
    ["/etc/ssh/sshd_config", "/root/.ssh/config", "/root/.ssh/authorized_keys", "/root/.ssh/known_hosts"];
const SAVED: &str = "/var/lib/homelab-anvil/pvecm_join.json";

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
enum Content {
    Absent,
    Link(PathBuf),
    Text(String),
}

/// Keeps the files, unless a join that was killed has kept them already: those are the ones of before.
pub(crate) fn keep(host: &Host) -> Result<(), String> {
    let saved = host.path(SAVED);
    if saved.exists() {
        return Ok(());
    }
    let contents: Vec<Content> = FILES.iter().map(|path| read(&host.path(path))).collect::<Result<_, _>>()?;
    let text = serde_json::to_vec(&contents).map_err(|error| error.to_string())?;
    fs::create_dir_all(saved.parent().unwrap_or(Path::new("/")))
        .map_err(|error| format!("{SAVED}: {error}"))?;
    write_atomic(&saved, &text, New { mode: 0o600 }).map(drop).map_err(|error| error.to_string())
}

/// Forgets them: the join took.
pub(crate) fn forget(host: &Host) {
    let _ = fs::remove_file(host.path(SAVED));
}

/// Puts back what is different. Returns whether sshd's own file was.
pub(crate) fn put_back(host: &Host) -> Result<bool, String> {
    let saved = host.read(SAVED).map_err(|error| format!("{SAVED}: {error}"))?;
    let contents: Vec<Content> = serde_json::from_str(&saved).map_err(|error| format!("{SAVED}: {error}"))?;
    let mut sshd_changed = false;
    for (name, before) in FILES.iter().zip(contents) {
        let path = host.path(name);
        if read(&path)? == before {
            continue;
        }
        sshd_changed |= *name == FILES[0];
        write(&path, &before).map_err(|error| format!("{name}: {error}"))?;
    }
    forget(host);
    Ok(sshd_changed)
}

fn read(path: &Path) -> Result<Content, String> {
    if let Ok(target) = fs::read_link(path) {
        return Ok(Content::Link(target));
    }
    match fs::read_to_string(path) {
        Ok(text) => Ok(Content::Text(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::Absent),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn write(path: &Path, content: &Content) -> io::Result<()> {
    let is_link = fs::read_link(path).is_ok();
    if is_link || !matches!(content, Content::Text(_)) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match content {
        Content::Absent => Ok(()),
        Content::Link(target) => symlink(target, path),
        Content::Text(text) => {
            write_atomic(path, text.as_bytes(), New { mode: 0o600 }).map(drop).map_err(io::Error::other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_join_changed_is_as_before() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::rooted(root.path(), Vec::new());
        for directory in ["/etc/ssh", "/root/.ssh"] {
            fs::create_dir_all(host.path(directory)).unwrap();
        }
        fs::write(host.path(FILES[0]), "PermitRootLogin prohibit-password\n").unwrap();
        fs::write(host.path(FILES[2]), "ssh-rsa AAAA admin\n").unwrap();
        keep(&host).unwrap();
        fs::write(host.path(FILES[0]), "PermitRootLogin yes\n").unwrap();
        fs::write(host.path(FILES[1]), "Ciphers aes128-ctr\n").unwrap();
        fs::remove_file(host.path(FILES[2])).unwrap();
        symlink("/etc/pve/priv/authorized_keys", host.path(FILES[2])).unwrap();
        keep(&host).unwrap();

        assert_eq!(put_back(&host), Ok(true));
        assert_eq!(host.read(FILES[0]).unwrap(), "PermitRootLogin prohibit-password\n");
        assert!(!host.path(FILES[1]).exists());
        assert_eq!(fs::read_link(host.path(FILES[2])).ok(), None);
        assert_eq!(host.read(FILES[2]).unwrap(), "ssh-rsa AAAA admin\n");
        assert!(!host.path(SAVED).exists());
    }
}
