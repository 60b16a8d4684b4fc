//! What stands in the way of a cluster on this node: everything at once.

use ansible_module::Failure;
use pve_cluster::{LinkMap, Node};
use serde_json::{Value, json};

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its stable name.
    pub check: &'static str,
    pub msg: String,
}

impl Fault {
    #[must_use]
    pub fn new(check: &'static str, msg: impl Into<String>) -> Self {
        Self { check, msg: msg.into() }
    }
}

/// All faults in one failure.
#[must_use]
pub fn refusal(subject: &str, faults: &[Fault]) -> Failure {
    let list: Vec<Value> =
        faults.iter().map(|fault| json!({"check": fault.check, "msg": fault.msg})).collect();
    let sentences: Vec<String> =
        faults.iter().map(|fault| format!("{}: {}", fault.check, fault.msg)).collect();
    Failure::refused(format!("{subject}; nothing was changed. {}", sentences.join("; "))).with("faults", list)
}

/// What a node needs before it founds or joins a cluster.
#[must_use]
pub fn node_faults(node: &Node, links: &LinkMap) -> Vec<Fault> {
    let mut faults: Vec<Fault> = node.broken.iter().map(|why| Fault::new("unreadable", why)).collect();
    if node.members.is_none() || !node.writable {
        let why = "pmxcfs does not serve a writable /etc/pve here: is pve-cluster active?";
        faults.push(Fault::new("etc_pve", why));
    }
    if node.conf.is_none() && node.services.get("corosync").is_some_and(|state| state == "active") {
        faults.push(Fault::new(
            "corosync_running",
            "corosync runs although this node is in no cluster: stop it",
        ));
    }
    let local = |address| node.addresses.contains(address);
    let name = &node.name;
    match node.resolved.first() {
        None => faults
            .push(Fault::new("own_name", format!("`{name}` stands for no address: add it to /etc/hosts"))),
        Some(address) if address.is_loopback() => {
            let why = format!(
                "`{name}` stands for {address}: in /etc/hosts it must stand for an address of this node's"
            );
            faults.push(Fault::new("own_name", why));
        }
        Some(address) if !local(address) => {
            let why = format!("`{name}` stands for {address}, which is on no interface of this node");
            faults.push(Fault::new("own_name", why));
        }
        Some(_) => {}
    }
    for (number, link) in links.iter().filter(|(_, link)| !local(&link.address)) {
        let why = format!("link{number}: {} is on no interface of this node", link.address);
        faults.push(Fault::new("link_address", why));
    }
    faults
}
