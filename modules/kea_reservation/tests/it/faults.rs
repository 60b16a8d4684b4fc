//! Every read-back broken, every answer lost, every request a run's last.

use lab::opnsense::Fault;
use serde_json::{Value, json};

use crate::{Site, firewall, forty_at_once, web01, web01_with};

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

/// Kills a run of `options` at each of its requests (at one of many that ask the same in a row), each time from the state
/// that `prepare` makes; the next run must leave what `assert_done` wants, and the one after it find nothing to do.
fn killed_everywhere(site: &Site, options: &Value, prepare: impl Fn(), assert_done: impl Fn(usize)) {
    prepare();
    site.proxy.forget();
    let _ = site.module.run(options).done();
    let paths: Vec<String> = site.proxy.log().into_iter().map(|one| one.path).collect();
    let places = (1..=paths.len()).filter(|place| *place == 1 || paths[place - 1] != paths[place - 2]);
    let places: Vec<usize> = places.collect();
    assert!(places.len() > 5, "{paths:?}");
    for request in places {
        prepare();
        if !site.module.run_killed_at(&site.proxy, request, options) {
            continue;
        }
        let _ = site.module.run(options).done();
        assert_done(request);
        assert_eq!(site.module.run(options).done()["changed"], false, "killed at request {request}");
    }
}

fn assert_live(site: &Site, ip: &str, request: usize) {
    let live = site.firewall.live_reservations();
    let macs: Vec<&str> = live.iter().map(|one| one.hw_address.as_str()).collect();
    assert_eq!(macs, ["02:a5:00:00:00:65"], "killed at request {request}");
    assert_eq!(live[0].ip_address, ip, "killed at request {request}");
}

#[test]
fn an_addition_killed_at_any_request_is_repaired_by_the_next() {
    let site = Site::new(firewall());
    let absent = site.options(web01_with(json!({"state": "absent"})));
    let prepare = || drop(site.module.run(&absent).done());
    killed_everywhere(&site, &site.options(everything()), prepare, |request| {
        assert_live(&site, "10.20.0.22", request);
    });
}

#[test]
fn a_takeover_killed_at_any_request_is_repaired_by_the_next() {
    let site = Site::new(firewall());
    let absent = site.options(web01_with(json!({"state": "absent"})));
    let stale = [("hw_address", "02:a5:00:00:00:64"), ("ip_address", "10.20.0.21"), ("hostname", "web01")];
    let prepare = || {
        let _ = site.module.run(&absent).done();
        site.firewall.store_reservation("10.20.0.0/24", &stale);
    };
    let options = site.options(web01_with(json!({"prune_stale": true})));
    killed_everywhere(&site, &options, prepare, |request| assert_live(&site, "10.20.0.21", request));
}

#[test]
fn a_removal_killed_at_any_request_is_repaired_by_the_next() {
    let site = Site::new(firewall());
    let prepare = || drop(site.module.run(&site.options(web01())).done());
    let absent = site.options(web01_with(json!({"state": "absent"})));
    killed_everywhere(&site, &absent, prepare, |request| {
        assert!(site.firewall.live_reservations().is_empty(), "killed at request {request}");
    });
}

#[test]
fn forty_runs_at_once_lose_none() {
    let site = Site::new(firewall());
    forty_at_once(&site.proxy, &site.module, &site.options(json!({"apply": false})));
    assert_eq!(site.firewall.stored_reservations().len(), 40);
}
