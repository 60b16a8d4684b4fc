//! Pure: what was asked and what both nodes say -> a refusal, or the writes.

use std::net::IpAddr;

use ansible_module::{Change, ErrorCode, Failure, Plan};
use pve_cluster::{ConfNode, Missing, Node, ProbeError, own_proofs, peer_proofs};
use pvecm_options::{Fault, node_faults, refusal, sentence};
use serde_json::{Value, json};

use crate::args::Args;
use crate::observe::State;

/// A part of a cluster is on this node, and not all of it.
const HALF_JOINED: ErrorCode = ErrorCode::custom("half_joined");
/// Seconds; corosync copes with more, certificates and logs do not.
const MOST_SKEW: f64 = 2.0;

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The peer's host keys into root's known_hosts.
    Pin,
    Join,
}

pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    let own = &state.own;
    if let Some(process) = &own.joining {
        let running = Fault::new("joining", format!("a join is running: {process}"));
        return Err(refusal(&format!("`{}` cannot join", own.name), &[running]));
    }
    if (own.conf.is_some() || own.local_conf.is_some()) && own.broken.is_empty() {
        return member(args, state);
    }
    let mut faults = node_faults(own, &args.links);
    faults.extend(fresh_faults(own));
    let mut warnings = Vec::new();
    match &state.peer {
        Ok(peer) => {
            faults.extend(peer_faults(args, own, peer));
            faults.extend(state.skew.filter(|skew| *skew > MOST_SKEW).map(|skew| {
                Fault::new(
                    "clock",
                    format!("the clocks of this node and `{}` are {skew:.1} s apart", peer.name),
                )
            }));
            warnings = notes(args, own, peer);
        }
        Err(error) => faults.push(unreachable(args, error)),
    }
    if !faults.is_empty() {
        return Err(refusal(
            &format!("`{}` cannot join the cluster `{}`", own.name, args.cluster_name),
            &faults,
        ));
    }
    let mut plan = Plan::new();
    warnings.into_iter().for_each(|warning| plan.warn(warning));
    if !state.pinned {
        plan.step(Action::Pin, vec![Change::new("known_hosts", false, true)]);
        plan.gate();
    }
    let mut changes = vec![Change::new("cluster_name", Value::Null, args.cluster_name.as_str())];
    changes.extend(args.votes.map(|votes| Change::new("votes", Value::Null, votes)));
    changes.extend(args.nodeid.map(|nodeid| Change::new("nodeid", Value::Null, nodeid)));
    changes.extend(
        args.links.iter().map(|(number, link)| {
            Change::new(format!("link{number}"), Value::Null, link.address.to_string())
        }),
    );
    changes.push(Change::new("proved", false, true));
    plan.step(Action::Join, changes);
    Ok(plan)
}

/// Something of a cluster is here: the one asked for, all of it or a part, or another.
fn member(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    let own = &state.own;
    let Some(conf) = own.conf.as_ref().or(own.local_conf.as_ref()) else { return Ok(Plan::new()) };
    let name = conf.cluster_name().unwrap_or("(no name)");
    let nodes = conf.nodes().unwrap_or_default();
    let listed = nodes.iter().find(|node| node.name == own.name);
    let Some(listed) = listed.filter(|_| name == args.cluster_name) else {
        let why = if name == args.cluster_name {
            format!("its corosync.conf is of the cluster `{name}` and does not list `{}`", own.name)
        } else {
            format!("it is in the cluster `{name}`, not in `{}`", args.cluster_name)
        };
        return Err(refusal(&format!("`{}` cannot join", own.name), &[Fault::new("other_cluster", why)]));
    };
    let different = differences(args, listed);
    if !different.is_empty() {
        return Err(refusal(
            &format!("`{}` is in the cluster `{name}` already, and not as asked for", own.name),
            &different,
        ));
    }
    let missing = missing(args, state);
    if missing.is_empty() { Ok(Plan::new()) } else { Err(not_proved(args, own, &missing)) }
}

fn differences(args: &Args, listed: &ConfNode) -> Vec<Fault> {
    let mut different = Vec::new();
    let mut compare = |field: String, asked: Value, found: Value| {
        if asked != found {
            different.push(Fault::new("different", format!("{field}: asked for {asked}, it has {found}")));
        }
    };
    if let Some(votes) = args.votes {
        compare("votes".into(), votes.into(), listed.votes.into());
    }
    if let Some(nodeid) = args.nodeid {
        compare("nodeid".into(), nodeid.into(), listed.nodeid.into());
    }
    for (number, link) in &args.links {
        compare(
            format!("link{number}"),
            link.address.to_string().into(),
            listed.links.get(number).cloned().into(),
        );
    }
    different
}

/// A member whose services run, and that does not prove it (yet).
pub(crate) fn settling(args: &Args, state: &State) -> bool {
    let active = |service: &str| state.own.services.get(service).is_some_and(|state| state == "active");
    state.own.conf.is_some()
        && active("corosync")
        && active("pve-cluster")
        && !missing(args, state).is_empty()
}

/// The proofs of membership that are not there.
pub(crate) fn missing(args: &Args, state: &State) -> Vec<Missing> {
    let mut missing = own_proofs(&state.own, &args.wanted());
    match &state.peer {
        Ok(peer) => missing.extend(peer_proofs(&state.own, peer)),
        Err(error) => missing.push(Missing { proof: "ssh", why: format!("`{}`: {error}", args.peer_host) }),
    }
    missing
}

/// A node that is in the cluster asked for and does not prove it.
fn not_proved(args: &Args, own: &Node, missing: &[Missing]) -> Failure {
    let list: Vec<Value> =
        missing.iter().map(|missing| json!({"proof": missing.proof, "why": missing.why})).collect();
    let msg = format!(
        "`{}` is part of the cluster `{}` by its own files and does not prove it; nothing was changed. {}. If its \
         services are only stopped: `systemctl start corosync pve-cluster`, once it is quorate `pvecm updatecerts`, then \
         this task again. To take the half join back: `systemctl stop pve-cluster corosync`, remove \
         /etc/corosync/authkey, /etc/corosync/corosync.conf and /var/lib/pve-cluster/config.db (the one of before the join, \
         if it was replaced, is in /var/lib/pve-cluster/backup; root's authorized_keys are in it too, so keep a session \
         open), `systemctl start pve-cluster`, and on a quorate member look \
         at `pvecm nodes` before anything is removed there",
        own.name,
        args.cluster_name,
        sentence(missing)
    );
    Failure::new(HALF_JOINED, msg).with("missing", list)
}

/// What must not be on a node that joins.
fn fresh_faults(own: &Node) -> Vec<Fault> {
    let mut faults = Vec::new();
    if own.has_authkey {
        let why = "/etc/corosync/authkey is left over from another cluster or a join that was broken off: remove it if \
                   this node is in no cluster";
        faults.push(Fault::new("leftover_authkey", why));
    }
    if !own.guests.is_empty() {
        let vmids = own.guests.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let why = format!(
            "this node has guests ({vmids}), whose configuration a join deletes: move or back them up"
        );
        faults.push(Fault::new("guests", why));
    }
    if own.clock_synchronized == Some(false) {
        faults.push(Fault::new("time_sync", "the clock of this node is not synchronized: is chrony active?"));
    }
    faults
}

fn unreachable(args: &Args, error: &ProbeError) -> Fault {
    let check = match error {
        ProbeError::HostKey(_) => "peer_host_key",
        ProbeError::Auth(_) => "peer_auth",
        ProbeError::Unreachable(_) | ProbeError::Command(_) => "peer_unreachable",
    };
    let hint = match error {
        ProbeError::HostKey(_) => "; the keys in `peer_host_keys` are not this machine's",
        ProbeError::Auth(_) => "; append this node's /root/.ssh/id_rsa.pub to root's authorized_keys there",
        _ => "",
    };
    Fault::new(
        check,
        format!("`{}` as pvecm reaches it (ssh -o BatchMode=yes): {error}{hint}", args.peer_host),
    )
}

fn peer_faults(args: &Args, own: &Node, peer: &Node) -> Vec<Fault> {
    let mut faults: Vec<Fault> = peer
        .broken
        .iter()
        .map(|why| Fault::new("peer_unreadable", format!("on `{}`: {why}", peer.name)))
        .collect();
    let mut fault = |check, why: String| faults.push(Fault::new(check, why));
    let Some(conf) = &peer.conf else {
        fault("peer_cluster", format!("`{}` is in no cluster; expected `{}`", peer.name, args.cluster_name));
        return faults;
    };
    let name = conf.cluster_name().unwrap_or("(no name)");
    if name != args.cluster_name {
        fault(
            "peer_cluster",
            format!("`{}` is in the cluster `{name}`, expected `{}`", peer.name, args.cluster_name),
        );
    }
    if !peer.quorate() || !peer.writable {
        let why = format!(
            "`{}` has no quorum: {}; while it lists a node that never came, a founder with one vote has none",
            peer.name,
            quorum_of(peer)
        );
        fault("peer_quorum", why);
    }
    if release(own) != release(peer) || own.version.is_none() {
        let version = |node: &Node| node.version.clone().unwrap_or("unknown".into());
        fault("version", format!("this node runs {}, `{}` {}", version(own), peer.name, version(peer)));
    }
    if peer.clock_synchronized == Some(false) {
        fault("peer_time_sync", format!("the clock of `{}` is not synchronized", peer.name));
    }
    let nodes = conf.nodes().unwrap_or_default();
    let online: Vec<u32> =
        peer.status.iter().flat_map(|status| &status.quorum.members).map(|member| member.nodeid).collect();
    for (check, why) in name_faults(args, own, peer, &nodes, &online) {
        fault(check, why);
    }
    for (check, why) in link_faults(args, own, &nodes) {
        fault(check, why);
    }
    for member in args.expected_members.iter().filter(|member| **member != own.name) {
        if !nodes.iter().any(|node| node.name == *member && online.contains(&node.nodeid)) {
            fault("expected_members", format!("`{member}` is no online member of the cluster"));
        }
    }
    if let Some(address) = peer.firewall.enabled.then(|| own_address(args, own)).flatten()
        && !peer.firewall.has(&args.firewall_ipset, address)
    {
        let why = format!(
            "the datacenter firewall of the cluster is on and its IP set `{}` does not have {address}: ssh would be \
             dropped silently",
            args.firewall_ipset
        );
        fault("firewall", why);
    }
    faults
}

/// The name, and the number where it is given, must be free; an entry that a killed join of this very node left is.
fn name_faults(
    args: &Args,
    own: &Node,
    peer: &Node,
    nodes: &[ConfNode],
    online: &[u32],
) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    match nodes.iter().find(|node| node.name == own.name) {
        Some(node) if online.contains(&node.nodeid) => {
            faults.push(("name", format!("`{}` is the name of an online member of the cluster", own.name)));
        }
        Some(node) if !is_own_entry(args, own, node) => {
            let why = format!(
                "the cluster lists a node `{}` with other addresses or votes: a left-over node, which `pvecm delnode` \
                 removes",
                own.name
            );
            faults.push(("name", why));
        }
        Some(_) => {}
        None if peer.directories.contains(&own.name) => {
            let why = format!("/etc/pve/nodes/{} is left over from a node that was removed", own.name);
            faults.push(("leftover_node", why));
        }
        None => {}
    }
    if let Some(node) = nodes.iter().find(|node| Some(node.nodeid) == args.nodeid && node.name != own.name) {
        faults.push(("nodeid", format!("{} is the nodeid of `{}`", node.nodeid, node.name)));
    }
    faults
}

/// `addnode` wrote this entry for this node: the same addresses and votes, so that it takes the node again.
fn is_own_entry(args: &Args, own: &Node, node: &ConfNode) -> bool {
    let local = |address: &String| address.parse().is_ok_and(|address| own.addresses.contains(&address));
    node.links.values().all(local) && node.votes == args.votes.unwrap_or(node.votes)
}

fn link_faults(args: &Args, own: &Node, nodes: &[ConfNode]) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    let mut existing: Vec<u8> = nodes.iter().flat_map(|node| node.links.keys().copied()).collect();
    existing.sort_unstable();
    existing.dedup();
    let asked: Vec<u8> = args.links.keys().copied().collect();
    let show =
        |numbers: &[u8]| numbers.iter().map(|number| format!("link{number}")).collect::<Vec<_>>().join(", ");
    if asked.is_empty() && existing.len() > 1 {
        faults.push(("links", format!("the cluster has {}: an address is needed for each", show(&existing))));
    } else if !asked.is_empty() && asked != existing {
        faults.push(("links", format!("the cluster has {}, asked for {}", show(&existing), show(&asked))));
    }
    for (number, link) in &args.links {
        let holder = nodes.iter().find(|node| {
            node.name != own.name && node.links.values().any(|address| *address == link.address.to_string())
        });
        if let Some(holder) = holder {
            faults.push((
                "link_address",
                format!("link{number}: {} is an address of `{}`", link.address, holder.name),
            ));
        }
    }
    faults
}

/// What the user should know although it stops nothing.
fn notes(args: &Args, own: &Node, peer: &Node) -> Vec<String> {
    let mut notes = Vec::new();
    if own.version != peer.version && release(own) == release(peer) {
        let version = |node: &Node| node.version.clone().unwrap_or_default();
        notes.push(format!("this node runs {}, `{}` {}", version(own), peer.name, version(peer)));
    }
    if own.firewall.enabled || peer.firewall.enabled {
        notes.push(
            "a datacenter firewall is on: whether it lets corosync through is unknown, it cannot be tried"
                .into(),
        );
    }
    for (who, node) in [("this node", own), (args.peer_host.as_str(), peer)] {
        if node.clock_synchronized.is_none() {
            notes.push(format!("whether the clock of {who} is synchronized is unknown"));
        }
    }
    notes
}

fn quorum_of(node: &Node) -> String {
    match &node.status {
        Some(status) => format!("{} votes of {}", status.quorum.total_votes, status.quorum.quorum),
        None => node.status_said.clone(),
    }
}

/// `9.1` of `9.1.1`.
fn release(node: &Node) -> Option<(&str, &str)> {
    let mut parts = node.version.as_deref()?.split('.');
    Some((parts.next()?, parts.next()?))
}

/// The address that the peer sees: that of the first link, else what the name stands for.
fn own_address(args: &Args, own: &Node) -> Option<IpAddr> {
    args.links.values().next().map(|link| link.address).or_else(|| own.resolved.first().copied())
}

/// What the node has in the place of an argument.
pub(crate) fn found(args: &Args, field: &str, state: &State) -> Value {
    let own = &state.own;
    let nodes = own.conf.as_ref().and_then(|conf| conf.nodes().ok()).unwrap_or_default();
    let listed = nodes.iter().find(|node| node.name == own.name);
    match field {
        "known_hosts" => (state.pinned && state.peer.is_ok()).into(),
        "cluster_name" => own.conf.as_ref().and_then(|conf| conf.cluster_name()).into(),
        "votes" => listed.map(|node| node.votes).into(),
        "nodeid" => listed.map(|node| node.nodeid).into(),
        "proved" => missing(args, state).is_empty().into(),
        link => {
            let number = link.strip_prefix("link").and_then(|number| number.parse::<u8>().ok());
            number.zip(listed).and_then(|(number, node)| node.links.get(&number).cloned()).into()
        }
    }
}
