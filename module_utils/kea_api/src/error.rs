//! What can go wrong between a caller and Kea.

use std::fmt;
use std::io;
use std::path::PathBuf;

use deadline::Expired;

/// Why Kea did not do what it was asked to.
#[derive(Debug)]
pub enum Error {
    /// No usable HTTP exchange.
    Http(http_client::HttpError),
    /// The UNIX socket could not be used.
    Socket { path: PathBuf, source: io::Error },
    /// Basic authentication is asked for, and what was sent is not accepted.
    Unauthorized,
    /// An answer that is not Kea's.
    Protocol { command: String, expected: String, found: String },
    /// Result 1: Kea refuses, in its own words.
    Refused { command: String, text: String },
    /// Result 2: the server, or the hook it would need, does not know the command.
    Unsupported { command: String },
    /// No subnet of that id.
    NoSubnet { id: u64 },
    /// Somebody else changed the configuration between reading and setting it.
    Raced,
    /// The reservation runs, but not from the file: a restart would forget it. `restored` tells whether the old
    /// configuration runs again, or why not.
    NotPersisted { text: String, restored: Result<(), String> },
    /// The server's configuration file on this machine cannot be found, checked or written.
    NoFile(String),
    /// The time is used up, or the run was interrupted.
    Expired(Expired),
}

impl Error {
    pub(crate) fn protocol(command: &str, expected: &str, found: &str) -> Self {
        let (command, expected, found) = (command.to_owned(), expected.to_owned(), found.to_owned());
        Self::Protocol { command, expected, found }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::Socket { path, source } => {
                write!(f, "Kea's control socket {}: {source}", path.display())?;
                match source.kind() {
                    io::ErrorKind::NotFound => f.write_str(": is kea-dhcp4 running on this host?"),
                    io::ErrorKind::PermissionDenied => f.write_str(": run as root or as Kea's own user"),
                    _ => Ok(()),
                }
            }
            Self::Unauthorized => f.write_str(
                "Kea asks for basic authentication and does not accept the user and password given (401)",
            ),
            Self::Protocol { command, expected, found } => {
                write!(
                    f,
                    "{command}: expected {expected}, found {found}: is this the control agent of a DHCPv4 server?"
                )
            }
            Self::Refused { command, text } => write!(f, "Kea refuses {command}: {text}"),
            Self::Unsupported { command } => write!(f, "this Kea does not know the command {command}"),
            Self::NoSubnet { id } => write!(f, "no subnet with id {id} in Kea's configuration"),
            Self::Raced => f.write_str(
                "somebody else changed Kea's configuration while this change was prepared; nothing was written: \
                 run again",
            ),
            Self::NotPersisted { text, restored } => {
                write!(f, "Kea could not write its configuration file, so a restart would forget the change: {text}. ")?;
                match restored {
                    Ok(()) => f.write_str("The old configuration was put back. ")?,
                    Err(why) => {
                        write!(f, "Putting the old configuration back failed too: {why}; the change runs until the next restart. ")?;
                    }
                }
                f.write_str(
                    "Cure: let the user Kea runs as (_kea on Debian) write the directory of its configuration file, and \
                     allow it in /etc/apparmor.d/local/usr.sbin.kea-dhcp4 (\"/etc/kea/** rw,\"), then reload AppArmor",
                )
            }
            Self::NoFile(why) => write!(f, "Kea's configuration file: {why}"),
            Self::Expired(expired) => expired.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Http(error) => Some(error),
            Self::Socket { source, .. } => Some(source),
            Self::Expired(expired) => Some(expired),
            _ => None,
        }
    }
}

impl From<Expired> for Error {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}

impl From<http_client::HttpError> for Error {
    fn from(error: http_client::HttpError) -> Self {
        Self::Http(error)
    }
}
