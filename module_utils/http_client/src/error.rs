use std::error::Error;
use std::fmt;

use deadline::Expired;

/// Why no answer came. An answer with an error status is not an [`HttpError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The certificate was refused, or no common TLS version or cipher was found. No request was sent.
    Tls,
    /// No connection: name not found, refused, no route, or no answer within the connect timeout.
    Unreachable,
    /// No answer within the request timeout or the deadline.
    Timeout,
    /// SIGINT or SIGTERM arrived.
    Interrupted,
    /// The connection broke, or what came over it is not what was agreed.
    Protocol,
}

/// A request without a usable answer.
#[derive(Clone, Debug)]
pub struct HttpError {
    pub kind: ErrorKind,
    /// A whole sentence: what was asked of whom, what happened, and the cure where there is one.
    pub message: String,
    /// False only when it is certain that the server never saw the request.
    pub may_have_reached_server: bool,
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for HttpError {}

impl From<Expired> for HttpError {
    /// The run is over before a request was sent.
    fn from(expired: Expired) -> Self {
        Self::of_expiry(expired, false)
    }
}

impl HttpError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), may_have_reached_server: false }
    }

    pub(crate) fn maybe_reached(mut self) -> Self {
        self.may_have_reached_server = true;
        self
    }

    pub(crate) fn of_expiry(expired: Expired, may_have_reached_server: bool) -> Self {
        let kind = match expired {
            Expired::TimedOut { .. } => ErrorKind::Timeout,
            Expired::Interrupted => ErrorKind::Interrupted,
        };
        Self { kind, message: expired.to_string(), may_have_reached_server }
    }

    /// What reqwest reports, in words for the user. `refusal` is what our certificate verifier said.
    pub(crate) fn of_transport(target: &str, refusal: Option<String>, error: &reqwest::Error) -> Self {
        if let Some(refusal) = refusal {
            return Self::new(ErrorKind::Tls, format!("{target}: {refusal}"));
        }
        if let Some(tls) = find_cause::<rustls::Error>(error) {
            return Self::new(ErrorKind::Tls, format!("{target}: {}", explain_tls(tls)));
        }
        let cause = root_cause(error);
        if error.is_connect() {
            let cause =
                if error.is_timeout() { "no answer within the connect timeout".to_owned() } else { cause };
            return Self::new(
                ErrorKind::Unreachable,
                format!(
                    "{target}: no connection: {cause}. Check host and port, and that the service runs there"
                ),
            );
        }
        if error.is_timeout() {
            return Self::new(ErrorKind::Timeout, format!("{target}: no complete answer in time"))
                .maybe_reached();
        }
        if error.is_builder() {
            return Self::new(ErrorKind::Protocol, format!("{target}: this is not a request: {cause}"));
        }
        Self::new(ErrorKind::Protocol, format!("{target}: the connection broke: {cause}")).maybe_reached()
    }
}

fn explain_tls(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, Error as Tls};
    match error {
        Tls::PeerIncompatible(_)
        | Tls::AlertReceived(
            Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity,
        ) => {
            format!(
                "no common TLS version or cipher ({error}). TLS 1.2 or 1.3 with (EC)DHE key exchange is needed: \
                 a server that offers only TLS 1.1 and older, or only RSA key exchange, must be updated or put \
                 behind a TLS proxy"
            )
        }
        Tls::InvalidMessage(_) => {
            format!("the server does not speak TLS here ({error}). Is this a plain http port?")
        }
        _ => format!("TLS failed: {error}"),
    }
}

/// The first error of type `T` in the chain, also inside an `io::Error`, which hides what it wraps.
fn find_cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    chain(error).find_map(|link| link.downcast_ref::<T>())
}

fn root_cause(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |link| cause_of(*link))
}

fn cause_of<'a>(link: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match link.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => link.source(),
    }
}
