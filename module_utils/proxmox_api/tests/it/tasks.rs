use std::time::Duration;

use deadline::Deadline;
use proxmox_api::values::Slot;
use proxmox_api::{ApiError, GivenDisk};

use crate::{Lab, clone_to_101, house, minute, vmid};

#[test]
fn a_clone_is_waited_for() {
    let lab = Lab::start(house().time_scale(0.05).task_seconds(10.0, 0.0));
    lab.api.clone_vm(&clone_to_101(), &minute()).unwrap();
    assert_eq!(lab.pve.vm_config(101)["name"], "web01");
    assert!(lab.count("GET", "/status") >= 2, "it was polled");
    lab.assert_sound();
}

#[test]
fn a_clone_with_a_lost_answer_is_not_made_twice() {
    for scale in [0.0, 0.05] {
        let lab = Lab::start(house().time_scale(scale).task_seconds(10.0, 0.0));
        lab.proxy.on("POST", "/clone").first().lose_answer();
        lab.api.clone_vm(&clone_to_101(), &minute()).unwrap();
        assert_eq!(lab.count("POST", "/clone"), 1);
        assert_eq!(lab.pve.vm_config(101)["name"], "web01");
        lab.assert_sound();
    }
}

#[test]
fn a_clone_that_never_arrived_is_sent_again() {
    let lab = Lab::start(house());
    lab.proxy.on("POST", "/clone").first().answer(500, "got no worker upid - start worker failed", "");
    lab.proxy.on("POST", "/clone").nth(2).answer(596, "Broken pipe", "");
    lab.api.clone_vm(&clone_to_101(), &minute()).unwrap();
    assert_eq!(lab.count("POST", "/clone"), 3);
}

#[test]
fn a_taken_vmid_is_a_conflict_unless_it_is_our_own_doing() {
    let lab = Lab::start(house().vm(101, "other", "pve1", serde_json::json!({})));
    let error = lab.api.clone_vm(&clone_to_101(), &minute()).unwrap_err();
    assert!(error.refusal().unwrap().is_taken(), "{error}");
}

#[test]
fn a_clone_task_that_failed_on_a_storage_lock_is_begun_again() {
    let lab = Lab::start(house());
    let locked = r#"{"data":{"status":"stopped","exitstatus":"clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout"}}"#;
    lab.proxy.on("GET", "/status").first().answer(200, "OK", locked);
    // The answers are made up: the clone exists, so the second try finds its VMID taken.
    let error = lab.api.clone_vm(&clone_to_101(), &minute()).unwrap_err();
    assert_eq!(lab.count("POST", "/clone"), 2);
    assert!(error.refusal().unwrap().is_taken(), "{error}");
}

#[test]
fn a_failed_task_is_told_at_once_with_its_log() {
    let lab = Lab::start(house());
    let error =
        lab.api.resize("pve1", vmid(200), &"scsi9".parse().unwrap(), "9G".parse().unwrap(), &minute());
    let error = error.unwrap_err();
    assert!(matches!(error, ApiError::TaskFailed { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("disk 'scsi9' does not exist"), "{text}");
    assert!(text.contains("End of its log: "), "{text}");
    assert!(text.contains("TASK ERROR"), "{text}");
    assert_eq!(lab.count("GET", "/status"), 1);
    lab.assert_sound();
}

#[test]
fn warnings_are_success_and_told() {
    let lab = Lab::start(house());
    let warned = r#"{"data":{"status":"stopped","exitstatus":"WARNINGS: 1"}}"#;
    lab.proxy.on("GET", "/status").first().answer(200, "OK", warned);
    let log =
        r#"{"total":2,"data":[{"n":1,"t":"WARN: no efidisk configured!"},{"n":2,"t":"TASK WARNINGS: 1"}]}"#;
    lab.proxy.on("GET", "/log").always().answer(200, "OK", log);
    let end = lab.api.power("pve1", vmid(200), "start", &[], &minute()).unwrap();
    assert_eq!(end.warnings, ["WARN: no efidisk configured!"]);
}

#[test]
fn at_the_deadline_the_task_and_its_last_words_are_named() {
    let lab = Lab::start(house().time_scale(0.05).task_seconds(600.0, 0.0));
    let error = lab.api.clone_vm(&clone_to_101(), &Deadline::after(Duration::from_millis(700))).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ApiError::StillRunning { .. }), "{text}");
    for part in ["UPID:pve1:", ":qmclone:8000:", "still running", "creating a clone of VM 8000 with ID 101"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_start_with_a_lost_answer_is_found_among_the_tasks() {
    for scale in [0.0, 0.05] {
        let lab = Lab::start(house().time_scale(scale).task_seconds(0.0, 10.0));
        lab.proxy.on("POST", "/start").first().lose_answer();
        lab.api.power("pve1", vmid(200), "start", &[], &minute()).unwrap();
        assert_eq!(lab.count("POST", "/start"), 1);
        assert_eq!(lab.pve.vm_status(200), "running");
        lab.assert_sound();
    }
}

#[test]
fn a_start_that_never_arrived_is_sent_again() {
    let lab = Lab::start(house());
    lab.proxy.on("POST", "/start").first().drop_request();
    lab.api.power("pve1", vmid(200), "start", &[], &minute()).unwrap();
    assert_eq!(lab.count("POST", "/start"), 2);
    assert_eq!(lab.pve.vm_status(200), "running");
}

#[test]
fn a_vm_is_destroyed_once_even_when_the_answer_is_lost() {
    let lab = Lab::start(house());
    lab.proxy.on("DELETE", "/200").first().lose_answer();
    lab.api.destroy("pve1", vmid(200), &minute()).unwrap();
    assert_eq!(lab.count("DELETE", "/200"), 1);
    assert_eq!(lab.pve.node_of(200), None);
    lab.assert_sound();
}

#[test]
fn a_grown_disk_with_a_lost_answer_is_grown_once() {
    let lab = Lab::start(house());
    lab.proxy.on("PUT", "/resize").first().lose_answer();
    lab.api.clone_vm(&clone_to_101(), &minute()).unwrap();
    lab.api.resize("pve1", vmid(101), &"scsi0".parse().unwrap(), "32G".parse().unwrap(), &minute()).unwrap();
    let disk = lab.pve.vm_config(101)["scsi0"].as_str().unwrap().to_owned();
    assert!(disk.contains("size=32G"), "{disk}");
    lab.assert_sound();
}

#[test]
fn a_volume_that_a_storage_shows_late_is_waited_for() {
    let lab = Lab::start(house());
    lab.api.clone_vm(&clone_to_101(), &minute()).unwrap();
    let late =
        r#"{"data":{"status":"stopped","exitstatus":"volume 'local-lvm:vm-101-disk-0' does not exist"}}"#;
    lab.proxy.on("GET", "/status").first().answer(200, "OK", late);
    lab.api.resize("pve1", vmid(101), &"scsi0".parse().unwrap(), "32G".parse().unwrap(), &minute()).unwrap();
    assert_eq!(lab.count("PUT", "/resize"), 2);
    lab.assert_sound();
}

fn giving<'a>(disk: &'a Slot) -> GivenDisk<'a> {
    GivenDisk { node: "pve1", from: vmid(101), disk, to: vmid(200), target: "unused255" }
}

#[test]
fn a_disk_is_given_to_another_vm_once_also_when_the_answer_is_lost() {
    for lost in [false, true] {
        let lab = Lab::start(house());
        lab.api.clone_vm(&clone_to_101(), &minute()).unwrap();
        if lost {
            lab.proxy.on("POST", "/move_disk").first().lose_answer();
        }
        let slot = "scsi0".parse().unwrap();
        lab.api.give_disk(&giving(&slot), &minute()).unwrap();
        assert_eq!(lab.pve.vm_config(101).get("scsi0"), None);
        assert!(lab.pve.vm_config(200)["unused255"].as_str().unwrap().contains("vm-200-disk-"));
        assert_eq!(lab.count("POST", "/move_disk"), 1);
        lab.assert_sound();
    }
}

#[test]
fn a_disk_that_cannot_be_given_is_told_in_the_servers_words() {
    let lab = Lab::start(house());
    let slot = "scsi0".parse().unwrap();
    let error = lab.api.give_disk(&giving(&slot), &minute()).unwrap_err().to_string();
    assert!(error.contains("101"), "{error}");
    lab.api.clone_vm(&clone_to_101(), &minute()).unwrap();
    let own = GivenDisk { to: vmid(101), ..giving(&slot) };
    let error = lab.api.give_disk(&own, &minute()).unwrap_err().to_string();
    assert!(error.contains("must be different than source VMID"), "{error}");
}
