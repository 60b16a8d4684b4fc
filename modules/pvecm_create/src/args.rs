//! The option table and the checked arguments.

use ansible_module::{Arguments, Failure, Opt, Spec, Table};
use pve_cluster::{LinkMap, Wanted};
use pvecm_options::{RETURNS, RawLinks, check_cluster_name, links_option};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Raw {
    cluster_name: String,
    #[serde(default)]
    links: Option<RawLinks>,
    votes: Option<u32>,
    nodeid: Option<u32>,
}

/// What the task asks for.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) cluster_name: String,
    pub(crate) links: LinkMap,
    pub(crate) votes: Option<u32>,
    pub(crate) nodeid: Option<u32>,
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        check_cluster_name(&raw.cluster_name)?;
        for (option, value) in [("votes", raw.votes), ("nodeid", raw.nodeid)] {
            if value == Some(0) {
                return Err(Failure::bad_argument(option, "expected 1 or more, found 0"));
            }
        }
        let links = raw.links.unwrap_or_default().check()?;
        Ok(Self { cluster_name: raw.cluster_name, links, votes: raw.votes, nodeid: raw.nodeid })
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted { cluster_name: self.cluster_name.clone(), votes: self.votes, members: Vec::new() }
    }

    /// What pvecm is called with.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec!["create".to_owned(), self.cluster_name.clone()];
        for (option, value) in [("--votes", self.votes), ("--nodeid", self.nodeid)] {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value.to_string()]));
        }
        words.extend(
            self.links.iter().flat_map(|(number, link)| [format!("--link{number}"), link.to_string()]),
        );
        words
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("pvecm_create", "Found a Proxmox VE cluster on this node")
        .describe(
            "Runs C(pvecm create) as root on the node, and counts the cluster as founded only when it is proved: named as \
             asked, quorate, this node's vote counted, C(/etc/pve) writable, the services active. Guests keep running.",
        )
        .describe(
            "A cluster of the same name, with the same links, votes and nodeid where they are given, is unchanged. Any \
             other cluster is a refusal that shows both. A cluster's name cannot be changed later.",
        )
        .describe("A creation that was killed after it wrote corosync.conf is finished by the next run.")
        .note("Nodes are never removed, expected votes never set and nothing is ever forced: with the wrong half of a split \
               cluster that destroys data, and only a person can tell which half it is.")
        .requirement("Proxmox VE 8 or newer on the node")
        .seealso(&["homelab.anvil.pvecm_join", "homelab.anvil.pvecm_info"])
        .options(Table::new(vec![
            Opt::str("cluster_name").required().aliases(&["name"]).doc("The cluster's name: at most 15 letters, digits and inner C(-)."),
            links_option(
                "This node's addresses for corosync, by link, perhaps with a priority: V(10.0.0.1,priority=10). The link with \
                 the higher number is used first. Without it link0 is the address that the node's name stands for.",
            ),
            Opt::int("votes").doc("Votes of this node; 1 by default."),
            Opt::int("nodeid").doc("Number of this node; 1 by default."),
        ]))
        .timeout(120)
        .examples(EXAMPLES)
        .returns(RETURNS)
}

const EXAMPLES: &str = r"
- name: The cluster is founded, and its founder alone holds the majority of two nodes
  homelab.anvil.pvecm_create:
    cluster_name: lab
    links:
      link0: 10.0.0.1
      link1: 10.1.0.1
    votes: 2
  become: true
";
