//! What the inventory says: every file below `host_vars` that declares an identity.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ansible_module::{ErrorCode, Failure};

use crate::document::{self, Declared};

/// The file that this module writes.
pub(crate) const IDENTITY: &str = "identity.yml";

/// What Ansible reads besides files without an extension (ansible-core `YAML_FILENAME_EXTENSIONS`).
const EXTENSIONS: [&str; 3] = ["yml", "yaml", "json"];

/// How the variables of a host are laid out below `host_vars`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A directory with `vars.yml`.
    Directory,
    /// A directory without it.
    NoVars,
    /// One file, which leaves no place for a second one.
    PlainFile(PathBuf),
    Missing,
    /// The inventory has no `host_vars` at all.
    NoHostVars,
}

/// A file that declares an identity, or an `identity.yml` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) host: String,
    /// Below the inventory's directory: `host_vars/web01/identity.yml`.
    pub(crate) file: PathBuf,
    pub(crate) declared: Result<Declared, String>,
}

/// The inventory as far as identities are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) layout: Layout,
    /// The text of this host's `identity.yml`.
    pub(crate) text: Option<String>,
    pub(crate) sources: Vec<Source>,
}

/// `host_vars/HOST/identity.yml`.
pub(crate) fn identity_file(host: &str) -> PathBuf {
    Path::new("host_vars").join(host).join(IDENTITY)
}

/// Reads every variables file below `host_vars`, in the order of their names.
pub(crate) fn inventory(directory: &Path, host: &str) -> Result<Inventory, Failure> {
    let mut sources = Vec::new();
    for entry in entries(&directory.join("host_vars"))? {
        let Some(name) = file_name(&entry) else { continue };
        let of_host = if entry.is_dir() { name } else { stem(name) };
        collect(directory, of_host, &entry, &mut sources)?;
    }
    Ok(Inventory {
        layout: layout(directory, host),
        text: read(&directory.join(identity_file(host)))?.and_then(Result::ok),
        sources,
    })
}

/// Whether the host's identity is written in full, so that there is nothing to allocate.
pub(crate) fn is_settled(directory: &Path, host: &str) -> bool {
    let Ok(Some(Ok(text))) = read(&directory.join(identity_file(host))) else { return false };
    document::read(&text).is_ok_and(|declared| declared.vmid.is_some() && declared.mac.is_some())
}

fn layout(directory: &Path, host: &str) -> Layout {
    let host_vars = directory.join("host_vars");
    let own = host_vars.join(host);
    let plain = std::iter::once(own.clone())
        .chain(EXTENSIONS.iter().map(|extension| host_vars.join(format!("{host}.{extension}"))))
        .find(|path| path.is_file());
    match plain {
        _ if own.join("vars.yml").is_file() => Layout::Directory,
        _ if own.is_dir() => Layout::NoVars,
        Some(path) => Layout::PlainFile(path.strip_prefix(directory).unwrap_or(&path).to_owned()),
        None if host_vars.is_dir() => Layout::Missing,
        None => Layout::NoHostVars,
    }
}

/// One file, or what lies in a directory, as Ansible's `host_group_vars` would find it.
fn collect(directory: &Path, host: &str, path: &Path, sources: &mut Vec<Source>) -> Result<(), Failure> {
    if path.is_dir() {
        return entries(path)?.iter().try_for_each(|entry| collect(directory, host, entry, sources));
    }
    let file = path.strip_prefix(directory).unwrap_or(path).to_owned();
    let is_identity = file == identity_file(host);
    let declared = match read(path)? {
        Some(Ok(text)) if is_identity || document::declares(&text) => document::read(&text),
        Some(Err(why)) if is_identity => Err(why),
        _ => return Ok(()),
    };
    if declared.as_ref().is_ok_and(|declared| declared.is_empty()) {
        return Ok(());
    }
    sources.push(Source { host: host.to_owned(), file, declared });
    Ok(())
}

/// What Ansible would read of a directory: no hidden files, no backups, known extensions.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.and_then(Iterator::collect::<Result<Vec<_>, _>>),
    };
    let mut paths: Vec<PathBuf> = found
        .map_err(|error| unreadable(directory, &error))?
        .iter()
        .map(fs::DirEntry::path)
        .filter(|path| {
            let known =
                path.extension().is_none_or(|extension| EXTENSIONS.iter().any(|known| extension == *known));
            let name = file_name(path).unwrap_or_default();
            !name.starts_with('.') && !name.ends_with('~') && (known || path.is_dir())
        })
        .collect();
    paths.sort();
    Ok(paths)
}

/// The text of a file, a sentence when it is no text, nothing when it is no file (a pipe would never end).
fn read(path: &Path) -> Result<Option<Result<String, String>>, Failure> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(None);
    }
    match fs::read(path) {
        Ok(bytes) => {
            Ok(Some(String::from_utf8(bytes).map_err(|_| "expected UTF-8 text, found other bytes".into())))
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(ErrorCode::REFUSED, format!("cannot read {}: {error}", path.display()))
        .with("file", path.display().to_string())
}

fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The host that a plain variables file belongs to: `web01.yml` is of `web01`.
fn stem(name: &str) -> &str {
    let known = |(_, extension): &(&str, &str)| EXTENSIONS.contains(extension);
    name.rsplit_once('.').filter(known).map_or(name, |(stem, _)| stem)
}
