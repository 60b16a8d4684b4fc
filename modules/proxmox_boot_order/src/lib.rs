//! `proxmox_boot_order`: what a virtual machine boots from, in effect, without cutting an installation off.
//!
//! QEMU is given the boot order when it starts, so that only a stop and a start make another one count. The stop waits
//! for the one moment in which the guest writes nothing, which the web server's log tells.

mod apply;
mod args;
mod log;
mod observe;
mod plan;
mod window;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use proxmox_api::Proxmox;
use proxmox_vm::read;
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::observe::{Known, State};
use crate::plan::{Action, CURRENT_BOOT};

/// The module.
#[derive(Debug)]
pub struct ProxmoxBootOrder {
    args: Args,
    proxmox: Proxmox,
    known: Known,
}

impl Module for ProxmoxBootOrder {
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
        // The clocks' seconds may be cut at different places.
        let since_stop = self.known.stopped.map(|stopped| stopped.elapsed().as_secs() + 1);
        proof(change, state, since_stop)
    }

    fn report(&self, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        report(&self.args, state, planned, self.known.stopped.is_some())
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.proxmox.calls())
    }
}

/// `since_stop`: seconds since the stop was sent; a virtual machine that runs for longer was not stopped.
fn proof(change: &Change, state: &State, since_stop: Option<u64>) -> Proof {
    let Some(vm) = &state.vm else { return Proof::Mismatch { found: Value::Null } };
    let read_as = |found: Result<Value, _>| match found {
        Ok(found) => Proof::equal(&change.after, found),
        Err(error) => Proof::Mismatch { found: proxmox_vm::unreadable(error).to_string().into() },
    };
    match change.field.as_str() {
        "status" if change.after == "running" && vm.runs() => match since_stop {
            Some(most) if vm.status.uptime > most => Proof::Mismatch {
                found: format!("running for {} seconds: it was not stopped", vm.status.uptime).into(),
            },
            _ => Proof::Held,
        },
        "status" => Proof::equal(&change.after, vm.status.status.as_str()),
        CURRENT_BOOT if vm.config.pending.contains("boot") => {
            Proof::Mismatch { found: json!("still pending") }
        }
        CURRENT_BOOT => match &state.running {
            Some(running) => read_as(read(running, "boot")),
            None => Proof::Mismatch { found: Value::Null },
        },
        field => read_as(read(&vm.config.stored, field)),
    }
}

fn report(args: &Args, state: &State, planned: Option<&Plan<Action>>, cycled: bool) -> Map<String, Value> {
    let cycles = planned.is_some_and(|plan| plan.steps().any(|step| step.action == Action::Stop));
    let vm = state.vm.as_ref().map(|vm| {
        let current = state.running.as_ref().unwrap_or(&vm.config.current);
        let boot = if planned.is_some() {
            json!(args.boot_order)
        } else {
            read(current, "boot").unwrap_or_default()
        };
        json!({
            "vmid": args.vmid.get(),
            "name": vm.config.stored.get("name"),
            "node": vm.node,
            "status": if planned.is_some() { "running" } else { vm.status.status.as_str() },
            "boot": boot,
            "uptime": vm.status.uptime,
        })
    });
    let mut result = Map::from_iter([
        ("vm".to_owned(), vm.unwrap_or_default()),
        ("power_cycled".to_owned(), (cycled || cycles).into()),
    ]);
    if let Some(sight) = &state.sight {
        result.insert("window".to_owned(), sight.object());
    }
    result
}
