//! `proxmox_vm_shell`: the empty UEFI virtual machine that is going to install itself over the network.
//!
//! One request makes it whole, what was written is read back, and only then it is started. Until it is installed
//! its description carries a mark; a virtual machine with a disk and without the mark is not touched.

mod apply;
mod args;
mod observe;
mod plan;
mod wanted;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use proxmox_api::{Proxmox, VmConfig};
use proxmox_vm::{AWAITS_INSTALL, is_pending};
use serde_json::{Map, Value, json};

use crate::args::{Args, Goal};
use crate::observe::{Known, State};
use crate::plan::Action;

/// The module.
#[derive(Debug)]
pub struct ProxmoxVmShell {
    args: Args,
    proxmox: Proxmox,
    known: Known,
}

impl Module for ProxmoxVmShell {
    type State = State;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        let args = Args::parse(arguments)?;
        let proxmox = args.connection.connect()?;
        Ok(Self { args, proxmox, known: Known::default() })
    }

    fn subject(&self) -> String {
        format!("VM {} ({})", self.args.vmid, self.args.name)
    }

    fn lock(&self) -> Option<String> {
        Some(self.args.connection.vm_lock(self.args.vmid))
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        observe::observe(&self.args, &self.proxmox, &mut self.known, run)
    }

    fn plan(&self, state: &State) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, state)
    }

    fn apply(&mut self, action: &Action, state: &State, run: &Run) -> Result<(), Failure> {
        apply::apply(&self.args, &self.proxmox, &mut self.known, action, state, run)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        proof(change, state)
    }

    fn report(&self, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let vm = vm_object(&self.args, state, planned).unwrap_or_default();
        let starts = planned.is_some_and(|plan| plan.steps().any(|step| step.action == Action::Start));
        Map::from_iter([("vm".to_owned(), vm), ("started".to_owned(), (self.known.started || starts).into())])
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.proxmox.calls())
    }
}

fn proof(change: &Change, state: &State) -> Proof {
    let Some(vm) = &state.vm else {
        return if change.after.is_null() { Proof::Held } else { Proof::Mismatch { found: Value::Null } };
    };
    match change.field.as_str() {
        "vm" => {
            let stored = &vm.config.stored;
            Proof::equal(&change.after, json!({"name": stored.get("name"), "node": vm.node}))
        }
        "status" => Proof::equal(&change.after, vm.status.status.as_str()),
        field => match wanted::read(&vm.config.stored, field) {
            Ok(found) if found == change.after && is_pending(&vm.config, field) && vm.runs() => {
                Proof::Pending("stored; in effect when the virtual machine is stopped and started".to_owned())
            }
            Ok(found) => Proof::equal(&change.after, found),
            Err(error) => Proof::Mismatch { found: json!(error.to_string()) },
        },
    }
}

/// The `vm` of the result: as it is, or, with a plan that is not carried out, as it would be.
fn vm_object(args: &Args, state: &State, planned: Option<&Plan<Action>>) -> Option<Value> {
    if planned.is_some() && args.state == Goal::Absent {
        return None;
    }
    let found = state.vm.as_ref();
    let stored = found.map(|vm| vm.config.stored.clone()).unwrap_or_default();
    let config = match planned {
        Some(plan) => wanted::foretold(args, &stored, plan).ok()?,
        None if found.is_none() => return None,
        None => stored,
    };
    let now = found.map_or("stopped", |vm| vm.status.status.as_str());
    let starts = planned.is_some() && args.state == Goal::Started;
    let pending: Vec<&String> =
        found.filter(|vm| vm.runs()).map(|vm| vm.config.pending.iter().collect()).unwrap_or_default();
    let mut object = json!({
        "vmid": args.vmid.get(),
        "name": config.get("name"),
        "node": found.map(|vm| vm.node.as_str()).or(args.node.as_deref()),
        "status": if starts { "running" } else { now },
        "installed": is_installed(args, &config),
        "boot": wanted::read(&config, "boot").ok()?,
        "rng": wanted::read(&config, "rng0.source").ok()?,
    });
    object.as_object_mut()?.extend(proxmox_vm::object(&config).ok()?.as_object()?.clone());
    object["pending"] = json!(pending);
    Some(object)
}

/// There is a disk in the boot slot, and nothing says that it may be written over.
fn is_installed(args: &Args, config: &VmConfig) -> bool {
    let slot = args.boot_slot().map(ToString::to_string);
    let disk = match slot {
        Some(slot) => config.get(&slot).is_some(),
        None => config.os_disk_slot().is_ok_and(|slot| slot.is_some()),
    };
    disk && !AWAITS_INSTALL.is_on(config)
}
