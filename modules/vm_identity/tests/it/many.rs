//! Many processes at once.

use std::collections::BTreeSet;

use serde_json::json;

use crate::inventory::{Inventory, vmids};

fn hosts() -> Vec<String> {
    (1..=20).map(|number| format!("web{number:02}")).collect()
}

#[test]
fn twenty_at_once_get_twenty_identities() {
    let hosts = hosts();
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    for more in [json!({}), json!({"hosts": names})] {
        let inventory = Inventory::of(&names);
        let answers = inventory.run_all(&names, &more);
        let found = vmids(&answers);
        let different: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(different, (1000..1020).collect(), "without a gap");
        if more.get("hosts").is_some() {
            assert_eq!(found, (1000..1020).collect::<Vec<_>>(), "in the order of the batch");
        }
        for (name, answer) in names.iter().zip(&answers) {
            assert_eq!(answer["changed"], true);
            let line = format!("anvil_assigned_vmid: {}\n", answer["identity"]["vmid"]);
            assert!(inventory.identity(name).unwrap().contains(&line), "{name}: {answer}");
        }
        let again = inventory.run_all(&names, &more);
        assert_eq!(vmids(&again), found);
        assert!(again.iter().all(|answer| answer["changed"] == false));
    }
}

#[test]
fn the_same_host_twice_at_once_is_written_once() {
    let inventory = Inventory::of(&["web01"]);
    let answers = inventory.run_all(&["web01"; 8], &json!({}));
    assert_eq!(vmids(&answers), [1000; 8]);
    assert_eq!(answers.iter().filter(|answer| answer["changed"] == true).count(), 1);
}

#[test]
fn twenty_predictions_at_once_are_twenty_identities() {
    let hosts = hosts();
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let inventory = Inventory::of(&names);
    let before = inventory.files();
    let answers = inventory.run_all(&names, &json!({"hosts": names, "_ansible_check_mode": true}));
    assert_eq!(vmids(&answers), (1000..1020).collect::<Vec<_>>());
    assert_eq!(inventory.files(), before);
}
