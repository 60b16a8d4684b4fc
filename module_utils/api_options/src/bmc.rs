//! The guard that every module has which can switch or boot a server through its BMC.

use std::net::{IpAddr, ToSocketAddrs};

use ansible_module::{ErrorCode, Failure, Kind, Opt, Table};
use bmc_guard::{Guard, Machine, Refusal, Serial};
use net_types::MacAddress;
use serde::Deserialize;

/// The options of [`guard_table`].
#[derive(Clone, Debug, Deserialize)]
pub struct GuardOptions {
    serial: Option<String>,
    #[serde(default)]
    refuse_serials: Vec<String>,
    #[serde(default)]
    refuse_addresses: Vec<String>,
    #[serde(default)]
    refuse_macs: Vec<MacAddress>,
    guard: bool,
}

/// `serial`, `refuse_serials`, `refuse_addresses`, `refuse_macs` and `guard`.
#[must_use]
pub fn guard_table() -> Table {
    Table::new(vec![
        Opt::str("serial").quoted("a serial number").aliases(&["service_tag"]).doc(
            "Serial number of the server, or service tag of a Dell. The BMC must report it, or nothing is written. \
             Blanks and dots around it and case do not matter.",
        ),
        Opt::list("refuse_serials", Kind::Str)
            .default(Vec::<String>::new())
            .doc("Serial numbers and service tags of servers that must never be touched."),
        Opt::list("refuse_addresses", Kind::Str)
            .default(Vec::<String>::new())
            .doc(
                "Names and addresses of BMCs that must never be talked to. The BMC of the machine that the module runs on is \
                 one of them, as far as the machine knows it: from its firmware (SMBIOS host interface) and from \
                 C(ipmitool lan print), both for root only.",
            ),
        Opt::list("refuse_macs", Kind::Str).default(Vec::<String>::new()).doc(
            "MAC addresses of network cards; a server that has one of them is never touched. A BMC that does not tell \
             its server's cards is refused unless O(serial) matches.",
        ),
        Opt::bool("guard").default(false).doc(
            "Whether every server is refused while O(refuse_serials) or O(refuse_macs) is empty. The roles of this \
             collection switch it on.",
        ),
    ])
}

impl GuardOptions {
    /// The guard, with what this machine is known by.
    ///
    /// # Errors
    /// `bad_argument` for a serial that tells nothing, and for a name that cannot be looked up.
    pub fn guard(&self) -> Result<Guard, Failure> {
        let serial = |option: String, text: &str| {
            let why = format!("`{text}` tells no server from another: it is blank or a placeholder");
            Serial::known(text).ok_or_else(|| Failure::bad_argument(option, why))
        };
        let mut refuse_addresses = Vec::new();
        for (index, name) in self.refuse_addresses.iter().enumerate() {
            let found = addresses(name)
                .map_err(|why| Failure::bad_argument(format!("refuse_addresses[{index}]"), why))?;
            refuse_addresses.extend(found);
        }
        let refused = self.refuse_serials.iter().enumerate();
        Ok(Guard {
            serial: self.serial.as_deref().map(|text| serial("serial".into(), text)).transpose()?,
            refuse_serials: refused
                .map(|(index, text)| serial(format!("refuse_serials[{index}]"), text))
                .collect::<Result<_, _>>()?,
            refuse_addresses,
            refuse_macs: self.refuse_macs.clone(),
            lists_required: self.guard,
            here: Machine::local(),
        })
    }
}

/// The addresses of a host, by name or as it stands.
pub(crate) fn addresses(host: &str) -> Result<Vec<IpAddr>, String> {
    let bare = host.trim().trim_start_matches('[').trim_end_matches(']');
    let found = (bare, 0).to_socket_addrs().map_err(|error| format!("cannot look up `{host}`: {error}"))?;
    Ok(found.map(|one| one.ip().to_canonical()).collect())
}

/// The addresses of the BMC itself; a name that is unknown means that it cannot be reached.
pub(crate) fn bmc_addresses(host: &str) -> Result<Vec<IpAddr>, Failure> {
    addresses(host).map_err(|why| Failure::new(ErrorCode::UNREACHABLE, why))
}

/// What a refusal of the guard is to Ansible.
#[must_use]
pub fn guard_failure(refusal: Refusal) -> Failure {
    Failure::refused(refusal.message).with("guard", refusal.rule)
}
