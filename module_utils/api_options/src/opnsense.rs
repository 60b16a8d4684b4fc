//! How OPNsense is reached.

use ansible_module::{ErrorCode, Failure, Opt, Table};
use http_client::Auth;
use opnsense_api::{Error, Opnsense};
use secrecy::SecretString;
use serde::Deserialize;

use crate::tls::{Environment, TlsOptions, http_failure, tls_table};

/// The options of [`opnsense_table`].
#[derive(Clone, Debug, Deserialize)]
pub struct OpnsenseOptions {
    api_host: Option<String>,
    api_port: u16,
    api_key: Option<String>,
    api_secret: Option<SecretString>,
    #[serde(flatten)]
    tls: TlsOptions,
}

/// `api_host`, `api_port`, `api_key`, `api_secret` and the TLS options, each with its `OPNSENSE_` environment variable.
///
/// With `required`, host, key and secret must be given; a module with several backends says itself when they are.
#[must_use]
pub fn opnsense_table(required: bool) -> Table {
    let login = [
        Opt::str("api_host").env(&["OPNSENSE_HOST"]).doc("Name or address of the firewall."),
        Opt::str("api_key").env(&["OPNSENSE_API_KEY"]).doc("Key of an API user of the firewall."),
        Opt::str("api_secret")
            .env(&["OPNSENSE_API_SECRET"])
            .no_log()
            .doc("Secret that belongs to O(api_key)."),
    ];
    let mut options: Vec<Opt> =
        login.into_iter().map(|option| if required { option.required() } else { option }).collect();
    options.insert(
        1,
        Opt::int("api_port")
            .default(443)
            .env(&["OPNSENSE_PORT"])
            .doc("HTTPS port of the firewall's web interface."),
    );
    Table::new(options).with(tls_table(&Environment {
        validate_certs: "OPNSENSE_VALIDATE_CERTS",
        ca_path: "OPNSENSE_CA_PATH",
        tls_fingerprint: "OPNSENSE_TLS_FINGERPRINT",
    }))
}

impl OpnsenseOptions {
    /// Whether a firewall is named at all, by the task or by the environment.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.api_host.is_some()
    }

    /// The firewall as `HOST:PORT`, for messages, locks and marks.
    #[must_use]
    pub fn address(&self) -> String {
        let host = self.api_host.as_deref().unwrap_or_default();
        // An IPv6 address needs brackets in front of a port.
        if host.contains(':') && !host.starts_with('[') {
            format!("[{host}]:{}", self.api_port)
        } else {
            format!("{host}:{}", self.api_port)
        }
    }

    /// The lock that every module takes which writes to this firewall or applies what is stored there.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("opnsense {}", self.address())
    }

    /// # Errors
    /// `bad_argument` when host, key or secret are missing or cannot be used.
    pub fn connect(&self) -> Result<Opnsense, Failure> {
        let missing = |name: &str| Failure::bad_argument(name, "missing: it is needed to reach OPNsense");
        let host = self.api_host.as_deref().ok_or_else(|| missing("api_host"))?;
        if host.is_empty() || host.contains(['/', '@', ' ']) {
            let why = format!(
                "expected a host name or an address, found `{host}`: leave out https:// and the path"
            );
            return Err(Failure::bad_argument("api_host", why));
        }
        let auth = Auth::Basic {
            user: self.api_key.clone().ok_or_else(|| missing("api_key"))?,
            password: self.api_secret.clone().ok_or_else(|| missing("api_secret"))?,
        };
        Ok(Opnsense::new(self.tls.client(format!("https://{}", self.address()), auth)?))
    }

    /// The TLS options, for a module that reaches another server with them.
    #[must_use]
    pub fn tls(&self) -> &TlsOptions {
        &self.tls
    }
}

/// What an error of OPNsense's API is to Ansible.
#[must_use]
pub fn opnsense_failure(error: Error) -> Failure {
    let msg = error.to_string();
    match error {
        Error::Http(error) => http_failure(error),
        Error::Expired(expired) => expired.into(),
        Error::Unauthorized | Error::Forbidden { .. } => Failure::new(ErrorCode::AUTH, msg),
        Error::Refused { validations, .. } => {
            let fields = validations.into_iter().map(|one| (one.field, one.message.into()));
            let fields: serde_json::Map<String, serde_json::Value> = fields.collect();
            Failure::refused(msg).with("validations", fields)
        }
        Error::NotFound { .. } => Failure::new(ErrorCode::CONFLICT, msg),
        Error::NoEndpoint { .. } | Error::Server { .. } | Error::Protocol { .. } | Error::Partial { .. } => {
            Failure::new(ErrorCode::API_ERROR, msg)
        }
    }
}

#[cfg(test)]
mod tests {
    use ansible_module::{Arguments, Spec};
    use opnsense_api::Validation;
    use serde_json::{Value, json};

    use super::*;

    fn options(raw: Value) -> OpnsenseOptions {
        let spec = Spec::new("test", "A test").options(opnsense_table(false));
        Arguments::for_tests(&spec, raw).and_then(|arguments| arguments.parse()).expect("sound options")
    }

    fn refusal(raw: Value) -> String {
        options(raw).connect().expect_err("a refusal").msg
    }

    #[test]
    fn an_address_is_what_locks_and_marks_are_named_after() {
        for (host, address) in
            [("fw.example", "fw.example:443"), ("fd00::1", "[fd00::1]:443"), ("[fd00::1]", "[fd00::1]:443")]
        {
            assert_eq!(options(json!({"api_host": host})).address(), address);
        }
        assert_eq!(options(json!({"api_host": "fw", "api_port": 8443})).lock(), "opnsense fw:8443");
    }

    #[test]
    fn what_cannot_reach_a_firewall_is_refused_by_its_option() {
        let login = json!({"api_key": "k", "api_secret": "s"});
        let with = |name: &str, value: Value| {
            let mut raw = login.clone();
            raw[name] = value;
            raw
        };
        insta::assert_snapshot!(refusal(login.clone()), @"option `api_host`: missing: it is needed to reach OPNsense");
        insta::assert_snapshot!(refusal(with("api_host", json!("https://fw/"))), @"option `api_host`: expected a host name or an address, found `https://fw/`: leave out https:// and the path");
        insta::assert_snapshot!(refusal(json!({"api_host": "fw"})), @"option `api_key`: missing: it is needed to reach OPNsense");
        let mut raw = with("api_host", json!("fw"));
        raw["api_timeout"] = json!(0);
        insta::assert_snapshot!(refusal(raw), @"option `api_timeout`: expected 1 to 3600 seconds");
    }

    #[test]
    fn an_error_keeps_its_kind() {
        let endpoint = || "kea/dhcpv4/add_reservation".to_owned();
        let validation =
            Validation { field: "reservation.ip_address".into(), message: "Duplicate entry exists.".into() };
        for (error, code) in [
            (Error::Unauthorized, "auth"),
            (Error::Forbidden { endpoint: endpoint() }, "auth"),
            (Error::NotFound { endpoint: endpoint() }, "conflict"),
            (Error::NoEndpoint { endpoint: endpoint() }, "api_error"),
            (Error::Server { endpoint: endpoint(), status: 500, message: "no".into() }, "api_error"),
            (Error::Partial { endpoint: endpoint(), rows: 1, total: 2 }, "api_error"),
            (Error::Refused { endpoint: endpoint(), validations: vec![validation.clone()] }, "refused"),
        ] {
            let failure = opnsense_failure(error);
            assert_eq!(failure.code.as_str(), code, "{failure}");
        }
        let refused =
            opnsense_failure(Error::Refused { endpoint: endpoint(), validations: vec![validation] });
        assert_eq!(
            refused.details["validations"],
            json!({"reservation.ip_address": "Duplicate entry exists."})
        );
    }
}
