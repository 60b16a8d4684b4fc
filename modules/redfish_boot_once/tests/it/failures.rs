//! What goes wrong after the first write is told, and the server is not switched on.

use lab::redfish::{PASSWORD, Quirk, RedfishDouble, Tree};
use serde_json::json;

use crate::{ON, PATCH, PATCH_WITH_MODE, SYSTEM, Site};

#[test]
fn an_override_that_was_ignored_never_leads_to_a_start() {
    let site = Site::plain(&[Quirk::OverrideIgnored]);
    let result = site.run(json!({})).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!(result["field"], "Boot.BootSourceOverrideTarget");
    assert_eq!(result["found"], "None");
    assert_eq!(site.bmc.writes(), [PATCH]);
    assert_eq!(site.bmc.power(), "Off");
}

#[test]
fn an_override_that_sticks_is_taken_back() {
    let site = Site::plain(&[Quirk::OverrideSticks]);
    let result = site.run(json!({})).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!(result["field"], "Boot.BootSourceOverrideEnabled");
    assert_eq!(result["found"], "Continuous");
    assert_eq!(result["warnings"], json!(["the override stuck as Continuous and was switched off again"]));
    assert_eq!(site.bmc.writes(), [PATCH, r#"PATCH 1 {"Boot":{"BootSourceOverrideEnabled":"Disabled"}}"#]);
    assert_eq!(site.bmc.resource(SYSTEM)["Boot"]["BootSourceOverrideEnabled"], "Disabled");
    assert_eq!(site.bmc.power(), "Off");
}

#[test]
fn a_server_that_somebody_switches_on_meanwhile_is_not_written_to_again() {
    let site = Site::plain(&[Quirk::TurnsOnMeanwhile]);
    let result = site.run(json!({})).failed();
    assert_eq!(result["error_code"], "conflict");
    assert_eq!(site.bmc.writes(), [PATCH]);
}

#[test]
fn a_mode_that_cannot_be_had_is_not_left_out() {
    let site = Site::plain(&[Quirk::ModeForbidden]);
    let result = site.run(json!({"mode": "Legacy"})).failed();
    assert_eq!(result["error_code"], "api_error");
    assert_eq!(result["messages"], json!(["The property BootSourceOverrideMode is read-only."]));
    assert_eq!(site.bmc.writes(), [PATCH_WITH_MODE.replace("UEFI", "Legacy")]);
}

#[test]
fn a_task_that_fails_is_told_in_the_bmcs_words() {
    let site = Site::plain(&[Quirk::TaskFails]);
    let result = site.run(json!({})).failed();
    assert_eq!(result["error_code"], "api_error");
    let msg = result["msg"].as_str().unwrap();
    assert!(msg.contains("ended as Exception: The job was refused by the firmware."), "{msg}");
    assert_eq!(site.bmc.writes(), [PATCH]);
}

#[test]
fn a_server_that_does_not_come_up_is_a_failure_with_its_state() {
    let site = Site::plain(&[Quirk::StuckPower]);
    let result = site.run(json!({"timeout": 3})).failed();
    assert_eq!(result["error_code"], "timeout");
    assert_eq!(result["power_state"], "PoweringOn");
    assert_eq!(result["changed"], true);
    assert_eq!(site.bmc.writes(), [PATCH, ON], "sent once");
}

#[test]
fn a_self_test_that_does_not_end_is_named() {
    let site = Site::plain(&[Quirk::PostInProgress(1000)]);
    let result = site.run(json!({"timeout": 3})).failed();
    assert_eq!(result["error_code"], "timeout");
    assert_eq!(
        result["messages"],
        json!(["Nothing can be changed while the system runs its power-on self-test."])
    );
}

#[test]
fn an_override_that_is_not_used_up_is_a_failure_where_that_is_asked() {
    let site = Site::plain(&[Quirk::OverrideNotConsumed]);
    let result = site.run(json!({"timeout": 3, "verify_consumed": true})).failed();
    assert_eq!(result["error_code"], "timeout");
    assert!(result["msg"].as_str().unwrap().contains("still reads Once"), "{result}");
    let site = Site::plain(&[Quirk::OverrideNotConsumed]);
    assert_eq!(site.run(json!({})).done()["changed"], true);
}

#[test]
fn no_failure_shows_the_password() {
    for quirk in [Quirk::OverrideIgnored, Quirk::TaskFails, Quirk::ModeForbidden] {
        let site = Site::plain(&[quirk]);
        let outcome =
            site.run(json!({"mode": "Legacy", "_ansible_inject_invocation": true, "_ansible_verbosity": 4}));
        assert!(!outcome.output.contains(PASSWORD), "{}", outcome.output);
    }
    let site = Site::new(RedfishDouble::builder(Tree::plain()));
    let outcome = site.run(json!({"api_password": "hunter2-wrong", "_ansible_inject_invocation": true}));
    assert!(!outcome.output.contains("hunter2"), "{}", outcome.output);
    assert_eq!(outcome.failed()["error_code"], "auth");
}
