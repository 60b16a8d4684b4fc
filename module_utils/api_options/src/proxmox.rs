//! How Proxmox VE is reached.

use ansible_module::{ErrorCode, Failure, Opt, Rule, Table};
use proxmox_api::{ApiError, Connection, Credentials, Proxmox};
use secrecy::SecretString;
use serde::Deserialize;

use crate::tls::{Environment, TlsOptions, http_failure, tls_table};

/// The options of [`proxmox_table`].
#[derive(Clone, Debug, Deserialize)]
pub struct ProxmoxOptions {
    api_host: Option<String>,
    api_port: u16,
    api_user: String,
    api_password: Option<SecretString>,
    api_token_id: Option<String>,
    api_token_secret: Option<SecretString>,
    #[serde(flatten)]
    tls: TlsOptions,
}

/// `api_host`, `api_port`, `api_user`, a token or a password, and the TLS options, named and with the
/// environment variables that users of community.proxmox know.
///
/// With `required`, the host must be given; a module that can do without the API says itself when it is.
#[must_use]
pub fn proxmox_table(required: bool) -> Table {
    let host = Opt::str("api_host")
        .env(&["PROXMOX_HOST"])
        .doc("Name or address of a Proxmox VE node; any node of a cluster answers for all.");
    let table = Table::new(vec![
        if required { host.required() } else { host },
        Opt::int("api_port").default(8006).env(&["PROXMOX_PORT"]).doc("HTTPS port of the API."),
        Opt::str("api_user")
            .default("root@pam")
            .env(&["PROXMOX_USER"])
            .doc("User with its realm, such as V(anvil@pve)."),
        Opt::str("api_password").env(&["PROXMOX_PASSWORD"]).no_log().doc(
            "Password of O(api_user). A user with a second factor cannot sign in this way; use a token.",
        ),
        Opt::str("api_token_id")
            .env(&["PROXMOX_TOKEN_ID"])
            .doc("Name of an API token of O(api_user): the part behind the C(!)."),
        Opt::str("api_token_secret")
            .env(&["PROXMOX_TOKEN_SECRET"])
            .no_log()
            .doc("Secret of the token. When a token and a password are given, the token is used."),
    ])
    .with(tls_table(&Environment {
        validate_certs: "PROXMOX_VALIDATE_CERTS",
        ca_path: "PROXMOX_CA_PATH",
        tls_fingerprint: "PROXMOX_TLS_FINGERPRINT",
    }));
    // Of a module that can do without the API, half a login in the environment is none of its business.
    if required {
        table.rule(Rule::RequiredTogether(vec!["api_token_id", "api_token_secret"]))
    } else {
        table
    }
}

impl ProxmoxOptions {
    /// Whether the task names a server.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.api_host.is_some()
    }

    /// The server's name, for messages and locks.
    #[must_use]
    pub fn host(&self) -> &str {
        self.api_host.as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.api_port
    }

    /// What the modules that write to one VM hold meanwhile, all under one name.
    #[must_use]
    pub fn vm_lock(&self, vmid: impl std::fmt::Display) -> String {
        format!("proxmox vm {vmid} at {}:{}", self.host(), self.port())
    }

    /// Prepares a session; nothing is sent yet.
    ///
    /// # Errors
    /// `bad_argument` when host or credentials are missing or cannot be used, `tls` for a bad CA file.
    pub fn connect(&self) -> Result<Proxmox, Failure> {
        let host = self.host();
        if host.is_empty() || host.contains(['/', '@', ' ']) {
            let why = format!(
                "expected a host name or an address, found `{host}`: leave out https:// and the path"
            );
            return Err(Failure::bad_argument("api_host", why));
        }
        let settings = self.tls.settings()?;
        let connection = Connection {
            host: host.to_owned(),
            port: self.api_port,
            tls: settings.policy,
            credentials: self.credentials()?,
            connect_timeout: settings.connect_timeout,
            request_timeout: settings.request_timeout,
        };
        Proxmox::new(connection).map_err(proxmox_failure)
    }

    fn credentials(&self) -> Result<Credentials, Failure> {
        let user = self.api_user.clone();
        if !user.contains('@') {
            let why = format!("expected a user with its realm, such as `{user}@pam` or `{user}@pve`");
            return Err(Failure::bad_argument("api_user", why));
        }
        match (&self.api_token_id, &self.api_token_secret, &self.api_password) {
            (Some(id), Some(secret), _) => {
                let own = format!("{user}!");
                let id = id.strip_prefix(&own).unwrap_or(id);
                if id.contains(['!', '@', '=']) {
                    let why = format!("expected the part behind the `!` of a token of {user}, found `{id}`");
                    return Err(Failure::bad_argument("api_token_id", why));
                }
                Ok(Credentials::Token { user, id: id.to_owned(), secret: secret.clone() })
            }
            (_, _, Some(password)) => Ok(Credentials::Password { user, password: password.clone() }),
            _ => Err(Failure::bad_argument(
                "api_token_id",
                "missing: give api_token_id with api_token_secret, or api_password",
            )),
        }
    }
}

/// What an error of Proxmox VE's API is to Ansible.
#[must_use]
pub fn proxmox_failure(error: ApiError) -> Failure {
    let msg = error.to_string();
    match error {
        ApiError::Transport(error) => http_failure(error),
        ApiError::Refused(refusal) => {
            let code = match refusal.status {
                401 | 403 => ErrorCode::AUTH,
                _ if refusal.is_taken() || refusal.is_checksum_mismatch() => ErrorCode::CONFLICT,
                _ => ErrorCode::API_ERROR,
            };
            let failure =
                Failure::new(code, msg).with("status", refusal.status).with("reason", refusal.reason);
            if refusal.errors.is_empty() {
                return failure;
            }
            let errors: serde_json::Map<_, _> =
                refusal.errors.into_iter().map(|(name, why)| (name, why.into())).collect();
            failure.with("errors", errors)
        }
        ApiError::TaskFailed { upid, exitstatus, log_tail } => Failure::new(ErrorCode::API_ERROR, msg)
            .with("upid", upid.to_string())
            .with("exitstatus", exitstatus)
            .with("log", log_tail),
        ApiError::StillRunning { upid, why, .. } => {
            Failure { msg, ..Failure::from(why) }.with("upid", upid.to_string())
        }
        ApiError::Expired { why, .. } => Failure { msg, ..Failure::from(why) },
        ApiError::Shape { .. } => Failure::new(ErrorCode::API_ERROR, msg),
        ApiError::SignIn(_) => Failure::new(ErrorCode::AUTH, msg),
    }
}
