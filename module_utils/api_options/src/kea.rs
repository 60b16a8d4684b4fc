//! How Kea is reached.

use std::io;
use std::path::PathBuf;

use ansible_module::{ErrorCode, Failure, Opt, Rule, Table};
use http_client::Auth;
use kea_api::{Error, Server};
use secrecy::SecretString;
use serde::Deserialize;

use crate::tls::{TlsOptions, http_failure};

/// A change runs, and Kea could not write it to its file.
const NOT_PERSISTED: ErrorCode = ErrorCode::custom("not_persisted");

/// The options of [`kea_table`].
#[derive(Clone, Debug, Deserialize)]
pub struct KeaOptions {
    kea_url: Option<String>,
    kea_socket: Option<PathBuf>,
    kea_user: Option<String>,
    kea_password: Option<SecretString>,
}

/// `kea_url` or `kea_socket`, `kea_user` and `kea_password`. The TLS options come from another table of the module.
#[must_use]
pub fn kea_table() -> Table {
    Table::new(vec![
        Opt::str("kea_url").env(&["KEA_URL"]).doc(
            "URL of the Kea control agent, or of the DHCPv4 server's own HTTP socket (Kea 3), such as \
                  V(http://127.0.0.1:8000/).",
        ),
        Opt::path("kea_socket").env(&["KEA_SOCKET"]).doc(
            "UNIX control socket of the DHCPv4 server, on the machine the module runs on, such as \
                  V(/run/kea/kea4-ctrl-socket).",
        ),
        Opt::str("kea_user")
            .env(&["KEA_USER"])
            .doc("User for O(kea_url), when it asks for basic authentication."),
        Opt::str("kea_password").env(&["KEA_PASSWORD"]).no_log().doc("Password of O(kea_user)."),
    ])
    .rule(Rule::MutuallyExclusive(vec!["kea_url", "kea_socket"]))
    .rule(Rule::RequiredTogether(vec!["kea_user", "kea_password"]))
}

impl KeaOptions {
    /// The server as the user named it, for messages, locks and marks.
    #[must_use]
    pub fn address(&self) -> String {
        match (&self.kea_url, &self.kea_socket) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            (None, Some(path)) => path.display().to_string(),
            (None, None) => String::new(),
        }
    }

    /// The lock of this server, and its mark.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("kea {}", self.address())
    }

    /// # Errors
    /// `bad_argument` when neither URL nor socket is given, or the URL is none.
    pub fn connect(&self, tls: &TlsOptions) -> Result<Server, Failure> {
        let Some(url) = &self.kea_url else {
            let missing =
                || Failure::bad_argument("kea_url", "one of `kea_url`, `kea_socket` is needed to reach Kea");
            return Ok(Server::unix(self.kea_socket.clone().ok_or_else(missing)?));
        };
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            let why = format!("expected http://HOST:PORT/ or https://HOST:PORT/, found `{url}`");
            return Err(Failure::bad_argument("kea_url", why));
        }
        let authority = url.split('/').nth(2).unwrap_or_default();
        if authority.is_empty() || authority.contains('@') {
            // Not quoted: it may hold a password.
            let why =
                "expected http://HOST:PORT/; user and password belong into `kea_user` and `kea_password`";
            return Err(Failure::bad_argument("kea_url", why));
        }
        let auth = match (&self.kea_user, &self.kea_password) {
            (Some(user), Some(password)) => Auth::Basic { user: user.clone(), password: password.clone() },
            _ => Auth::None,
        };
        Ok(Server::http(tls.client(url.clone(), auth)?))
    }
}

/// What an error of Kea is to Ansible.
#[must_use]
pub fn kea_failure(error: Error) -> Failure {
    let mut msg = error.to_string();
    if matches!(error, Error::NotPersisted { .. }) {
        msg.push_str(
            "; or run as root on Kea's own machine with `persist: file`, and the module writes the file",
        );
    }
    let code = match error {
        Error::Http(error) => return http_failure(error),
        Error::Expired(expired) => return expired.into(),
        Error::Socket { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => ErrorCode::AUTH,
        Error::Socket { source, .. } if source.kind() == io::ErrorKind::TimedOut => ErrorCode::TIMEOUT,
        Error::Socket { .. } => ErrorCode::UNREACHABLE,
        Error::Unauthorized => ErrorCode::AUTH,
        Error::Refused { .. } | Error::NoFile(_) => ErrorCode::REFUSED,
        Error::Raced => ErrorCode::CONFLICT,
        Error::NoSubnet { .. } => ErrorCode::NOT_FOUND,
        Error::NotPersisted { .. } => NOT_PERSISTED,
        Error::Protocol { .. } | Error::Unsupported { .. } => ErrorCode::API_ERROR,
    };
    Failure::new(code, msg)
}

#[cfg(test)]
mod tests {
    use ansible_module::{Arguments, Spec};
    use serde_json::json;

    use super::*;
    use crate::tls::{Environment, tls_table};

    #[test]
    fn a_url_with_a_password_or_without_a_host_is_refused_unquoted() {
        let spec = Spec::new("test", "A test").options(kea_table().with(tls_table(&Environment {
            validate_certs: "KEA_VALIDATE_CERTS",
            ca_path: "KEA_CA_PATH",
            tls_fingerprint: "KEA_TLS_FINGERPRINT",
        })));
        for url in ["http://anvil:sesame@127.0.0.1:8000/", "http://"] {
            let arguments = Arguments::for_tests(&spec, json!({"kea_url": url})).unwrap();
            let options: KeaOptions = arguments.parse().unwrap();
            let refusal = options.connect(&arguments.parse().unwrap()).unwrap_err();
            assert_eq!(
                refusal.msg,
                "option `kea_url`: expected http://HOST:PORT/; user and password belong into `kea_user` and `kea_password`"
            );
        }
    }

    #[test]
    fn an_error_keeps_its_kind() {
        let socket = |kind: io::ErrorKind| Error::Socket { path: "/kea.sock".into(), source: kind.into() };
        let text = || "no".to_owned();
        for (error, code) in [
            (socket(io::ErrorKind::NotFound), "unreachable"),
            (socket(io::ErrorKind::PermissionDenied), "auth"),
            (socket(io::ErrorKind::TimedOut), "timeout"),
            (Error::Unauthorized, "auth"),
            (Error::Refused { command: text(), text: text() }, "refused"),
            (Error::Raced, "conflict"),
            (Error::Unsupported { command: text() }, "api_error"),
            (Error::NotPersisted { text: text(), restored: Ok(()) }, "not_persisted"),
        ] {
            let failure = kea_failure(error);
            assert_eq!(failure.code.as_str(), code, "{failure}");
        }
    }
}
