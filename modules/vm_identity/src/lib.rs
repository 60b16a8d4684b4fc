//! `vm_identity`: gives a host of the inventory its VMID and the MAC address that is made of it.

mod apply;
mod args;
mod batch;
mod cluster;
mod document;
mod observe;
mod plan;

use std::collections::BTreeMap;
use std::fs;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::cluster::Cluster;
use crate::document::{MAC_KEY, VMID_KEY};
use crate::plan::{Identity, Standing};
pub use crate::plan::{State, Write};

/// The module.
#[derive(Debug)]
pub struct VmIdentity {
    args: Args,
    cluster: Option<Cluster>,
}

impl Module for VmIdentity {
    type State = State;
    type Action = Write;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        let args = Args::new(arguments)?;
        Ok(Self { cluster: args.proxmox.as_ref().map(Cluster::new).transpose()?, args })
    }

    fn subject(&self) -> String {
        format!("identity of host `{}`", self.args.host)
    }

    /// A written identity never changes: only who allocates has to wait for others.
    fn lock(&self) -> Option<String> {
        let directory = &self.args.directory;
        let known = fs::canonicalize(directory).unwrap_or_else(|_| directory.clone());
        (!observe::is_settled(directory, &self.args.host))
            .then(|| format!("the inventory {}", known.display()))
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        let inventory = observe::inventory(&self.args.directory, &self.args.host)?;
        let guests = match (&self.cluster, plan::standing(&self.args, &inventory)) {
            (Some(cluster), Ok(Standing::Waiting)) if self.args.range.is_some() => {
                cluster.guests(&self.args, &inventory, run)?
            }
            _ => Vec::new(),
        };
        Ok(State { inventory, guests })
    }

    fn plan(&self, state: &State) -> Result<Plan<Write>, Failure> {
        plan::plan(&self.args, state)
    }

    fn apply(&mut self, action: &Write, _: &State, _: &Run) -> Result<(), Failure> {
        apply::write(&self.args.file(), &action.text)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        let declared = plan::own(&self.args, &state.inventory);
        match change.field.as_str() {
            VMID_KEY => Proof::equal(&change.after, json!(declared.vmid)),
            _ => Proof::equal(&change.after, json!(declared.mac)),
        }
    }

    fn report(&self, state: &State, planned: Option<&Plan<Write>>) -> Map<String, Value> {
        let would_be = planned.and_then(|plan| plan.steps().next()).map(|step| step.action.identity);
        let Some(Identity { vmid, mac }) = would_be.or_else(|| plan::settled(&self.args, &state.inventory))
        else {
            return Map::new();
        };
        let identity = json!({"host": self.args.host, "vmid": vmid, "mac": mac, "file": self.args.file()});
        let mut report = Map::from_iter([("identity".to_owned(), identity)]);
        // A fact cache would keep a prediction as if it were true.
        if would_be.is_none() {
            report.insert("ansible_facts".into(), json!({VMID_KEY: vmid, MAC_KEY: mac}));
        }
        report
    }

    fn diff(&self, plan: &Plan<Write>, state: &State) -> Value {
        let file = self.args.file();
        let after = plan.steps().next().map(|step| step.action.text.as_str());
        json!({
            "before_header": file,
            "after_header": file,
            "before": state.inventory.text.as_deref().unwrap_or_default(),
            "after": after,
        })
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.cluster.as_ref()?.api_calls())
    }
}
