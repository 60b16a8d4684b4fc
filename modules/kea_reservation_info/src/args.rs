//! The option table and the checked arguments made from it.

use std::net::Ipv4Addr;

use ansible_module::{Arguments, Failure, Opt, Rule, Spec, Table};
use api_options::{KeaOptions, OpnsenseOptions, kea_table, opnsense_table};
use dhcp_reservations::{Field, Reservation};
use net_types::{ClientId, HostIdentifier, Ipv4Cidr, MacAddress};
use serde::Deserialize;
use serde_json::json;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Backend {
    Opnsense,
    Kea,
}

/// Which reservations are wanted; what is `None` does not matter.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Filter {
    mac: Option<MacAddress>,
    client_id: Option<ClientId>,
    ip: Option<Ipv4Addr>,
    hostname: Option<String>,
    subnet: Option<String>,
}

impl Filter {
    /// `cidr` is the prefix of the reservation's subnet.
    pub(crate) fn takes(&self, one: &Reservation, cidr: &str) -> bool {
        let host = |wanted: HostIdentifier| one.host.as_ref() == Some(&wanted);
        self.mac.is_none_or(|mac| host(mac.into()))
            && self.client_id.clone().is_none_or(|client_id| host(client_id.into()))
            && self.ip.is_none_or(|ip| one.ip() == Some(ip))
            && self.hostname.as_deref().is_none_or(|name| has_name(one, name))
            && self.subnet.as_deref().is_none_or(|subnet| subnet == one.subnet || same_prefix(subnet, cidr))
    }
}

/// A single label also finds a name that was stored with a domain.
fn has_name(one: &Reservation, wanted: &str) -> bool {
    let name = one.values.text(Field::Hostname);
    let label = name.split('.').next().unwrap_or_default();
    name.eq_ignore_ascii_case(wanted) || (!wanted.is_empty() && label.eq_ignore_ascii_case(wanted))
}

fn same_prefix(wanted: &str, cidr: &str) -> bool {
    let network = |text: &str| text.parse::<Ipv4Cidr>().ok().map(|cidr| cidr.network());
    network(wanted).is_some() && network(wanted) == network(cidr)
}

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) backend: Backend,
    pub(crate) filter: Filter,
    pub(crate) opnsense: OpnsenseOptions,
    pub(crate) kea: KeaOptions,
}

#[derive(Deserialize)]
struct Raw {
    backend: Backend,
    #[serde(flatten)]
    filter: Filter,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if let Some(subnet) = raw.filter.subnet.as_deref().filter(|subnet| subnet.contains('/')) {
            subnet.parse::<Ipv4Cidr>().map_err(|why| Failure::bad_argument("subnet", why))?;
        }
        Ok(Self {
            backend: raw.backend,
            filter: raw.filter,
            opnsense: arguments.parse()?,
            kea: arguments.parse()?,
        })
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("kea_reservation_info", "List and find DHCPv4 reservations in Kea, on OPNsense or by itself")
        .describe(
            "Returns the reservations that fit every option given; without any, all of them. It only reads, with one or two \
             requests however many reservations there are.",
        )
        .note("On OPNsense it is what is stored; whether that is in effect, M(homelab.anvil.kea_reservation) tells in check mode.")
        .note("Hosts that plain Kea keeps in a database are not seen.")
        .seealso(&["homelab.anvil.kea_reservation", "homelab.anvil.dhcp_probe"])
        .timeout(60)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("backend")
            .choices(&["opnsense", "kea"])
            .default("opnsense")
            .doc("V(opnsense) is the firewall's API, V(kea) is Kea's own control channel."),
        Opt::str("mac")
            .quoted("a MAC address")
            .aliases(&["hw_address"])
            .doc("MAC address of the host, in any spelling."),
        Opt::str("client_id")
            .quoted("a client identifier")
            .doc("Client identifier (option 61) of the host in hexadecimal."),
        Opt::str("ip").quoted("an IPv4 address").aliases(&["ip_address"]).doc("Reserved address."),
        Opt::str("hostname").doc(
            "Name of the host; case does not count, and a label without a domain also finds a name with one.",
        ),
        Opt::str("subnet").doc("Subnet as a prefix, as Kea's subnet-id or as OPNsense's UUID."),
    ])
    .rule(Rule::RequiredIf {
        option: "backend",
        value: json!("opnsense"),
        required: vec!["api_host", "api_key", "api_secret"],
        any: false,
    })
    .rule(Rule::RequiredIf {
        option: "backend",
        value: json!("kea"),
        required: vec!["kea_url", "kea_socket"],
        any: true,
    })
    .with(opnsense_table(false))
    .with(kea_table())
}

const EXAMPLES: &str = r#"
- name: Who has this address?
  homelab.anvil.kea_reservation_info:
    api_host: fw.example.net
    api_key: "{{ opnsense_key }}"
    api_secret: "{{ opnsense_secret }}"
    ip: 10.20.0.21
  delegate_to: localhost
  register: found

- name: Every reservation of a subnet of this host's Kea
  homelab.anvil.kea_reservation_info:
    backend: kea
    kea_socket: /run/kea/kea4-ctrl-socket
    subnet: 10.20.0.0/24
  become: true
"#;

const RETURNS: &str = concat!(
    r"
reservations:
  description: The reservations that fit, in the order of their addresses.
  returned: success
  type: list
  elements: dict
  contains:
",
    dhcp_reservations::object_doc!(),
    r"subnets:
  description: The subnets of the server; on OPNsense from 25.7 on only those that have a reservation.
  returned: success
  type: list
  elements: dict
  contains:
    subnet:
      description: The prefix.
      type: str
    subnet_key:
      description: Kea's subnet-id, or OPNsense's UUID of the subnet.
      type: str
"
);
