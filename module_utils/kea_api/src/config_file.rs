//! The file a server of this machine was started with, written in the server's place.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use deadline::Deadline;
use host::{Command, Host, New, write_atomic};

use crate::{Dhcp4Config, Error};

/// A new file is for its owner alone: the configuration may hold passwords.
const NEW: New = New { mode: 0o600 };

/// The configuration file of a server on this machine, and the program that reads it.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    program: PathBuf,
}

impl ConfigFile {
    #[must_use]
    pub fn new(path: PathBuf, program: PathBuf) -> Self {
        Self { path, program }
    }

    /// What the process with this number was started from: its program, and the file behind `-c`.
    ///
    /// # Errors
    /// [`Error::NoFile`] when there is no such process here, or it names no file.
    pub fn of_process(pid: u64) -> Result<Self, Error> {
        let no_file = |why: String| Error::NoFile(format!("process {pid}, which Kea says it is, {why}"));
        let process = PathBuf::from(format!("/proc/{pid}"));
        let unseen = |error: std::io::Error| no_file(format!("cannot be looked at: {error}"));
        let program = fs::read_link(process.join("exe")).map_err(unseen)?;
        let cmdline = fs::read(process.join("cmdline")).map_err(unseen)?;
        let words: Vec<String> =
            cmdline.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let path = file_option(&words)
            .ok_or_else(|| no_file("was started without a configuration file (-c)".to_owned()))?;
        let directory = fs::read_link(process.join("cwd")).map_err(unseen)?;
        Ok(Self { path: directory.join(path), program })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the server's own program judge a configuration (`-t`), from a temporary file beside the real one, which is
    /// where the server may read.
    ///
    /// # Errors
    /// [`Error::Refused`] with the program's words; [`Error::NoFile`] when it cannot be asked.
    pub fn check(&self, config: &Dhcp4Config, deadline: &Deadline) -> Result<(), Error> {
        let cannot = |error: &dyn std::fmt::Display| {
            Error::NoFile(format!("{} cannot be prepared: {error}", self.path.display()))
        };
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::Builder::new()
            .prefix(".anvil-")
            .suffix(".conf")
            .tempfile_in(directory)
            .map_err(|error| cannot(&error))?;
        file.write_all(&content(config)).map_err(|error| cannot(&error))?;
        let test = Command::new(self.program.display().to_string()).arg("-t").arg(file.path());
        let output = Host::local().run(&test, deadline).map_err(|error| cannot(&error))?;
        if output.code() == Some(0) {
            return Ok(());
        }
        let words = format!("{}{}", output.stdout_text(), output.stderr_text());
        Err(Error::Refused {
            command: format!("{} -t", self.program.display()),
            text: words.trim().to_owned(),
        })
    }

    /// Replaces the file atomically; it keeps its owner and its mode.
    ///
    /// # Errors
    /// Why not, in a sentence.
    pub fn write(&self, config: &Dhcp4Config) -> Result<(), String> {
        write_atomic(&self.path, &content(config), NEW).map(drop).map_err(|error| error.to_string())
    }
}

/// The value of `-c`, in one word with it or in the next.
fn file_option(words: &[String]) -> Option<&str> {
    let place = words.iter().position(|word| word.starts_with("-c"))?;
    match words[place].strip_prefix("-c") {
        Some("") => words.get(place + 1).map(String::as_str),
        attached => attached,
    }
}

fn content(config: &Dhcp4Config) -> Vec<u8> {
    format!("{:#}\n", config.arguments()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_command_line() {
        let found = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            file_option(&words).map(str::to_owned)
        };
        assert_eq!(found("kea-dhcp4 -c /etc/kea/kea-dhcp4.conf").as_deref(), Some("/etc/kea/kea-dhcp4.conf"));
        assert_eq!(found("kea-dhcp4 -d -c/etc/kea.conf").as_deref(), Some("/etc/kea.conf"));
        assert_eq!(found("kea-dhcp4 -d"), None);
        assert_eq!(found("kea-dhcp4 -c"), None);
    }

    #[test]
    fn a_process_that_is_not_here_is_told() {
        let error = ConfigFile::of_process(u64::from(u32::MAX)).unwrap_err().to_string();
        assert!(
            error.contains("process 4294967295, which Kea says it is, cannot be looked at: No such file"),
            "{error}"
        );
        let error = ConfigFile::of_process(std::process::id().into()).unwrap_err().to_string();
        assert!(error.contains("was started without a configuration file (-c)"), "{error}");
    }
}
