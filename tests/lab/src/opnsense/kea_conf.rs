//! `kea-dhcp4.conf` as OPNsense writes it, and what can be read from one.
//!
//! Source: opnsense/core models/OPNsense/Kea/KeaDhcpv4.php (`generateConfig`, `getConfigSubnets`).

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::model::{Item, Network, Table};
use super::php;
use super::release::Release;
use super::store::Store;

const SYSTEM_DOMAIN: &str = "internal";
const LAN_DEVICE: &str = "vtnet0";

/// The file that the generator writes.
pub(super) fn render(store: &Store, release: Release) -> Value {
    let general = |field: &str| store.kea_general.get(field).map_or("", String::as_str);
    let subnets = store.table(Table::Subnets).iter().enumerate();
    let subnets: Vec<Value> =
        subnets.map(|(index, subnet)| render_subnet(index, subnet, store, release)).collect();
    let mut dhcp4 = json!({
        "valid-lifetime": number(general("valid_lifetime")),
        "interfaces-config": {"interfaces": [LAN_DEVICE], "dhcp-socket-type": general("dhcp_socket_type")},
        "lease-database": {"type": "memfile", "persist": true},
        "control-socket": {"socket-type": "unix", "socket-name": "/var/run/kea/kea4-ctrl-socket"},
        "loggers": [{"name": "kea-dhcp4", "output_options": [{"output": "syslog"}], "severity": "INFO"}],
        "subnet4": subnets,
    });
    if release >= Release::V26_1_9 {
        dhcp4["decline-probation-period"] = json!(600);
        dhcp4["interfaces-config"]["service-sockets-max-retries"] = json!(5);
        dhcp4["interfaces-config"]["service-sockets-retry-wait-time"] = json!(5000);
    }
    if release >= Release::V26_1 {
        let hooks = ["lease_cmds", "host_cmds"]
            .map(|hook| json!({"library": format!("/usr/local/lib/kea/hooks/libdhcp_{hook}.so")}));
        dhcp4["hooks-libraries"] = json!(hooks);
    }
    json!({"Dhcp4": dhcp4})
}

fn render_subnet(index: usize, subnet: &Item, store: &Store, release: Release) -> Value {
    let id = if release >= Release::V26_7_2 { number(subnet.get("subnet_id")) } else { json!(index + 1) };
    let pools = subnet.get("pools").split('\n').filter(|pool| !pool.is_empty());
    let reservations =
        store.table(Table::Reservations).iter().filter(|item| item.get("subnet") == subnet.uuid);
    let mut record = json!({
        "id": id,
        "subnet": subnet.get("subnet"),
        "next-server": subnet.get("next_server"),
        "match-client-id": !php::empty(subnet.get("match-client-id")),
        "option-data": option_data(subnet, true),
        "pools": pools.map(|pool| json!({"pool": pool})).collect::<Vec<_>>(),
        "reservations": reservations.map(|item| render_reservation(item, release)).collect::<Vec<_>>(),
    });
    if !subnet.get("allocator").is_empty() {
        record["allocator"] = json!(subnet.get("allocator"));
    }
    if release >= Release::V26_1_8 {
        record["user-context"] = user_context(subnet);
    }
    record
}

fn render_reservation(item: &Item, release: Release) -> Value {
    let mut host = Map::new();
    for field in ["ip_address", "hostname"] {
        if !php::empty(item.get(field)) {
            host.insert(field.replace('_', "-"), json!(item.get(field)));
        }
    }
    let mac = item.get("hw_address");
    if !mac.is_empty() {
        let mac = if release >= Release::V25_1_7 { mac.replace('-', ":") } else { mac.to_owned() };
        host.insert("hw-address".into(), json!(mac));
    } else if !item.get("client_id").is_empty() {
        host.insert("client-id".into(), json!(item.get("client_id")));
    }
    if release >= Release::V26_1_9 && !item.get("next_server").is_empty() {
        host.insert("next-server".into(), json!(item.get("next_server")));
    }
    let options = option_data(item, false);
    if release >= Release::V25_7 && !options.is_empty() {
        host.insert("option-data".into(), options.into());
    }
    if release >= Release::V26_1_8 {
        host.insert("user-context".into(), user_context(item));
    }
    host.into()
}

/// Set options, in the model's order; a subnet without a domain name gets the firewall's.
fn option_data(item: &Item, with_domain: bool) -> Vec<Value> {
    const NAMES: [&str; 11] = [
        "domain_name_servers",
        "domain_search",
        "routers",
        "static_routes",
        "classless_static_route",
        "domain_name",
        "ntp_servers",
        "time_servers",
        "tftp_server_name",
        "boot_file_name",
        "v6_only_preferred",
    ];
    let option = |name: &str| {
        let value = match item.get(&format!("option_data.{name}")) {
            "" if name == "domain_name" && with_domain => SYSTEM_DOMAIN,
            value => value,
        };
        (!value.is_empty()).then(|| json!({"name": name.replace('_', "-"), "data": value}))
    };
    NAMES.into_iter().filter_map(option).collect()
}

fn user_context(item: &Item) -> Value {
    let mut context = json!({"uuid": item.uuid});
    if !item.get("description").is_empty() {
        context["description"] = json!(item.get("description"));
    }
    context
}

fn number(text: &str) -> Value {
    json!(text.parse::<u64>().unwrap_or(0))
}

/// `config` without what belongs to the firewall's own machine: its network devices, FreeBSD's hook libraries, the
/// path of its control socket. What is left is what a client of the API can get wrong.
pub(super) fn portable(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(dhcp4) = config["Dhcp4"].as_object_mut() {
        dhcp4.shift_remove("hooks-libraries");
        dhcp4.shift_remove("control-socket");
        dhcp4.shift_remove("interfaces-config");
    }
    config
}

/// What Kea has against the hosts of `config`, where the real one is not installed to say so.
pub(super) fn refusal(config: &Value) -> Option<String> {
    let subnets = config["Dhcp4"]["subnet4"].as_array()?;
    subnets.iter().find_map(|subnet| {
        let mut seen = Vec::new();
        subnet["reservations"].as_array()?.iter().find_map(|host| {
            let text = host["hw-address"].as_str()?;
            let Some(mac) = mac_bytes(text) else {
                return Some(format!("invalid host identifier value '{text}'"));
            };
            if seen.contains(&mac) {
                return Some(format!(
                    "failed to add new host using the HW address '{text}': this host has already been added"
                ));
            }
            seen.push(mac);
            None
        })
    })
}

/// Six bytes of a MAC address in any notation with `:`, as Kea reads it.
pub(super) fn mac_bytes(text: &str) -> Option<Vec<u8>> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
    bytes.filter(|bytes| bytes.len() == 6)
}

/// The subnets of a configuration.
pub(super) fn subnets(config: &Value) -> impl Iterator<Item = &Value> + Clone {
    config["Dhcp4"]["subnet4"].as_array().into_iter().flatten()
}

/// The hosts of all subnets, each with its subnet.
pub(super) fn hosts(config: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    subnets(config).flat_map(|subnet| {
        subnet["reservations"].as_array().into_iter().flatten().map(move |host| (subnet, host))
    })
}

/// The data of a named DHCP option of a host or a subnet, `""` without.
pub(super) fn option<'a>(holder: &'a Value, name: &str) -> &'a str {
    let options = holder["option-data"].as_array().into_iter().flatten();
    options
        .into_iter()
        .find(|option| option["name"] == name)
        .and_then(|option| option["data"].as_str())
        .unwrap_or("")
}

/// Every address of a subnet's pools.
pub(super) fn pool_addresses(subnet: &Value) -> impl Iterator<Item = Ipv4Addr> + Clone {
    let pools = subnet["pools"].as_array().into_iter().flatten().filter_map(|pool| pool["pool"].as_str());
    pools.filter_map(pool_range).flat_map(|(first, last)| (first..=last).map(Ipv4Addr::from))
}

fn pool_range(pool: &str) -> Option<(u32, u32)> {
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
    match pool.split_once('-') {
        Some((first, last)) => address(first).zip(address(last)),
        None => Network::parse(pool).map(Network::range),
    }
}
