//! Writes that are accepted and do not take, answers that are lost, tasks that fail.

use serde_json::{Value, json};

use crate::{Site, host, house, web01};

/// The failure's fields; the VM was not started.
fn mismatch(site: &Site) -> Value {
    let result = site.failed(&web01());
    assert_eq!(result["error_code"], "read_back_mismatch", "{result}");
    assert_eq!(site.pve.vm_status(1101), "stopped");
    let started = site.proxy.writes().iter().any(|one| one.path.ends_with("/start"));
    assert!(!started, "{result}");
    json!([result["field"], result["expected"], result["found"]])
}

/// After the fault is gone, the next run finishes.
fn assert_repaired(site: &Site) {
    site.proxy.clear_faults();
    site.done(&web01());
    site.assert_built();
}

#[test]
fn a_stripped_mac_is_named_and_the_vm_is_not_started() {
    let site = Site::new(house());
    site.proxy
        .on("PUT", "/config")
        .always()
        .rewrite_request(|body| body.replace("02%3AA5%3A00%3A00%3A04%3A4D", "BC%3A24%3A11%3A11%3A11%3A11"));
    assert_eq!(mismatch(&site), json!(["net0.macaddr", "02:a5:00:00:04:4d", "bc:24:11:11:11:11"]));
    assert_repaired(&site);
}

#[test]
fn a_dropped_serial_is_named_and_the_vm_is_not_started() {
    let site = Site::new(house());
    site.proxy
        .on("PUT", "/config")
        .always()
        .rewrite_request(|body| body.replace("%2Cserial%3Dweb01-data", ""));
    assert_eq!(mismatch(&site), json!(["scsi1.serial", "web01-data", null]));
    assert_repaired(&site);
}

#[test]
fn a_disk_that_did_not_grow_is_named_and_the_vm_is_not_started() {
    let site = Site::new(house());
    site.proxy.on("PUT", "/resize").always().rewrite_request(|body| body.replace("size=40G", "size=10G"));
    assert_eq!(mismatch(&site), json!(["scsi0.size", "40G", "10G"]));
    assert_repaired(&site);
}

#[test]
fn an_ignored_setting_is_named_and_nothing_behind_the_gate_is_sent() {
    let site = Site::new(house());
    site.proxy
        .on("PUT", "/config")
        .always()
        .rewrite_request(|body| body.replace("memory=8192", "memory=512"));
    assert_eq!(mismatch(&site), json!(["memory", 8192, 512]));
    assert!(!site.proxy.writes().iter().any(|one| one.path.ends_with("/resize")));
    assert_repaired(&site);
}

#[test]
fn a_start_that_fails_is_told_with_its_log() {
    let site = Site::new(house());
    let failed = r#"{"data":{"status":"stopped","exitstatus":"start failed: QEMU exited with code 1"}}"#;
    site.proxy.on("GET", "%3Aqmstart%3A").always().answer(200, "OK", failed);
    let result = site.failed(&web01());
    assert_eq!(result["exitstatus"], "start failed: QEMU exited with code 1", "{result}");
    assert_eq!(result["error_code"], "api_error");
    assert!(result["msg"].as_str().unwrap().starts_with("starting VM 1101: task UPID:pve1:"), "{result}");
    assert!(result["written"].as_array().unwrap().contains(&json!("status")));
    assert_repaired(&site);
}

#[test]
fn every_lost_answer_and_every_lost_request_is_got_over() {
    let site = Site::new(house());
    site.done(&host(1));
    let writes = site.proxy.writes().len();
    assert!(writes >= 4, "clone, settings, disk, start");
    let faults = (1..=writes).flat_map(|write| [(write, true), (write, false)]);
    for (number, (write, lose)) in (2..).zip(faults) {
        site.proxy.clear_faults();
        site.proxy.forget();
        let fault = site.proxy.on_write(write).first();
        if lose {
            fault.lose_answer()
        } else {
            fault.drop_request()
        }
        let result = site.done(&host(number));
        assert_eq!(result["changed"], true, "write {write}");
        site.assert_host_built(number);
        let sent = if lose { writes } else { writes + 1 };
        // Growing a disk to the size it has is asked again without looking.
        let resent = usize::from(lose && site.proxy.writes()[write - 1].path.ends_with("/resize"));
        assert_eq!(site.proxy.writes().len(), sent + resent, "write {write}, lost answer: {lose}");
    }
}

#[test]
fn every_write_survives_a_lock_and_a_broken_proxy() {
    let site = Site::new(house());
    for (number, (status, words)) in (1..).zip([
        (500, "can't lock file '/var/lock/qemu-server/lock-1101.conf' - got timeout"),
        (500, "got no worker upid - start worker failed"),
        (595, "No route to host"),
        (596, "Broken pipe"),
    ]) {
        site.proxy.clear_faults();
        for path in ["/clone", "/config", "/resize", "/start"] {
            site.proxy.on("*", path).first().answer(status, words, r#"{"data":null}"#);
        }
        site.done(&host(number));
        site.assert_host_built(number);
    }
}

#[test]
fn a_refused_write_is_told_and_the_next_run_finishes() {
    let site = Site::new(house());
    for (number, path) in (1..).zip(["/clone", "/config", "/resize", "/start"]) {
        site.proxy.on("*", path).always().answer(
            500,
            "storage 'local-lvm' is not online",
            r#"{"data":null}"#,
        );
        let result = site.failed(&host(number));
        assert_eq!(result["error_code"], "api_error", "{result}");
        assert!(result["msg"].as_str().unwrap().contains("storage 'local-lvm' is not online"), "{result}");
        site.proxy.clear_faults();
        site.done(&host(number));
        site.assert_host_built(number);
    }
}
