//! The recorded output of a real cluster of three nodes and two links, where it lies beside the checkout.

use std::io::Write;
use std::path::PathBuf;

use pve_cluster::{LinkState, Links, Members, Quorum, parse_membership};

const STATES: [&str; 5] =
    ["three-of-three", "two-of-three", "one-of-three-noquorum", "link1-down-on-pve3", "corosync-stopped"];

fn directory() -> Option<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/cluster");
    if directory.is_dir() {
        return Some(directory);
    }
    let _ = writeln!(std::io::stderr(), "skipped: no recorded outputs in {}", directory.display());
    None
}

/// What a command printed, and its exit code.
fn recorded(state: &str, command: &str) -> Option<(String, i32)> {
    let text = std::fs::read_to_string(directory()?.join(format!("{state}-{command}.txt"))).unwrap();
    let (_, text) = text.split_once('\n').unwrap();
    let (text, code) = text.rsplit_once("[rc=").unwrap();
    Some((text.to_owned(), code.trim().trim_end_matches(']').parse().unwrap()))
}

#[test]
fn quorum_is_read_from_what_is_printed_in_both_forms() {
    for state in STATES {
        for form in ["quorumtool-siH", "quorumtool-sp"] {
            let Some((text, _)) = recorded(state, form) else { return };
            let quorum = Quorum::parse(&text);
            let Ok(quorum) = quorum else {
                assert_eq!(state, "corosync-stopped", "{quorum:?}");
                continue;
            };
            let members = quorum.members.len();
            let expected = match state {
                "three-of-three" | "link1-down-on-pve3" => (true, 3, 3),
                "two-of-three" => (true, 2, 2),
                _ => (false, 1, 1),
            };
            assert_eq!((quorum.quorate, quorum.total_votes as usize, members), expected, "{state} {form}");
            assert_eq!((quorum.expected_votes, quorum.quorum, quorum.nodeid), (3, 2, 1));
            assert!(quorum.own().unwrap().local);
        }
    }
}

#[test]
fn a_member_list_says_nothing_about_quorum_and_its_exit_code_neither() {
    let Some((text, code)) = recorded("one-of-three-noquorum", "quorumtool-l") else { return };
    assert_eq!(code, 0, "the exit code claims that all is well");
    let members = parse_membership(&text).unwrap();
    assert_eq!(members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["pve1"]);
    assert!(Quorum::parse(&text).is_err(), "no quorum can be read from it");
    let Some((text, _)) = recorded("three-of-three", "quorumtool-l") else { return };
    assert_eq!(parse_membership(&text).unwrap().len(), 3);
}

#[test]
fn a_link_that_is_down_is_found_although_the_exit_code_is_0() {
    for (state, down) in [
        ("three-of-three", vec![]),
        ("two-of-three", vec![(0, 3), (1, 3)]),
        ("one-of-three-noquorum", vec![(0, 2), (0, 3), (1, 2), (1, 3)]),
        ("link1-down-on-pve3", vec![(1, 3)]),
    ] {
        let Some((text, code)) = recorded(state, "cfgtool-s") else { return };
        let links = Links::parse(&text).unwrap();
        assert_eq!((links.down(), code), (down, 0), "{state}");
        assert_eq!((links.nodeid, links.transport.as_str(), links.links.len()), (1, "knet", 2));
        assert_eq!(links.links[1].address, "10.78.0.1");
        assert_eq!(links.links[0].nodes[&1], LinkState::Localhost);
    }
}

#[test]
fn forms_that_do_not_name_the_nodes_are_refused() {
    for state in STATES {
        for form in ["cfgtool-n", "cfgtool-sb"] {
            let Some((text, _)) = recorded(state, form) else { return };
            assert!(Links::parse(&text).is_err(), "{state} {form}");
        }
    }
    let Some((text, code)) = recorded("corosync-stopped", "cfgtool-s") else { return };
    assert_eq!(code, 1);
    assert!(Links::parse(&text).unwrap_err().to_string().contains("configuration API error 2"));
}

#[test]
fn pmxcfs_knows_of_the_lost_quorum() {
    for (file, quorate) in [("etc-pve-dot-files.txt", true), ("noquorum-write.txt", false)] {
        let Some(directory) = directory() else { return };
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
        let from = text.find("{\n\"nodename\"").unwrap();
        let to = from + text[from..].find("\n}\n").unwrap() + 3;
        let members = Members::parse(&text[from..to]).unwrap();
        let cluster = members.cluster.unwrap();
        assert_eq!((cluster.name.as_str(), cluster.version, cluster.quorate), ("prod", 4, quorate));
        assert_eq!(members.nodelist["pve2"].online, quorate);
    }
}
