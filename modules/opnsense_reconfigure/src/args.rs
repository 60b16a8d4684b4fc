//! The option table and the checked arguments.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use api_options::{OpnsenseOptions, opnsense_table};
use net_types::{ClientId, HostIdentifier, MacAddress};
use opnsense_api::Service;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A reservation of the batch; the fields left out are not verified.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Reservation {
    /// Of these two, one is set.
    #[serde(default, deserialize_with = "unless_empty")]
    hw_address: Option<MacAddress>,
    #[serde(default, deserialize_with = "unless_empty")]
    client_id: Option<ClientId>,
    #[serde(deserialize_with = "address")]
    pub(crate) ip_address: Ipv4Addr,
    pub(crate) hostname: Option<String>,
    pub(crate) next_server: Option<String>,
    pub(crate) boot_file_name: Option<String>,
    pub(crate) tftp_server_name: Option<String>,
}

/// A record of the batch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) hostname: String,
    pub(crate) domain: String,
    pub(crate) rr: String,
    #[serde(deserialize_with = "address")]
    pub(crate) server: IpAddr,
}

/// An address, with an error that shows what was found.
fn address<'de, D: Deserializer<'de>, A: FromStr>(deserializer: D) -> Result<A, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format!("expected an IP address, found `{text}`")))
}

/// What the host of a result is not known by is an empty text there.
fn unless_empty<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty());
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

impl Reservation {
    /// `None` when it is named by neither of its identifiers, or by both.
    pub(crate) fn host(&self) -> Option<HostIdentifier> {
        match (self.hw_address, &self.client_id) {
            (Some(mac), None) => Some(mac.into()),
            (None, Some(client_id)) => Some(client_id.clone().into()),
            _ => None,
        }
    }
}

impl Record {
    /// In lower case and without the dot of the root, as [`opnsense_api::HostOverrideRow::name`].
    pub(crate) fn fqdn(&self) -> String {
        format!("{}.{}", self.hostname, self.domain).trim_matches('.').to_ascii_lowercase()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) services: Vec<Service>,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) records: Vec<Record>,
    pub(crate) force: bool,
    pub(crate) opnsense: OpnsenseOptions,
}

#[derive(Deserialize)]
struct Raw {
    services: Option<Vec<String>>,
    reservations: Vec<Reservation>,
    records: Vec<Record>,
    force: bool,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if let Some(index) = raw.reservations.iter().position(|one| one.host().is_none()) {
            let option = format!("reservations[{index}].hw_address");
            return Err(Failure::bad_argument(option, "one of `hw_address`, `client_id` is needed"));
        }
        let batches = [
            (Service::Kea, "reservations", raw.reservations.len()),
            (Service::Unbound, "records", raw.records.len()),
        ];
        let chosen = |service: Service, entries: usize| match &raw.services {
            Some(names) => names.iter().any(|name| name == service.name()),
            None => entries > 0,
        };
        for (service, option, entries) in batches {
            if entries > 0 && !chosen(service, entries) {
                let why = format!(
                    "`{option}` belong to the service {}, which is not in `services`",
                    service.name()
                );
                return Err(Failure::bad_argument(option, why));
            }
        }
        let services = batches.into_iter().filter(|(service, _, entries)| chosen(*service, *entries));
        let services: Vec<Service> = services.map(|(service, ..)| service).collect();
        if services.is_empty() && raw.services.is_none() {
            let why = "say what to apply: `services`, or the `reservations` or `records` of a batch";
            return Err(Failure::bad_argument("services", why));
        }
        Ok(Self {
            services,
            reservations: raw.reservations,
            records: raw.records,
            force: raw.force,
            opnsense: arguments.parse()?,
        })
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("opnsense_reconfigure", "Put in effect what a batch of tasks stored on OPNsense")
        .describe(
            "Makes Kea and Unbound read what M(homelab.anvil.kea_reservation) and M(homelab.anvil.dns_record) stored with \
             C(apply=false), once for the whole batch: a reconfigure stops the service for a moment. Then it verifies that the \
             service runs, and every reservation and record of the batch.",
        )
        .describe(
            "A service is reconfigured only when those modules left changes that are not in effect, or when it does not run. \
             Otherwise the batch is verified and nothing is changed, so a second run answers C(changed=false).",
        )
        .describe(
            "What is not in effect is known from a mark in C(~/.local/state/homelab.anvil) of the user the modules run as, which \
             also outlives a killed run. Changes stored by others, or from another machine, need O(force=true).",
        )
        .note("In check mode, an entry of the batch that is not stored yet is one that would be.")
        .note("OPNsense needs the privileges C(Services: DHCP: Kea(v4)) and C(Services: Unbound) for the user of the key.")
        .seealso(&["homelab.anvil.kea_reservation", "homelab.anvil.dns_record"])
        .timeout(180)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    let passed_on =
        |name| Opt::str(name).doc("Not verified; taken so that a result can be passed on as it is.");
    let reservation = Table::new(vec![
        Opt::str("hw_address")
            .quoted("a MAC address")
            .aliases(&["mac"])
            .doc("MAC address, in any spelling; this or O(reservations[].client_id)."),
        Opt::str("client_id").quoted("a client identifier").doc("Client identifier in hexadecimal."),
        Opt::str("ip_address").required().quoted("an IPv4 address").aliases(&["ip"]).doc("Reserved address."),
        Opt::str("hostname").doc("Name of the host."),
        Opt::str("next_server").doc("Boot server (siaddr)."),
        Opt::str("boot_file_name").aliases(&["boot_file"]).doc("Boot file."),
        Opt::str("tftp_server_name").doc("Option 66."),
        Opt::list("option_data", Kind::Dict)
            .doc("Not verified; taken so that a result can be passed on as it is."),
        Opt::list("client_classes", Kind::Str)
            .doc("Not verified; taken so that a result can be passed on as it is."),
        passed_on("description"),
        passed_on("owner"),
        passed_on("subnet"),
        passed_on("subnet_key"),
        passed_on("uuid"),
    ]);
    let record = Table::new(vec![
        Opt::str("hostname").required().doc("Name without the domain."),
        Opt::str("domain").required().doc("Domain."),
        Opt::str("rr").choices(&["A", "AAAA"]).default("A").aliases(&["type"]).doc("Type of the record."),
        Opt::str("server").required().quoted("an address").aliases(&["value"]).doc("Address."),
        passed_on("description"),
        Opt::bool("addptr").doc("Not verified; taken so that a result can be passed on as it is."),
        Opt::bool("enabled").doc("Not verified; a record that is disabled is not in effect."),
        passed_on("uuid"),
    ]);
    Table::new(vec![
        Opt::list("services", Kind::Str)
            .choices(&["kea", "unbound"])
            .doc("Services to apply; by default those that the batch has entries for."),
        Opt::list_of("reservations", reservation)
            .default(serde_json::json!([]))
            .doc("Reservations to verify, such as the RV(homelab.anvil.kea_reservation#module:reservation) of every host."),
        Opt::list_of("records", record)
            .default(serde_json::json!([]))
            .doc("Records to verify, such as the RV(homelab.anvil.dns_record#module:record) of every host."),
        Opt::bool("force")
            .default(false)
            .doc("Reconfigure although nothing is known to wait for it. A second run then answers C(changed=true) again."),
    ])
    .with(opnsense_table(true))
}

const EXAMPLES: &str = r#"
- name: Apply what every host of the play stored
  homelab.anvil.opnsense_reconfigure:
    api_host: fw.example.net
    api_key: "{{ opnsense_key }}"
    api_secret: "{{ opnsense_secret }}"
    services: [kea]
    reservations: "{{ ansible_play_hosts | map('extract', hostvars, 'stored') | map(attribute='reservation') }}"
  delegate_to: localhost
  run_once: true

- name: Apply what somebody else stored, and see that one record is there
  homelab.anvil.opnsense_reconfigure:
    api_host: fw.example.net
    api_key: "{{ opnsense_key }}"
    api_secret: "{{ opnsense_secret }}"
    records:
      - hostname: web01
        domain: example.net
        value: 10.20.0.21
    force: true
  delegate_to: localhost
"#;

const RETURNS: &str = r"
services:
  description: The services of the task, each with what OPNsense says of it.
  returned: success
  type: dict
  sample: {kea: {status: running, pending_apply: false}}
reservations:
  description: The reservations of the batch as OPNsense holds them.
  returned: success
  type: list
  elements: dict
records:
  description: The records of the batch as OPNsense holds them.
  returned: success
  type: list
  elements: dict
";
