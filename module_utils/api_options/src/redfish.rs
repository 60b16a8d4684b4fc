//! How a BMC is reached over Redfish, and which of its systems is meant.

use std::collections::BTreeMap;

use ansible_module::{Arguments, ErrorCode, Failure, Opt, Run, Table};
use bmc_guard::{Candidate, Guard, Serial};
use net_types::MacAddress;
use redfish_api::{Bmc, Connection, Credentials, Error, Refusal, System, choose};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bmc::{GuardOptions, bmc_addresses, guard_failure};
use crate::tls::{Environment, TlsOptions, http_failure, tls_table};

/// The options of [`redfish_table`].
#[derive(Clone, Debug, Deserialize)]
pub struct RedfishOptions {
    api_host: String,
    api_port: u16,
    api_user: String,
    api_password: SecretString,
    session: bool,
    system_id: Option<String>,
    #[serde(flatten)]
    tls: TlsOptions,
}

/// `api_host`, `api_port`, `api_user`, `api_password`, `session`, `system_id` and the TLS options, each connection
/// option with its `REDFISH_` environment variable.
#[must_use]
pub fn redfish_table() -> Table {
    Table::new(vec![
        Opt::str("api_host")
            .required()
            .env(&["REDFISH_HOST"])
            .aliases(&["baseuri"])
            .doc("Name or address of the BMC."),
        Opt::int("api_port").default(443).env(&["REDFISH_PORT"]).doc("HTTPS port of the BMC."),
        Opt::str("api_user")
            .required()
            .env(&["REDFISH_USER"])
            .aliases(&["username"])
            .doc("User of the BMC."),
        Opt::str("api_password")
            .required()
            .env(&["REDFISH_PASSWORD"])
            .aliases(&["password"])
            .no_log()
            .doc("Password of O(api_user)."),
        Opt::bool("session").default(false).doc(
            "Open a session and close it at the end, instead of HTTP Basic with every request. A BMC has few sessions; \
             one that opens none is spoken to with HTTP Basic. Check mode never opens one.",
        ),
        Opt::str("system_id")
            .aliases(&["resource_id"])
            .doc("C(Id) of the system, for a BMC that manages several."),
    ])
    .with(tls_table(&Environment {
        validate_certs: "REDFISH_VALIDATE_CERTS",
        ca_path: "REDFISH_CA_PATH",
        tls_fingerprint: "REDFISH_TLS_FINGERPRINT",
    }))
}

impl RedfishOptions {
    /// The BMC as `HOST:PORT`, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        let host = &self.api_host;
        // An IPv6 address needs brackets in front of a port.
        let host =
            if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.clone() };
        if self.api_port == 443 { host } else { format!("{host}:{}", self.api_port) }
    }

    #[must_use]
    pub fn system_id(&self) -> Option<&str> {
        self.system_id.as_deref()
    }

    fn check_host(&self) -> Result<(), Failure> {
        if self.api_host.is_empty() || self.api_host.contains(['/', '@', ' ']) {
            let why = format!(
                "expected a host name or an address, found `{}`: leave out https:// and the path",
                self.api_host
            );
            return Err(Failure::bad_argument("api_host", why));
        }
        Ok(())
    }

    /// Prepares the connection; nothing is sent yet. In check mode it refuses everything but GET.
    ///
    /// # Errors
    /// `bad_argument`, `tls` for a bad CA file.
    pub fn connect(&self, run: &Run) -> Result<Bmc, Failure> {
        self.check_host()?;
        let settings = self.tls.settings()?;
        Bmc::new(Connection {
            base_url: format!("https://{}", self.address()),
            tls: settings.policy,
            credentials: Credentials { user: self.api_user.clone(), password: self.api_password.clone() },
            session: self.session,
            read_only: run.check_mode,
            connect_timeout: settings.connect_timeout,
            request_timeout: settings.request_timeout,
        })
        .map_err(redfish_failure)
    }
}

/// The one system that a task is about, behind its guard.
#[derive(Debug)]
pub struct RedfishTarget {
    options: RedfishOptions,
    guard: Guard,
    bmc: Option<Bmc>,
    seen: Option<(System, Vec<MacAddress>)>,
}

impl RedfishTarget {
    /// # Errors
    /// `bad_argument`
    pub fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let options: RedfishOptions = arguments.parse()?;
        options.check_host()?;
        let guard: GuardOptions = arguments.parse()?;
        Ok(Self { options, guard: guard.guard()?, bmc: None, seen: None })
    }

    /// The BMC, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.options.address()
    }

    #[must_use]
    pub fn lock(&self) -> String {
        format!("bmc {}", self.options.address())
    }

    /// Requests by method.
    #[must_use]
    pub fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        self.bmc.as_ref().map(Bmc::calls)
    }

    /// The writes made so far.
    #[must_use]
    pub fn made(&self) -> Vec<Value> {
        let made = self.bmc.as_ref().map(Bmc::made).unwrap_or_default();
        made.iter().map(|call| json!(call)).collect()
    }

    /// The system as it was last seen.
    #[must_use]
    pub fn last(&self) -> Option<&System> {
        self.seen.as_ref().map(|(system, _)| system)
    }

    /// # Errors
    /// `internal` before the first observation.
    pub fn bmc(&self) -> Result<&Bmc, Failure> {
        self.bmc.as_ref().ok_or_else(|| Failure::new(ErrorCode::INTERNAL, "the BMC was not read yet"))
    }

    /// Reads the system, and lets it through only if the guard does. The first time it is chosen among all there
    /// are, and its network cards are read; later only it is read again.
    ///
    /// # Errors
    /// `refused` by the guard, or whatever reading can meet.
    pub fn observe(&mut self, run: &Run) -> Result<System, Failure> {
        let (system, macs) = match self.seen.take() {
            Some((system, macs)) => {
                let system = self.bmc()?.again(&system, &run.deadline).map_err(redfish_failure)?;
                (system, macs)
            }
            None => self.first_look(run)?,
        };
        let candidate = Candidate {
            name: format!("{}, system {}", self.name(), system.id()),
            serials: system.serials(),
            macs: macs.clone(),
        };
        let warning = self
            .guard
            .check(&candidate)
            .map_err(|refusal| guard_failure(refusal).with("system", system_value(&system)))?;
        warning.into_iter().for_each(|warning| run.warn(warning));
        self.seen = Some((system.clone(), macs));
        Ok(system)
    }

    fn first_look(&mut self, run: &Run) -> Result<(System, Vec<MacAddress>), Failure> {
        let name = self.name();
        let addresses = bmc_addresses(&self.options.api_host)?;
        self.guard.check_addresses(&name, &addresses).map_err(guard_failure)?;
        let bmc = self.bmc.insert(self.options.connect(run)?);
        let systems = bmc.systems(&run.deadline).map_err(redfish_failure)?;
        let wanted = self.guard.serial.as_ref();
        let reports_wanted = |system: &System| {
            system.serials().iter().filter_map(|text| Serial::known(text)).any(|known| Some(&known) == wanted)
        };
        let is_meant: Option<&dyn Fn(&System) -> bool> = wanted.is_some().then_some(&reports_wanted);
        let system = choose(systems, self.options.system_id(), is_meant)
            .map_err(|error| redfish_failure(error).while_doing(&name))?;
        let nics = bmc.nics(&system, &run.deadline).map_err(redfish_failure)?;
        let macs = nics.iter().filter_map(|nic| nic.mac_address.parse().ok());
        Ok((system, macs.filter(|mac: &MacAddress| mac.bytes() != [0; 6]).collect()))
    }
}

/// A system in Redfish's own words.
#[must_use]
pub fn system_value(system: &System) -> Value {
    let body = &system.resource.body;
    let boot = system.boot();
    json!({
        "id": system.id(),
        "uri": system.resource.uri,
        "manufacturer": body["Manufacturer"],
        "model": body["Model"],
        "serial_number": body["SerialNumber"],
        "sku": body["SKU"],
        "serials": system.serials().iter().filter_map(|text| Serial::known(text)).map(|one| one.to_string()).collect::<Vec<_>>(),
        "power_state": system.power().to_string(),
        "boot": {
            "target": boot.target,
            "enabled": boot.enabled,
            "mode": boot.mode,
        },
    })
}

/// What an error of a BMC is to Ansible.
#[must_use]
pub fn redfish_failure(error: Error) -> Failure {
    let msg = error.to_string();
    let of = |code, refusal: &Refusal| {
        let messages: Vec<&str> = refusal.messages.iter().map(|message| message.text.as_str()).collect();
        let ids: Vec<&str> = refusal.messages.iter().map(|message| message.id.as_str()).collect();
        Failure::new(code, msg.clone())
            .with("status", refusal.status)
            .with("messages", messages)
            .with("message_ids", ids)
    };
    match error {
        Error::Http(error) => http_failure(error),
        Error::Expired(expired) => expired.into(),
        Error::Auth(refusal) => of(ErrorCode::AUTH, &refusal),
        Error::Refused(refusal) => of(ErrorCode::API_ERROR, &refusal),
        Error::StillBusy { refusal, why } => of(Failure::from(why).code, &refusal),
        Error::PowerStuck { found, why, .. } => {
            Failure { msg, ..Failure::from(why) }.with("power_state", found.to_string())
        }
        Error::NotConsumed { why, .. } => Failure { msg, ..Failure::from(why) },
        Error::Choice(_) | Error::NotOffered(_) => Failure::refused(msg),
        Error::Changed { .. } => Failure::new(ErrorCode::CONFLICT, msg),
        Error::Task { .. } | Error::Shape { .. } => Failure::new(ErrorCode::API_ERROR, msg),
        Error::ReadOnly { .. } => Failure::new(ErrorCode::INTERNAL, msg),
    }
}
