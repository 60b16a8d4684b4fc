//! The DHCPv4 server's configuration: found, edited and compared without touching the rest of it.

use std::fmt;
use std::net::Ipv4Addr;

use net_types::{HostIdentifier, Ipv4Cidr};
use serde_json::{Map, Value};

use crate::{Error, Reservation};

/// The arguments of `config-get`, `config-test` and `config-set`: `{"Dhcp4": {...}}`.
///
/// It holds database and control passwords in clear, so its `Debug` shows none of it.
#[derive(Clone)]
pub struct Dhcp4Config(Map<String, Value>);

/// What matters of a `subnet4` entry for a reservation in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subnet {
    /// `id`: what the host commands and lease commands call `subnet-id`.
    pub id: u64,
    pub cidr: Ipv4Cidr,
    /// siaddr for every host of the subnet; inherited from shared network and global level.
    pub next_server: Option<Ipv4Addr>,
    /// The BOOTP `file` field for every host of the subnet, inherited likewise; empty when there is none.
    pub boot_file_name: String,
    /// Option 3 of the subnet.
    pub routers: Vec<Ipv4Addr>,
    /// First and last address of every pool.
    pub pools: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Kea looks for reservations of this subnet only outside its pools; one inside a pool is ignored.
    pub reservations_out_of_pool: bool,
    /// `match-client-id`: a client-id outranks the MAC when a lease is looked for.
    pub match_client_id: bool,
    pub reservations: Vec<Reservation>,
}

/// What matters of a class for a network boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientClass {
    pub name: String,
    pub next_server: Option<Ipv4Addr>,
    /// Empty when the class sets none.
    pub boot_file_name: String,
}

impl fmt::Debug for Dhcp4Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dhcp4Config(..)")
    }
}

impl Dhcp4Config {
    /// The configuration in the arguments of an answer to `config-get`.
    ///
    /// The `hash` of Kea 2.4 and newer is dropped: `config-set` refuses it.
    ///
    /// # Errors
    /// [`Error::Protocol`] when there is no `Dhcp4`: the answer came from the control agent itself or from
    /// another server.
    pub fn from_config_get(arguments: Value) -> Result<Self, Error> {
        let Value::Object(mut root) = arguments else {
            return Err(Error::protocol("config-get", "an object in arguments", "none"));
        };
        root.shift_remove("hash");
        if !root.get("Dhcp4").is_some_and(Value::is_object) {
            let found = root.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(Error::protocol("config-get", "a Dhcp4 configuration", &found));
        }
        Ok(Self(root))
    }

    pub(crate) fn arguments(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// Every subnet, those of shared networks included. An entry without an IPv4 prefix is left out.
    #[must_use]
    pub fn subnets(&self) -> Vec<Subnet> {
        let global = &self.0["Dhcp4"];
        let alone = entries(global, "subnet4").map(|subnet| parse_subnet(&[subnet, global]));
        let shared = entries(global, "shared-networks").flat_map(|network| {
            entries(network, "subnet4").map(move |subnet| parse_subnet(&[subnet, network, global]))
        });
        alone.chain(shared).flatten().collect()
    }

    /// Reservations outside every subnet (`Dhcp4.reservations`).
    #[must_use]
    pub fn global_reservations(&self) -> Vec<Reservation> {
        entries(&self.0["Dhcp4"], "reservations").filter_map(Reservation::from_value).collect()
    }

    /// The classes that the configuration defines (`client-classes`).
    #[must_use]
    pub fn client_classes(&self) -> Vec<ClientClass> {
        let class = |value: &Value| ClientClass {
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            next_server: value.get("next-server").and_then(set_address),
            boot_file_name: value.get("boot-file-name").and_then(set_text).unwrap_or_default().to_owned(),
        };
        entries(&self.0["Dhcp4"], "client-classes").map(class).collect()
    }

    /// Whether leases live in memory only: `config-set` then forgets every one of them.
    #[must_use]
    pub fn forgets_leases(&self) -> bool {
        let database = &self.0["Dhcp4"]["lease-database"];
        database["type"].as_str().unwrap_or("memfile") == "memfile" && database["persist"] == false
    }

    /// Whether hosts are also kept in a database, which this configuration does not show.
    #[must_use]
    pub fn has_hosts_database(&self) -> bool {
        let dhcp4 = &self.0["Dhcp4"];
        let is_set = |key: &str| {
            dhcp4.get(key).is_some_and(|value| *value != Value::Null && *value != Value::Array(vec![]))
        };
        is_set("hosts-database") || is_set("hosts-databases")
    }

    /// Puts a reservation into a subnet: in the place of the one of `replaces`, or at the end.
    ///
    /// # Errors
    /// [`Error::NoSubnet`]
    pub fn put(
        &mut self,
        subnet_id: u64,
        replaces: Option<&HostIdentifier>,
        reservation: Reservation,
    ) -> Result<(), Error> {
        let list = self.reservations_mut(subnet_id)?;
        let place = list.iter().position(|value| replaces.is_some() && host_of(value).as_ref() == replaces);
        match place {
            Some(index) => list[index] = reservation.into_value(),
            None => list.push(reservation.into_value()),
        }
        Ok(())
    }

    /// Removes the reservation of a host from a subnet; nothing happens when there is none.
    ///
    /// # Errors
    /// [`Error::NoSubnet`]
    pub fn remove(&mut self, subnet_id: u64, host: &HostIdentifier) -> Result<(), Error> {
        self.reservations_mut(subnet_id)?.retain(|value| host_of(value).as_ref() != Some(host));
        Ok(())
    }

    /// Whether two configurations are the same but for the reservations of `hosts` in one subnet.
    ///
    /// Kea shows the reservations of a subnet in an order of its own, so their order does not count.
    #[must_use]
    pub fn same_but_for(&self, other: &Self, subnet_id: u64, hosts: &[HostIdentifier]) -> bool {
        let without = |config: &Self| {
            let mut config = config.clone();
            for host in hosts {
                let _ = config.remove(subnet_id, host);
            }
            config
        };
        without(self).same_as(&without(other))
    }

    /// Whether two configurations say the same; the order of reservations does not count.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        let ordered = |config: &Self| {
            let mut config = config.0["Dhcp4"].clone();
            order_reservations(&mut config);
            config
        };
        ordered(self) == ordered(other)
    }

    fn reservations_mut(&mut self, subnet_id: u64) -> Result<&mut Vec<Value>, Error> {
        let subnet = self.subnet_mut(subnet_id).ok_or(Error::NoSubnet { id: subnet_id })?;
        let list = subnet.entry("reservations").or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().ok_or(Error::NoSubnet { id: subnet_id })
    }

    fn subnet_mut(&mut self, id: u64) -> Option<&mut Map<String, Value>> {
        let global = self.0.get_mut("Dhcp4")?.as_object_mut()?;
        let (mut alone, mut shared) = (None, None);
        for (key, value) in global.iter_mut() {
            match key.as_str() {
                "subnet4" => alone = value.as_array_mut(),
                "shared-networks" => shared = value.as_array_mut(),
                _ => {}
            }
        }
        let networks = shared.into_iter().flatten();
        let in_networks = networks.filter_map(|network| network.get_mut("subnet4")?.as_array_mut()).flatten();
        alone
            .into_iter()
            .flatten()
            .chain(in_networks)
            .find(|subnet| subnet["id"].as_u64() == Some(id))?
            .as_object_mut()
    }
}

fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn order_reservations(level: &mut Value) {
    if let Some(list) = level.get_mut("reservations").and_then(Value::as_array_mut) {
        list.sort_by_cached_key(Value::to_string);
    }
    for key in ["subnet4", "shared-networks"] {
        let inner = level.get_mut(key).and_then(Value::as_array_mut);
        inner.into_iter().flatten().for_each(order_reservations);
    }
}

fn host_of(value: &Value) -> Option<HostIdentifier> {
    Reservation::from_value(value)?.host()
}

/// `levels`: the subnet first, then what it inherits from.
fn parse_subnet(levels: &[&Value]) -> Option<Subnet> {
    let subnet = *levels.first()?;
    let inherited = |key: &str| levels.iter().find_map(|level| level.get(key));
    let flag = |key: &str, default: bool| inherited(key).and_then(Value::as_bool).unwrap_or(default);
    let routers = levels.iter().find_map(|level| {
        entries(level, "option-data").find(|option| option["name"] == "routers")?["data"].as_str()
    });
    let boot_file_name = levels.iter().find_map(|level| set_text(level.get("boot-file-name")?));
    Some(Subnet {
        id: subnet["id"].as_u64()?,
        cidr: subnet["subnet"].as_str()?.parse().ok()?,
        next_server: levels.iter().find_map(|level| set_address(level.get("next-server")?)),
        boot_file_name: boot_file_name.unwrap_or_default().to_owned(),
        routers: routers.unwrap_or_default().split(',').filter_map(|word| word.trim().parse().ok()).collect(),
        pools: entries(subnet, "pools").filter_map(|pool| parse_pool(pool["pool"].as_str()?)).collect(),
        reservations_out_of_pool: flag("reservations-out-of-pool", false),
        match_client_id: flag("match-client-id", true),
        reservations: entries(subnet, "reservations").filter_map(Reservation::from_value).collect(),
    })
}

fn set_text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn set_address(value: &Value) -> Option<Ipv4Addr> {
    value.as_str()?.parse().ok().filter(|address: &Ipv4Addr| !address.is_unspecified())
}

/// `10.0.0.10-10.0.0.20`, or a prefix.
fn parse_pool(text: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    if let Some((first, last)) = text.split_once('-') {
        return Some((first.trim().parse().ok()?, last.trim().parse().ok()?));
    }
    let cidr: Ipv4Cidr = text.trim().parse().ok()?;
    let first = cidr.network().address();
    Some((first, Ipv4Addr::from_bits(first.to_bits() | !cidr.netmask().to_bits())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Dhcp4Config {
        Dhcp4Config::from_config_get(json!({
            "Dhcp4": {
                "next-server": "10.0.0.9",
                "option-data": [{"name": "routers", "data": "10.0.0.254"}],
                "subnet4": [{
                    "id": 1, "subnet": "10.20.0.0/24", "next-server": "0.0.0.0",
                    "option-data": [{"name": "routers", "data": "10.20.0.1, 10.20.0.2"}],
                    "pools": [{"pool": "10.20.0.100-10.20.0.199"}, {"pool": "10.20.0.64/28"}],
                    "reservations": [
                        {"hw-address": "02:a5:00:00:00:65", "ip-address": "10.20.0.21"},
                        {"client-id": "01:02:03", "ip-address": "10.20.0.22"},
                    ],
                }],
                "shared-networks": [{
                    "name": "lab", "next-server": "10.30.0.2", "reservations-out-of-pool": true,
                    "subnet4": [{"id": 7, "subnet": "10.30.0.0/24", "match-client-id": false}],
                }],
                "reservations": [{"hw-address": "02:a5:00:00:00:99", "hostname": "everywhere"}],
                "hosts-database": {"password": "open sesame"},
            },
            "hash": "5C3C90EF7035249E2FF74D003C19F34EE0B83A3D329E741B52B2EF95A2C9CC5C",
        }))
        .unwrap()
    }

    fn mac(text: &str) -> HostIdentifier {
        HostIdentifier::Mac(text.parse().unwrap())
    }

    #[test]
    fn subnets_inherit_from_their_network_and_the_global_level() {
        let config = config();
        let [plain, shared] = &config.subnets()[..] else { panic!("two subnets") };
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        assert_eq!(plain.next_server, Some(address("10.0.0.9")), "0.0.0.0 is not set");
        assert_eq!(plain.routers, [address("10.20.0.1"), address("10.20.0.2")]);
        assert_eq!(
            plain.pools,
            [
                (address("10.20.0.100"), address("10.20.0.199")),
                (address("10.20.0.64"), address("10.20.0.79"))
            ]
        );
        assert!(plain.match_client_id && !plain.reservations_out_of_pool);
        assert_eq!(plain.reservations.len(), 2);
        assert_eq!(shared.next_server, Some(address("10.30.0.2")));
        assert_eq!(shared.routers, [address("10.0.0.254")]);
        assert!(!shared.match_client_id && shared.reservations_out_of_pool);
        assert_eq!(config.global_reservations()[0].hostname(), "everywhere");
    }

    #[test]
    fn an_edit_touches_one_reservation_only() {
        let before = config();
        let mut after = before.clone();
        let mut moved = Reservation::new(mac("02:a5:00:00:00:65"));
        moved.set_ip(Ipv4Addr::new(10, 20, 0, 31));
        after.put(1, Some(&mac("02:a5:00:00:00:65")), moved).unwrap();
        after.put(7, None, Reservation::new(mac("02:a5:00:00:00:66"))).unwrap();
        let subnets = after.subnets();
        assert_eq!(subnets[0].reservations[0].ip(), Some(Ipv4Addr::new(10, 20, 0, 31)), "in its old place");
        assert_eq!(subnets[0].reservations.len(), 2);
        assert_eq!(subnets[1].reservations[0].host(), Some(mac("02:a5:00:00:00:66")));
        after.remove(7, &mac("02:a5:00:00:00:66")).unwrap();
        assert!(!before.same_but_for(&after, 1, &[]), "the address differs");
        let mut other = after.clone();
        other.remove(1, &mac("02:a5:00:00:00:65")).unwrap();
        assert!(other.same_but_for(&after, 1, &[mac("02:a5:00:00:00:65")]));
    }

    #[test]
    fn an_unknown_subnet_is_an_error() {
        let error = config().remove(99, &mac("02:a5:00:00:00:65")).unwrap_err();
        assert_eq!(error.to_string(), "no subnet with id 99 in Kea's configuration");
    }

    #[test]
    fn the_hash_is_dropped_and_another_configuration_is_refused() {
        assert_eq!(config().arguments().get("hash"), None);
        let error = Dhcp4Config::from_config_get(json!({"Control-agent": {}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "config-get: expected a Dhcp4 configuration, found Control-agent: \
             is this the control agent of a DHCPv4 server?"
        );
    }

    #[test]
    fn debug_shows_no_password() {
        assert_eq!(format!("{:?}", config()), "Dhcp4Config(..)");
    }
}
