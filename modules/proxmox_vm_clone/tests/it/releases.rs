//! The whole life of a VM against servers that answer as other releases do, and whose cluster list is behind.

use lab::program::with;
use lab::pve::FakePveBuilder;
use serde_json::{Value, json};

use crate::{Site, house, web01, web01_with};

/// Made, found unchanged, changed, rebuilt, removed, found gone; and a refusal is told in the server's words.
fn live(pve: FakePveBuilder) {
    let site = Site::new(pve);
    site.done(&web01());
    site.assert_built();
    site.proxy.forget();
    assert_eq!(site.done(&web01())["changed"], false);
    assert_eq!(site.proxy.log().len(), 3);

    let bigger = web01_with(json!({"memory": 16384, "os_disk": {"size": 50}}));
    assert_eq!(site.done(&bigger)["vm"]["pending"], json!(["memory"]));
    assert_eq!(site.done(&bigger)["changed"], false);
    let rebuild = with(&bigger, json!({"rebuild_os_disk": true, "stop": true}));
    assert_eq!(site.done(&rebuild)["vm"]["rebuilt"], true);
    assert_eq!(site.done(&bigger)["changed"], false);

    let refused =
        json!({"vmid": 1101, "name": "web01", "disks": [{"slot": "scsi3", "storage": "gone", "size": 1}]});
    let msg = site.failed(&refused)["msg"].as_str().unwrap().to_owned();
    assert!(msg.contains("storage 'gone' does not exist"), "{msg}");

    let removal = json!({
        "vmid": 1101, "name": "web01", "state": "absent", "stop": true, "destroy_data_disks": true,
    });
    assert_eq!(site.done(&removal)["vm"], Value::Null);
    assert_eq!(site.done(&removal)["changed"], false);
    crate::assert_no_orphans(&site.pve, 1101);
}

#[test]
fn release_7_4_puts_errors_into_the_reason_phrase_and_resizes_before_it_answers() {
    live(house().release("7.4"));
}

#[test]
fn release_8_2_resizes_in_a_task_and_still_hides_its_errors() {
    live(house().release("8.2"));
}

#[test]
fn release_8_4_and_a_cluster_list_whose_broadcast_never_comes() {
    live(house().release("8.4").stale_list());
}

#[test]
fn a_task_that_refuses_to_shrink_is_told_with_its_words() {
    let site = Site::new(house());
    // What is stored is larger than the configuration says: only the task can know.
    site.proxy.on("PUT", "/resize").always().rewrite_request(|body| body.replace("size=40G", "size=5G"));
    let result = site.failed(&web01());
    assert_eq!(result["exitstatus"], "shrinking disks is not supported", "{result}");
    assert_eq!(site.pve.vm_status(1101), "stopped");
}
