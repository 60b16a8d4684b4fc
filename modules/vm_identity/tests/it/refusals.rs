//! Everything that is refused, in words, and without a byte written.

use std::process::Command;

use serde_json::{Value, json};

use crate::inventory::Inventory;

/// Refused for web01, nothing written; the result.
fn refused(inventory: &Inventory, more: &Value) -> Value {
    let before = inventory.files();
    let result = inventory.run("web01", more);
    assert_eq!(result["failed"], true, "{result}");
    assert!(result.get("changed").is_none_or(|changed| changed == false), "{result}");
    assert_eq!(inventory.files(), before);
    result
}

fn msg(result: &Value) -> &str {
    result["msg"].as_str().unwrap()
}

#[test]
fn a_layout_without_a_place_for_the_file() {
    for (file, expected) in [
        (None, "write the host's variables to host_vars/web01/vars.yml"),
        (Some("web01.yml"), "found the file host_vars/web01.yml; mv "),
        (Some("web01"), "found the file host_vars/web01; mv "),
        (Some("web01/main.yml"), "found host_vars/web01 without vars.yml"),
    ] {
        let inventory = Inventory::of(&["web02"]);
        file.into_iter().for_each(|file| inventory.write(file, "a: 1\n"));
        let result = refused(&inventory, &json!({}));
        assert_eq!(result["error_code"], "refused");
        assert!(msg(&result).contains(expected), "{result}");
    }
    let empty = Inventory::of(&[]);
    assert!(
        msg(&refused(&empty, &json!({})))
            .contains("set `inventory_dir` to the directory that holds host_vars")
    );
}

#[test]
fn the_advice_for_a_plain_file_works_as_it_stands() {
    for plain in ["web01.yml", "web01.json", "web01"] {
        let inventory = Inventory::of(&["web02"]);
        inventory.write(plain, "{\"a\": 1}\n");
        let result = refused(&inventory, &json!({}));
        let (_, advice) = msg(&result).split_once("; ").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-ec", advice]).current_dir(inventory.directory());
        assert!(shell.status().unwrap().success(), "{advice}");
        assert_eq!(inventory.run("web01", &json!({}))["changed"], true, "{advice}");
    }
}

#[test]
fn a_full_range_names_the_holders() {
    let inventory = Inventory::of(&["web01", "web02"]);
    inventory.write("web02/identity.yml", "anvil_assigned_vmid: 1000\n");
    let result = refused(&inventory, &json!({"vmid_range": [1000, 1000]}));
    assert!(msg(&result).contains("(1000: host `web02` (host_vars/web02/identity.yml))"), "{result}");
    assert_eq!(result["holders"][0]["vmid"], 1000);
}

#[test]
fn hosts_that_share_a_vmid_or_a_mac_are_named() {
    for text in ["anvil_assigned_vmid: 1000\n", "anvil_assigned_mac: '02:a5:00:00:03:e8'\n"] {
        let inventory = Inventory::of(&["web01", "web02", "web03"]);
        inventory.write("web02/identity.yml", text);
        inventory.write("web03/identity.yml", text);
        let result = refused(&inventory, &json!({}));
        assert_eq!(result["hosts"], json!(["web02", "web03"]));
        assert!(msg(&result).contains("`web02`") && msg(&result).contains("`web03`"), "{result}");
    }
}

#[test]
fn an_identity_that_contradicts_itself_or_cannot_be_read() {
    for (text, expected) in [
        (
            "anvil_assigned_vmid: 1000\nanvil_assigned_mac: '02:a5:00:00:03:e9'\n",
            "the MAC contradicts the VMID",
        ),
        ("anvil_assigned_vmid: 16777216\n", "at most 16777215"),
        ("anvil_assigned_vmid: [\n", "expected YAML with keys and values"),
        ("anvil_assigned_vmid: 1\n", "a whole number from 100"),
        ("$ANSIBLE_VAULT;1.1;AES256\n616263\n", "it is encrypted with ansible-vault"),
        ("- a list\n", "found something else"),
    ] {
        let inventory = Inventory::of(&["web01"]);
        inventory.write("web01/identity.yml", text);
        let result = refused(&inventory, &json!({}));
        assert_eq!(result["error_code"], "refused");
        assert_eq!(result["file"], "host_vars/web01/identity.yml");
        assert!(msg(&result).contains(expected), "{result}");
    }
    let inventory = Inventory::of(&["web01"]);
    inventory.write("web01/identity.yml", [0xff, 0xfe]);
    assert!(msg(&refused(&inventory, &json!({}))).contains("expected UTF-8 text"));
}

#[test]
fn another_hosts_unreadable_identity_stops_an_allocation() {
    let inventory = Inventory::of(&["web01", "web02"]);
    inventory.write("web02/identity.yml", "anvil_assigned_vmid: [\n");
    assert_eq!(refused(&inventory, &json!({}))["file"], "host_vars/web02/identity.yml");
}

#[test]
fn an_identity_of_its_own_in_another_file() {
    let inventory = Inventory::of(&["web01"]);
    inventory.write("web01/vars.yml", "anvil_assigned_vmid: 1000\n");
    let result = refused(&inventory, &json!({}));
    assert!(msg(&result).contains("belongs in host_vars/web01/identity.yml"), "{result}");
}

#[test]
fn arguments_that_are_wrong_in_themselves() {
    for (more, option) in [
        (json!({"host": "../web01"}), "host"),
        (json!({"host": "/etc"}), "host"),
        (json!({"hosts": ["web02"]}), "hosts"),
        (json!({"vmid_range": "1000-16777216"}), "vmid_range"),
        (json!({"vmid_range": null}), "vmid_range"),
        (json!({"mac_prefix": "01:00:5e"}), "mac_prefix"),
        (json!({"api_host": "https://pve"}), "api_host"),
        (json!({"api_host": "pve"}), "api_token_id"),
    ] {
        let result = refused(&Inventory::of(&["web01"]), &more);
        assert_eq!(result["error_code"], "bad_argument", "{result}");
        assert_eq!(result["option"], option, "{result}");
    }
}

#[test]
fn a_directory_in_place_of_the_file() {
    let inventory = Inventory::of(&["web01"]);
    inventory.write("web01/identity.yml/not a file", "");
    let result = refused(&inventory, &json!({}));
    assert!(msg(&result).contains("identity.yml"), "{result}");
}
