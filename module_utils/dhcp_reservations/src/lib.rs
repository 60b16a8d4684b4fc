//! DHCPv4 reservations of Kea, by itself or on OPNsense, as one kind of thing.
//!
//! ```no_run
//! # fn demo(config: &kea_api::Dhcp4Config) {
//! for one in dhcp_reservations::kea::all(config).reservations {
//!     println!("{} {:?}", one.identifier, one.ip());
//! }
//! # }
//! ```

pub mod kea;
pub mod opnsense;
mod option_data;
mod values;

use std::net::Ipv4Addr;

use net_types::{HostIdentifier, Ipv4Cidr};
use serde_json::{Map, Value};

pub use option_data::OptionData;
pub use values::{Field, Values, mark, unmark};

/// Every subnet of a server with its reservations.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    pub subnets: Vec<Subnet>,
    pub reservations: Vec<Reservation>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Subnet {
    /// Kea's subnet-id or OPNsense's UUID.
    pub key: String,
    pub cidr: Ipv4Cidr,
    pub routers: Vec<Ipv4Addr>,
    /// siaddr for every host of the subnet.
    pub next_server: Option<Ipv4Addr>,
    /// The BOOTP `file` field for every host of the subnet; empty when there is none.
    pub boot_file_name: String,
    /// A client identifier outranks the MAC address when a lease is looked for (Kea's `match-client-id`).
    pub match_client_id: bool,
    /// Pools in which this Kea ignores reservations (`reservations-out-of-pool`).
    pub forbidden: Vec<(Ipv4Addr, Ipv4Addr)>,
}

impl Subnet {
    /// A subnet of which no more is known.
    #[must_use]
    pub fn bare(key: String, cidr: Ipv4Cidr) -> Self {
        Self {
            key,
            cidr,
            routers: Vec::new(),
            next_server: None,
            boot_file_name: String::new(),
            match_client_id: true,
            forbidden: Vec::new(),
        }
    }
}

/// One reservation, of either kind of server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservation {
    /// OPNsense's UUID; empty on plain Kea.
    pub uuid: String,
    /// The key of its subnet; empty for one outside every subnet.
    pub subnet: String,
    /// `None` for an identifier that is neither a MAC address of six bytes nor a client identifier.
    pub host: Option<HostIdentifier>,
    /// The identifier as stored, for messages.
    pub identifier: String,
    pub values: Values,
}

impl Reservation {
    #[must_use]
    pub fn ip(&self) -> Option<Ipv4Addr> {
        self.values.text(Field::IpAddress).parse().ok()
    }

    /// As an object of a result; `subnet` is its prefix.
    #[must_use]
    pub fn to_object(&self, subnet: String) -> Map<String, Value> {
        let mut object = self.values.to_object();
        object.insert("subnet".to_owned(), subnet.into());
        object.insert("subnet_key".to_owned(), self.subnet.clone().into());
        let uuid = if self.uuid.is_empty() { Value::Null } else { self.uuid.clone().into() };
        object.insert("uuid".to_owned(), uuid);
        object
    }
}

/// The documentation of [`Reservation::to_object`], as the `contains` of a result, indented by four spaces.
#[macro_export]
macro_rules! object_doc {
    () => {
        r"    subnet:
      description: The subnet's prefix.
      type: str
      sample: 10.20.0.0/24
    subnet_key:
      description: Kea's subnet-id, or OPNsense's UUID of the subnet.
      type: str
    uuid:
      description: OPNsense's UUID of the reservation; null on plain Kea.
      type: str
    hw_address:
      description: The MAC address; empty when the host is known by something else.
      type: str
      sample: 02:a5:00:00:00:65
    client_id:
      description: The client identifier (option 61); empty when the host is known by its MAC address.
      type: str
    ip_address:
      description: The reserved address.
      type: str
      sample: 10.20.0.21
    hostname:
      description: The host's name; empty when it has none.
      type: str
    next_server:
      description: The boot server (siaddr); empty when the subnet's counts.
      type: str
    boot_file_name:
      description: The boot file; the BOOTP field C(file) on plain Kea, option 67 on OPNsense.
      type: str
    tftp_server_name:
      description: Option 66.
      type: str
    option_data:
      description: The other DHCP options of the reservation, each with C(name), C(code), C(data), C(always_send), C(csv_format).
      type: list
      elements: dict
    client_classes:
      description: The classes that the host is put into.
      type: list
      elements: str
    description:
      description: The description without the mark of the owner.
      type: str
    owner:
      description: Whose reservation it is marked as; empty without a mark.
      type: str
"
    };
}

impl Reservations {
    /// The prefix of a subnet; empty when there is no such subnet.
    #[must_use]
    pub fn cidr_of(&self, key: &str) -> String {
        let subnet = self.subnets.iter().find(|subnet| subnet.key == key);
        subnet.map(|subnet| subnet.cidr.to_string()).unwrap_or_default()
    }
}
