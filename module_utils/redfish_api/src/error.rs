use std::fmt;

use deadline::Expired;
use http_client::{HttpError, Method, Response};

use crate::messages::{self, Message};
use crate::power::PowerState;

/// Why something could not be read or written.
#[derive(Debug)]
pub enum Error {
    /// No complete answer.
    Http(HttpError),
    /// The time is over, or the run was interrupted.
    Expired(Expired),
    /// The account or its privileges were not accepted.
    Auth(Refusal),
    /// The BMC answered with an error.
    Refused(Refusal),
    /// The BMC refused again and again because it was busy, until the time was over.
    StillBusy { refusal: Refusal, why: Expired },
    /// A task that a write started ended badly.
    Task { monitor: String, state: String, said: String },
    /// Accepted, but the power state did not follow in time.
    PowerStuck { wanted: PowerState, found: PowerState, why: Expired },
    /// The override was not used up after power-on.
    NotConsumed { found: String, why: Expired },
    /// Which of several systems is meant is not clear, or none is the one asked for.
    Choice(String),
    /// The BMC does not offer what is needed.
    NotOffered(String),
    /// Between reading and writing the resource became one that must not be written to.
    Changed { uri: String },
    /// An answer that is no Redfish.
    Shape { uri: String, expected: &'static str },
    /// A write was asked for on a connection that only reads.
    ReadOnly { method: Method, uri: String },
}

/// An answer with an error status.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub method: Method,
    pub uri: String,
    pub status: u16,
    pub reason: String,
    pub messages: Vec<Message>,
}

impl Refusal {
    pub(crate) fn new(method: Method, uri: &str, answer: &Response) -> Self {
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        Self {
            method,
            uri: uri.to_owned(),
            status: answer.status,
            reason: answer.reason.clone(),
            messages: messages::of(&body),
        }
    }

    /// Whether a message is about this property.
    #[must_use]
    pub fn names(&self, property: &str) -> bool {
        self.messages.iter().any(|message| {
            message.about.iter().any(|about| about.rsplit(['/', '.']).next() == Some(property))
                || message.text.contains(property)
        })
    }

    /// Whether the system runs its power-on self-test and will take the same request afterwards.
    ///
    /// Ironic waits for `UnableToModifyDuringSystemPOST` (iLO), sushy for Dell's `SYS518`.
    pub(crate) fn is_post_in_progress(&self) -> bool {
        self.messages
            .iter()
            .any(|message| message.is("UnableToModifyDuringSystemPOST") || message.is("SYS518"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {} {}", self.method, self.uri, self.status, self.reason)?;
        match messages::short(&self.messages) {
            text if text.is_empty() => Ok(()),
            text => write!(f, ": {text}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::Expired(expired) => expired.fmt(f),
            Self::Auth(refusal) if refusal.status == 401 => write!(
                f,
                "{refusal}. Check user and password; some BMCs answer this as well when all their sessions are in use"
            ),
            Self::Auth(refusal) | Self::Refused(refusal) => refusal.fmt(f),
            Self::StillBusy { refusal, why } => write!(f, "{why}; the last answer was {refusal}"),
            Self::Task { monitor, state, said } => {
                write!(f, "the task {monitor} ended as {state}")?;
                if said.is_empty() { Ok(()) } else { write!(f, ": {said}") }
            }
            Self::PowerStuck { wanted, found, why } => {
                write!(f, "{why}: the BMC accepted it, and PowerState is still {found} instead of {wanted}")
            }
            Self::NotConsumed { found, why } => write!(
                f,
                "{why}: the system is on, and BootSourceOverrideEnabled still reads {found}: its firmware has not used \
                 the override"
            ),
            Self::Choice(text) | Self::NotOffered(text) => f.write_str(text),
            Self::Changed { uri } => {
                write!(f, "{uri} changed while it was being written, and must not be written to any more")
            }
            Self::Shape { uri, expected } => write!(f, "{uri}: expected {expected}; this is no Redfish"),
            Self::ReadOnly { method, uri } => write!(f, "{method} {uri}: only reads are allowed here"),
        }
    }
}

impl std::error::Error for Error {}

impl From<HttpError> for Error {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<Expired> for Error {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}
