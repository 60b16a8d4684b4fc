//! Every read-back broken, every answer lost, every request a run's last.

use lab::opnsense::Fault;
use serde_json::{Value, json};

use crate::{Site, firewall, web01, web01_with};

fn everything() -> Value {
    web01_with(json!({
        "next_server": "10.20.0.2", "boot_file": "grubx64.efi", "tftp_server_name": "10.20.0.2",
        "description": "front end", "ip": "10.20.0.22",
    }))
}

#[test]
fn a_field_that_the_firewall_drops_is_named_and_nothing_is_applied() {
    for (field, stored) in [
        ("next_server", "next_server"),
        ("boot_file_name", "option_data.boot_file_name"),
        ("tftp_server_name", "option_data.tftp_server_name"),
        ("hostname", "hostname"),
        ("description", "description"),
        ("ip_address", "ip_address"),
    ] {
        let site = Site::new(firewall());
        let _ = site.module.run(&site.options(web01_with(json!({"hostname": null})))).done();
        site.proxy.forget();
        site.firewall.inject(Fault::IgnoresField(stored));
        let result = site.module.run(&site.options(everything())).failed();
        assert_eq!(result["error_code"], "read_back_mismatch", "{field}");
        assert_eq!(result["field"], format!("reservation.{field}"), "{field}");
        assert_eq!(result["changed"], true);
        let writes: Vec<String> = site.proxy.writes().iter().map(|one| one.path.clone()).collect();
        assert!(!writes.iter().any(|path| path.contains("reconfigure")), "{field}: {writes:?}");
    }
}

#[test]
fn a_write_that_is_forgotten_is_seen() {
    let site = Site::new(firewall());
    site.firewall.inject(Fault::ForgetsWrites);
    let result = site.module.run(&site.options(web01())).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!((&result["field"], &result["found"]), (&json!("reservation.hw_address"), &Value::Null));
    assert!(site.firewall.live_reservations().is_empty());
}

#[test]
fn a_deletion_that_is_forgotten_is_seen() {
    let site = Site::new(firewall());
    let _ = site.module.run(&site.options(web01())).done();
    site.firewall.inject(Fault::ForgetsWrites);
    let result = site.module.run(&site.options(web01_with(json!({"state": "absent"})))).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!(result["field"], "reservation[02:a5:00:00:00:65]");
}

#[test]
fn a_lost_answer_leaves_one_reservation() {
    for path in [
        "search_reservation",
        "get_reservation",
        "add_reservation",
        "kea/dhcpv4/get",
        "reconfigure",
        "status",
    ] {
        let site = Site::new(firewall());
        site.proxy.on("*", path).first().lose_answer();
        let result = site.module.run(&site.options(web01())).done();
        assert_eq!(result["changed"], true, "{path}");
        assert_eq!(site.firewall.stored_reservations().len(), 1, "{path}");
        assert_eq!(site.firewall.live_reservations().len(), 1, "{path}");
    }
}

#[test]
fn a_request_that_never_arrived_is_sent_again() {
    for path in ["add_reservation", "reconfigure"] {
        let site = Site::new(firewall());
        site.proxy.on("POST", path).first().drop_request();
        let _ = site.module.run(&site.options(web01())).done();
        assert_eq!(site.firewall.live_reservations().len(), 1, "{path}");
    }
}

#[test]
fn lost_answers_of_a_change_and_a_deletion_do_no_harm() {
    let site = Site::new(firewall());
    let _ = site.module.run(&site.options(web01())).done();
    site.proxy.on("POST", "set_reservation").first().lose_answer();
    let _ = site.module.run(&site.options(web01_with(json!({"ip": "10.20.0.31"})))).done();
    assert_eq!(site.firewall.live_reservations()[0].ip_address, "10.20.0.31");
    site.proxy.on("POST", "del_reservation").first().lose_answer();
    let _ = site.module.run(&site.options(web01_with(json!({"state": "absent", "ip": null})))).done();
    assert!(site.firewall.live_reservations().is_empty());
}

#[test]
fn a_refused_write_says_why_in_the_words_of_opnsense() {
    let site = Site::new(firewall());
    let refusal = r#"{"result":"failed","validations":{"reservation.ip_address":"Duplicate entry exists."}}"#;
    site.proxy.on("POST", "add_reservation").always().answer(200, "OK", refusal);
    let result = site.module.run(&site.options(web01())).failed();
    assert_eq!(result["error_code"], "refused");
    assert_eq!(result["validations"], json!({"reservation.ip_address": "Duplicate entry exists."}));
    assert!(result["msg"].as_str().unwrap().contains("reservation.ip_address: Duplicate entry exists."));
}

#[test]
fn a_run_killed_at_any_request_is_repaired_by_the_next() {
    for options in [everything(), web01_with(json!({"prune_stale": true}))] {
        for request in 1.. {
            let site = Site::new(firewall().reservation(
                "10.20.0.0/24",
                &[("hw_address", "02:a5:00:00:00:64"), ("ip_address", "10.20.0.21"), ("hostname", "web01")],
            ));
            let options = site.options(lab::program::with(&options, json!({"prune_stale": true, "hostname": if options["ip"] == "10.20.0.21" { "web01" } else { "web02" }})));
            if !site.module.run_killed_at(&site.proxy, request, &options) {
                assert!(request > 10, "killed at {} requests only", request - 1);
                break;
            }
            let _ = site.module.run(&options).done();
            let ip = options["ip"].as_str().unwrap();
            let live = site.firewall.live_reservations();
            let ours: Vec<_> = live.iter().filter(|one| one.ip_address == ip).collect();
            assert_eq!(ours.len(), 1, "killed at request {request}");
            assert_eq!(ours[0].hw_address, "02:a5:00:00:00:65", "killed at request {request}");
            assert_eq!(site.module.run(&options).done()["changed"], false, "killed at request {request}");
        }
    }
}

#[test]
fn a_removal_killed_at_any_request_is_repaired_by_the_next() {
    for request in 1.. {
        let site = Site::new(firewall());
        let _ = site.module.run(&site.options(web01())).done();
        let absent = site.options(web01_with(json!({"state": "absent"})));
        if !site.module.run_killed_at(&site.proxy, request, &absent) {
            assert!(request > 5, "killed at {} requests only", request - 1);
            break;
        }
        let _ = site.module.run(&absent).done();
        assert!(site.firewall.live_reservations().is_empty(), "killed at request {request}");
        assert_eq!(site.module.run(&absent).done()["changed"], false, "killed at request {request}");
    }
}

#[test]
fn twelve_runs_at_once_lose_none() {
    let site = Site::new(firewall());
    std::thread::scope(|scope| {
        for number in 1..=12 {
            let site = &site;
            scope.spawn(move || {
                let options = site.options(web01_with(json!({
                    "mac": format!("02:a5:00:00:01:{number:02x}"), "ip": format!("10.20.0.{}", 20 + number),
                    "hostname": format!("host{number}"), "apply": false, "timeout": 120,
                })));
                assert_eq!(site.module.run(&options).done()["changed"], true);
            });
        }
    });
    assert_eq!(site.firewall.stored_reservations().len(), 12);
}
