//! The binary from outside, on both backends: the same reservations, found the same ways.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::kea::{RealKea, installed};
use lab::opnsense::{KEY, OpnsenseDouble, Release, SECRET};
use lab::program::{Program, with};
use lab::proxy::Proxy;
use serde_json::{Value, json};

fn module() -> Program {
    Program::new(env!("CARGO_BIN_EXE_kea_reservation_info"))
}

/// Finds by each option, and returns the addresses found.
fn found(reach: &Value, options: Value) -> Vec<String> {
    let result = module().run(&with(reach, options)).done();
    assert_eq!(result["changed"], false);
    let addresses = result["reservations"].as_array().unwrap().iter();
    addresses.map(|one| one["ip_address"].as_str().unwrap().to_owned()).collect()
}

fn finds_every_way(reach: &Value) {
    assert_eq!(found(reach, json!({})), ["10.20.0.5", "10.20.0.21", "10.30.0.21"]);
    for mac in ["02:a5:00:00:00:65", "02-A5-00-00-00-65", "02a5.0000.0065"] {
        assert_eq!(found(reach, json!({"mac": mac})), ["10.20.0.21", "10.30.0.21"], "{mac}");
    }
    assert_eq!(found(reach, json!({"mac": "02:a5:00:00:00:65", "subnet": "10.30.0.0/24"})), ["10.30.0.21"]);
    assert_eq!(found(reach, json!({"ip": "10.20.0.5"})), ["10.20.0.5"]);
    assert!(found(reach, json!({"ip": "10.20.0.2"})).is_empty(), "not the beginning of an address");
    assert_eq!(found(reach, json!({"hostname": "WEB01"})), ["10.20.0.21"]);
    assert_eq!(found(reach, json!({"hostname": "db01"})), ["10.20.0.5"], "stored with a domain");
    assert!(found(reach, json!({"hostname": "db01.elsewhere.net"})).is_empty());
    let key = module().run(&with(reach, json!({"ip": "10.20.0.5"}))).done()["reservations"][0]["subnet_key"]
        .clone();
    assert_eq!(found(reach, json!({"subnet": key})), ["10.20.0.5", "10.20.0.21"]);
    let refused = module().run(&with(reach, json!({"subnet": "10.20.0.0/33"}))).failed();
    assert_eq!((&refused["error_code"], &refused["option"]), (&json!("bad_argument"), &json!("subnet")));
}

#[test]
fn on_opnsense_of_every_row_shape_with_two_thousand_others() {
    for release in [Release::V25_1, Release::V25_7, Release::V26_7_2] {
        let mut firewall = OpnsenseDouble::builder()
            .release(release)
            .subnet("10.20.0.0/24", "10.20.0.100-10.20.0.199")
            .subnet("10.30.0.0/24", "")
            .subnet("10.64.0.0/16", "");
        for (subnet, mac, ip, name) in [
            ("10.30.0.0/24", "02:a5:00:00:00:65", "10.30.0.21", ""),
            ("10.20.0.0/24", "02:A5:00:00:00:65", "10.20.0.21", "web01"),
            ("10.20.0.0/24", "52:54:00:00:00:01", "10.20.0.5", "db01.example.net"),
        ] {
            let values = [
                ("hw_address", mac),
                ("ip_address", ip),
                ("hostname", name),
                ("description", "x [anvil:me]"),
            ];
            firewall = firewall.reservation(subnet, &values);
        }
        let firewall = firewall.start();
        let proxy = Proxy::to(&firewall.url()).tls().start();
        let reach = json!({
            "api_host": proxy.host(), "api_port": proxy.port(), "ca_path": proxy.ca_path(), "api_key": KEY,
            "api_secret": SECRET,
        });
        finds_every_way(&reach);
        assert!(proxy.writes().is_empty());
        let one = module().run(&with(&reach, json!({"hostname": "web01"}))).done()["reservations"][0].clone();
        assert_eq!(
            (&one["owner"], &one["description"], &one["subnet"]),
            (&json!("me"), &json!("x"), &json!("10.20.0.0/24"))
        );
        for number in 0..2000_u32 {
            let mac = format!("52:54:01:00:{:02x}:{:02x}", number / 256, number % 256);
            let ip = format!("10.64.{}.{}", number / 256, number % 256);
            firewall.store_reservation(
                "10.64.0.0/16",
                &[("hw_address", mac.as_str()), ("ip_address", ip.as_str())],
            );
        }
        proxy.forget();
        assert_eq!(found(&reach, json!({"hostname": "web01"})), ["10.20.0.21"]);
        let requests = if release < Release::V25_7 { 2 } else { 1 };
        assert_eq!(proxy.log().len(), requests, "{release}: requests do not grow with the reservations");
    }
}

#[test]
fn on_plain_kea() {
    if !lab::present(installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)") {
        return;
    }
    let kea = RealKea::start(&json!({"Dhcp4": {"subnet4": [
        {"id": 1, "subnet": "10.20.0.0/24", "reservations": [
            {"hw-address": "02:a5:00:00:00:65", "ip-address": "10.20.0.21", "hostname": "web01"},
            {"hw-address": "52:54:00:00:00:01", "ip-address": "10.20.0.5", "hostname": "db01.example.net"},
        ]},
        {"id": 9, "subnet": "10.30.0.0/24", "reservations": [
            {"hw-address": "02:a5:00:00:00:65", "ip-address": "10.30.0.21"},
        ]},
    ]}}))
    .unwrap();
    for reach in [json!({"kea_socket": kea.socket()}), json!({"kea_url": kea.url()})] {
        finds_every_way(&with(&reach, json!({"backend": "kea"})));
    }
    let all =
        module().run(&json!({"backend": "kea", "kea_url": kea.url(), "mac": "52:54:00:00:00:01"})).done();
    insta::assert_snapshot!(all["reservations"][0], @r#"{"hw_address":"52:54:00:00:00:01","client_id":"","ip_address":"10.20.0.5","hostname":"db01.example.net","next_server":"","boot_file_name":"","tftp_server_name":"","option_data":[],"client_classes":[],"description":"","owner":"","subnet":"10.20.0.0/24","subnet_key":"1","uuid":null}"#);
    assert_eq!(
        all["subnets"],
        json!([{"subnet": "10.20.0.0/24", "subnet_key": "1"}, {"subnet": "10.30.0.0/24", "subnet_key": "9"}])
    );
}
