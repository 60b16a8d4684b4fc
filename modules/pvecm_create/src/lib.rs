//! `pvecm_create`: founds a cluster on this node, which keeps its guests.

mod args;
mod plan;
#[cfg(test)]
mod tests;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use host::{Command, Host};
use pve_cluster::{Missing, Node, own_proofs};
use pvecm_options::{command_failure, look_here, report, sentence, unattended};
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::plan::Action;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<PvecmCreate>()
}

struct PvecmCreate {
    args: Args,
    host: Host,
}

impl Module for PvecmCreate {
    type State = Node;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        Ok(Self { args: Args::check(arguments)?, host: Host::local() })
    }

    fn subject(&self) -> String {
        format!("the cluster {}", self.args.cluster_name)
    }

    fn lock(&self) -> Option<String> {
        Some("pvecm".into())
    }

    fn observe(&mut self, run: &Run) -> Result<Node, Failure> {
        look_here(&self.host, run)
    }

    fn plan(&self, node: &Node) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, node)
    }

    fn apply(&mut self, action: &Action, _: &Node, run: &Run) -> Result<(), Failure> {
        match action {
            Action::Create => unattended(&self.host, &self.args.words(), run)?,
            Action::Finish => {
                let restart = Command::new("systemctl").args(["restart", "corosync", "pve-cluster"]);
                self.host.run(&restart, &run.deadline).and_then(host::Output::ok).map_err(command_failure)?;
                unattended(&self.host, &["updatecerts".to_owned()], run)?;
            }
        }
        self.wait_until_proved(run)
    }

    fn proof(&self, change: &Change, node: &Node) -> Proof {
        Proof::equal(&change.after, plan::found(&change.field, node))
    }

    fn report(&self, node: &Node, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let mut report = report(node);
        if planned.is_some() && node.conf.is_none() {
            let links =
                self.args.links.iter().map(|(number, link)| (format!("link{number}"), json!(link.address)));
            let own = json!({"name": node.name, "votes": self.args.votes.unwrap_or(1), "links": links.collect::<Map<_, _>>()});
            report.insert("cluster".into(), json!({"name": self.args.cluster_name, "nodes": [own]}));
        }
        report
    }
}

impl PvecmCreate {
    /// pvecm returns once the services were told to restart.
    fn wait_until_proved(&self, run: &Run) -> Result<(), Failure> {
        let mut missing: Vec<Missing> = Vec::new();
        let proved = run.deadline.poll(|| {
            missing = own_proofs(&look_here(&self.host, run)?, &self.args.wanted());
            Ok::<_, Failure>(missing.is_empty().then_some(()))
        });
        proved.map_err(|failure| {
            failure.while_doing(format!("waiting for the proof of the cluster ({})", sentence(&missing)))
        })
    }
}
