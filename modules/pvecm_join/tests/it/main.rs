//! The program on nodes with a real corosync, sshd, ssh and rsync.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

use std::io::Write;
use std::time::Instant;

use lab::corosync::{Node, Site, possible};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pvecm_join");

fn site(names: &[&str]) -> Option<Site> {
    lab::present(possible(), "corosync (with rsync, root and namespaces)").then(|| Site::build(names))
}

fn asked(node: &Node, founder: &Node) -> Value {
    json!({"peer": founder.address(0).to_string(), "peer_host_keys": [founder.host_key()], "cluster_name": "lab",
           "links": {"link0": node.address(0).to_string(), "link1": node.address(1).to_string()}, "timeout": 60})
}

fn checks(result: &Value) -> Vec<&str> {
    result["faults"].as_array().unwrap().iter().map(|fault| fault["check"].as_str().unwrap()).collect()
}

#[test]
fn faults_are_listed_at_once_then_two_nodes_join_one_of_them_killed() {
    let Some(site) = site(&["pve1", "pve2", "pve3"]) else { return };
    let [one, two, three] = ["pve1", "pve2", "pve3"].map(|name| site.node(name));
    site.form("lab", &["pve1"]);

    // Everything wrong at once, and nothing is changed.
    two.set_guests("100");
    two.write("/run/lab/version", "8.4.1");
    two.write("/run/lab/synchronized", "no\n");
    one.write("/run/lab/skew", "30");
    one.sh("mkdir -p /etc/pve/nodes/pve2");
    two.sh("sed -i 's/^.* pve2$/127.0.1.1 pve2/' /etc/hosts");
    let before = two.sh("cat /etc/ssh/sshd_config; ls -l /root/.ssh");
    let mut wrong = asked(two, one);
    wrong["links"] = json!({"link0": "10.77.0.99"});
    wrong["expected_members"] = json!(["pve9"]);
    let refused = two.module(PROGRAM, &wrong).failed();
    assert_eq!(refused["error_code"], "refused", "{refused}");
    let found = ["own_name", "link_address", "guests", "time_sync", "peer_auth"];
    assert_eq!(checks(&refused), found, "{refused}");
    one.authorize(two);
    let refused = two.module(PROGRAM, &wrong).failed();
    let found = [
        "own_name",
        "link_address",
        "guests",
        "time_sync",
        "version",
        "leftover_node",
        "links",
        "expected_members",
        "clock",
    ];
    assert_eq!(checks(&refused), found, "{refused}");
    let mut stranger = asked(two, one);
    stranger["peer_host_keys"] = json!([three.host_key()]);
    let refused = two.module(PROGRAM, &stranger).failed();
    assert!(checks(&refused).contains(&"peer_host_key"), "{refused}");
    assert_eq!(two.sh("cat /etc/ssh/sshd_config; ls -l /root/.ssh"), before, "a refusal changed something");
    two.set_guests("");
    two.sh("rm /run/lab/version /run/lab/synchronized; sed -i 's/^127.0.1.1/10.77.0.2/' /etc/hosts");
    two.sh("systemctl restart pve-cluster");
    one.sh("rm -r /run/lab/skew /etc/pve/nodes/pve2 /run/lab/shared/lab/nodes/pve2 2>/dev/null || true");

    let asked_two = asked(two, one);
    assert_eq!(two.program(PROGRAM).check(&asked_two).done()["changed"], true);
    assert_eq!(two.sh("cat /etc/ssh/sshd_config; ls -l /root/.ssh"), before, "check mode changed something");
    let began = Instant::now();
    let joined = two.module(PROGRAM, &asked_two).done();
    let all = began.elapsed();
    assert_eq!((&joined["changed"], &joined["cluster"]["quorate"]), (&json!(true), &json!(true)), "{joined}");
    assert_eq!(joined["cluster"]["links"]["link1"]["pve1"], "connected", "{joined}");
    let _ = writeln!(std::io::stderr(), "measured: a join and its proofs took {all:.1?}");
    let again = two.module(PROGRAM, &asked_two).done();
    assert_eq!(again["changed"], false, "{again}");
    assert_eq!(two.sh("ls /var/lib/homelab-anvil"), "", "nothing is left to put back");

    // The module is killed while its pvecm is at work, which goes on; the next run waits for it.
    one.authorize(three);
    three.kill_module_at("added", PROGRAM, &asked(three, one));
    three.go_on();
    let after = three.module(PROGRAM, &asked(three, one)).done();
    assert_eq!((&after["changed"], &after["cluster"]["total_votes"]), (&json!(false), &json!(3)), "{after}");
}

#[test]
fn a_join_that_hangs_or_dies_is_put_back_or_recognised() {
    let Some(site) = site(&["pve1", "pve2"]) else { return };
    let (one, two) = (site.node("pve1"), site.node("pve2"));
    // Alone it keeps quorum while the cluster lists a node that is not there yet.
    site.form_with_votes("lab", &["pve1"], 2);
    one.authorize(two);
    let mut short = asked(two, one);
    short["timeout"] = json!(14);
    let before = two.sh("cat /etc/ssh/sshd_config; ls /root/.ssh; stat -c %F /root/.ssh/authorized_keys");

    // pvecm hangs behind its changes to SSH's files: they are put back, and nothing runs on.
    two.hold_at("ssh");
    let stopped = two.module(PROGRAM, &short).failed();
    assert_eq!((&stopped["error_code"], &stopped["changed"]), (&json!("timeout"), &json!(true)), "{stopped}");
    two.go_on();
    assert_eq!(
        two.sh("cat /etc/ssh/sshd_config; ls /root/.ssh; stat -c %F /root/.ssh/authorized_keys"),
        before
    );
    assert_eq!(two.sh("pgrep -f '[p]vecm add' || true"), "");

    // An ssh that asks for a password finds no terminal.
    two.write("/run/lab/ssh-copy-id", "#!/bin/sh\nread answer </dev/tty\n");
    two.sh("chmod 755 /run/lab/ssh-copy-id; mount --bind /run/lab/ssh-copy-id /usr/bin/ssh-copy-id");
    let prompted = two.module(PROGRAM, &asked(two, one)).failed();
    assert!(prompted["msg"].as_str().unwrap().contains("unable to copy ssh ID"), "{prompted}");
    two.sh("umount /usr/bin/ssh-copy-id");

    // The power goes between the cluster's yes and the start of the services.
    two.kill_module_at("copied", PROGRAM, &asked(two, one));
    two.sh("pkill -KILL -f '[p]vecm add'");
    two.go_on();
    let half = two.module(PROGRAM, &asked(two, one)).failed();
    assert_eq!(half["error_code"], "half_joined", "{half}");
    let proofs: Vec<&str> = half["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|missing| missing["proof"].as_str().unwrap())
        .collect();
    assert!(proofs.contains(&"status") && proofs.contains(&"services"), "{half}");

    // What the message says takes it back; the cluster's entry of this node is its own, and is used again.
    two.sh("systemctl stop pve-cluster corosync; rm /etc/corosync/* /var/lib/pve-cluster/config.db; systemctl start pve-cluster");
    let mut other = asked(two, one);
    other["cluster_name"] = json!("prod");
    assert_eq!(checks(&two.module(PROGRAM, &other).failed()), ["peer_cluster"]);
    let joined = two.module(PROGRAM, &asked(two, one)).done();
    assert_eq!((&joined["changed"], &joined["cluster"]["quorate"]), (&json!(true), &json!(true)), "{joined}");
    let other = two.module(PROGRAM, &other).failed();
    assert_eq!(checks(&other), ["other_cluster"], "{other}");
}
