//! The web server's log on this machine.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ansible_module::{ErrorCode, Failure};

/// How much of a log is read, from its end: some hundred thousand requests.
const TAIL: u64 = 64 << 20;

/// The log, with what logrotate has just put aside (`.1`, not yet compressed) before it.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let rotated = PathBuf::from(format!("{}.1", path.display()));
    let mut text = match tail(&rotated) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        before => before.map_err(|error| unreadable(&rotated, &error))?,
    };
    text.push_str(&tail(path).map_err(|error| unreadable(path, &error))?);
    Ok(text)
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let code =
        if error.kind() == io::ErrorKind::NotFound { ErrorCode::NOT_FOUND } else { ErrorCode::REFUSED };
    let msg = format!(
        "expected the web server's log at {}: {error}. This task runs where the web server writes it, with the right to \
         read it; a virtual host has a file of its own",
        path.display()
    );
    Failure::new(code, msg).with("log", path.display().to_string())
}
