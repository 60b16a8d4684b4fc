//! From Kea's configuration.

use std::net::Ipv4Addr;

use kea_api::Dhcp4Config;
use serde_json::Value;

use crate::{Field, OptionData, Reservation, Reservations, Subnet};

/// Keys of a reservation's user context. Kea itself writes a `comment` there.
pub const COMMENT: &str = "comment";
pub const OWNER: &str = "homelab.anvil.owner";

/// Option 66 by its name in Kea.
pub const TFTP_SERVER_NAME: &str = "tftp-server-name";

/// Every reservation of a configuration, those outside every subnet included.
#[must_use]
pub fn all(config: &Dhcp4Config) -> Reservations {
    let mut all = Reservations::default();
    for subnet in config.subnets() {
        let key = subnet.id.to_string();
        all.reservations.extend(subnet.reservations.iter().map(|one| reservation(one, key.clone())));
        all.subnets.push(Subnet {
            key,
            cidr: subnet.cidr,
            routers: subnet.routers,
            next_server: subnet.next_server,
            boot_file_name: subnet.boot_file_name,
            match_client_id: subnet.match_client_id,
            forbidden: if subnet.reservations_out_of_pool { subnet.pools } else { Vec::new() },
        });
    }
    let everywhere = config.global_reservations();
    all.reservations.extend(everywhere.iter().map(|one| reservation(one, String::new())));
    all
}

/// Whether an entry of `option-data` is one that a reservation's `option_data` speaks of: of DHCPv4's own option space,
/// and not [`TFTP_SERVER_NAME`], which is a field of its own.
#[must_use]
pub fn is_option_data(entry: &Value) -> bool {
    entry["name"] != TFTP_SERVER_NAME && entry.get("space").is_none_or(|space| space == "dhcp4")
}

fn reservation(one: &kea_api::Reservation, subnet: String) -> Reservation {
    let address = |ip: Option<Ipv4Addr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
    let context = |key: &str| {
        let text = one.user_context().and_then(|context| context.get(key)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    let options = one.options().filter(|entry| is_option_data(entry)).map(OptionData::from_kea).collect();
    let values = [
        (Field::HwAddress, one.mac().map(|mac| mac.to_string()).unwrap_or_default()),
        (Field::ClientId, one.client_id().map(|client_id| client_id.to_string()).unwrap_or_default()),
        (Field::IpAddress, address(one.ip())),
        (Field::Hostname, one.hostname().to_owned()),
        (Field::NextServer, address(one.next_server())),
        (Field::BootFileName, one.boot_file_name().to_owned()),
        (Field::TftpServerName, one.option(TFTP_SERVER_NAME).unwrap_or_default().to_owned()),
        (Field::OptionData, OptionData::to_text(options)),
        (Field::ClientClasses, Field::list_text(one.client_classes())),
        (Field::Description, context(COMMENT)),
        (Field::Owner, context(OWNER)),
    ];
    Reservation {
        uuid: String::new(),
        subnet,
        host: one.host(),
        identifier: one.identifier(),
        values: values.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reservation_shows_everything_that_kea_holds() {
        let config = Dhcp4Config::from_config_get(json!({"Dhcp4": {"subnet4": [{
            "id": 1, "subnet": "10.20.0.0/24", "match-client-id": false, "boot-file-name": "all.efi",
            "reservations": [{
                "client-id": "01:02:A5", "ip-address": "10.20.0.21", "boot-file-name": "", "next-server": "0.0.0.0",
                "client-classes": ["b", "a"],
                "option-data": [
                    {"always-send": false, "code": 66, "csv-format": true, "data": "10.20.0.2", "name": "tftp-server-name", "space": "dhcp4"},
                    {"always-send": true, "code": 6, "csv-format": true, "data": "10.20.0.1, 10.20.0.2", "name": "domain-name-servers", "space": "dhcp4"},
                    {"code": 1, "data": "x", "space": "vendor-4491"},
                ],
            }],
        }]}}))
        .unwrap();
        let all = all(&config);
        assert!(!all.subnets[0].match_client_id);
        assert_eq!(all.subnets[0].boot_file_name, "all.efi");
        let one = &all.reservations[0];
        insta::assert_snapshot!(Value::from(one.to_object(all.cidr_of(&one.subnet))), @r#"{"hw_address":"","client_id":"01:02:a5","ip_address":"10.20.0.21","hostname":"","next_server":"","boot_file_name":"","tftp_server_name":"10.20.0.2","option_data":[{"name":"domain-name-servers","code":6,"data":"10.20.0.1, 10.20.0.2","always_send":true,"csv_format":true}],"client_classes":["a","b"],"description":"","owner":"","subnet":"10.20.0.0/24","subnet_key":"1","uuid":null}"#);
    }
}
