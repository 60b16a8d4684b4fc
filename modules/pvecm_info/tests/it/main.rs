//! The program on nodes with a real corosync.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

use lab::corosync::{Site, possible};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pvecm_info");

#[test]
fn a_node_alone_a_member_and_a_member_without_quorum() {
    if !lab::present(possible(), "corosync (with rsync, root and namespaces)") {
        return;
    }
    let site = Site::build(&["pve1", "pve2"]);
    let (one, two) = (site.node("pve1"), site.node("pve2"));
    let alone = one.module(PROGRAM, &json!({})).done();
    assert_eq!((&alone["changed"], &alone["cluster"]), (&json!(false), &Value::Null), "{alone}");
    assert_eq!(
        (&alone["node"]["name"], &alone["node"]["version"]),
        (&json!("pve1"), &json!("9.1.1")),
        "{alone}"
    );
    assert_eq!(alone["node"]["services"]["corosync"], "inactive");

    site.form("lab", &["pve1", "pve2"]);
    let member = two.module(PROGRAM, &json!({})).done();
    let cluster = &member["cluster"];
    assert_eq!(
        (&cluster["name"], &cluster["quorate"], &cluster["quorum"]),
        (&json!("lab"), &json!(true), &json!(2))
    );
    assert_eq!(
        cluster["nodes"][0],
        json!({"name": "pve1", "nodeid": 1, "votes": 1, "online": true, "links": {"link0":
        "10.77.0.1", "link1": "10.78.0.1"}})
    );
    assert_eq!(cluster["links"]["link1"], json!({"pve1": "connected", "pve2": "localhost"}), "{member}");

    one.sh("systemctl stop pve-cluster corosync");
    two.wait_for_quorum(false);
    let lonely = two.module(PROGRAM, &json!({})).done();
    let cluster = &lonely["cluster"];
    assert_eq!(
        (&cluster["quorate"], &cluster["total_votes"], &cluster["expected_votes"]),
        (&json!(false), &json!(1), &json!(2))
    );
    assert_eq!(
        (&cluster["nodes"][0]["online"], &cluster["links"]["link0"]["pve1"]),
        (&json!(false), &json!("disconnected"))
    );
    let stopped = one.module(PROGRAM, &json!({})).done();
    assert_eq!(
        (&stopped["cluster"]["name"], &stopped["cluster"]["total_votes"]),
        (&json!("lab"), &Value::Null),
        "{stopped}"
    );

    two.write("/etc/pve/corosync.conf", "totem {");
    let broken = two.module(PROGRAM, &json!({})).failed();
    assert!(broken["msg"].as_str().unwrap().contains("the section `totem` is not closed"), "{broken}");
}
