//! What a node must show before it counts as a member.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ConfNode, LinkState, Node};

/// What the cluster shall look like from a node.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub cluster_name: String,
    /// None: whatever corosync.conf says.
    pub votes: Option<u32>,
    /// Names that must be members; more may be.
    pub members: Vec<String>,
}

/// A proof that is not there (yet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its stable name.
    pub proof: &'static str,
    pub why: String,
}

/// The proofs that a node owes by itself; none missing on a member in order.
#[must_use]
pub fn own_proofs(own: &Node, wanted: &Wanted) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut miss = |proof, why: String| missing.push(Missing { proof, why });
    let nodes = nodes(own);
    let listed = nodes.get(&own.name);
    if let Some(status) = &own.status {
        if status.name != wanted.cluster_name {
            miss("cluster_name", format!("pvecm says `{}`, expected `{}`", status.name, wanted.cluster_name));
        }
        let copy = own.local_conf.as_ref().and_then(crate::CorosyncConf::config_version);
        if copy != Some(status.config_version) {
            let copy = copy.map_or("none".to_owned(), |version| version.to_string());
            let why =
                format!("the cluster's is {}, the one that corosync read {copy}", status.config_version);
            miss("config_version", why);
        }
        if !status.quorum.quorate {
            let quorum = &status.quorum;
            miss("quorate", format!("{} votes of the {} that are needed", quorum.total_votes, quorum.quorum));
        }
        let counted = status.quorum.own().map(|member| member.votes);
        let votes = wanted.votes.or_else(|| listed.map(|node| node.votes));
        if counted != votes {
            miss("votes", format!("this node counts {}, expected {}", or_none(counted), or_none(votes)));
        }
        let members: BTreeSet<u32> = status.quorum.members.iter().map(|member| member.nodeid).collect();
        for name in &wanted.members {
            if !nodes.get(name).is_some_and(|node| members.contains(&node.nodeid)) {
                miss("members", format!("`{name}` is not among the members"));
            }
        }
    } else {
        miss("status", format!("pvecm says: {}", or_nothing(&own.status_said)));
    }
    if listed.is_none() {
        miss("node_list", format!("corosync.conf of this node does not list `{}`", own.name));
    }
    if !own.directories.contains(&own.name) {
        miss("node_directory", format!("there is no /etc/pve/nodes/{}", own.name));
    }
    let pmxcfs = own.members.as_ref().and_then(|members| members.cluster.as_ref());
    if !own.writable || !pmxcfs.is_some_and(|cluster| cluster.quorate) {
        miss("writable", "/etc/pve cannot be written: pmxcfs has no quorum or is not running".into());
    }
    for why in links_missing(own, &nodes, None) {
        miss("links", why);
    }
    for (service, state) in own.idle_services() {
        miss("services", format!("{service} is {state}"));
    }
    missing
}

/// The proofs that take two: the peer sees the same cluster, and the node in it.
#[must_use]
pub fn peer_proofs(own: &Node, peer: &Node) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut miss = |proof, why: String| missing.push(Missing { proof, why });
    let (ours, theirs) = (nodes(own), nodes(peer));
    match theirs.get(&own.name) {
        None => {
            miss("peer_node_list", format!("corosync.conf of `{}` does not list `{}`", peer.name, own.name))
        }
        Some(node) => {
            for why in links_missing(peer, &theirs, Some(node.nodeid)) {
                miss("peer_links", why);
            }
        }
    }
    if ours != theirs {
        let names = |nodes: &BTreeMap<String, ConfNode>| nodes.keys().cloned().collect::<Vec<_>>().join(", ");
        let why = format!("this node lists {}, `{}` lists {}", names(&ours), peer.name, names(&theirs));
        miss("same_node_list", format!("{why}; names, votes and addresses must be the same"));
    }
    if !peer.directories.contains(&own.name) {
        miss("peer_node_directory", format!("`{}` has no /etc/pve/nodes/{}", peer.name, own.name));
    }
    let Some(there) = &peer.status else {
        let said = or_nothing(&peer.status_said);
        miss("peer_status", format!("pvecm on `{}` says: {said}", peer.name));
        return missing;
    };
    if !there.quorum.quorate {
        miss("peer_quorate", format!("`{}` has no quorum", peer.name));
    }
    let Some(here) = &own.status else { return missing };
    if (&here.name, here.config_version) != (&there.name, there.config_version) {
        let show = |name: &str, version| format!("`{name}` version {version}");
        let (here, there) = (show(&here.name, here.config_version), show(&there.name, there.config_version));
        miss("same_config", format!("this node has {here}, `{}` {there}", peer.name));
    }
    let members = |status: &crate::Status| -> BTreeSet<(u32, u32)> {
        status.quorum.members.iter().map(|member| (member.nodeid, member.votes)).collect()
    };
    if members(here) != members(there) {
        let show = |set: BTreeSet<(u32, u32)>| {
            set.iter().map(|(id, votes)| format!("{id} ({votes} votes)")).collect::<Vec<_>>().join(", ")
        };
        let why =
            format!("nodeids here: {}; on `{}`: {}", show(members(here)), peer.name, show(members(there)));
        miss("same_members", why);
    }
    missing
}

/// Links of `node` that do not reach an online member (or only `towards`).
fn links_missing(node: &Node, nodes: &BTreeMap<String, ConfNode>, towards: Option<u32>) -> Vec<String> {
    let Some(links) = &node.links else {
        return vec![format!("corosync-cfgtool of `{}` shows no links", node.name)];
    };
    let online: BTreeSet<u32> = node
        .status
        .iter()
        .flat_map(|status| &status.quorum.members)
        .map(|member| member.nodeid)
        .chain(towards)
        .collect();
    let mut missing = Vec::new();
    for other in nodes.values().filter(|other| other.name != node.name && online.contains(&other.nodeid)) {
        if towards.is_some_and(|nodeid| nodeid != other.nodeid) {
            continue;
        }
        for number in other.links.keys() {
            let link = links.links.iter().find(|link| link.number == *number);
            let state = link.and_then(|link| link.nodes.get(&other.nodeid));
            if state != Some(&LinkState::Connected) {
                missing
                    .push(format!("link {number} from `{}` to `{}` is not connected", node.name, other.name));
            }
        }
    }
    missing
}

fn nodes(node: &Node) -> BTreeMap<String, ConfNode> {
    let nodes = node.conf.as_ref().and_then(|conf| conf.nodes().ok()).unwrap_or_default();
    nodes.into_iter().map(|node| (node.name.clone(), node)).collect()
}

fn or_none(votes: Option<u32>) -> String {
    votes.map_or("none".to_owned(), |votes| votes.to_string())
}

fn or_nothing(said: &str) -> &str {
    if said.is_empty() { "(nothing)" } else { said }
}
