//! The binary against a real Kea on a cable of the test's own, and its refusals.
#![allow(clippy::unwrap_used)]

mod role;

use std::io::Write;
use std::process::{Command, Stdio};

use lab::kea::RealKea;
use lab::netns::Cable;
use serde_json::{Value, json};

const MAC: &str = "02:a5:00:00:00:64";

fn probe(mut command: Command, arguments: &Value) -> Value {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(arguments.to_string().as_bytes()).unwrap();
    serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap()
}

fn here(arguments: Value) -> Value {
    probe(Command::new(env!("CARGO_BIN_EXE_dhcp_probe")), &arguments)
}

fn inside(cable: &Cable, mut arguments: Value) -> Value {
    arguments["interface"] = Cable::INSIDE.into();
    probe(cable.inside(env!("CARGO_BIN_EXE_dhcp_probe")), &arguments)
}

/// A cable with a Kea on it that has a pool and one reservation. `net` is the first three bytes of the network: tests
/// run side by side, and a network has one place in this machine's routes.
fn kea_on_a_cable(net: &str) -> (RealKea, Cable) {
    let cable = Cable::lay(&format!("{net}.1/24")).unwrap();
    let kea = kea_on(&cable, net);
    (kea, cable)
}

fn kea_on(cable: &Cable, net: &str) -> RealKea {
    RealKea::start(&json!({"Dhcp4": {
        "interfaces-config": {"interfaces": [cable.outside()]},
        "valid-lifetime": 4000,
        "subnet4": [{
            "id": 1,
            "subnet": format!("{net}.0/24"),
            "pools": [{"pool": format!("{net}.100 - {net}.110")}],
            "option-data": [{"name": "routers", "data": format!("{net}.1")}],
            "reservations": [{
                "hw-address": MAC, "ip-address": format!("{net}.30"), "hostname": "web01",
                "next-server": format!("{net}.5"), "boot-file-name": "grubx64.efi",
                "option-data": [{"name": "boot-file-name", "data": "grubx64.efi"}],
            }],
        }],
    }}))
    .unwrap()
}

fn possible() -> bool {
    lab::present(lab::kea::installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)")
        && lab::present(lab::netns::possible(), "a network namespace (root, iproute2)")
}

#[test]
fn a_real_kea_offers_what_is_reserved() {
    if !possible() {
        return;
    }
    let (kea, cable) = kea_on_a_cable("10.88.0");

    let result = inside(&cable, json!({"mac": MAC, "architecture": "uefi_x64"}));
    let offer = &result["offer"];
    assert_eq!(result["changed"], false, "{result}");
    assert_eq!(offer["yiaddr"], "10.88.0.30", "{result}\n{}", kea.log());
    assert_eq!(offer["siaddr"], "10.88.0.5");
    assert_eq!(offer["file"], "grubx64.efi");
    assert_eq!(offer["boot_file_name"], "grubx64.efi");
    assert_eq!(offer["tftp_server_name"], "");
    assert_eq!(offer["host_name"], "web01");
    assert_eq!(offer["routers"], json!(["10.88.0.1"]));
    assert_eq!(offer["subnet_mask"], "255.255.255.0");
    assert_eq!(offer["lease_time"], 4000);
    assert_eq!(offer["server_id"], "10.88.0.1");
    assert_eq!(offer["options"]["54"], "0a580001");

    let expected =
        json!({"yiaddr": "10.88.0.30", "siaddr": "10.88.0.5", "file": "grubx64.efi", "tftp_server_name": ""});
    let result =
        inside(&cable, json!({"mac": "02-A5-00-00-00-64", "expect": expected, "_ansible_check_mode": true}));
    assert_eq!(result["changed"], false, "{result}");
}

#[test]
fn an_address_from_the_pool_is_named_as_such() {
    if !possible() {
        return;
    }
    let (kea, cable) = kea_on_a_cable("10.89.0");
    let expect = json!({"yiaddr": "10.89.0.30", "siaddr": "10.89.0.5"});
    let result = inside(&cable, json!({"mac": "02:a5:00:00:00:65", "expect": expect, "collect": 1}));
    assert_eq!(result["error_code"], "offer_mismatch", "{result}\n{}", kea.log());
    assert_eq!(result["field"], "yiaddr");
    assert_eq!(result["expected"], "10.89.0.30");
    let msg = result["msg"].as_str().unwrap();
    assert!(msg.contains("`yiaddr` is \"10.89.0.1"), "{msg}");
    assert!(msg.contains("`siaddr` is \"0.0.0.0\", expected \"10.89.0.5\""), "{msg}");
    assert_eq!(result["offers"].as_array().unwrap().len(), 1);
}

#[test]
fn silence_and_a_dead_interface_are_told_apart() {
    if !lab::present(lab::netns::possible(), "a network namespace (root, iproute2)") {
        return;
    }
    let cable = Cable::lay("10.90.0.1/24").unwrap();
    let silent = inside(&cable, json!({"mac": MAC, "timeout": 2}));
    assert_eq!(silent["error_code"], "timeout", "{silent}");
    assert!(silent["msg"].as_str().unwrap().contains("check the VLAN and the bridge"), "{silent}");
    cable.take_down().unwrap();
    let down = inside(&cable, json!({"mac": MAC, "timeout": 2}));
    assert_eq!(down["error_code"], "refused", "{down}");
    assert!(down["msg"].as_str().unwrap().contains("is down"), "{down}");
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    let table = [
        (json!({"mac": "02:a5:00:00:00"}), "mac"),
        (json!({"mac": 145_000}), "mac"),
        (json!({"mac": "01:00:5e:00:00:01"}), "mac"),
        (json!({"mac": MAC, "client_id": "01"}), "client_id"),
        (json!({"mac": MAC, "client_id": "0g:11"}), "client_id"),
        (json!({"mac": MAC, "client_id": "é1"}), "client_id"),
        (json!({"mac": MAC, "architecture": "amiga"}), "architecture"),
        (json!({"mac": MAC, "request": [256]}), "request[0]"),
        (json!({"mac": MAC, "collect": -1}), "collect"),
        (json!({"mac": MAC, "collect": 10}), "collect"),
        (json!({"mac": MAC, "collect": i64::MAX}), "collect"),
        (json!({"mac": MAC, "expect": {"yiaddr": "10.0.0"}}), "expect.yiaddr"),
        (json!({"mac": MAC, "expect": {"adress": "10.0.0.1"}}), "expect.adress"),
    ];
    for (mut arguments, option) in table {
        arguments["interface"] = "lo".into();
        let result = here(arguments);
        assert_eq!(result["error_code"], "bad_argument", "{result}");
        assert_eq!(result["option"], option, "{result}");
    }
}

#[test]
fn an_unknown_interface_is_answered_with_those_there_are() {
    let result = here(json!({"mac": MAC, "interface": "nowhere0"}));
    assert_eq!(result["error_code"], "not_found", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("only: "), "{result}");
    let loopback = here(json!({"mac": MAC, "interface": "lo"}));
    assert_eq!(loopback["error_code"], "refused", "{loopback}");
}
