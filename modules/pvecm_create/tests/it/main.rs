//! The program on a node with a real corosync.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

use lab::corosync::{Site, possible};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pvecm_create");

#[test]
fn founded_unchanged_finished_after_a_kill_and_never_another() {
    if !lab::present(possible(), "corosync (with rsync, root and namespaces)") {
        return;
    }
    let site = Site::build(&["pve1", "pve2"]);
    let (node, other) = (site.node("pve1"), site.node("pve2"));
    let asked =
        json!({"cluster_name": "lab", "votes": 2, "links": {"link0": "10.77.0.1", "link1": "10.78.0.1"}});
    node.set_guests("100");

    let checked = node.program(PROGRAM).check(&asked).done();
    assert_eq!(
        (&checked["changed"], &checked["cluster"]["name"]),
        (&json!(true), &json!("lab")),
        "{checked}"
    );
    assert!(node.read("/etc/pve/corosync.conf").is_err(), "check mode wrote");

    let founded = node.module(PROGRAM, &asked).done();
    assert_eq!(
        (&founded["changed"], &founded["cluster"]["quorate"]),
        (&json!(true), &json!(true)),
        "{founded}"
    );
    assert_eq!(founded["cluster"]["nodes"][0]["votes"], 2);
    let again = node.module(PROGRAM, &asked).done();
    assert_eq!(again["changed"], false, "{again}");

    let mut different = asked.clone();
    different["cluster_name"] = json!("other");
    let refused = node.module(PROGRAM, &different).failed();
    let msg = refused["msg"].as_str().unwrap();
    assert!(msg.contains("asked for \"other\", it has \"lab\""), "{msg}");

    // pvecm is held behind the writing of corosync.conf, and runs out of its time there.
    let asked = json!({"cluster_name": "second", "links": {"link0": "10.77.0.2"}});
    other.hold_at("written");
    let mut short = asked.clone();
    short["timeout"] = json!(12);
    let stopped = other.module(PROGRAM, &short).failed();
    assert_eq!(stopped["error_code"], "timeout", "{stopped}");
    assert!(stopped["msg"].as_str().unwrap().contains("Writing corosync config"), "{stopped}");
    assert_eq!(other.sh("pgrep -f '[p]vecm create' || true"), "", "nothing waits for ever");
    other.go_on();
    let finished = other.module(PROGRAM, &asked).done();
    assert_eq!(
        (&finished["changed"], &finished["cluster"]["quorate"]),
        (&json!(true), &json!(true)),
        "{finished}"
    );
    assert_eq!(other.module(PROGRAM, &asked).done()["changed"], Value::from(false));
}
