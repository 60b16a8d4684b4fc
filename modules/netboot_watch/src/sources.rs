//! Files that grow and are rotated, and the journal: each line once.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ansible_module::{ErrorCode, Failure, Run};
use host::{Command, Host};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use netboot::log::{Event, Reader};
use serde::Deserialize;
use serde_json::Value;

use crate::args::Args;

/// Who says something about network boots in the journal.
const IDENTIFIERS: [&str; 6] = ["in.tftpd", "tftpd", "dnsmasq-tftp", "dnsmasq-dhcp", "kea-dhcp4", "nginx"];

/// Everything that is read, and what it said so far since the wanted time.
pub(crate) struct Sources {
    logs: Vec<Log>,
    journal: Option<Journal>,
    since: Timestamp,
    pub(crate) events: Vec<Event>,
}

impl Sources {
    pub(crate) fn open(args: &Args, host: &Host) -> Result<Self, Failure> {
        let logs: Vec<Log> = args.logs.iter().map(|path| Log::new(path)).collect();
        let journal = (args.journal && host.find("journalctl").is_some())
            .then(|| Journal::new(host.clone(), args.since));
        if journal.is_none() && logs.is_empty() {
            let msg = "journalctl is not installed here: give the log files in `logs`";
            return Err(Failure::not_found(msg));
        }
        Ok(Self { logs, journal, since: args.since, events: Vec::new() })
    }

    /// Reads what was said since the last time.
    pub(crate) fn read(&mut self, run: &Run) -> Result<(), Failure> {
        let mut found = Vec::new();
        for log in &mut self.logs {
            log.read(&mut found).map_err(|error| {
                let msg = format!("the log {} cannot be read: {error}", log.path.display());
                let code = if error.kind() == io::ErrorKind::NotFound {
                    ErrorCode::NOT_FOUND
                } else {
                    ErrorCode::COMMAND_FAILED
                };
                Failure::new(code, msg).with("log", log.path.display().to_string())
            })?;
        }
        if let Some(journal) = &mut self.journal {
            journal.read(&mut found, run)?;
        }
        // A time stamp of a whole second may be of the same moment.
        self.events.extend(found.into_iter().filter(|event| event.at.as_second() >= self.since.as_second()));
        Ok(())
    }
}

/// A file that another one replaces now and then.
struct Log {
    path: PathBuf,
    open: Option<File>,
    /// The beginning of a line that is not yet all there.
    rest: Vec<u8>,
    reader: Reader,
}

impl Log {
    fn new(path: &Path) -> Self {
        let reader = Reader::new(TimeZone::system(), Timestamp::now());
        Self { path: path.to_owned(), open: None, rest: Vec::new(), reader }
    }

    fn read(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        if self.open.is_none() {
            let rotated = PathBuf::from(format!("{}.1", self.path.display()));
            if let Ok(before) = File::open(rotated) {
                self.take(&before, events)?;
            }
            self.open = Some(File::open(&self.path)?);
        }
        if let Some(file) = self.open.take() {
            self.take(&file, events)?;
            self.open = Some(self.successor(file, events)?);
        }
        Ok(())
    }

    /// The file that has the path now: this one, or the one that came after a rotation.
    fn successor(&mut self, file: File, events: &mut Vec<Event>) -> io::Result<File> {
        let new = match File::open(&self.path) {
            Ok(new) => new,
            // Between a rename and the server's answer to its signal there is none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(file),
            Err(error) => return Err(error),
        };
        if new.metadata()?.ino() == file.metadata()?.ino() {
            return Ok(file);
        }
        self.take(&file, events)?;
        self.take(&new, events)?;
        Ok(new)
    }

    fn take(&mut self, mut file: &File, events: &mut Vec<Event>) -> io::Result<()> {
        file.read_to_end(&mut self.rest)?;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        let text = String::from_utf8_lossy(&lines);
        events.extend(text.lines().filter_map(|line| self.reader.line(line)));
        Ok(())
    }
}

struct Journal {
    host: Host,
    since: Timestamp,
    /// The last entry that was read.
    cursor: Option<String>,
    reader: Reader,
}

/// systemd.journal-fields(7); text that is no UTF-8 comes as a list of numbers, and says nothing to us.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "__CURSOR")]
    cursor: String,
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    microseconds: String,
    #[serde(rename = "SYSLOG_IDENTIFIER", default)]
    identifier: Value,
    #[serde(rename = "_PID", default)]
    pid: Value,
    #[serde(rename = "MESSAGE", default)]
    message: Value,
}

impl Journal {
    fn new(host: Host, since: Timestamp) -> Self {
        Self { host, since, cursor: None, reader: Reader::new(TimeZone::system(), Timestamp::now()) }
    }

    fn read(&mut self, events: &mut Vec<Event>, run: &Run) -> Result<(), Failure> {
        let from = match &self.cursor {
            Some(cursor) => format!("--after-cursor={cursor}"),
            None => format!("--since=@{}", self.since.as_second()),
        };
        let command = Command::new("journalctl")
            .args(["--no-pager", "--quiet", "--output=json"])
            .args(["--output-fields=MESSAGE,SYSLOG_IDENTIFIER,_PID", &from])
            .args(IDENTIFIERS.map(|name| format!("--identifier={name}")));
        let output =
            self.host.run(&command, &run.deadline).and_then(host::Output::ok).map_err(
                |error| match error {
                    host::CommandError::Stopped { why, .. } => Failure::from(why).while_doing(&error),
                    error => Failure::new(ErrorCode::COMMAND_FAILED, error.to_string()),
                },
            )?;
        for line in output.stdout_text().lines() {
            let entry: Entry = serde_json::from_str(line).map_err(|error| {
                Failure::new(
                    ErrorCode::COMMAND_FAILED,
                    format!("journalctl wrote a line that is no entry: {error}"),
                )
            })?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (name, pid, message) = (text(&entry.identifier), text(&entry.pid), text(&entry.message));
            let microseconds = entry.microseconds.parse().unwrap_or_default();
            events.extend(self.reader.entry(microseconds, &name, &pid, &message));
            self.cursor = Some(entry.cursor);
        }
        Ok(())
    }
}
