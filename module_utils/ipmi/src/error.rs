use std::fmt;

use deadline::Expired;
use host::CommandError;

use crate::tool::Power;

/// Why something could not be read or written.
#[derive(Debug)]
pub enum Error {
    /// `ipmitool` is missing, could not be run, or was stopped.
    Command(CommandError),
    /// No session with the BMC. IPMI does not tell wrong credentials from a wrong cipher suite or no answer.
    NoSession { host: String, said: String },
    /// The BMC refused, or the answer is another than a success has.
    Unexpected { command: String, expected: &'static str, said: String },
    /// Accepted, but the power state did not follow in time.
    PowerStuck { wanted: Power, found: Power, why: Expired },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(error) => error.fmt(f),
            Self::NoSession { host, said } => write!(
                f,
                "no IPMI session with {host}: {said}. Check user and password, that IPMI over LAN is enabled, and the \
                 cipher suite"
            ),
            Self::Unexpected { command, expected, said } => {
                let said = if said.is_empty() { "(nothing)" } else { said };
                write!(f, "`{command}`: expected `{expected}`, ipmitool said: {said}")
            }
            Self::PowerStuck { wanted, found, why } => {
                write!(f, "{why}: the BMC accepted it, and the power is still {found} instead of {wanted}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}
