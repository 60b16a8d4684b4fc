//! It boots once from the network, whatever the BMC is like.

use lab::proxy::Proxy;
use lab::redfish::{Quirk, RedfishDouble, Tree};
use serde_json::{Value, json};

use crate::{ON, PATCH, PATCH_WITH_MODE, SYSTEM, Site};

#[test]
fn check_mode_reads_and_says_which_calls_it_would_make_and_these_are_made() {
    let site = Site::new(RedfishDouble::builder(Tree::idrac8()));
    let options = site.options(json!({"serial": "tag1234", "session": true}));
    let predicted = site.module.check(&options).done();
    assert!(site.bmc.was_only_read());
    assert_eq!(predicted["changed"], true);
    let system = "/redfish/v1/Systems/System.Embedded.1";
    assert_eq!(
        predicted["calls"],
        json!([
            {"method": "PATCH", "path": system,
             "body": {"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}},
            {"method": "POST", "path": format!("{system}/Actions/ComputerSystem.Reset"), "body": {"ResetType": "On"}},
        ])
    );
    assert_eq!(site.bmc.power(), "Off");

    let made = site.module.run(&options).done();
    assert_eq!(made["changed"], true);
    assert_eq!(made["calls"], predicted["calls"]);
    assert_eq!(made["system"]["power_state"], "On");
    assert_eq!(
        made["read_back"]["held"],
        json!(["Boot.BootSourceOverrideTarget", "Boot.BootSourceOverrideEnabled", "PowerState"])
    );
    assert_eq!(site.bmc.boots(), ["Pxe"]);
    assert_eq!(site.bmc.open_sessions(), 0);

    let writes = site.bmc.writes();
    let again = site.module.run(&options).failed();
    assert_eq!(again["error_code"], "refused");
    assert!(again["msg"].as_str().unwrap().contains("the server is already on"), "{again}");
    assert_eq!(site.bmc.writes(), writes, "nothing is written to a running server");
}

#[test]
fn without_power_on_it_waits_for_somebody_to_press_the_button() {
    let site = Site::plain(&[]);
    let first = site.run(json!({"power_on": false})).done();
    assert_eq!(first["changed"], true);
    assert_eq!(site.bmc.writes(), [PATCH]);
    let second = site.run(json!({"power_on": false})).done();
    assert_eq!((&second["changed"], &second["calls"]), (&json!(false), &json!([])));
    assert_eq!(site.bmc.writes(), [PATCH]);
    assert_eq!(site.bmc.power(), "Off");
    // The override is there already: only switching on is left.
    assert_eq!(site.run(json!({})).done()["changed"], true);
    assert_eq!(site.bmc.writes(), [PATCH, ON]);
    assert_eq!(site.bmc.boots(), ["Pxe"]);
}

#[test]
fn a_whole_run_takes_few_requests() {
    let site = Site::plain(&[]);
    assert_eq!(site.run(json!({})).done()["changed"], true);
    let requests: Vec<String> =
        site.bmc.log().iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    // Root, systems, system, reset action, two for network cards; PATCH with two reads of it; POST with its reads.
    assert!(requests.len() <= 14, "{requests:#?}");
}

#[test]
fn each_oddity_of_a_bmc_is_met() {
    let cases = [
        (&[Quirk::StaleTag][..], json!({}), &[PATCH, PATCH, ON][..]),
        (&[Quirk::WeakTagRefused], json!({}), &[PATCH, PATCH, PATCH, ON]),
        (&[Quirk::IfMatchRefused], json!({}), &[PATCH, PATCH, PATCH, ON]),
        (&[Quirk::IfMatchRequired], json!({}), &[PATCH, ON]),
        (&[Quirk::IfMatchRequired, Quirk::NoEtag], json!({}), &[PATCH, PATCH, ON]),
        (&[Quirk::NoEtag], json!({}), &[PATCH, ON]),
        (&[Quirk::ModeRequired], json!({}), &[PATCH, PATCH_WITH_MODE, ON]),
        (&[Quirk::ModeForbidden], json!({}), &[PATCH, ON]),
        (&[Quirk::PostInProgress(2)], json!({}), &[PATCH, PATCH, PATCH, ON]),
        (&[Quirk::AlreadyOn], json!({}), &[PATCH, ON]),
        (&[Quirk::PowerOnRace(2)], json!({}), &[PATCH, ON, ON, ON]),
        (&[Quirk::Tasks], json!({}), &[PATCH, ON]),
        (&[Quirk::LatePower(4)], json!({}), &[PATCH, ON]),
        (&[Quirk::SessionLimit], json!({"session": true}), &[PATCH, ON]),
        (&[Quirk::ErrorThoughApplied], json!({}), &[PATCH, ON]),
        (&[Quirk::BusyReads(2)], json!({}), &[PATCH, ON]),
        (&[], json!({"verify_consumed": true}), &[PATCH, ON]),
        (&[], json!({"target": "pxe", "mode": "UEFI"}), &[PATCH, ON]),
    ];
    std::thread::scope(|scope| {
        for (quirks, options, writes) in cases {
            scope.spawn(move || meets(quirks, options, writes));
        }
    });
}

fn meets(quirks: &[Quirk], options: Value, writes: &[&str]) {
    let site = Site::plain(quirks);
    let result = site.run(options.clone()).done();
    assert_eq!(result["changed"], true, "{quirks:?} {options}");
    assert_eq!(site.bmc.writes(), writes, "{quirks:?} {options}");
    assert_eq!(site.bmc.power(), "On", "{quirks:?}");
    // Somebody else's power-on is no boot of ours.
    let booted: &[&str] = if quirks == [Quirk::AlreadyOn] { &[] } else { &["Pxe"] };
    assert_eq!(site.bmc.boots(), booted, "{quirks:?}");
}

#[test]
fn an_override_that_was_set_with_an_error_is_a_warning() {
    let result = Site::plain(&[Quirk::ErrorThoughApplied]).run(json!({})).done();
    let warning = result["warnings"][0].as_str().unwrap();
    assert!(warning.contains("Unable to create a configuration job."), "{warning}");
}

#[test]
fn the_if_match_header_follows_the_fallbacks() {
    let tags = |quirks: &[Quirk]| -> Vec<Option<String>> {
        let site = Site::plain(quirks);
        assert_eq!(site.run(json!({"power_on": false})).done()["changed"], true);
        site.bmc.log().into_iter().filter(|one| one.method == "PATCH").map(|one| one.if_match).collect()
    };
    let tag = |text: &str| Some(text.to_owned());
    assert_eq!(tags(&[]), [tag("\"1\"")]);
    assert_eq!(tags(&[Quirk::StaleTag]), [tag("\"1\""), tag("\"2\"")]);
    assert_eq!(tags(&[Quirk::WeakTagRefused]), [tag("W/\"1\""), tag("W/\"1\""), tag("\"1\"")]);
    assert_eq!(tags(&[Quirk::IfMatchRefused]), [tag("\"1\""), tag("\"1\""), None]);
    assert_eq!(tags(&[Quirk::NoEtag]), [None]);
    assert_eq!(tags(&[Quirk::NoEtag, Quirk::IfMatchRequired]), [None, tag("*")]);
}

#[test]
fn some_want_the_mode_always_and_are_content_without() {
    let supermicro = || Tree::plain().set(SYSTEM, "/Manufacturer", json!("Supermicro"));
    let site = Site::new(RedfishDouble::builder(supermicro()));
    assert_eq!(site.run(json!({})).done()["changed"], true);
    assert_eq!(site.bmc.writes(), [PATCH_WITH_MODE, ON]);
    let site = Site::new(RedfishDouble::builder(supermicro()).quirk(Quirk::ModeForbidden));
    let result = site.run(json!({})).done();
    assert_eq!(site.bmc.writes(), [PATCH_WITH_MODE, PATCH, ON]);
    assert_eq!(result["calls"].as_array().unwrap().len(), 3, "{result}");
}

/// A system whose settings hold `boot`.
fn with_settings(boot: Value) -> Tree {
    let settings = format!("{SYSTEM}/Settings");
    Tree::plain()
        .set(SYSTEM, "/@Redfish.Settings", json!({"SettingsObject": {"@odata.id": settings}}))
        .with(&settings, json!({ "Boot": boot }))
}

#[test]
fn an_allow_list_in_the_settings_counts() {
    let list = "BootSourceOverrideTarget@Redfish.AllowableValues";
    let tree =
        || with_settings(json!({list: ["None", "Pxe"]})).set(SYSTEM, &format!("/Boot/{list}"), Value::Null);
    let site = Site::new(RedfishDouble::builder(tree()));
    assert_eq!(site.run(json!({})).done()["changed"], true);
    assert_eq!(site.bmc.writes(), [PATCH, ON]);
    let refused = Site::new(RedfishDouble::builder(tree())).run(json!({"target": "Cd"})).failed();
    assert!(refused["msg"].as_str().unwrap().ends_with("offered: None, Pxe"), "{refused}");
}

#[test]
fn what_the_settings_have_is_written_there() {
    let mirror = json!({"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"});
    let site = Site::new(RedfishDouble::builder(with_settings(mirror)));
    let result = site.run(json!({"verify_consumed": true})).done();
    assert_eq!(site.bmc.writes(), [PATCH.replace("PATCH 1", "PATCH Settings").as_str(), ON]);
    assert_eq!(result["calls"][0]["path"], format!("{SYSTEM}/Settings"));
    assert_eq!(site.bmc.boots(), ["Pxe"]);
}

#[test]
fn a_lost_answer_is_looked_after_and_not_sent_again() {
    for (method, path) in [("PATCH", "/Systems/1"), ("POST", "ComputerSystem.Reset")] {
        let site = Site::plain(&[]);
        let proxy = Proxy::to(&site.bmc.url()).tls().start();
        proxy.on(method, path).first().lose_answer();
        let through = json!({"api_port": proxy.port(), "ca_path": proxy.ca_path()});
        let result = site.run(through).done();
        assert_eq!(result["changed"], true);
        assert_eq!(site.bmc.writes(), [PATCH, ON], "{method}");
        assert_eq!(site.bmc.boots(), ["Pxe"]);
    }
}

#[test]
fn one_of_two_systems_is_found_by_its_id_or_serial() {
    let tree = || Tree::two_systems().set(SYSTEM, "/SerialNumber", json!("SN123456"));
    for options in [json!({}), json!({"system_id": "1"}), json!({"system_id": "1", "serial": null})] {
        let site = Site::new(RedfishDouble::builder(tree()));
        assert_eq!(site.run(options).done()["changed"], true);
        assert_eq!(site.bmc.boots(), ["Pxe"]);
    }
}
