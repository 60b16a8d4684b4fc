//! How a BMC is reached over plain IPMI.

use ansible_module::{Arguments, ErrorCode, Failure, Opt, Run, Table};
use bmc_guard::{Candidate, Guard};
use host::{CommandError, Host};
use ipmi::{Connection, Error, Ipmitool};
use secrecy::SecretString;
use serde::Deserialize;

use crate::bmc::{GuardOptions, bmc_addresses, guard_failure};

#[derive(Clone, Debug, Deserialize)]
struct IpmiOptions {
    api_host: String,
    api_port: u16,
    api_user: String,
    api_password: SecretString,
    cipher_suite: Option<u8>,
}

/// `api_host`, `api_port`, `api_user`, `api_password` and `cipher_suite`, each with its `IPMI_` environment variable.
#[must_use]
pub fn ipmi_table() -> Table {
    Table::new(vec![
        Opt::str("api_host")
            .required()
            .env(&["IPMI_HOST"])
            .aliases(&["name"])
            .doc("Name or address of the BMC."),
        Opt::int("api_port").default(623).env(&["IPMI_PORT"]).aliases(&["port"]).doc("UDP port of the BMC."),
        Opt::str("api_user").required().env(&["IPMI_USER"]).aliases(&["user"]).doc("User of the BMC."),
        Opt::str("api_password")
            .required()
            .env(&["IPMI_PASSWORD"])
            .aliases(&["password"])
            .no_log()
            .doc("Password of O(api_user); it is handed to ipmitool in its environment."),
        Opt::int("cipher_suite").doc("Cipher suite of the session. Left out, 17 is tried and then 3."),
    ])
}

/// The one server that a task is about, behind its guard.
#[derive(Debug)]
pub struct IpmiTarget {
    host: String,
    port: u16,
    guard: Guard,
    tool: Ipmitool,
    /// The product serial, once the guard let it through.
    serial: Option<String>,
}

impl IpmiTarget {
    /// # Errors
    /// `bad_argument`
    pub fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let IpmiOptions {
            api_host: host,
            api_port: port,
            api_user: user,
            api_password: password,
            cipher_suite,
        } = arguments.parse()?;
        // ipmitool would take a word that begins with a dash for an option.
        for (option, value) in [("api_host", &host), ("api_user", &user)] {
            if value.is_empty() || value.starts_with('-') || value.contains(['/', ' ']) {
                return Err(Failure::bad_argument(option, format!("`{value}` is none")));
            }
        }
        let guard: GuardOptions = arguments.parse()?;
        let connection = Connection { host: host.clone(), port, user, password, cipher_suite };
        let tool = Ipmitool::new(Host::local(), connection);
        Ok(Self { host, port, guard: guard.guard()?, tool, serial: None })
    }

    /// The BMC, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.host
    }

    /// The lock of this BMC: one session at a time is all that some can.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("bmc {} {}", self.host, self.port)
    }

    #[must_use]
    pub fn tool(&self) -> &Ipmitool {
        &self.tool
    }

    #[must_use]
    pub fn serial(&self) -> &str {
        self.serial.as_deref().unwrap_or_default()
    }

    /// Reads who the server is, once, and lets it through only if the guard does.
    ///
    /// # Errors
    /// `refused` by the guard, or whatever reading can meet.
    pub fn admit(&mut self, run: &Run) -> Result<(), Failure> {
        if self.serial.is_some() {
            return Ok(());
        }
        let addresses = bmc_addresses(&self.host)?;
        self.guard.check_addresses(&self.host, &addresses).map_err(guard_failure)?;
        let serial = self.tool.product_serial(&run.deadline).map_err(ipmi_failure)?;
        // IPMI does not tell the server's network cards.
        let candidate = Candidate {
            name: self.host.clone(),
            serials: serial.clone().into_iter().collect(),
            macs: Vec::new(),
        };
        let warning = self.guard.check(&candidate).map_err(guard_failure)?;
        warning.into_iter().for_each(|warning| run.warn(warning));
        self.serial = serial;
        Ok(())
    }
}

/// What an error of ipmitool is to Ansible.
#[must_use]
pub fn ipmi_failure(error: Error) -> Failure {
    let msg = error.to_string();
    match error {
        Error::Command(CommandError::Stopped { why, .. }) => Failure { msg, ..Failure::from(why) },
        Error::Command(_) => Failure::new(ErrorCode::COMMAND_FAILED, msg),
        Error::NoSession { .. } => Failure::new(ErrorCode::UNREACHABLE, msg),
        Error::Unexpected { .. } => Failure::new(ErrorCode::API_ERROR, msg),
        Error::PowerStuck { found, why, .. } => {
            Failure { msg, ..Failure::from(why) }.with("power", found.to_string())
        }
    }
}
