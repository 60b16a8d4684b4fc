//! `proxmox_vm_clone`: from a template to a running virtual machine that is what was declared.
//!
//! Clone, then settings, then the OS disk, then start, each behind a gate: what was written is read back
//! before the next is sent. A clone carries a mark in its description until it is configured, so a run
//! that was cut off at any point is finished by the next one.

mod apply;
mod args;
mod fields;
mod observe;
mod plan;
mod rebuild;
mod templates;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use proxmox_api::values::Drive;
use proxmox_api::{Proxmox, VmConfig};
use proxmox_vm::Vm;
use serde_json::{Map, Value, json};

use crate::args::{Args, Goal};
use crate::observe::{Known, State};
use crate::plan::Action;

/// The module.
#[derive(Debug)]
pub struct ProxmoxVmClone {
    args: Args,
    proxmox: Proxmox,
    known: Known,
    /// The OS disk was replaced in this run.
    rebuilt: bool,
}

impl Module for ProxmoxVmClone {
    type State = State;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        let args = Args::parse(arguments)?;
        let proxmox = args.connection.connect()?;
        Ok(Self { args, proxmox, known: Known::default(), rebuilt: false })
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
        self.rebuilt |= is_rebuild(action);
        apply::apply(&self.args, &self.proxmox, &mut self.known, action, state, run)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        proof(change, state)
    }

    fn report(&self, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let rebuilt =
            self.rebuilt || planned.is_some_and(|plan| plan.steps().any(|step| is_rebuild(&step.action)));
        report(&self.args, state, planned.is_some(), rebuilt)
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.proxmox.calls())
    }
}

/// Whether the OS disk is another one after it: the part of a rebuild that a later run may be left with.
fn is_rebuild(action: &Action) -> bool {
    matches!(action, Action::RebuildSwap | Action::RebuildDiscard)
}

/// The steps of a rebuild, which are no settings of the VM.
fn rebuild_proof(change: &Change, state: &State, vm: &Vm) -> Option<Proof> {
    let stored = &vm.config.stored;
    let temporary = state.temporary.as_ref().and_then(observe::Temporary::vm);
    let held = |holds: bool, found: Value| if holds { Proof::Held } else { Proof::Mismatch { found } };
    let field = change.field.as_str();
    Some(match field {
        rebuild::TEMPORARY => {
            let there = temporary.and_then(|vm| rebuild::Mark::read(&vm.config.stored));
            held(there.is_none() == change.after.is_null(), json!(there.map(|mark| mark.text())))
        }
        rebuild::FRESH_SIZE => {
            let size = temporary.and_then(|vm| rebuild::disk_of(&vm.config.stored).ok().flatten());
            Proof::equal(&change.after, json!(size.map(|(_, size)| size.to_string())))
        }
        rebuild::WAITING => held(stored.get(field).is_some(), Value::Null),
        rebuild::OLD => {
            let left = change.before.as_str().and_then(|old| rebuild::unused_key(stored, old));
            held(left.is_none(), json!(left))
        }
        _ => {
            let slot = field.strip_suffix(".volume")?;
            let now =
                stored.parsed::<Drive>(slot).ok().flatten().map(|drive| json!(drive.volume.to_string()));
            held(now.as_ref().is_some_and(|now| *now != change.before), now.unwrap_or_default())
        }
    })
}

fn cloud_init_proof(state: &State) -> Proof {
    match &state.stale_cloud_init {
        Some(stale) if !stale.is_empty() => Proof::Mismatch { found: json!(stale) },
        Some(_) => Proof::Pending("the drive is written anew; the guest must reboot to see it".to_owned()),
        None => Proof::Pending("the guest sees the settings after it was stopped and started".to_owned()),
    }
}

fn proof(change: &Change, state: &State) -> Proof {
    let Some(vm) = &state.vm else {
        return if change.after.is_null() { Proof::Held } else { Proof::Mismatch { found: Value::Null } };
    };
    if let Some(proof) = rebuild_proof(change, state, vm) {
        return proof;
    }
    let stored = &vm.config.stored;
    match change.field.as_str() {
        plan::CLOUD_INIT_DRIVE => cloud_init_proof(state),
        "vm" => {
            let name = stored.get("name").map_or(Value::Null, Value::from);
            let alike = change.after["name"].as_str().zip(name.as_str());
            if alike.is_some_and(|(asked, found)| asked.eq_ignore_ascii_case(found))
                && change.after["node"] == vm.node
            {
                return Proof::Held;
            }
            Proof::Mismatch { found: json!({"vmid": change.after["vmid"], "name": name, "node": vm.node}) }
        }
        "status" => Proof::equal(&change.after, vm.status.status.as_str()),
        fields::PASSWORD if stored.get(fields::PASSWORD).is_some() => {
            Proof::Unreadable("Proxmox VE shows it masked".to_owned())
        }
        fields::PASSWORD => Proof::Mismatch { found: Value::Null },
        field => match proxmox_vm::read(stored, field) {
            Ok(found) if found == change.after && proxmox_vm::is_pending(&vm.config, field) && vm.runs() => {
                Proof::Pending(format!(
                    "stored; the running virtual machine keeps {} until it is stopped and started",
                    proxmox_vm::read(&vm.config.current, field).unwrap_or_default()
                ))
            }
            Ok(found) => Proof::equal(&change.after, found),
            Err(error) => Proof::Mismatch { found: json!(error.to_string()) },
        },
    }
}

fn report(args: &Args, state: &State, planned: bool, rebuilt: bool) -> Map<String, Value> {
    let mut result = Map::new();
    if let Some(source) = &state.source {
        let guest = &source.guest;
        let template = json!({"vmid": guest.vmid.get(), "name": guest.name, "node": guest.node});
        result.insert("template".into(), template);
    }
    let mut vm = vm_object(args, state, planned).unwrap_or_default();
    if let Some(object) = vm.as_object_mut() {
        object.insert("rebuilt".into(), rebuilt.into());
    }
    result.insert("vm".into(), vm);
    result
}

fn vm_object(args: &Args, state: &State, planned: bool) -> Option<Value> {
    if planned && args.state == Goal::Absent {
        return None;
    }
    let found = state.vm.as_ref();
    let base = match (found, &state.source) {
        (Some(vm), _) => vm.config.stored.clone(),
        (None, Some(source)) if planned => source.clone_config(args).ok()?,
        _ => return None,
    };
    let config: VmConfig = if planned { fields::predicted(args, &base).ok()? } else { base };
    let now = found.map_or("stopped", |vm| vm.status.status.as_str());
    let status = match args.state {
        Goal::Started if planned => "running",
        Goal::Stopped if planned => "stopped",
        _ => now,
    };
    let source_node = state.source.as_ref().map(|source| source.guest.node.as_str());
    let node = found.map(|vm| vm.node.as_str()).or(args.node.as_deref()).or(source_node);
    let pending: Vec<&String> =
        found.filter(|vm| vm.runs()).map(|vm| vm.config.pending.iter().collect()).unwrap_or_default();
    let mut object = json!({
        "vmid": args.vmid.get(),
        "name": config.get("name"),
        "node": node,
        "status": status,
    });
    let mut parts = proxmox_vm::object(&config).ok()?;
    if planned {
        foretell_disks(args, &config, found.is_none(), &mut parts["disks"]);
    }
    object.as_object_mut()?.extend(parts.as_object()?.clone());
    object["restart_needed"] = json!(!pending.is_empty());
    object["pending"] = json!(pending);
    object["guest_reboot_needed"] = json!(state.stale_cloud_init.is_some());
    Some(object)
}

/// Check mode: a clone's volumes have no names yet, and the OS disk will have grown.
fn foretell_disks(args: &Args, config: &VmConfig, is_new: bool, disks: &mut Value) {
    if is_new {
        for disk in disks.as_object_mut().into_iter().flat_map(Map::values_mut) {
            disk["volume"] = Value::Null;
        }
    }
    if let (Some(asked), Ok(Some((slot, _)))) = (&args.os_disk, fields::os_disk(args, config)) {
        disks[slot.to_string()]["size"] = json!(asked.size.to_string());
    }
}
