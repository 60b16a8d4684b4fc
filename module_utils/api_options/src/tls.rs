//! How a server is believed, and what happens when no answer comes.

use std::path::PathBuf;
use std::time::Duration;

use ansible_module::{ErrorCode, Failure, Opt, Table};
use http_client::{Auth, Client, ClientConfig, ErrorKind, HttpError, TlsPolicy, parse_fingerprint};
use serde::Deserialize;

const LONGEST_CONNECT: Duration = Duration::from_secs(10);

/// `validate_certs`, `ca_path`, `tls_fingerprint` and `api_timeout`.
#[derive(Clone, Debug, Deserialize)]
pub struct TlsOptions {
    validate_certs: bool,
    ca_path: Option<PathBuf>,
    tls_fingerprint: Option<String>,
    api_timeout: u64,
}

/// Whom to believe, and for how long to wait.
pub(crate) struct Settings {
    pub(crate) policy: TlsPolicy,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
}

/// The environment variables of one API's options.
pub(crate) struct Environment {
    pub(crate) validate_certs: &'static str,
    pub(crate) ca_path: &'static str,
    pub(crate) tls_fingerprint: &'static str,
}

pub(crate) fn tls_table(environment: &Environment) -> Table {
    Table::new(vec![
        Opt::bool("validate_certs")
            .default(true)
            .env(&[environment.validate_certs])
            .doc("Whether the server's certificate is checked. With V(false), anybody on the way can read the credentials: \
                  better give O(ca_path) or O(tls_fingerprint)."),
        Opt::path("ca_path")
            .env(&[environment.ca_path])
            .doc("PEM file with the certificate authorities to believe, or with the server's own certificate."),
        Opt::str("tls_fingerprint")
            .env(&[environment.tls_fingerprint])
            .doc("SHA-256 fingerprint of the server's certificate; only that certificate is then believed, and no credential \
                  is sent to any other server."),
        Opt::int("api_timeout").default(60).doc("Seconds one request may take."),
    ])
}

impl TlsOptions {
    /// # Errors
    /// `bad_argument` for a fingerprint that is none, or a time that is none.
    pub fn client(&self, base_url: String, auth: Auth) -> Result<Client, Failure> {
        let Settings { policy, connect_timeout, request_timeout } = self.settings()?;
        Client::new(ClientConfig { base_url, tls: policy, auth, connect_timeout, request_timeout })
            .map_err(http_failure)
    }

    /// The options as an API client takes them.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        if !(1..=3600).contains(&self.api_timeout) {
            return Err(Failure::bad_argument("api_timeout", "expected 1 to 3600 seconds"));
        }
        let request_timeout = Duration::from_secs(self.api_timeout);
        let connect_timeout = LONGEST_CONNECT.min(request_timeout);
        Ok(Settings { policy: self.policy()?, connect_timeout, request_timeout })
    }

    fn policy(&self) -> Result<TlsPolicy, Failure> {
        if let Some(text) = &self.tls_fingerprint {
            let fingerprint =
                parse_fingerprint(text).map_err(|why| Failure::bad_argument("tls_fingerprint", why))?;
            return Ok(TlsPolicy::Fingerprint(fingerprint));
        }
        Ok(match &self.ca_path {
            _ if !self.validate_certs => TlsPolicy::NoVerification,
            Some(path) => TlsPolicy::CaPath(path.clone()),
            None => TlsPolicy::SystemStore,
        })
    }
}

/// A request without an answer.
#[must_use]
pub fn http_failure(error: HttpError) -> Failure {
    let code = match error.kind {
        ErrorKind::Tls => ErrorCode::TLS,
        ErrorKind::Unreachable | ErrorKind::Protocol => ErrorCode::UNREACHABLE,
        ErrorKind::Timeout => ErrorCode::TIMEOUT,
        ErrorKind::Interrupted => ErrorCode::INTERRUPTED,
    };
    Failure::new(code, error.message)
}
