//! What can go wrong between a caller and OPNsense.

use std::fmt;

use deadline::Expired;
use http_client::HttpError;
use serde_json::Value;

/// One field OPNsense refused, with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validation {
    /// As OPNsense names it, such as `reservation.ip_address`.
    pub field: String,
    pub message: String,
}

/// Why OPNsense did not do what it was asked to. `endpoint` is the path below `/api`.
#[derive(Debug)]
pub enum Error {
    /// No usable HTTP exchange.
    Http(HttpError),
    /// 401: the key and secret are not accepted.
    Unauthorized,
    /// 403: the user of the key lacks the privilege, under either spelling of the endpoint.
    Forbidden { endpoint: String },
    /// 404: this release has no such endpoint.
    NoEndpoint { endpoint: String },
    /// Any other HTTP error, with what the body says.
    Server { endpoint: String, status: u16, message: String },
    /// 200 with `failed`.
    Refused { endpoint: String, validations: Vec<Validation> },
    /// The entry is gone (`not found`).
    NotFound { endpoint: String },
    /// An answer that is not OPNsense's.
    Protocol { endpoint: String, expected: &'static str, found: String },
    /// A grid gave fewer rows than it matched.
    Partial { endpoint: String, rows: u64, total: u64 },
    /// The time is used up, or the run was interrupted.
    Expired(Expired),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::Unauthorized => f.write_str(
                "OPNsense does not accept the API key and secret (401): check both; a secret is shown only once, \
                 when the key is made",
            ),
            Self::Forbidden { endpoint } => write!(
                f,
                "OPNsense forbids {endpoint} (403): give the user of the API key the privilege {}",
                privilege(endpoint)
            ),
            Self::NoEndpoint { endpoint } => {
                write!(f, "this OPNsense release has no {endpoint} (404)")
            }
            Self::Server { endpoint, status, message } => {
                write!(f, "OPNsense answers {endpoint} with {status}: {message}")
            }
            Self::Refused { endpoint, validations } if validations.is_empty() => {
                write!(f, "OPNsense refuses {endpoint} and does not say why")
            }
            Self::Refused { endpoint, validations } => {
                let reasons: Vec<String> =
                    validations.iter().map(|one| format!("{}: {}", one.field, one.message)).collect();
                write!(f, "OPNsense refuses {endpoint}: {}", reasons.join("; "))
            }
            Self::NotFound { endpoint } => write!(f, "{endpoint}: OPNsense has no such entry any more"),
            Self::Protocol { endpoint, expected, found } => {
                write!(f, "{endpoint}: expected {expected}, found {found}: is this an OPNsense?")
            }
            Self::Partial { endpoint, rows, total } => {
                write!(f, "{endpoint} gave {rows} of {total} rows: nothing can be concluded from a part")
            }
            Self::Expired(expired) => expired.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Http(error) => Some(error),
            Self::Expired(expired) => Some(expired),
            _ => None,
        }
    }
}

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

/// So much of a wrong answer is shown: a firewall's settings hold passwords, and may be long.
const SHOWN: usize = 60;

/// An answer that is no JSON, in a few words.
pub(crate) fn beginning(text: &str) -> String {
    match text.trim() {
        "" => "nothing".to_owned(),
        text => format!("text that begins {:?}", text.chars().take(SHOWN).collect::<String>()),
    }
}

impl Error {
    pub(crate) fn protocol(endpoint: String, expected: &'static str, found: &Value) -> Self {
        Self::Protocol { endpoint, expected, found: found.to_string().chars().take(SHOWN).collect() }
    }

    /// Whether the request may have been carried out although no answer came: look before repeating it.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Http(error) if error.may_have_reached_server)
    }

    /// Whether the release or the key's privileges, not the request, are what is lacking.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Forbidden { .. } | Self::NoEndpoint { .. })
    }
}

/// Names as the user manager shows them (the ACL.xml files of the models).
fn privilege(endpoint: &str) -> &'static str {
    if endpoint.starts_with("unbound/") { "\"Services: Unbound\"" } else { "\"Services: DHCP: Kea(v4)\"" }
}
