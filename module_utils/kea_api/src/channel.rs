//! How a command reaches the DHCPv4 server.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use deadline::Deadline;
use http_client::{Client, ErrorKind, Request};
use serde_json::{Deserializer, Value, json};

use crate::Error;

#[derive(Debug)]
pub(crate) enum Channel {
    Http(Box<Client>),
    Unix(PathBuf),
}

impl Channel {
    /// Sends one command and reads the answer as it comes.
    pub(crate) fn exchange(
        &self,
        command: &str,
        arguments: &Value,
        deadline: &Deadline,
    ) -> Result<Value, Error> {
        let mut message = json!({"command": command});
        if !arguments.is_null() {
            message["arguments"] = arguments.clone();
        }
        match self {
            Self::Http(client) => {
                // Without `service` the agent answers for itself; as plain text it refuses.
                message["service"] = json!(["dhcp4"]);
                over_http(client, command, message, deadline)
            }
            Self::Unix(path) => over_socket(path, &message, deadline)
                .map_err(|source| Error::Socket { path: path.clone(), source }),
        }
    }
}

fn over_http(client: &Client, command: &str, message: Value, deadline: &Deadline) -> Result<Value, Error> {
    let response = client.send(&Request::post("/").json(message), deadline)?;
    match response.status {
        401 => Err(Error::Unauthorized),
        _ if !response.is_success() => {
            let found = format!("HTTP {} {}", response.status, response.reason);
            Err(Error::protocol(command, "an answer of Kea", &found))
        }
        _ => Ok(response.json()?),
    }
}

/// One connection a command, as the server wants it.
fn over_socket(path: &Path, message: &Value, deadline: &Deadline) -> io::Result<Value> {
    let expired = |error| io::Error::new(io::ErrorKind::TimedOut, error);
    deadline.check().map_err(expired)?;
    let mut stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(deadline.remaining()))?;
    stream.set_read_timeout(Some(deadline.remaining()))?;
    stream.write_all(message.to_string().as_bytes())?;
    let answer = Deserializer::from_reader(&stream).into_iter::<Value>().next();
    match answer {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => {
            deadline.check().map_err(expired)?;
            Err(error.into())
        }
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer")),
    }
}

/// Whether the same command may answer when it is sent again; true for a broken exchange only.
pub(crate) fn is_passing(error: &Error) -> bool {
    match error {
        Error::Http(error) => {
            matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Protocol)
        }
        Error::Socket { source, .. } => {
            !matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        }
        _ => false,
    }
}
