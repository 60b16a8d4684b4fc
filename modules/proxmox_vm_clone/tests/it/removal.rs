//! `state: absent`.

use lab::program::with;
use serde_json::{Value, json};

use crate::{Site, house, web01};

fn absent(more: Value) -> Value {
    with(&json!({"vmid": 1101, "name": "web01", "state": "absent"}), more)
}

fn built(options: Value) -> Site {
    let site = Site::new(house());
    site.done(&with(&web01(), options));
    site.proxy.forget();
    site
}

fn refusal(site: &Site, options: &Value) -> String {
    let result = site.failed(options);
    assert_eq!(result["error_code"], "refused", "{result}");
    assert!(site.proxy.writes().is_empty());
    result["msg"].as_str().unwrap().to_owned()
}

#[test]
fn a_vm_is_destroyed_only_with_every_leave_it_needs() {
    let site = built(json!({}));
    let msg = refusal(&site, &absent(json!({})));
    assert!(msg.contains("scsi1") && msg.contains("destroy_data_disks: true"), "{msg}");
    let msg = refusal(&site, &absent(json!({"destroy_data_disks": true})));
    assert!(msg.contains("it runs") && msg.contains("stop: true"), "{msg}");

    let all = absent(json!({"destroy_data_disks": true, "stop": true}));
    let check = site.check(&all).done();
    assert_eq!((&check["changed"], &check["vm"]), (&json!(true), &Value::Null));
    assert!(site.proxy.writes().is_empty());

    let result = site.done(&all);
    assert_eq!((&result["changed"], &result["vm"]), (&json!(true), &Value::Null));
    assert_eq!(site.pve.node_of(1101), None);
    assert_eq!(site.done(&all)["changed"], false);
}

#[test]
fn a_protected_vm_stays() {
    let site = built(json!({"protection": true, "state": "present", "disks": []}));
    let msg = refusal(&site, &absent(json!({})));
    assert!(msg.contains("protection: false"), "{msg}");
    assert_eq!(site.pve.node_of(1101).as_deref(), Some("pve1"));
}

#[test]
fn a_lost_answer_or_a_lock_does_not_stand_in_the_way() {
    let site = built(json!({"state": "present", "disks": []}));
    site.proxy.on("DELETE", "/1101").first().answer(500, "VM is locked (backup)", "");
    site.proxy.on("DELETE", "/1101").nth(2).lose_answer();
    site.done(&absent(json!({})));
    assert_eq!(site.pve.node_of(1101), None);
    assert_eq!(site.proxy.writes().len(), 2);
}

#[test]
fn what_is_not_destroyed_after_all_is_told() {
    let site = built(json!({"state": "present", "disks": []}));
    site.proxy.on("DELETE", "/1101").always().answer(200, "OK", r#"{"data":null}"#);
    let result = site.failed(&absent(json!({})));
    assert_eq!((&result["error_code"], &result["field"]), (&json!("read_back_mismatch"), &json!("vm")));
}
