//! The option table and the checked arguments.

use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use pve_cluster::{LinkMap, Wanted};
use pvecm_options::{RETURNS, RawLinks, check_cluster_name, links_option};
use serde::Deserialize;
use ssh::{Address, HostKey};

#[derive(Debug, Deserialize)]
struct Raw {
    peer: String,
    peer_host_keys: Vec<String>,
    cluster_name: String,
    links: Option<RawLinks>,
    votes: Option<u32>,
    nodeid: Option<u32>,
    expected_members: Option<Vec<String>>,
    firewall_ipset: String,
}

/// What the task asks for.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) peer: Address,
    pub(crate) peer_host: String,
    pub(crate) peer_host_keys: Vec<HostKey>,
    pub(crate) cluster_name: String,
    pub(crate) links: LinkMap,
    pub(crate) votes: Option<u32>,
    pub(crate) nodeid: Option<u32>,
    pub(crate) expected_members: Vec<String>,
    pub(crate) firewall_ipset: String,
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        check_cluster_name(&raw.cluster_name)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || ".:-".contains(c);
        if raw.peer.is_empty() || raw.peer.starts_with('-') || !raw.peer.chars().all(plain) {
            let why = format!("expected an address or a name of a member, found `{}`", raw.peer);
            return Err(Failure::bad_argument("peer", why));
        }
        // A vote of 0 is left out of corosync.conf, where that means 1 (PVE::API2::ClusterConfig `addnode`).
        for (option, value) in [("votes", raw.votes), ("nodeid", raw.nodeid)] {
            if value == Some(0) {
                return Err(Failure::bad_argument(option, "expected 1 or more, found 0"));
            }
        }
        if raw.peer_host_keys.is_empty() {
            let why = "expected at least one key: without it nobody knows whom this node would join";
            return Err(Failure::bad_argument("peer_host_keys", why));
        }
        let keys = raw.peer_host_keys.iter().enumerate();
        let keys = keys.map(|(index, line)| host_key(line).ok_or_else(|| bad_key(index, line)));
        Ok(Self {
            peer: Address::new(&raw.peer, SSH_PORT),
            peer_host_keys: keys.collect::<Result<_, _>>()?,
            peer_host: raw.peer,
            cluster_name: raw.cluster_name,
            links: raw.links.unwrap_or_default().check()?,
            votes: raw.votes,
            nodeid: raw.nodeid,
            expected_members: raw.expected_members.unwrap_or_default(),
            firewall_ipset: raw.firewall_ipset,
        })
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let members = self.expected_members.clone();
        Wanted { cluster_name: self.cluster_name.clone(), votes: self.votes, members }
    }

    /// What pvecm is called with.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = ["add", &self.peer_host, "--use_ssh"].map(str::to_owned).to_vec();
        for (option, value) in [("--votes", self.votes), ("--nodeid", self.nodeid)] {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value.to_string()]));
        }
        let link =
            |(number, link): (&u8, &pve_cluster::Link)| [format!("--link{number}"), link.address.to_string()];
        words.extend(self.links.iter().flat_map(link));
        words
    }
}

/// pvecm knows no other.
const SSH_PORT: u16 = 22;

/// A line of a host key file, `ssh-ed25519 AAAA... comment`, or of a known_hosts file, with the host in front.
fn host_key(line: &str) -> Option<HostKey> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    words.windows(2).find_map(|pair| HostKey::from_base64(pair[1]).filter(|key| key.kind() == pair[0]))
}

fn bad_key(index: usize, line: &str) -> Failure {
    let why = format!("expected a public key such as `ssh-ed25519 AAAA...`, found `{line}`");
    Failure::bad_argument(format!("peer_host_keys[{index}]"), why)
}

pub(crate) fn spec() -> Spec {
    Spec::new("pvecm_join", "Join this Proxmox VE node to a cluster, and prove it from both sides")
        .describe(
            "Runs C(pvecm add --use_ssh) as root on the joining node, without a terminal and with an end: pvecm itself \
             waits for quorum for ever, and hides the questions that its ssh asks.",
        )
        .describe(
            "Before anything is changed, every fault is listed at once in RV(faults): guests on this node, which joining \
             would lose; remains of another cluster; a name that the cluster has already; a name that stands for a loopback \
             or foreign address; links that are not this node's or not the cluster's; a peer that cannot be reached as \
             pvecm will reach it, that is not quorate, or runs another release; clocks more than 2 s apart; a firewall \
             that would drop the connection.",
        )
        .describe(
            "Counts the node as joined only when it is proved: this node and the peer have the same name, version and \
             members of the cluster, both are quorate, the own vote is counted, C(/etc/pve/nodes) has the node on both and \
             is writable, every link reaches every online member, the services are active, and the peer lets root's key in.",
        )
        .describe(
            "A node that is a proved member is unchanged. A node that a killed join left half in the cluster is a failure \
             with RV(error_code=half_joined), the proofs that are missing and what to do. A join that still runs is waited for.",
        )
        .describe("A join that fails before it made this node part of a cluster has its changes to root's SSH files put back.")
        .note("Root's key of this node has to be authorized on the peer before; the role C(pve_cluster) does that.")
        .note("A node's database of before lies in C(/var/lib/pve-cluster/backup) after a join.")
        .note("Corosync's ports cannot be tried from outside: with the datacenter firewall on, that is a warning, not a check.")
        .note("Nodes are never removed, expected votes never set and nothing is ever forced: with the wrong half of a split \
               cluster that destroys data, and only a person can tell which half it is.")
        .requirement("Proxmox VE 8 or newer on both nodes, with sshd on port 22")
        .seealso(&["homelab.anvil.pvecm_create", "homelab.anvil.pvecm_info"])
        .options(table())
        .timeout(300)
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("peer").required().doc("Address or name of a member, as pvecm shall reach it."),
        Opt::list("peer_host_keys", Kind::Str).required().doc(
            "Public host keys of the peer, lines such as C(ssh-ed25519 AAAA...), taken from the peer's own \
             C(/etc/ssh/ssh_host_*_key.pub). They are written to root's known_hosts; any other key is a refusal.",
        ),
        Opt::str("cluster_name").required().doc("Name of the cluster; the peer must be in this one."),
        links_option("This node's addresses for corosync, by link; exactly the links that the cluster has. Without it, and only \
                      with a single link, pvecm takes the address that the node's name stands for."),
        Opt::int("votes").doc("Votes of this node; 1 by default."),
        Opt::int("nodeid").doc("Number of this node; the first free one by default."),
        Opt::list("expected_members", Kind::Str).doc(
            "Names of nodes that must be online members of the cluster, before the join and after it.",
        ),
        Opt::str("firewall_ipset").default("pve_cluster").doc(
            "IP set of the datacenter firewall that lets nodes in; this node's address must be in it while that firewall is on.",
        ),
    ])
}

const EXAMPLES: &str = r#"
- name: This node joins the founder
  homelab.anvil.pvecm_join:
    peer: 10.0.0.1
    peer_host_keys: "{{ founder_host_keys }}"
    cluster_name: lab
    links:
      link0: 10.0.0.2
  become: true
"#;
