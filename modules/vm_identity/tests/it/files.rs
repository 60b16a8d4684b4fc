//! What is written, and what stays as it is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use serde_json::json;

use crate::inventory::Inventory;

#[test]
fn a_host_gets_the_next_free_vmid_and_its_mac() {
    let inventory = Inventory::of(&["web01", "web02"]);
    inventory.write(
        "web02/identity.yml",
        "anvil_assigned_vmid: 1000\nanvil_assigned_mac: \"02:a5:00:00:03:e8\"\n",
    );
    let result = inventory.run("web01", &json!({"_ansible_diff": true}));
    assert_eq!(result["changed"], true, "{result}");
    assert_eq!(
        result["identity"],
        json!({
            "host": "web01", "vmid": 1001, "mac": "02:a5:00:00:03:e9",
            "file": inventory.path("web01/identity.yml"),
        })
    );
    assert_eq!(
        result["ansible_facts"],
        json!({"anvil_assigned_vmid": 1001, "anvil_assigned_mac": "02:a5:00:00:03:e9"})
    );
    assert_eq!(result["read_back"]["held"], json!(["anvil_assigned_vmid", "anvil_assigned_mac"]));
    let written = inventory.identity("web01").unwrap();
    assert_eq!(result["diff"]["after"], written.as_str());
    assert_eq!(result["diff"]["before"], "");
    assert!(
        written.ends_with("anvil_assigned_vmid: 1001\nanvil_assigned_mac: \"02:a5:00:00:03:e9\"\n"),
        "{written}"
    );
    let mode = fs::metadata(inventory.path("web01/identity.yml")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn a_second_run_changes_no_byte_of_anything() {
    let inventory = Inventory::of(&["web01"]);
    let first = inventory.run("web01", &json!({}));
    let before = inventory.files();
    let inode = fs::metadata(inventory.path("web01/identity.yml")).unwrap().ino();
    for more in [json!({}), json!({"vmid_range": null}), json!({"vmid_range": "2000-2001"})] {
        let second = inventory.run("web01", &more);
        assert_eq!(second["changed"], false, "{second}");
        assert_eq!(second["identity"], first["identity"]);
        assert_eq!(second["ansible_facts"], first["ansible_facts"]);
    }
    assert_eq!(inventory.files(), before);
    assert_eq!(fs::metadata(inventory.path("web01/identity.yml")).unwrap().ino(), inode);
}

#[test]
fn comments_other_keys_and_the_mode_survive() {
    let inventory = Inventory::of(&["web01"]);
    let text =
        "# Rack B4\nlabel:  'web 1'   # on the front\nanvil_assigned_vmid: 0 # not yet\nports: [1,  2]\n";
    inventory.write("web01/identity.yml", text);
    let path = inventory.path("web01/identity.yml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(inventory.run("web01", &json!({}))["changed"], true);
    assert_eq!(
        inventory.identity("web01").unwrap(),
        "# Rack B4\nlabel:  'web 1'   # on the front\nanvil_assigned_vmid: 1000 # not yet\nports: [1,  2]\n\
         anvil_assigned_mac: \"02:a5:00:00:03:e8\"\n"
    );
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn the_missing_half_is_added_and_only_that_is_a_change() {
    let inventory = Inventory::of(&["web01"]);
    inventory.write("web01/identity.yml", "anvil_assigned_vmid: 140\n");
    let result = inventory.run("web01", &json!({"vmid_range": null, "mac_prefix": "06:11:22"}));
    assert_eq!(result["identity"]["mac"], "06:11:22:00:00:8c", "{result}");
    assert_eq!(result["read_back"]["held"], json!(["anvil_assigned_mac"]));
}

#[test]
fn check_mode_predicts_what_the_run_does_and_writes_nothing() {
    let hosts = ["web03", "web01", "web02"];
    let inventory = Inventory::of(&hosts);
    let before = inventory.files();
    let check = json!({"hosts": hosts, "_ansible_check_mode": true, "_ansible_diff": true});
    let predicted: Vec<_> = hosts.iter().map(|host| inventory.run(host, &check)).collect();
    assert_eq!(crate::inventory::vmids(&predicted), [1000, 1001, 1002]);
    for answer in &predicted {
        assert_eq!(answer["changed"], true);
        assert!(answer["diff"]["after"].as_str().unwrap().contains("anvil_assigned_vmid: 100"));
        assert!(answer.get("ansible_facts").is_none(), "a fact cache would keep a prediction");
    }
    assert_eq!(inventory.files(), before);

    let mut backwards: Vec<_> =
        hosts.iter().rev().map(|host| inventory.run(host, &json!({"hosts": hosts}))).collect();
    backwards.reverse();
    for (written, predicted) in backwards.iter().zip(&predicted) {
        assert_eq!(written["identity"], predicted["identity"]);
    }
}

#[test]
fn identities_in_other_files_count_as_taken() {
    let inventory = Inventory::of(&["web01", "web02"]);
    inventory.write("web02/vars.yml", "anvil_assigned_vmid: 1000\n");
    inventory.write("web03.yml", "anvil_assigned_mac: 02:a5:00:00:03:e9\n");
    inventory.write("web04/10/more.yml", "anvil_assigned_vmid: 1002\n");
    inventory.write("web05", "anvil_assigned_vmid: 1003\n");
    // What Ansible would not read does not count.
    inventory.write("web06/.hidden.yml", "anvil_assigned_vmid: 1004\n");
    inventory.write("web06/old.yml~", "anvil_assigned_vmid: 1004\n");
    inventory.write("web06/notes.txt", "anvil_assigned_vmid: 1004\n");
    // Secrets of others are none of our business.
    inventory.write("web07/vault.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162\n");
    inventory.write("web08/blob", [0xff, 0xfe]);
    let result = inventory.run("web01", &json!({}));
    assert_eq!(result["identity"]["vmid"], 1004, "{result}");
}

#[test]
fn a_symbolic_link_to_the_file_stays_one() {
    let inventory = Inventory::of(&["web01"]);
    inventory.write("../shared/web01.yml", "# kept elsewhere\n");
    std::os::unix::fs::symlink("../../shared/web01.yml", inventory.path("web01/identity.yml")).unwrap();
    assert_eq!(inventory.run("web01", &json!({}))["changed"], true);
    assert!(inventory.path("web01/identity.yml").is_symlink());
    assert!(
        inventory.identity("web01").unwrap().starts_with("# kept elsewhere\nanvil_assigned_vmid: 1000\n")
    );
}

#[test]
fn a_vmid_is_taken_however_another_host_writes_it() {
    for (name, text) in [
        ("web02/vars.json", "{\"anvil_assigned_vmid\": 1000}"),
        ("web02/ids.yml", "'anvil_assigned_vmid': 1000\n"),
        ("web02/ids", "\u{feff}anvil_assigned_vmid: 1000\r\n"),
        ("web02/ids.yaml", "{anvil_assigned_vmid: 1000}\n"),
    ] {
        let inventory = Inventory::of(&["web01", "web02"]);
        inventory.write(name, text);
        let result = inventory.run("web01", &json!({}));
        assert_eq!(result["identity"]["vmid"], 1001, "{name}: {result}");
    }
}

#[test]
fn a_pipe_among_the_variables_is_no_file_to_wait_for() {
    let inventory = Inventory::of(&["web01", "web02"]);
    let pipe = inventory.path("web02/pipe");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let result = inventory.run("web01", &json!({"timeout": 5}));
    assert_eq!(result["changed"], true, "{result}");
}

#[test]
fn a_write_that_fails_is_not_called_written() {
    let inventory = Inventory::of(&["web01"]);
    let pipe = inventory.path("web01/identity.yml");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let result = inventory.run("web01", &json!({"timeout": 5}));
    let msg = result["msg"].as_str().unwrap();
    assert!(msg.starts_with("the identity is not written: ") && msg.contains("no regular file"), "{result}");
    assert_eq!(result["changed"], false, "{result}");
    assert!(result.get("written").is_none(), "{result}");
}
