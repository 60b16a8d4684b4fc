//! A node and its cluster as a module returns them.

use pve_cluster::{Links, Node};
use serde_json::{Map, Value, json};

/// What [`report`] makes, in the form of Ansible's RETURN block.
pub const RETURNS: &str = r"
node:
  description: This node.
  returned: success
  type: dict
  contains:
    name:
      description: Its name, the host name without the domain.
      type: str
      sample: pve2
    version:
      description: The version of Proxmox VE; null when C(pveversion) does not tell.
      type: str
      sample: 9.1.1
    clock_synchronized:
      description: Whether the clock is kept by a time service; null when C(timedatectl) does not tell.
      type: bool
    services:
      description: The state of C(pve-cluster), C(corosync), C(pvedaemon), C(pveproxy) and C(pvestatd).
      type: dict
    guests:
      description: VMIDs of the VMs and containers that are known here, those of the other members included.
      type: list
      elements: int
cluster:
  description: The cluster as this node sees it; null on a node that is in none.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: lab
    config_version:
      description: Version of corosync.conf.
      type: int
    quorate:
      description: Whether this node has quorum, as corosync and as pmxcfs say. Without it C(/etc/pve) cannot be written.
      type: bool
    expected_votes:
      description: Votes of all nodes; null when corosync does not run.
      type: int
    total_votes:
      description: Votes that are there; null when corosync does not run.
      type: int
    quorum:
      description: Votes that are needed; null when corosync does not run.
      type: int
    nodes:
      description: Every node of corosync.conf.
      type: list
      elements: dict
      contains:
        name:
          description: Its name.
          type: str
        nodeid:
          description: Its number.
          type: int
        votes:
          description: Its votes.
          type: int
        online:
          description: Whether this node reaches it as a member.
          type: bool
        links:
          description: Its addresses by link.
          type: dict
          sample:
            link0: 10.0.0.1
    links:
      description: 'This node''s links: by link, then by node, V(localhost), V(connected) or V(disconnected).'
      type: dict
      sample:
        link0:
          pve: connected
          pve2: localhost
faults:
  description: What stands in the way of a change; nothing was changed.
  returned: when a change is refused
  type: list
  elements: dict
  contains:
    check:
      description: The stable name of what was looked at.
      type: str
    msg:
      description: What was expected, what was found and what to do.
      type: str
";

/// `node` and `cluster`.
#[must_use]
pub fn report(node: &Node) -> Map<String, Value> {
    let own = json!({
        "name": node.name,
        "version": node.version,
        "clock_synchronized": node.clock_synchronized,
        "services": node.services,
        "guests": node.guests,
    });
    Map::from_iter([("node".to_owned(), own), ("cluster".to_owned(), cluster(node))])
}

fn cluster(node: &Node) -> Value {
    let Some(conf) = &node.conf else { return Value::Null };
    let nodes = conf.nodes().unwrap_or_default();
    let quorum = node.status.as_ref().map(|status| &status.quorum);
    let online =
        |nodeid| quorum.is_some_and(|quorum| quorum.members.iter().any(|member| member.nodeid == nodeid));
    let name = |nodeid: &u32| {
        let node = nodes.iter().find(|node| node.nodeid == *nodeid);
        node.map_or_else(|| nodeid.to_string(), |node| node.name.clone())
    };
    let listed = nodes.iter().map(|node| {
        let links =
            node.links.iter().map(|(number, address)| (format!("link{number}"), address.as_str().into()));
        json!({
            "name": node.name,
            "nodeid": node.nodeid,
            "votes": node.votes,
            "online": online(node.nodeid),
            "links": links.collect::<Map<_, Value>>(),
        })
    });
    json!({
        "name": conf.cluster_name(),
        "config_version": conf.config_version(),
        "quorate": node.quorate(),
        "expected_votes": quorum.map(|quorum| quorum.expected_votes),
        "total_votes": quorum.map(|quorum| quorum.total_votes),
        "quorum": quorum.map(|quorum| quorum.quorum),
        "nodes": listed.collect::<Vec<_>>(),
        "links": node.links.as_ref().map(|links| link_states(links, name)),
    })
}

fn link_states(links: &Links, name: impl Fn(&u32) -> String) -> Map<String, Value> {
    let nodes = |link: &pve_cluster::LinkStatus| {
        link.nodes.iter().map(|(nodeid, state)| (name(nodeid), json!(state))).collect::<Map<_, _>>()
    };
    links.links.iter().map(|link| (format!("link{}", link.number), nodes(link).into())).collect()
}
