//! Pure: what is refused, and which writes lead from what is to what is asked.

use ansible_module::{Change, Failure, Plan};
use proxmox_api::VmConfig;
use proxmox_api::values::{Drive, Slot};
use proxmox_vm::{AWAITS_INSTALL, Vm, check_boot_order, check_disks, described, unreadable};
use serde_json::{Value, json};

use crate::args::{Args, Goal};
use crate::observe::State;
use crate::wanted;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Create,
    Configure,
    Start,
    /// Cuts the power: what the disk holds is given up.
    Stop,
    Destroy,
}

pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    state.holder.refuse_others(args.vmid, &args.name, state.vm.as_ref())?;
    match (&state.vm, args.state) {
        (None, Goal::Absent) => Ok(Plan::new()),
        (Some(vm), Goal::Absent) => plan_removal(args, vm),
        (None, _) => plan_creation(args, state),
        (Some(vm), _) => match data_disk(args, &vm.config.stored)? {
            Some((slot, drive)) if !args.overwrite_disk => plan_installed(args, vm, &slot, &drive),
            disk => plan_update(args, vm, disk.is_some()),
        },
    }
}

/// The disk in the boot slot, unless the virtual machine still awaits its installation.
fn data_disk(args: &Args, config: &VmConfig) -> Result<Option<(Slot, Drive)>, Failure> {
    if AWAITS_INSTALL.is_on(config) {
        return Ok(None);
    }
    let slot = match args.boot_slot() {
        Some(slot) => Some(slot.clone()),
        None => config.os_disk_slot().map_err(unreadable)?,
    };
    let Some(slot) = slot else { return Ok(None) };
    let drive = config.parsed::<Drive>(&slot.to_string()).map_err(unreadable)?;
    Ok(drive.map(|drive| (slot, drive)))
}

fn plan_creation(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    let mut plan = Plan::new();
    for other in &state.namesakes {
        plan.warn(format!("another virtual machine has the same name: {}", described(other)));
    }
    let name_and_node = json!({"name": args.name.to_string(), "node": args.node});
    let mut changes = vec![Change::new("vm", Value::Null, name_and_node)];
    changes.extend(wanted::shell_changes(args, &VmConfig::default()).map_err(unreadable)?);
    plan.step(Action::Create, changes);
    check_boot_order(
        &args.hardware,
        &wanted::foretold(args, &VmConfig::default(), &plan).map_err(unreadable)?,
    )?;
    if args.state == Goal::Started {
        plan.gate();
        plan.step(Action::Start, vec![Change::new("status", "stopped", "running")]);
    }
    Ok(plan)
}

/// A virtual machine without data, or one whose data is given up.
fn plan_update(args: &Args, vm: &Vm, gives_data_up: bool) -> Result<Plan<Action>, Failure> {
    let base = &vm.config.stored;
    let mut plan = Plan::new();
    warn_of_node(args, vm, &mut plan);
    let old_system = gives_data_up || runs_from_disk(args, vm)?;
    let cycle = vm.runs() && old_system && args.state == Goal::Started;
    if cycle {
        plan.step(Action::Stop, vec![Change::new("status", "running", "stopped")]);
        plan.gate();
    }
    check_disks(&args.hardware, base, None, &mut plan)?;
    let changes = wanted::shell_changes(args, base).map_err(unreadable)?;
    check_boot_order(&args.hardware, &later(args, base, &changes)?)?;
    if !changes.is_empty() {
        plan.step(Action::Configure, changes);
    }
    if args.state == Goal::Started && (cycle || !vm.runs()) {
        plan.gate();
        plan.step(Action::Start, vec![Change::new("status", "stopped", "running")]);
    }
    Ok(plan)
}

/// It was started from its disk: what runs is the system that was given up, not an installation.
fn runs_from_disk(args: &Args, vm: &Vm) -> Result<bool, Failure> {
    let first = |config| wanted::boot_devices(config).map_err(unreadable).map(|order| order.first().cloned());
    let slot = args.boot_slot().map(ToString::to_string);
    Ok(slot.is_some() && first(&vm.config.current)? == slot && first(&vm.config.stored)? != slot)
}

fn later(args: &Args, base: &VmConfig, changes: &[Change]) -> Result<VmConfig, Failure> {
    let mut plan = Plan::new();
    if !changes.is_empty() {
        plan.step(Action::Configure, changes.to_vec());
    }
    wanted::foretold(args, base, &plan).map_err(unreadable)
}

/// It is left as it is: at most it is started, and only where that cannot lead to another installation.
fn plan_installed(args: &Args, vm: &Vm, slot: &Slot, drive: &Drive) -> Result<Plan<Action>, Failure> {
    let base = &vm.config.stored;
    let holder =
        format!("VM {} ({}) has a disk with data in its boot slot ({slot}: {drive})", args.vmid, args.name);
    let changes = wanted::installed_changes(args, base).map_err(unreadable)?;
    if !changes.is_empty() {
        let fields: Vec<String> = changes
            .iter()
            .map(|change| format!("{} (is {}, asked {})", change.field, change.before, change.after))
            .collect();
        return Err(Failure::refused(format!(
            "{holder}, so it is not touched. It differs in {}. Change it with homelab.anvil.proxmox_vm_clone, or give \
             its data up with `overwrite_disk: true`",
            fields.join(", ")
        ))
        .with("fields", changes.iter().map(|change| change.field.clone()).collect::<Vec<_>>()));
    }
    let boot = wanted::boot_devices(base).map_err(unreadable)?;
    if boot.first() != Some(&slot.to_string()) {
        return Err(Failure::refused(format!(
            "{holder}, and does not boot from it first: boot is {}. Its next start may install over it. Pin the boot \
             order with homelab.anvil.proxmox_boot_order, or give its data up with `overwrite_disk: true`",
            base.get("boot").unwrap_or("not set")
        ))
        .with("field", "boot")
        .with("expected", slot.to_string())
        .with("found", base.get("boot")));
    }
    let mut plan = Plan::new();
    warn_of_node(args, vm, &mut plan);
    if args.state == Goal::Started && !vm.runs() {
        plan.step(Action::Start, vec![Change::new("status", "stopped", "running")]);
    }
    Ok(plan)
}

fn warn_of_node(args: &Args, vm: &Vm, plan: &mut Plan<Action>) {
    if let Some(node) = args.node.as_ref().filter(|node| **node != vm.node) {
        plan.warn(format!(
            "VM {} lives on node {}, not on {node}; this module does not move it",
            args.vmid, vm.node
        ));
    }
}

fn plan_removal(args: &Args, vm: &Vm) -> Result<Plan<Action>, Failure> {
    let config = &vm.config.stored;
    let refuse = |why: String| {
        Err(Failure::refused(format!("VM {} ({}) is not destroyed: {why}", args.vmid, args.name)))
    };
    if config.flag("protection") {
        return refuse("it is protected; set `protection: false` first".to_owned());
    }
    if let Some((slot, drive)) = data_disk(args, config)?.filter(|_| !args.overwrite_disk) {
        return refuse(format!(
            "it has a disk with data in its boot slot ({slot}: {drive}); say `overwrite_disk: true` to give it up"
        ));
    }
    if vm.runs() && !args.force_stop {
        return refuse("it runs; say `force_stop: true`, or stop it first".to_owned());
    }
    let mut plan = Plan::new();
    if vm.runs() {
        plan.step(Action::Stop, vec![Change::new("status", "running", "stopped")]);
        plan.gate();
    }
    let before = json!({"name": args.name.to_string(), "node": vm.node});
    plan.step(Action::Destroy, vec![Change::new("vm", before, Value::Null)]);
    Ok(plan)
}
