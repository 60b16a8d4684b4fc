use std::fmt;
use std::net::IpAddr;

use deadline::Deadline;
use net_types::{MacAddress, Vmid};
use serde_json::Value;

use crate::error::ApiError;
use crate::guests::vm_path;
use crate::session::Proxmox;

/// A network interface as the guest's agent tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestInterface {
    /// The guest's own name, such as `eth0`.
    pub name: String,
    /// Missing on interfaces that have none.
    pub mac: Option<MacAddress>,
    pub addresses: Vec<GuestAddress>,
}

/// An address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestAddress {
    pub address: IpAddr,
    pub prefix: u8,
}

impl GuestAddress {
    /// Good on its own link only: what a guest has before it gets a real one.
    #[must_use]
    pub fn is_link_local(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }
}

impl fmt::Display for GuestAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Proxmox {
    /// What the agent of a running guest says of its network.
    ///
    /// # Errors
    /// [`ApiError::Refused`] while there is no agent, or it does not answer (yet).
    pub fn guest_interfaces(
        &self,
        node: &str,
        vmid: Vmid,
        deadline: &Deadline,
    ) -> Result<Vec<GuestInterface>, ApiError> {
        let path = vm_path(node, vmid, "/agent/network-get-interfaces");
        let data = self.get(&path, deadline)?;
        let interfaces = data["result"]
            .as_array()
            .ok_or_else(|| ApiError::shape(&format!("GET {path}"), "no list of interfaces"))?;
        Ok(interfaces.iter().map(read_interface).collect())
    }
}

/// An interface without addresses has no `ip-addresses` at all (QEMU guest agent, `qapi-schema.json`).
fn read_interface(row: &Value) -> GuestInterface {
    let address = |row: &Value| {
        let prefix = row["prefix"].as_u64().and_then(|prefix| u8::try_from(prefix).ok())?;
        Some(GuestAddress { address: row["ip-address"].as_str()?.parse().ok()?, prefix })
    };
    GuestInterface {
        name: row["name"].as_str().unwrap_or_default().to_owned(),
        mac: row["hardware-address"].as_str().and_then(|mac| mac.parse().ok()),
        addresses: row["ip-addresses"].as_array().into_iter().flatten().filter_map(address).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_interface_without_addresses_or_mac_is_read() {
        let row = json!({"name": "wg0"});
        assert_eq!(read_interface(&row), GuestInterface { name: "wg0".into(), mac: None, addresses: vec![] });
        let row = json!({"name": "eth0", "hardware-address": "02:a5:00:00:00:65", "ip-addresses": [
            {"ip-address": "169.254.3.4", "ip-address-type": "ipv4", "prefix": 16},
            {"ip-address": "fe80::1", "ip-address-type": "ipv6", "prefix": 64},
            {"ip-address": "10.0.0.5", "ip-address-type": "ipv4", "prefix": 24},
            {"ip-address": "odd"},
        ]});
        let read = read_interface(&row);
        let told = |address: &GuestAddress| format!("{address} {}", address.is_link_local());
        let all: Vec<String> = read.addresses.iter().map(told).collect();
        assert_eq!(all, ["169.254.3.4/16 true", "fe80::1/64 true", "10.0.0.5/24 false"]);
        assert_eq!(read.mac, Some("02:a5:00:00:00:65".parse().unwrap()));
    }
}
