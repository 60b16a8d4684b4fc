use insta::assert_snapshot;
use serde_json::Value;

use super::*;

fn refusal(options: Value) -> String {
    let mut raw = json!({
        "api_host": "fw", "api_key": "k", "api_secret": "s", "mac": "02:a5:00:00:00:65", "ip": "10.20.0.21",
    });
    for (key, value) in options.as_object().unwrap() {
        raw[key] = value.clone();
    }
    let checked = Arguments::for_tests(&spec(), raw).and_then(|arguments| Args::new(&arguments));
    let failure = checked.expect_err(&options.to_string());
    assert_eq!(failure.code.as_str(), "bad_argument");
    failure.msg
}

#[test]
fn wrong_arguments_are_told_without_asking_anybody() {
    assert_snapshot!(refusal(json!({"mac": "02:a5:00:00:65"})), @r#"option `mac`: "02:a5:00:00:65" is not a MAC address: expected 6 bytes of two hex digits each (like 02:a5:00:00:00:64), found 5 bytes"#);
    assert_snapshot!(refusal(json!({"mac": "01:02:a5:00:00:00:65"})), @r#"option `mac`: "01:02:a5:00:00:00:65" is not a MAC address: expected 6 bytes of two hex digits each (like 02:a5:00:00:00:64), found 7 bytes"#);
    assert_snapshot!(refusal(json!({"mac": 8_912_345})), @"option `mac`: expected a MAC address as text, found the number 8912345; quote it in the YAML");
    assert_snapshot!(refusal(json!({"mac": "ff:ff:ff:ff:ff:ff"})), @"option `mac`: ff:ff:ff:ff:ff:ff cannot be the address of a network card");
    assert_snapshot!(refusal(json!({"mac": "00:00:00:00:00:00"})), @"option `mac`: 00:00:00:00:00:00 cannot be the address of a network card");
    assert_snapshot!(refusal(json!({"ip": null})), @"with `state: present`, `ip` must be set");
    assert_snapshot!(refusal(json!({"ip": "10.20.0"})), @"option `ip`: expected an IPv4 address without a prefix length, found `10.20.0`");
    assert_snapshot!(refusal(json!({"ip": 10.2})), @"option `ip`: expected an IPv4 address as text, found the number 10.2; quote it in the YAML");
    assert_snapshot!(refusal(json!({"ip": "10.20.0.21/24"})), @"option `ip`: expected an IPv4 address without a prefix length, found `10.20.0.21/24`");
    assert_snapshot!(refusal(json!({"subnet": "10.30.0.0/24"})), @"option `ip`: 10.20.0.21 is not in the subnet 10.30.0.0/24");
    assert_snapshot!(refusal(json!({"subnet": "10.20.0.1/24"})), @"option `subnet`: 10.20.0.1/24 is an address in a network; the network is 10.20.0.0/24");
    assert_snapshot!(refusal(json!({"subnet": "10.20.0.0/33"})), @r#"option `subnet`: "10.20.0.0/33" is not an IPv4 network: expected an address and a prefix length (like 10.20.0.0/24), found "33" for the prefix length (0 to 32)"#);
    assert_snapshot!(refusal(json!({"hostname": "web01.example.net"})), @"option `hostname`: expected one label, found the full name `web01.example.net`: DHCP puts the domain of the subnet behind it, so the name would become web01.example.net.example.net; give `web01`");
    assert_snapshot!(refusal(json!({"hostname": "web_01"})), @r#"option `hostname`: "web_01" is not a host name: expected 1 to 63 letters, digits and hyphens, no hyphen at either end (RFC 1123), found the character '_'"#);
    assert_snapshot!(refusal(json!({"next_server": "boot.example.net"})), @"option `next_server`: expected an IPv4 address, found `boot.example.net`: siaddr cannot hold a name");
    assert_snapshot!(refusal(json!({"next_server": "0.0.0.0"})), @"option `next_server`: expected an IPv4 address, found `0.0.0.0`: siaddr cannot hold a name");
    assert_snapshot!(refusal(json!({"boot_file": "a,b"})), @r"option `boot_file`: the client would get `a,b` cut at the comma: write `\,`");
    assert_snapshot!(refusal(json!({"boot_file": "a\\\\,b"})), @r"option `boot_file`: the client would get `a\\,b` cut at the comma: write `\,`");
    assert_snapshot!(refusal(json!({"boot_file": "a\"b"})), @"option `boot_file`: quotation marks and line breaks cannot be part of it");
    assert_snapshot!(refusal(json!({"boot_file": "x".repeat(128)})), @"option `boot_file`: 128 bytes are too many: at most 127 fit");
    assert_snapshot!(refusal(json!({"backend": "kea", "kea_socket": "/s", "tftp_server_name": "a,b"})), @r"option `tftp_server_name`: the client would get `a,b` cut at the comma: write `\,`");
    assert_snapshot!(refusal(json!({"prune_stale": true})), @"option `prune_stale`: whose stale reservation may be removed? Give `hostname` or `owner` as well");
    assert_snapshot!(refusal(json!({"clear_lease": true, "apply": false})), @"option `clear_lease`: a lease is forgotten once the reservation is in effect: with `apply: false` it is not");
    assert_snapshot!(refusal(json!({"owner": "a]b"})), @"option `owner`: brackets and line breaks cannot be part of it");
    assert_snapshot!(refusal(json!({"hostname": "web01", "description": "x".repeat(250)})), @"option `description`: with the mark of its owner it is 264 characters long; OPNsense keeps 255");
    assert_snapshot!(refusal(json!({"description": "rack 3 [anvil:web01]"})), @"option `description`: `rack 3 [anvil:web01]` ends like the mark of an owner; give `owner` or `hostname` instead");
    assert_snapshot!(refusal(json!({"api_key": null})), @"with `backend: opnsense`, `api_key` must be set");
    assert_snapshot!(refusal(json!({"backend": "kea"})), @"with `backend: kea`, one of `kea_url`, `kea_socket` must be set");
    assert_snapshot!(refusal(json!({"backend": "kea", "kea_url": "http://k/", "kea_socket": "/s"})), @"only one of `kea_url`, `kea_socket` may be set");
    assert_snapshot!(refusal(json!({"mac": null})), @"one of `mac`, `client_id` is required");
    assert_snapshot!(refusal(json!({"client_id": "01:02"})), @"only one of `mac`, `client_id` may be set");
    assert_snapshot!(refusal(json!({"mac": null, "client_id": "1"})), @r#"option `client_id`: "1" is not a client identifier: expected 2 to 255 bytes in hexadecimal, type byte first (like 01:02:a5:00:00:00:64), found 1 digits"#);
    assert_snapshot!(refusal(json!({"mac": null, "client_id": "01:02", "netboot": true})), @"option `netboot`: a firmware sends another client identifier than the system it boots, so only one of them would get the address: reserve by `mac`");
    assert_snapshot!(refusal(json!({"option_data": [{"data": "10.20.0.1"}]})), @"one of `name`, `code` in `option_data[0]` is required");
    assert_snapshot!(refusal(json!({"option_data": [{"name": "routers", "data": ""}]})), @"option `option_data[0]`: `data` is empty: to remove an option, leave it out of the list");
    assert_snapshot!(refusal(json!({"option_data": [{"code": 66, "data": "x"}]})), @"option `option_data[0]`: that is the option `tftp_server_name` of this module");
    assert_snapshot!(refusal(json!({"option_data": [{"name": "boot-file-name", "data": "x"}]})), @"option `option_data[0]`: that is the option `boot_file` of this module");
    assert_snapshot!(refusal(json!({"option_data": [{"name": "root-path", "data": "x"}]})), @"option `option_data[0]`: OPNsense stores these by name: domain-name-servers, domain-search, routers, static-routes, classless-static-route, domain-name, ntp-servers, time-servers");
    assert_snapshot!(refusal(json!({"option_data": [{"name": "routers", "data": "10.20.0.1", "always_send": true}]})), @"option `option_data[0]`: OPNsense has neither `always_send` nor `csv_format: false`");
    assert_snapshot!(refusal(json!({"option_data": [{"name": "routers", "data": "10.20.0.1"}, {"name": "routers", "data": "10.20.0.2"}]})), @"option `option_data[1]`: the same option stands in the list before");
    assert_snapshot!(refusal(json!({"backend": "kea", "kea_socket": "/s", "option_data": [{"code": 67, "data": "a,b"}]})), @r"option `option_data`: the client would get `a,b` cut at the comma: write `\,`");
    assert_snapshot!(refusal(json!({"client_classes": ["uefi"]})), @"option `client_classes`: OPNsense puts no reservation into a class");
    assert_snapshot!(refusal(json!({"architecture": "x64"})), @"option `architecture`: expected one of bios, uefi_ia32, uefi_x64, uefi_arm64, uefi_x64_http, uefi_arm64_http, found `x64`");
    assert_snapshot!(refusal(json!({"backend": "kea", "kea_url": "http://k/", "persist": "file"})), @"with `persist: file`, `kea_socket` must be set");
    assert_snapshot!(refusal(json!({"hw_adress": "02:a5:00:00:00:65"})), @"Unsupported parameters for (homelab.anvil.kea_reservation) module: hw_adress. Supported parameters include: api_host, api_key, api_port, api_secret, api_timeout, apply, architecture, backend, boot_file, ca_path, clear_lease, client_classes, client_id, description, hostname, ip, kea_config_file, kea_password, kea_socket, kea_url, kea_user, mac, netboot, next_server, option_data, owner, persist, prune_stale, state, subnet, tftp_server_name, timeout, tls_fingerprint, validate_certs. Did you mean `hw_address`?");
}

#[test]
fn a_comma_is_fine_where_it_cannot_cut() {
    for options in
        [json!({"boot_file": "a\\,b"}), json!({"backend": "kea", "kea_socket": "/s", "boot_file": "a,b"})]
    {
        let mut raw = json!({
            "api_host": "fw", "api_key": "k", "api_secret": "s", "mac": "02:a5:00:00:00:65", "ip": "10.20.0.21",
        });
        raw.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let args = Args::new(&Arguments::for_tests(&spec(), raw).unwrap()).unwrap();
        assert_eq!(args.wanted.text(Field::BootFileName), options["boot_file"]);
    }
}

#[test]
fn every_spelling_of_a_mac_is_sent_in_one() {
    for mac in ["02:A5:00:00:00:65", "02-a5-00-00-00-65", "02a5.0000.0065", "02A500000065"] {
        let raw =
            json!({"api_host": "fw", "api_key": "k", "api_secret": "s", "mac": mac, "ip": "10.20.0.21"});
        let args = Args::new(&Arguments::for_tests(&spec(), raw).unwrap()).unwrap();
        assert_eq!(args.wanted.text(Field::HwAddress), "02:a5:00:00:00:65");
    }
}
