//! The binary from outside, against doubles of BMCs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::program::{Program, with};
use lab::proxy::Proxy;
use lab::redfish::{PASSWORD, RedfishDouble, Tree};
use serde_json::{Value, json};

fn read(tree: Tree, options: Value) -> (RedfishDouble, lab::program::Outcome) {
    let double = RedfishDouble::builder(tree).start();
    let outcome = Program::new(env!("CARGO_BIN_EXE_redfish_info")).run(&with(&double.options(), options));
    (double, outcome)
}

#[test]
fn it_tells_what_a_declaration_needs() {
    let (double, outcome) = read(Tree::plain(), json!({}));
    let result = outcome.done();
    assert!(double.was_only_read());
    insta::assert_json_snapshot!(result, @r#"
    {
      "systems": [
        {
          "id": "1",
          "uri": "/redfish/v1/Systems/1",
          "manufacturer": "Contoso",
          "model": "3500",
          "serial_number": "SN123456  ",
          "sku": "P38411-B21",
          "serials": [
            "SN123456"
          ],
          "power_state": "Off",
          "boot": {
            "target": "None",
            "enabled": "Disabled",
            "mode": "UEFI",
            "allowed_targets": [
              "None",
              "Pxe",
              "Cd",
              "Usb",
              "Hdd",
              "BiosSetup",
              "UefiHttp"
            ]
          },
          "reset_types": [
            "On",
            "ForceOff",
            "GracefulShutdown",
            "ForceRestart",
            "Nmi",
            "PushPowerButton"
          ],
          "nics": [
            {
              "id": "1",
              "mac_address": "a0:36:9f:00:00:01",
              "link_status": "LinkUp"
            }
          ],
          "disks": [
            {
              "id": "0",
              "model": "MZ7LH960",
              "serial_number": "S45NNA0M1",
              "capacity_bytes": 960197124096,
              "media_type": "SSD",
              "protocol": "SATA"
            }
          ],
          "virtual_media": [
            {
              "id": "1",
              "media_types": [
                "Floppy",
                "USBStick"
              ],
              "inserted": false,
              "image": null,
              "can_insert": true,
              "can_eject": true
            },
            {
              "id": "2",
              "media_types": [
                "CD",
                "DVD"
              ],
              "inserted": false,
              "image": null,
              "can_insert": true,
              "can_eject": true
            }
          ]
        }
      ],
      "changed": false
    }
    "#);
}

#[test]
fn an_old_dell_tells_less_and_its_service_tag() {
    let result = read(Tree::idrac8(), json!({"session": true})).1.done();
    let system = &result["systems"][0];
    assert_eq!(system["serials"], json!(["CN7475158B0123", "TAG1234"]));
    assert_eq!(system["disks"][1]["serial_number"], json!(null));
    assert_eq!(system["virtual_media"][0]["can_insert"], false);
    assert_eq!(system["reset_types"], json!(["On", "ForceOff", "GracefulRestart", "PushPowerButton", "Nmi"]));
}

#[test]
fn of_several_systems_all_are_told_or_the_one_asked_for() {
    let ids = |options: Value| -> Vec<Value> {
        let result = read(Tree::two_systems(), options).1.done();
        result["systems"].as_array().unwrap().iter().map(|system| system["id"].clone()).collect()
    };
    assert_eq!(ids(json!({})), ["1", "HGX_Baseboard_0"]);
    assert_eq!(ids(json!({"system_id": "1"})), ["1"]);
    let result = read(Tree::two_systems(), json!({"system_id": "7"})).1.failed();
    assert_eq!(result["error_code"], "refused");
    assert!(result["msg"].as_str().unwrap().contains("there are: 1 (SKU"), "{result}");
}

#[test]
fn a_part_that_the_bmc_cannot_tell_takes_nothing_away_from_the_others() {
    let double = RedfishDouble::builder(Tree::plain()).start();
    let proxy = Proxy::to(&double.url()).tls().start();
    let broken = r#"{"error": {"code": "Base.1.0.GeneralError", "message": "no such luck"}}"#;
    proxy.on("GET", "/Systems/1/Storage").answer(500, "INTERNAL SERVER ERROR", broken);
    let reach = json!({"api_host": proxy.host(), "api_port": proxy.port(), "ca_path": proxy.ca_path()});
    let result = Program::new(env!("CARGO_BIN_EXE_redfish_info")).run(&with(&double.options(), reach)).done();
    let system = &result["systems"][0];
    assert_eq!((&system["disks"], &system["nics"][0]["id"]), (&json!(null), &json!("1")));
    assert_eq!(system["virtual_media"][1]["id"], "2");
    let warning = result["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("disks cannot be read: ") && warning.contains("500"), "{warning}");
}

#[test]
fn who_cannot_be_reached_or_believed_has_an_error_code() {
    for (options, code) in [
        (json!({"api_port": 1}), "unreachable"),
        (json!({"api_password": "wrong-one"}), "auth"),
        (json!({"ca_path": null, "tls_fingerprint": "00".repeat(32)}), "tls"),
        (json!({"ca_path": null, "tls_fingerprint": "00"}), "bad_argument"),
    ] {
        let (double, outcome) = read(Tree::plain(), options);
        assert!(!outcome.output.contains(PASSWORD));
        assert_eq!(outcome.failed()["error_code"], code);
        assert!(double.was_only_read());
    }
}
