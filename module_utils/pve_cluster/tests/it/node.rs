//! Made answers of a node, one thing wrong at a time, and the proof that is then missing.

use pve_cluster::{Missing, Node, Probe, Wanted, own_proofs, peer_proofs};

/// The answers of member `name` (`a` is node 1, `b` is node 2) of the cluster `lab` with two links, all well.
fn answers(name: &str) -> String {
    let (own, other) = if name == "a" { (1, 2) } else { (2, 1) };
    let conf = "totem {\n  version: 2\n  cluster_name: lab\n  config_version: 3\n  interface {\n    linknumber: 0\n  }\n  \
                interface {\n    linknumber: 1\n  }\n}\n\nnodelist {\n  node {\n    name: a\n    nodeid: 1\n    \
                quorum_votes: 2\n    ring0_addr: 10.9.0.1\n    ring1_addr: 10.8.0.1\n  }\n  node {\n    name: b\n    nodeid: \
                2\n    quorum_votes: 1\n    ring0_addr: 10.9.0.2\n    ring1_addr: 10.8.0.2\n  }\n}\n\n";
    let quorum = "Quorum information\n------------------\nDate:             Mon Nov 30 10:00:00 2026\nQuorum provider:  \
                  corosync_votequorum\nNodes:            2\nRing ID:          1.9\nQuorate:          Yes\n\nVotequorum \
                  information\n----------------------\nExpected votes:   3\nHighest expected: 3\nTotal votes:      \
                  3\nQuorum:           2  \nFlags:            Quorate \n\nMembership information\n----------------------\n    \
                  Nodeid      Votes Name\n";
    let local = |node: u32| if node == own { " (local)" } else { "" };
    let link = |number: u32, network: u32| {
        format!(
            "LINK ID {number} udp\n\taddr\t= 10.{network}.0.{own}\n\tstatus:\n\t\tnodeid:          \
             {own}:\tlocalhost\n\t\tnodeid:          {other}:\tconnected\n"
        )
    };
    let answers = [
        ("name", format!("{name}.example.net")),
        ("version", "pve-manager/9.1.1/42db4a6cf33dac83 (running kernel: 6.17.2-1-pve)".into()),
        ("clock", "yes".into()),
        ("conf", conf.into()),
        ("local_conf", conf.into()),
        ("authkey", String::new()),
        (
            "members",
            format!(
                r#"{{"nodename": "{name}", "version": 5, "cluster": {{ "name": "lab", "version": 3, "nodes": 2, "quorate":
                   1 }}, "nodelist": {{ "a": {{ "id": 1, "online": 1, "ip": "10.9.0.1"}}, "b": {{ "id": 2, "online": 1,
                   "ip": "10.9.0.2"}}}}}}"#
            ),
        ),
        ("guests", r#"{"version": 2, "ids": {"100": {"node": "a", "type": "qemu", "version": 1}}}"#.into()),
        ("directories", "a\nb\n".into()),
        ("local", "lrwxr-xr-x".into()),
        (
            "status",
            format!(
                "Cluster information\n-------------------\nName:             lab\nConfig Version:   3\nTransport:        \
                 knet\nSecure auth:      on\n\n{quorum}0x00000001          2 10.9.0.1{}\n0x00000002          1 10.9.0.2{}\n",
                local(1),
                local(2)
            )
            .replace("Nodes:            2\n", &format!("Nodes:            2\nNode ID:          0x0000000{own}\n")),
        ),
        ("links", format!("Local node ID {own}, transport knet\n{}{}", link(0, 9), link(1, 8))),
        ("services", "active\nactive\nactive\nactive\nactive\n".into()),
        (
            "addresses",
            format!(r#"[{{"ifname": "lo", "addr_info": [{{"local": "127.0.0.1"}}]}}, {{"ifname": "eth0", "addr_info":
                       [{{"family": "inet", "local": "10.9.0.{own}", "prefixlen": 24}}]}}]"#),
        ),
        ("resolved", format!("10.9.0.{own}    STREAM {name}\n10.9.0.{own}    DGRAM\n")),
    ];
    let framed = answers.iter().map(|(name, text)| format!("{text}\n@@anvil {name} 0\n"));
    framed.chain(["\n@@anvil joining 1\n1700000000.5\n@@anvil end 0\n".into()]).collect()
}

fn node(name: &str, changes: &[(&str, &str)]) -> Node {
    let mut text = answers(name);
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    Node::read(&Probe::parse(&text))
}

fn wanted() -> Wanted {
    Wanted { cluster_name: "lab".into(), votes: Some(1), members: vec!["a".into(), "b".into()] }
}

fn names(missing: &[Missing]) -> Vec<&str> {
    missing.iter().map(|missing| missing.proof).collect()
}

#[test]
fn a_member_in_order_owes_nothing() {
    let (a, b) = (node("a", &[]), node("b", &[]));
    assert_eq!((b.broken.as_slice(), own_proofs(&b, &wanted())), (&[][..], vec![]));
    assert_eq!(peer_proofs(&b, &a), vec![]);
    assert_eq!(
        (b.name.as_str(), b.version.as_deref(), b.clock_synchronized),
        ("b", Some("9.1.1"), Some(true))
    );
    assert_eq!((b.guests.as_slice(), b.joining.as_deref(), b.writable), (&[100][..], None, true));
    assert_eq!(b.addresses.len(), 2);
}

#[test]
fn each_thing_that_is_wrong_here_is_named() {
    let not_quorate: &[(&str, &str)] = &[
        ("Quorate:          Yes", "Quorate:          No"),
        ("Quorum:           2  ", "Quorum:           2 Activity blocked"),
        ("Flags:            Quorate ", "Flags:            "),
    ];
    for (changes, proofs) in [
        (not_quorate, &["quorate"][..]),
        (&[("Name:             lab", "Name:             other")], &["cluster_name"]),
        (&[("Config Version:   3", "Config Version:   4")], &["config_version"]),
        (&[("0x00000002          1", "0x00000002          2")], &["votes"]),
        (&[("0x00000001          2 10.9.0.1\n", "")], &["members"]),
        (&[("name: b\n", "name: c\n")], &["members", "node_list", "links", "links"]),
        (&[("a\nb\n", "a\n")], &["node_directory"]),
        (&[("lrwxr-xr-x", "lr-xr-xr-x")], &["writable"]),
        (&[("\"quorate\":\n                   1", "\"quorate\": 0")], &["writable"]),
        (&[("1:\tconnected", "1:\tdisconnected")], &["links", "links"]),
        (&[("LINK ID 1", "LINK ID 2")], &["links"]),
        (
            &[("active\nactive\nactive\nactive\nactive", "active\nactive\ninactive\nactive\nfailed")],
            &["services", "services"],
        ),
        (&[("Local node ID", "Could not initialize corosync configuration API error 2")], &["links"]),
        (&[("Cluster information", "x"), ("Name:   ", "x")], &["status"]),
    ] {
        let found = own_proofs(&node("b", changes), &wanted());
        assert_eq!(names(&found), proofs, "{changes:?}: {found:?}");
    }
}

#[test]
fn each_thing_that_the_peer_sees_differently_is_named() {
    for (changes, proofs) in [
        (&[("name: b\n", "name: c\n")][..], &["peer_node_list", "same_node_list"][..]),
        (&[("ring1_addr: 10.8.0.2", "ring1_addr: 10.8.0.3")], &["same_node_list"]),
        (&[("a\nb\n", "a\n")], &["peer_node_directory"]),
        (&[("Name:             lab", "Name:             other")], &["same_config"]),
        (&[("Config Version:   3", "Config Version:   2")], &["same_config"]),
        (&[("0x00000002          1 10.9.0.2\n", "")], &["same_members"]),
        (&[("2:\tconnected", "2:\tdisconnected")], &["peer_links", "peer_links"]),
        (&[("Name:   ", "x")], &["peer_status"]),
    ] {
        let found = peer_proofs(&node("b", &[]), &node("a", changes));
        assert_eq!(names(&found), proofs, "{changes:?}: {found:?}");
    }
}

#[test]
fn what_cannot_be_understood_is_told_from_what_is_not_there() {
    let broken = node("b", &[("config_version: 3\n", "config version\n")]);
    assert_eq!(broken.conf, None);
    assert_eq!(broken.broken.len(), 2, "both copies: {:?}", broken.broken);
    let absent =
        Node::read(&Probe::parse("cat: /etc/pve/corosync.conf: No such file or directory\n@@anvil conf 1\n"));
    assert_eq!(absent.conf, None);
    assert_eq!(
        absent.broken,
        ["the output of ip -json address show cannot be read: EOF while parsing a value at line 1 column 0"]
    );
}
