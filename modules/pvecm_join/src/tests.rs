use std::collections::BTreeMap;

use ansible_module::{Failure, Plan};
use pve_cluster::{ClusterInfo, CorosyncConf, Firewall, Member, Members, Node, ProbeError, Quorum, Status};
use ssh::{Address, HostKey};

use crate::args::Args;
use crate::observe::State;
use crate::plan::{Action, plan};

const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIGQ7nCjuXz6WMZvfXhfCtrEkUwhvMZ4nbPhxaIqfhKcK";

fn args() -> Args {
    Args {
        peer: Address::new("10.0.0.1", 22),
        peer_host: "10.0.0.1".into(),
        peer_host_keys: vec![HostKey::from_base64(KEY).unwrap()],
        cluster_name: "lab".into(),
        links: [(0, "10.0.0.2".parse().unwrap())].into(),
        votes: None,
        nodeid: None,
        expected_members: vec!["pve".into()],
        firewall_ipset: "pve_cluster".into(),
    }
}

fn fresh() -> Node {
    Node {
        name: "pve2".into(),
        version: Some("9.1.1".into()),
        clock_synchronized: Some(true),
        members: Some(Members { nodename: "pve2".into(), cluster: None, nodelist: BTreeMap::new() }),
        writable: true,
        addresses: vec!["10.0.0.2".parse().unwrap()],
        resolved: vec!["10.0.0.2".parse().unwrap()],
        ..Node::default()
    }
}

fn conf(name: &str, second: &str) -> CorosyncConf {
    let text = format!(
        "totem {{\n cluster_name: {name}\n config_version: 1\n}}\nnodelist {{\n node {{\n name: pve\n nodeid: 1\n \
         quorum_votes: 1\n ring0_addr: 10.0.0.1\n }}\n{second}}}\n"
    );
    CorosyncConf::parse(&text).unwrap()
}

fn second(name: &str, address: &str) -> String {
    format!(" node {{\n name: {name}\n nodeid: 2\n quorum_votes: 1\n ring0_addr: {address}\n }}\n")
}

fn peer() -> Node {
    let member = Member { nodeid: 1, votes: 1, name: "10.0.0.1".into(), local: true };
    let quorum = Quorum {
        quorate: true,
        nodeid: 1,
        expected_votes: 1,
        highest_expected: 1,
        total_votes: 1,
        quorum: 1,
        flags: vec!["Quorate".into()],
        members: vec![member],
    };
    let cluster = ClusterInfo { name: "lab".into(), version: 1, quorate: true };
    Node {
        name: "pve".into(),
        version: Some("9.1.1".into()),
        clock_synchronized: Some(true),
        conf: Some(conf("lab", "")),
        members: Some(Members { nodename: "pve".into(), cluster: Some(cluster), nodelist: BTreeMap::new() }),
        directories: vec!["pve".into()],
        writable: true,
        status: Some(Status {
            name: "lab".into(),
            config_version: 1,
            transport: "knet".into(),
            secure_auth: true,
            quorum,
        }),
        ..Node::default()
    }
}

fn state(own: Node, peer: Node) -> State {
    State { own, peer: Ok(peer), skew: Some(0.0), pinned: true }
}

fn checks(planned: Result<Plan<Action>, Failure>) -> Vec<String> {
    let Err(failure) = planned else { return Vec::new() };
    let faults =
        failure.details.get("faults").and_then(|faults| faults.as_array()).cloned().unwrap_or_default();
    faults.iter().map(|fault| fault["check"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_in_order_joins_and_unknown_keys_are_pinned_before() {
    let actions = |pinned| -> Vec<Action> {
        let state = State { pinned, ..state(fresh(), peer()) };
        plan(&args(), &state).unwrap().steps().map(|step| step.action).collect()
    };
    assert_eq!(actions(true), [Action::Join]);
    assert_eq!(actions(false), [Action::Pin, Action::Join]);
    assert_eq!(args().words().join(" "), "add 10.0.0.1 --use_ssh --link0 10.0.0.2");
}

#[test]
fn each_fault_of_this_node_has_its_name() {
    for (own, check) in [
        (Node { guests: vec![100], ..fresh() }, "guests"),
        (Node { has_authkey: true, ..fresh() }, "leftover_authkey"),
        (Node { writable: false, ..fresh() }, "etc_pve"),
        (Node { members: None, ..fresh() }, "etc_pve"),
        (Node { resolved: vec!["127.0.1.1".parse().unwrap()], ..fresh() }, "own_name"),
        (Node { resolved: vec!["10.0.0.77".parse().unwrap()], ..fresh() }, "own_name"),
        (Node { resolved: vec![], ..fresh() }, "own_name"),
        (Node { clock_synchronized: Some(false), ..fresh() }, "time_sync"),
        (Node { version: Some("8.4.1".into()), ..fresh() }, "version"),
        (Node { version: None, ..fresh() }, "version"),
        (
            Node { services: [("corosync".to_owned(), "active".to_owned())].into(), ..fresh() },
            "corosync_running",
        ),
        (Node { conf: Some(conf("other", "")), ..fresh() }, "other_cluster"),
        (Node { local_conf: Some(conf("lab", "")), ..fresh() }, "other_cluster"),
        (Node { broken: vec!["corosync.conf cannot be read".into()], ..fresh() }, "unreadable"),
        (Node { joining: Some("7 pvecm add x".into()), ..fresh() }, "joining"),
    ] {
        assert_eq!(checks(plan(&args(), &state(own, peer()))), [check]);
    }
}

#[test]
fn each_fault_of_the_cluster_has_its_name() {
    let firewall = |text| Firewall::parse(text);
    for (peer, check) in [
        (Node { conf: None, ..peer() }, "peer_cluster"),
        (Node { conf: Some(conf("other", "")), ..peer() }, "peer_cluster"),
        (Node { status: None, ..peer() }, "peer_quorum,expected_members"),
        (Node { clock_synchronized: Some(false), ..peer() }, "peer_time_sync"),
        (Node { conf: Some(conf("lab", &second("pve2", "10.0.0.9"))), ..peer() }, "name"),
        (Node { conf: Some(conf("lab", &second("pve3", "10.0.0.2"))), ..peer() }, "link_address"),
        (Node { directories: vec!["pve".into(), "pve2".into()], ..peer() }, "leftover_node"),
        (Node { firewall: firewall("[OPTIONS]\nenable: 1\n"), ..peer() }, "firewall"),
        (
            Node { firewall: firewall("[OPTIONS]\nenable: 1\n[IPSET pve_cluster]\n10.0.0.0/31\n"), ..peer() },
            "firewall",
        ),
        (
            Node { firewall: firewall("[OPTIONS]\nenable: 1\n[IPSET pve_cluster]\n10.0.0.0/24\n"), ..peer() },
            "",
        ),
        // What a killed join of this very node left in the cluster.
        (Node { conf: Some(conf("lab", &second("pve2", "10.0.0.2"))), ..peer() }, ""),
    ] {
        assert_eq!(checks(plan(&args(), &state(fresh(), peer))).join(","), check);
    }
}

#[test]
fn links_are_the_clusters_and_clocks_agree() {
    let two =
        Args { links: [(0, "10.0.0.2".parse().unwrap()), (1, "10.1.0.2".parse().unwrap())].into(), ..args() };
    assert_eq!(checks(plan(&two, &state(fresh(), peer()))), ["link_address", "links"]);
    let late = State { skew: Some(2.5), ..state(fresh(), peer()) };
    assert_eq!(checks(plan(&args(), &late)), ["clock"]);
    let numbered = Args { nodeid: Some(1), ..args() };
    assert_eq!(checks(plan(&numbered, &state(fresh(), peer()))), ["nodeid"]);
}

#[test]
fn a_peer_that_is_not_reached_has_three_reasons_and_hides_no_other_fault() {
    for (error, check) in [
        (ProbeError::HostKey("Host key verification failed.".into()), "peer_host_key"),
        (ProbeError::Auth("Permission denied (publickey).".into()), "peer_auth"),
        (ProbeError::Unreachable("No route to host".into()), "peer_unreachable"),
    ] {
        let own = Node { guests: vec![100], ..fresh() };
        let state = State { peer: Err(error), skew: None, ..state(own, peer()) };
        assert_eq!(checks(plan(&args(), &state)), ["guests", check]);
    }
}

#[test]
fn a_half_joined_node_is_told_from_a_foreign_one() {
    let own =
        Node { local_conf: Some(conf("lab", &second("pve2", "10.0.0.2"))), has_authkey: true, ..fresh() };
    let failure = plan(&args(), &state(own, peer())).unwrap_err();
    assert_eq!(failure.code.as_str(), "half_joined");
    assert!(failure.msg.contains("systemctl start corosync pve-cluster"), "{}", failure.msg);
    assert!(failure.details["missing"].as_array().unwrap().len() > 3);
    let other = Node { local_conf: Some(conf("lab", &second("pve2", "10.0.0.7"))), ..fresh() };
    assert_eq!(checks(plan(&args(), &state(other, peer()))), ["different"]);
}
