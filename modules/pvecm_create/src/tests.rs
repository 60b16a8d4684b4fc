use std::collections::BTreeMap;

use ansible_module::{Failure, Plan};
use pve_cluster::{CorosyncConf, Members, Node};

use crate::args::Args;
use crate::plan::{Action, plan};

fn args() -> Args {
    let links = [(0, "10.0.0.1".parse().unwrap()), (1, "10.1.0.1".parse().unwrap())];
    Args { cluster_name: "lab".into(), links: links.into(), votes: Some(2), nodeid: None }
}

/// A node in no cluster.
fn fresh() -> Node {
    Node {
        name: "pve".into(),
        members: Some(Members { nodename: "pve".into(), cluster: None, nodelist: BTreeMap::new() }),
        writable: true,
        addresses: ["127.0.0.1", "10.0.0.1", "10.1.0.1"].map(|address| address.parse().unwrap()).to_vec(),
        resolved: vec!["10.0.0.1".parse().unwrap()],
        guests: vec![100, 101],
        ..Node::default()
    }
}

fn conf(name: &str, votes: u32) -> CorosyncConf {
    let text = format!(
        "totem {{\n cluster_name: {name}\n config_version: 1\n}}\nnodelist {{\n node {{\n name: pve\n nodeid: 1\n \
         quorum_votes: {votes}\n ring0_addr: 10.0.0.1\n ring1_addr: 10.1.0.1\n }}\n}}\n"
    );
    CorosyncConf::parse(&text).unwrap()
}

fn actions(plan: Result<Plan<Action>, Failure>) -> Vec<Action> {
    plan.unwrap().steps().map(|step| step.action).collect()
}

#[test]
fn a_node_with_guests_founds_a_cluster() {
    assert_eq!(actions(plan(&args(), &fresh())), [Action::Create]);
    assert_eq!(args().words().join(" "), "create lab --votes 2 --link0 10.0.0.1 --link1 10.1.0.1");
}

#[test]
fn everything_in_the_way_is_listed_at_once() {
    let node = Node {
        addresses: vec!["10.0.0.1".parse().unwrap()],
        resolved: vec!["127.0.1.1".parse().unwrap()],
        writable: false,
        local_conf: Some(conf("old", 1)),
        joining: Some("77 pvecm add 10.0.0.9".into()),
        services: [("corosync".to_owned(), "active".to_owned())].into(),
        ..fresh()
    };
    let failure = plan(&args(), &node).unwrap_err();
    let checks: Vec<&str> = failure.details["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["check"].as_str().unwrap())
        .collect();
    assert_eq!(
        checks,
        ["etc_pve", "corosync_running", "own_name", "link_address", "leftover_config", "joining"]
    );
}

#[test]
fn a_cluster_that_is_there_is_the_one_asked_for_or_a_refusal_that_shows_both() {
    let half = Node { conf: Some(conf("lab", 2)), ..fresh() };
    assert_eq!(actions(plan(&args(), &half)), [Action::Finish], "written, and nothing runs");
    for (existing, said) in [
        (conf("other", 2), "cluster_name: asked for \"lab\", it has \"other\""),
        (conf("lab", 1), "votes: asked for 2, it has 1"),
    ] {
        let failure = plan(&args(), &Node { conf: Some(existing), ..fresh() }).unwrap_err();
        assert!(failure.msg.contains(said), "{}", failure.msg);
    }
    let mut fewer = args();
    fewer.links.remove(&1);
    let failure = plan(&fewer, &half).unwrap_err();
    assert!(failure.msg.contains("link1: asked for null, it has \"10.1.0.1\""), "{}", failure.msg);
}

#[test]
fn a_left_over_key_is_told() {
    let plan = plan(&args(), &Node { has_authkey: true, ..fresh() }).unwrap();
    assert!(plan.warnings[0].contains("authkey"), "{:?}", plan.warnings);
}
