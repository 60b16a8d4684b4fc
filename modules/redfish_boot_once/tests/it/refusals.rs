//! What is refused is only ever read.

use lab::redfish::{RedfishDouble, Tree};
use serde_json::{Value, json};

use crate::{SYSTEM, Site};

/// Runs in both modes; both refuse, and nothing but GET was sent. Returns the real run's result.
fn refused(tree: Tree, options: Value) -> Value {
    let site = Site::new(RedfishDouble::builder(tree));
    let options = site.options(options);
    let predicted = site.module.check(&options).failed();
    let result = site.module.run(&options).failed();
    assert_eq!(predicted["msg"], result["msg"]);
    assert_eq!(result["error_code"], "refused", "{result}");
    assert!(site.bmc.was_only_read(), "{:#?}", site.bmc.log());
    assert_eq!(result["changed"], false);
    result
}

#[test]
fn each_rule_of_the_guard_refuses() {
    let card = "A0-36-9F-00-00-01";
    for (tree, options, rule) in [
        (Tree::plain(), json!({"serial": "SN999999"}), "serial"),
        // The part number of a server that is no Dell.
        (Tree::plain(), json!({"serial": "P38411-B21"}), "serial"),
        (Tree::plain(), json!({"refuse_serials": ["X1", " sn123456"]}), "refuse_serials"),
        (Tree::plain(), json!({"refuse_macs": [card]}), "refuse_macs"),
        (Tree::idrac8(), json!({"serial": null, "refuse_serials": ["TAG1234"]}), "refuse_serials"),
        (Tree::plain().set(SYSTEM, "/SerialNumber", json!("   ")), json!({}), "unknown_serial"),
        (
            Tree::plain().set(SYSTEM, "/SerialNumber", json!("To be filled by O.E.M.")),
            json!({}),
            "unknown_serial",
        ),
        (Tree::plain().set(SYSTEM, "/SerialNumber", Value::Null), json!({"serial": null}), "unknown_serial"),
    ] {
        let result = refused(tree, options);
        assert_eq!(result["guard"], rule, "{result}");
        assert_eq!(result["system"]["power_state"], "Off", "what was read is told");
    }
}

#[test]
fn a_bmc_that_must_not_be_talked_to_is_not() {
    for (options, rule) in [
        (json!({"refuse_addresses": ["192.0.2.1", "127.0.0.1"]}), "refuse_addresses"),
        (json!({"refuse_addresses": ["localhost"]}), "refuse_addresses"),
        (json!({"guard": true}), "refuse_serials"),
        (json!({"guard": true, "refuse_serials": ["X1"]}), "refuse_macs"),
        (json!({"guard": true, "refuse_macs": ["00:11:22:33:44:55"]}), "refuse_serials"),
    ] {
        let site = Site::plain(&[]);
        let result = site.run(options).failed();
        assert_eq!(result["guard"], rule, "{result}");
        assert_eq!(site.bmc.log(), [], "not even a read");
    }
}

#[test]
fn with_both_lists_the_guard_lets_the_right_server_through() {
    let site = Site::plain(&[]);
    let lists = json!({"guard": true, "refuse_serials": ["X1"], "refuse_macs": ["00:11:22:33:44:55"]});
    assert_eq!(site.run(lists).done()["changed"], true);
}

#[test]
fn a_server_that_is_not_off_is_refused() {
    for (state, part) in [
        (json!("On"), "is already on, and a running server is never reset"),
        (json!("PoweringOn"), "is just being switched on"),
        (json!("PoweringOff"), "is on its way down"),
        (json!("Paused"), "is paused"),
        (json!("Sleeping"), "has an unknown power state"),
        (json!(null), "has an unknown power state"),
    ] {
        let tree = if state.is_null() {
            Tree::plain().set(SYSTEM, "/PowerState", Value::Null)
        } else {
            Tree::plain().set(SYSTEM, "/PowerState", state)
        };
        let result = refused(tree, json!({}));
        assert!(result["msg"].as_str().unwrap().contains(part), "{result}");
    }
}

#[test]
fn one_of_two_systems_must_be_named() {
    let result = refused(Tree::two_systems(), json!({"serial": null}));
    let msg = result["msg"].as_str().unwrap();
    assert!(
        msg.contains("1 (SKU P38411-B21, Model 3500), HGX_Baseboard_0 (SerialNumber 1643024000315)"),
        "{msg}"
    );
    let result = refused(Tree::two_systems(), json!({"serial": "SN123456"}));
    assert!(result["msg"].as_str().unwrap().contains("no system is the one asked for"), "{result}");
}

#[test]
fn what_the_bmc_does_not_offer_is_refused_with_what_it_does() {
    let result = refused(Tree::plain(), json!({"target": "UefiShell"}));
    let msg = result["msg"].as_str().unwrap();
    assert!(
        msg.contains("UefiShell is not offered; offered: None, Pxe, Cd, Usb, Hdd, BiosSetup, UefiHttp"),
        "{msg}"
    );
    let only_force = json!([{"Name": "ResetType", "AllowableValues": ["ForceOn", "ForceOff"]}]);
    let tree = Tree::plain().set(&format!("{SYSTEM}/ResetActionInfo"), "/Parameters", only_force);
    assert!(refused(tree, json!({}))["msg"].as_str().unwrap().contains("offered: ForceOn, ForceOff"));
}

#[test]
fn bad_arguments_are_found_before_anything_is_sent() {
    for (options, option) in [
        (json!({"target": "None"}), "target"),
        (json!({"target": "../x"}), "target"),
        (json!({"serial": "To be filled by O.E.M."}), "serial"),
        (json!({"serial": 1234}), "serial"),
        (json!({"refuse_serials": ["0000"]}), "refuse_serials[0]"),
        (json!({"refuse_macs": ["zz"]}), "refuse_macs[0]"),
        (json!({"refuse_addresses": ["no such host"]}), "refuse_addresses[0]"),
        (json!({"power_on": false, "verify_consumed": true}), "verify_consumed"),
        (json!({"api_host": "https://bmc1/"}), "api_host"),
    ] {
        let site = Site::plain(&[]);
        let result = site.run(options.clone()).failed();
        assert_eq!(result["option"], option, "{options} {result}");
        assert_eq!(site.bmc.log(), []);
    }
}
