//! `pvecm_info`: the cluster as this node sees it. It only observes.

use std::convert::Infallible;

use ansible_module::{Arguments, Change, Entry, ErrorCode, Failure, Module, Plan, Proof, Run, Spec};
use host::Host;
use pve_cluster::Node;
use pvecm_options::{RETURNS, look_here, report};
use serde_json::{Map, Value};

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<PvecmInfo>()
}

struct PvecmInfo;

impl Module for PvecmInfo {
    type State = Node;
    /// There is nothing that this module could write.
    type Action = Infallible;

    fn spec() -> Spec {
        Spec::new("pvecm_info", "What a Proxmox VE node says about its cluster: members, votes, quorum, links")
            .describe(
                "Runs as root on the node. Reads C(corosync.conf), C(pvecm status), C(corosync-cfgtool -s) and what \
                 pmxcfs shows in C(/etc/pve), and returns it as data.",
            )
            .describe(
                "Judges what is printed, never an exit code: C(pvecm nodes) and C(corosync-cfgtool) answer 0 on a node \
                 that lost its quorum or a link.",
            )
            .describe("A node that is in no cluster is no failure; RV(cluster) is null.")
            .requirement("Proxmox VE 8 or newer on the node")
            .seealso(&["homelab.anvil.pvecm_create", "homelab.anvil.pvecm_join"])
            .examples(EXAMPLES)
            .returns(RETURNS)
    }

    fn new(_: &Arguments, _: &Run) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn observe(&mut self, run: &Run) -> Result<Node, Failure> {
        look_here(&Host::local(), run)
    }

    fn plan(&self, node: &Node) -> Result<Plan<Infallible>, Failure> {
        match node.broken.as_slice() {
            [] => Ok(Plan::new()),
            broken => Err(Failure::new(ErrorCode::COMMAND_FAILED, broken.join("; "))),
        }
    }

    fn apply(&mut self, action: &Infallible, _: &Node, _: &Run) -> Result<(), Failure> {
        match *action {}
    }

    fn proof(&self, _: &Change, _: &Node) -> Proof {
        Proof::Held
    }

    fn report(&self, node: &Node, _: Option<&Plan<Infallible>>) -> Map<String, Value> {
        report(node)
    }
}

const EXAMPLES: &str = r#"
- name: The cluster of this node
  homelab.anvil.pvecm_info:
  register: pvecm
  become: true

- name: Nothing goes on without quorum
  ansible.builtin.assert:
    that: pvecm.cluster.quorate
    fail_msg: "{{ pvecm.cluster.total_votes }} votes of {{ pvecm.cluster.quorum }}"
"#;
