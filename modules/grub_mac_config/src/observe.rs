//! Every read: the directory, the files in it, the script's syntax, SELinux.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use ansible_module::{ErrorCode, Failure, Run};
use host::{Command, FileLock, Host, lock_directory};
use netboot::{FILE_PREFIX, Ownership, Syntax, check_script};

use crate::args::Args;

/// Present where SELinux is in use.
const SELINUX: &str = "/sys/fs/selinux/enforce";
/// No file of ours is longer, so one that is belongs to somebody else.
const LONGEST: u64 = 1 << 20;

/// The directory as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) exists: bool,
    /// Everything called `grub.cfg-*`, by name; on a file system that does not tell case apart, also under the names
    /// asked for.
    pub(crate) files: BTreeMap<String, Found>,
    /// Owner and group that files here shall have: those of `grub.cfg`, else of the directory.
    pub(crate) owner: (u32, u32),
    /// Files whose SELinux label is not the one of the place.
    pub(crate) mislabelled: BTreeSet<String>,
    pub(crate) syntax: Syntax,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    File {
        content: Vec<u8>,
        mode: u32,
        owner: (u32, u32),
    },
    /// Something that is never ours: what it is.
    Other(&'static str),
}

impl Found {
    pub(crate) fn ownership(&self) -> Option<Ownership> {
        match self {
            Self::File { content, .. } => Ownership::of(content),
            Self::Other(_) => None,
        }
    }
}

/// `None` where there is no directory, and so nothing to protect.
pub(crate) fn lock(args: &Args, host: &Host, run: &Run) -> Result<Option<FileLock>, Failure> {
    let directory = host.path(&args.prefix_dir);
    if !directory.is_dir() {
        return Ok(None);
    }
    lock_directory(&directory, &run.deadline).map(Some).map_err(|error| {
        run.check().err().unwrap_or_else(|| Failure::new(ErrorCode::COMMAND_FAILED, error.to_string()))
    })
}

pub(crate) fn observe(args: &Args, host: &Host, run: &Run) -> Result<State, Failure> {
    let directory = host.path(&args.prefix_dir);
    let metadata = match fs::metadata(&directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
        Err(error) => return Err(broken(&args.prefix_dir, &error)),
    };
    let like = fs::metadata(directory.join("grub.cfg")).unwrap_or(metadata);
    let mut names: BTreeSet<String> = args.wanted.iter().map(|file| file.name.clone()).collect();
    for entry in fs::read_dir(&directory).map_err(|error| broken(&args.prefix_dir, &error))? {
        let name = entry.map_err(|error| broken(&args.prefix_dir, &error))?.file_name();
        names.extend(name.to_str().filter(|name| name.starts_with(FILE_PREFIX)).map(str::to_owned));
    }
    let mut files = BTreeMap::new();
    for name in names {
        if let Some(found) =
            read(directory.join(&name)).map_err(|error| broken(&args.prefix_dir.join(&name), &error))?
        {
            files.insert(name, found);
        }
    }
    Ok(State {
        exists: true,
        mislabelled: mislabelled(args, host, &files, run)?,
        files,
        owner: (like.uid(), like.gid()),
        syntax: syntax(args, host, run)?,
    })
}

fn read(path: PathBuf) -> io::Result<Option<Found>> {
    let metadata = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = match metadata.file_type() {
        kind if kind.is_symlink() => Found::Other("a symbolic link"),
        kind if kind.is_dir() => Found::Other("a directory"),
        kind if !kind.is_file() => Found::Other("no regular file"),
        _ if metadata.len() > LONGEST => Found::Other("a file too long to be ours"),
        _ => Found::File {
            content: fs::read(&path)?,
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
        },
    };
    Ok(Some(found))
}

/// restorecon(8) says what it would relabel: `Would relabel PATH from ... to ...`.
fn mislabelled(
    args: &Args,
    host: &Host,
    files: &BTreeMap<String, Found>,
    run: &Run,
) -> Result<BTreeSet<String>, Failure> {
    let present: Vec<&String> =
        args.wanted.iter().map(|file| &file.name).filter(|name| files.contains_key(*name)).collect();
    if present.is_empty() || !selinux_is_on(host) {
        return Ok(BTreeSet::new());
    }
    let paths = present.iter().map(|name| args.prefix_dir.join(name));
    let output = host
        .run(&Command::new("restorecon").args(["-n", "-v"]).args(paths), &run.deadline)
        .and_then(host::Output::ok)
        .map_err(command_failure)?;
    let text = output.stdout_text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("Would relabel ")?.split_once(" from "));
    let names = lines.filter_map(|(path, _)| Some(path.rsplit_once('/')?.1.to_owned()));
    Ok(names.collect())
}

pub(crate) fn selinux_is_on(host: &Host) -> bool {
    host.path(SELINUX).exists() && host.find("restorecon").is_some()
}

/// The files differ in their first line only.
fn syntax(args: &Args, host: &Host, run: &Run) -> Result<Syntax, Failure> {
    match args.wanted.first() {
        Some(file) => check_script(host, file.content.as_bytes(), &run.deadline).map_err(command_failure),
        None => Ok(Syntax::NotChecked),
    }
}

pub(crate) fn command_failure(error: host::CommandError) -> Failure {
    match error {
        host::CommandError::Stopped { why, .. } => Failure::from(why).while_doing(&error),
        error => Failure::new(ErrorCode::COMMAND_FAILED, error.to_string()),
    }
}

fn broken(path: &std::path::Path, error: &io::Error) -> Failure {
    Failure::refused(format!("{} cannot be read: {error}", path.display()))
}
