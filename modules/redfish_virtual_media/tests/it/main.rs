//! The binary from outside, against a double of a BMC.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use deadline::{Deadline, Expired};
use lab::program::{Outcome, Program, with};
use lab::redfish::{Builder, Quirk, RedfishDouble, Tree};
use serde_json::{Value, json};

const MODULE: &str = env!("CARGO_BIN_EXE_redfish_virtual_media");
const CD: &str = "/redfish/v1/Managers/1/VirtualMedia/2";
const ISO: &str = "http://192.0.2.10/a.iso";
const INSERT: &str = r#"POST VirtualMedia.InsertMedia {"Image":"http://192.0.2.10/a.iso"}"#;
const EJECT: &str = "POST VirtualMedia.EjectMedia {}";

struct Site {
    bmc: RedfishDouble,
    module: Program,
}

impl Site {
    fn new(tree: Tree, quirks: &[Quirk]) -> Self {
        let bmc = quirks.iter().cloned().fold(RedfishDouble::builder(tree), Builder::quirk).start();
        Self { bmc, module: Program::new(MODULE) }
    }

    fn options(&self, others: Value) -> Value {
        with(&self.bmc.options(), others)
    }

    fn run(&self, others: Value) -> Outcome {
        self.module.run(&self.options(others))
    }

    fn insert(&self) -> Outcome {
        self.run(json!({"state": "inserted", "image": ISO}))
    }

    fn eject(&self) -> Outcome {
        self.run(json!({"state": "ejected"}))
    }
}

/// A CD slot that holds `image`.
fn holding(image: &str) -> Tree {
    Tree::plain().set(CD, "/Inserted", json!(true)).set(CD, "/Image", json!(image))
}

#[test]
fn in_and_out_and_each_only_once() {
    let site = Site::new(Tree::plain(), &[]);
    let insert = site.options(json!({"state": "inserted", "image": ISO}));
    let predicted = site.module.check(&insert).done();
    assert!(site.bmc.was_only_read());
    assert_eq!(predicted["changed"], true);
    let made = site.module.run(&insert).done();
    assert_eq!(made["calls"], predicted["calls"]);
    assert_eq!(made["read_back"]["held"], json!(["VirtualMedia/2.Image"]));
    assert_eq!(made["virtual_media"][1]["image"], ISO);
    assert_eq!(site.insert().done()["changed"], false);
    assert_eq!(site.bmc.writes(), [INSERT]);
    assert_eq!(site.eject().done()["changed"], true);
    assert_eq!(site.eject().done()["changed"], false);
    assert_eq!(site.bmc.writes(), [INSERT, EJECT]);
    assert_eq!(site.bmc.power(), "Off");
}

#[test]
fn each_oddity_of_a_bmc_is_met() {
    let more = |extra: &str| format!("{},{extra}}}", INSERT.trim_end_matches('}'));
    let by_patch = [r#"PATCH 2 {"Image":"http://192.0.2.10/a.iso","Inserted":true}"#.to_owned()];
    let protocol = r#""TransferProtocolType":"HTTP""#;
    let no_actions = Tree::plain().set(CD, "/Actions", Value::Null);
    let info = format!("{CD}/InsertMediaActionInfo");
    let required = json!({"Parameters": [{"Name": "Image", "Required": true}, {"Name": "TransferMethod", "Required": true}]});
    let described = Tree::plain().with(&info, required).set(
        CD,
        "/Actions/#VirtualMedia.InsertMedia/@Redfish.ActionInfo",
        json!(info),
    );
    for (tree, quirks, writes) in [
        (
            Tree::plain(),
            &[Quirk::InsertNeeds("TransferProtocolType")][..],
            vec![INSERT.to_owned(), more(protocol)],
        ),
        (described, &[], vec![more(r#""TransferMethod":"Stream""#)]),
        (no_actions, &[Quirk::MediaByPatch], by_patch.to_vec()),
        (Tree::plain(), &[Quirk::Tasks], vec![INSERT.to_owned()]),
        (Tree::plain(), &[Quirk::PostInProgress(1)], vec![INSERT.to_owned(); 2]),
        (holding("http://192.0.2.10/other.iso"), &[], vec![EJECT.to_owned(), INSERT.to_owned()]),
        (
            holding("http://192.0.2.10/other.iso"),
            &[Quirk::EjectOfNothing],
            vec![EJECT.to_owned(), INSERT.to_owned()],
        ),
    ] {
        let site = Site::new(tree, quirks);
        assert_eq!(site.insert().done()["changed"], true, "{quirks:?}");
        assert_eq!(site.bmc.writes(), writes, "{quirks:?}");
        assert_eq!(site.bmc.resource(CD)["Image"], ISO, "{quirks:?}");
    }
}

#[test]
fn an_image_that_is_shown_without_its_scheme_is_the_same() {
    let site = Site::new(holding("192.0.2.10/a.iso"), &[]);
    assert_eq!(site.insert().done()["changed"], false);
    assert!(site.bmc.was_only_read());
}

#[test]
fn ejecting_what_is_not_there_is_no_failure() {
    let site = Site::new(holding(ISO), &[Quirk::EjectOfNothing]);
    assert_eq!(site.eject().done()["changed"], true);
    assert_eq!(site.bmc.writes(), [EJECT]);
    let other = json!({"state": "ejected", "image": "http://192.0.2.10/other.iso"});
    let site = Site::new(holding(ISO), &[]);
    assert_eq!(site.run(other).done()["changed"], false, "another image is left alone");
}

#[test]
fn where_it_cannot_be_done_manual_media_are_the_way() {
    let insert = "/Actions/#VirtualMedia.InsertMedia";
    let protocols = "TransferProtocolType@Redfish.AllowableValues";
    for (tree, options, part) in [
        (Tree::idrac8(), json!({}), "slot CD offers neither InsertMedia nor PATCH"),
        (
            Tree::plain().set(CD, &format!("{insert}/{protocols}"), json!(["CIFS", "NFS"])),
            json!({}),
            "slot 2 does not offer the transfer protocol HTTP; offered: CIFS, NFS",
        ),
        (Tree::plain(), json!({"slot": "9"}), "there is no slot 9; there are: 1, 2"),
        (
            Tree::plain().set("/redfish/v1/Managers/1", "/VirtualMedia", Value::Null),
            json!({}),
            "the BMC has no slot for virtual media",
        ),
    ] {
        let site = Site::new(tree, &[]);
        let usual = json!({"state": "inserted", "image": ISO});
        let result = site.run(with(&usual, options)).failed();
        assert_eq!(result["error_code"], "refused");
        let msg = result["msg"].as_str().unwrap();
        assert!(msg.contains(part) && msg.contains("use manual media"), "{msg}");
        assert!(site.bmc.was_only_read());
    }
}

#[test]
fn the_guard_stands_before_it() {
    for (options, rule) in [
        (json!({"serial": "SN999999"}), "serial"),
        (json!({"refuse_serials": ["SN123456"]}), "refuse_serials"),
        (json!({"refuse_macs": ["a0:36:9f:00:00:01"]}), "refuse_macs"),
        (json!({"guard": true}), "refuse_serials"),
    ] {
        let site = Site::new(Tree::plain(), &[]);
        let result = site.run(with(&json!({"state": "inserted", "image": ISO}), options)).failed();
        assert_eq!((&result["error_code"], &result["guard"]), (&json!("refused"), &json!(rule)));
        assert!(site.bmc.was_only_read());
    }
}

#[test]
fn an_image_that_is_none_is_found_before_anything_is_sent() {
    for image in [
        "a.iso",
        "ftp://h/a.iso",
        "http://a.iso",
        "http://h/a.iso?x=1",
        "http://u:p@h/a.iso",
        "http://h/a b.iso",
    ] {
        let site = Site::new(Tree::plain(), &[]);
        let result = site.run(json!({"state": "inserted", "image": image})).failed();
        assert_eq!(result["option"], "image", "{result}");
        assert_eq!(site.bmc.log(), []);
    }
    let site = Site::new(Tree::plain(), &[]);
    assert_eq!(site.run(json!({"state": "inserted"})).failed()["error_code"], "bad_argument");
}

#[test]
fn an_interrupted_run_ejects_what_it_inserted() {
    let site = Site::new(Tree::plain(), &[Quirk::ImageRenamed]);
    let mut child = Command::new(MODULE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let options = site.options(json!({"state": "inserted", "image": ISO})).to_string();
    child.stdin.take().unwrap().write_all(options.as_bytes()).unwrap();
    let sent = || Ok::<_, Expired>(site.bmc.writes().first().map(drop));
    Deadline::after(Duration::from_secs(20)).poll(sent).unwrap();
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["error_code"], "interrupted", "{result}");
    assert_eq!(result["warnings"], json!(["what was inserted into slot 2 was ejected again"]));
    assert_eq!(site.bmc.writes(), [INSERT, EJECT]);
    assert_eq!(site.bmc.resource(CD)["Inserted"], false);
}
