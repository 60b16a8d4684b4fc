//! Every read-back broken, every answer lost, every request a run's last.

use lab::opnsense::Fault;
use serde_json::{Value, json};

use crate::{Site, firewall, record};

#[test]
fn a_field_that_the_firewall_drops_is_named_and_nothing_is_applied() {
    for field in ["server", "addptr", "description"] {
        let site = Site::new(firewall());
        let _ = site.module.run(&site.web01(json!({}))).done();
        site.proxy.forget();
        site.firewall.inject(Fault::IgnoresField(field));
        let options = site.web01(json!({"value": "10.20.0.31", "ptr": false, "description": "front end"}));
        let result = site.module.run(&options).failed();
        assert_eq!(result["error_code"], "read_back_mismatch", "{field}");
        assert_eq!(result["field"], format!("record.{field}"));
        assert_eq!(site.proxy.writes().len(), 1, "{field}: not applied");
    }
}

#[test]
fn writes_that_are_forgotten_are_seen() {
    let site = Site::new(firewall());
    site.firewall.inject(Fault::ForgetsWrites);
    let result = site.module.run(&site.web01(json!({}))).failed();
    assert_eq!((&result["error_code"], &result["found"]), (&json!("read_back_mismatch"), &Value::Null));
    site.firewall.heal();
    let _ = site.module.run(&site.web01(json!({}))).done();
    site.firewall.inject(Fault::ForgetsWrites);
    let result = site.module.run(&site.web01(json!({"state": "absent"}))).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert!(result["field"].as_str().unwrap().starts_with("record["), "{result}");
}

#[test]
fn an_unbound_that_stays_stopped_is_a_failure_and_the_next_run_applies_again() {
    let site = Site::new(firewall());
    site.firewall.inject(Fault::UnboundStaysStopped);
    let result = site.module.run(&site.web01(json!({"timeout": 60}))).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!((&result["field"], &result["found"]), (&json!("unbound.service"), &json!("stopped")));
    site.firewall.heal();
    assert_eq!(site.module.run(&site.web01(json!({}))).done()["changed"], true);
    assert_eq!(site.live("A").len(), 1);
}

#[test]
fn a_lost_answer_leaves_one_record() {
    for path in ["search_host_override", "get_host_override", "add_host_override", "reconfigure", "status"] {
        let site = Site::new(firewall());
        site.proxy.on("*", path).first().lose_answer();
        assert_eq!(site.module.run(&site.web01(json!({}))).done()["changed"], true, "{path}");
        assert_eq!(site.firewall.stored_overrides().len(), 1, "{path}");
        assert_eq!(site.live("A").len(), 1, "{path}");
    }
    let site = Site::new(firewall());
    site.proxy.on("POST", "add_host_override").first().drop_request();
    let _ = site.module.run(&site.web01(json!({}))).done();
    site.proxy.on("POST", "set_host_override").first().lose_answer();
    let _ = site.module.run(&site.web01(json!({"value": "10.20.0.31"}))).done();
    assert_eq!(site.live("A"), [record("web01.example.net", "A", "10.20.0.31")]);
    site.proxy.on("POST", "del_host_override").first().lose_answer();
    let _ = site.module.run(&site.web01(json!({"state": "absent"}))).done();
    assert!(site.firewall.live_records().is_empty());
}

#[test]
fn a_run_killed_at_any_request_is_repaired_by_the_next() {
    for state in ["present", "absent"] {
        for request in 1.. {
            let site = Site::new(firewall());
            if state == "absent" {
                let _ = site.module.run(&site.web01(json!({}))).done();
            }
            let options = site.web01(json!({"state": state}));
            if !site.module.run_killed_at(&site.proxy, request, &options) {
                assert!(request > 8, "killed at {} requests only", request - 1);
                break;
            }
            let _ = site.module.run(&options).done();
            let expected = usize::from(state == "present");
            assert_eq!(site.live("A").len(), expected, "{state} killed at request {request}");
            assert_eq!(site.firewall.stored_overrides().len(), expected);
            assert_eq!(
                site.module.run(&options).done()["changed"],
                false,
                "{state} killed at request {request}"
            );
        }
    }
}

#[test]
fn a_refused_write_says_why_in_the_words_of_opnsense() {
    let site = Site::new(firewall());
    let refusal = r#"{"result":"failed","validations":{"host.domain":"A valid domain must be specified."}}"#;
    site.proxy.on("POST", "add_host_override").always().answer(200, "OK", refusal);
    let result = site.module.run(&site.web01(json!({}))).failed();
    assert_eq!(result["error_code"], "refused");
    assert_eq!(result["validations"], json!({"host.domain": "A valid domain must be specified."}));
}
