//! Pure: what is refused, and which writes lead from what is to what is asked.

use ansible_module::{Change, Failure, Plan};
use proxmox_api::VmConfig;
use proxmox_api::values::{BootOrder, Size, Slot};
use proxmox_vm::{Vm, bootable, check_boot_order, check_disks, described, unreadable};
use serde_json::{Value, json};

use crate::args::{Args, Goal};
use crate::fields::{self, changes, predicted};
use crate::observe::{Source, State};
use crate::rebuild;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Clone,
    Configure,
    Grow {
        slot: Slot,
        size: Size,
    },
    Start,
    /// With leave to cut the power.
    Stop,
    Destroy,
    /// Writes cloud-init's drive anew under a running VM.
    Regenerate,
    RebuildClone,
    /// Of the temporary VM's disk.
    RebuildGrow {
        slot: Slot,
        size: Size,
    },
    RebuildGive,
    RebuildSwap,
    RebuildDiscard,
    RebuildCleanUp,
}

/// The drive that cloud-init's settings are written to, as a field.
pub(crate) const CLOUD_INIT_DRIVE: &str = "cloud_init.drive";

pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    state.holder().refuse_others(args.vmid, &args.name, state.vm.as_ref())?;
    match (&state.vm, args.state) {
        (None, Goal::Absent) => Ok(Plan::new()),
        (Some(vm), Goal::Absent) => plan_removal(args, vm, state),
        (None, _) => plan_creation(args, state),
        (Some(vm), _) => plan_update(args, vm, state),
    }
}

fn plan_creation(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    let Some(source) = &state.source else {
        return Err(Failure::not_found(format!(
            "there is no VM {} and the task names no template to clone: give template, template_vmid or \
             template_prefix",
            args.vmid
        )));
    };
    let mut plan = Plan::new();
    for other in &state.namesakes {
        plan.warn(format!("another virtual machine has the same name: {}", described(other)));
    }
    let before = source.clone_config(args)?;
    plan.step(Action::Clone, vec![Change::new("vm", Value::Null, clone_value(args, source))]);
    plan.gate();
    shape(args, &before, &mut plan)?;
    if args.state == Goal::Started {
        plan.gate();
        plan.step(Action::Start, vec![Change::new("status", "stopped", "running")]);
    }
    Ok(plan)
}

fn clone_value(args: &Args, source: &Source) -> Value {
    let guest = &source.guest;
    json!({
        "vmid": args.vmid.get(),
        "name": args.name.to_string(),
        "node": args.node.as_deref().unwrap_or(&guest.node),
        "template": described(guest),
    })
}

fn plan_update(args: &Args, vm: &Vm, state: &State) -> Result<Plan<Action>, Failure> {
    let mut plan = Plan::new();
    if let Some(node) = args.node.as_ref().filter(|node| **node != vm.node) {
        plan.warn(format!(
            "VM {} lives on node {}, not on {node}; this module does not move it",
            args.vmid, vm.node
        ));
    }
    rebuild::unfinished(args, state).into_iter().for_each(|warning| plan.warn(warning));
    // A clone that nobody configured yet has a fresh OS.
    let base = if args.rebuild_os_disk && !fields::MARK.is_on(&vm.config.stored) {
        rebuild::add(args, vm, state, &mut plan)?
    } else {
        vm.config.stored.clone()
    };
    let rebuilt_stopped = stops(&plan);
    let restart = vm.runs() && !rebuilt_stopped && args.restart && needs_restart(args, vm)?;
    if vm.runs() && !rebuilt_stopped && (restart || args.state == Goal::Stopped) {
        plan.step(Action::Stop, vec![Change::new("status", "running", "stopped")]);
        plan.gate();
    }
    let stays_up = vm.runs() && !stops(&plan);
    shape(args, &base, &mut plan)?;
    if stays_up && plan.changes().any(|change| is_cloud_init(&change.field)) {
        regenerate(args, vm, &mut plan)?;
    }
    if args.state == Goal::Started && !stays_up {
        plan.gate();
        plan.step(Action::Start, vec![Change::new("status", "stopped", "running")]);
    }
    Ok(plan)
}

fn stops(plan: &Plan<Action>) -> bool {
    plan.steps().any(|step| step.action == Action::Stop)
}

/// A running VM has the drive of its last start (qemu-server `PVE/QemuServer.pm`, `apply_cloudinit_config`).
fn regenerate(args: &Args, vm: &Vm, plan: &mut Plan<Action>) -> Result<(), Failure> {
    if !vm.config.stored.has_cloud_init_drive().map_err(unreadable)? {
        plan.warn(format!(
            "VM {} has no cloud-init drive, so that its guest sees none of the cloud-init settings",
            args.vmid
        ));
        return Ok(());
    }
    plan.warn(format!(
        "the cloud-init settings of VM {} were changed while it runs: the guest must reboot to see them",
        args.vmid
    ));
    plan.gate();
    plan.step(Action::Regenerate, vec![Change::new(CLOUD_INIT_DRIVE, "old settings", "new settings")]);
    Ok(())
}

/// Something waits for a restart already, or is going to be changed that a running VM cannot be relied on
/// to take (qemu-server `PVE/API2/Qemu.pm`, `$fast_plug_option`).
fn needs_restart(args: &Args, vm: &Vm) -> Result<bool, Failure> {
    let live = ["description", "name", "onboot", "protection", "startup", "tags"];
    let changes = changes(args, &vm.config.stored).map_err(unreadable)?;
    let waits = changes.iter().any(|change| !live.contains(&change.field.as_str()));
    Ok(waits || !vm.config.pending.is_empty())
}

fn is_cloud_init(field: &str) -> bool {
    field.starts_with("ipconfig")
        || matches!(
            field,
            "ciuser" | "cipassword" | "sshkeys" | "nameserver" | "searchdomain" | "ciupgrade" | "cicustom"
        )
}

/// Settings, then, behind a gate, the OS disk.
fn shape(args: &Args, base: &VmConfig, plan: &mut Plan<Action>) -> Result<(), Failure> {
    let os_disk = fields::os_disk(args, base).map_err(unreadable)?.map(|(slot, _)| slot);
    check_disks(&args.hardware, base, os_disk.as_ref(), plan)?;
    let changes = changes(args, base).map_err(unreadable)?;
    check_boot_order(&args.hardware, &predicted(args, base).map_err(unreadable)?)?;
    if !changes.is_empty() {
        plan.step(Action::Configure, changes);
    }
    if let Some((slot, from, to)) = growth(args, base)? {
        plan.gate();
        let change = Change::new(format!("{slot}.size"), from.to_string(), to.to_string());
        plan.step(Action::Grow { slot, size: to }, vec![change]);
    }
    Ok(())
}

/// How far the OS disk has to grow: slot, size now, size asked.
fn growth(args: &Args, base: &VmConfig) -> Result<Option<(Slot, Size, Size)>, Failure> {
    let Some(asked) = &args.os_disk else { return Ok(None) };
    let mut booted = base.clone();
    if let Some(devices) = &args.hardware.boot_order {
        booted.set("boot", BootOrder::Devices(devices.clone()).to_string());
    }
    let (slot, size) = match fields::os_disk(args, &booted).map_err(unreadable)? {
        Some((slot, Some(size))) => (slot, size),
        Some((slot, None)) => {
            return Err(Failure::refused(format!(
                "os_disk: Proxmox VE states no size for {slot}, so it cannot be grown"
            )));
        }
        None => {
            let why = fields::no_os_disk(args);
            return Err(Failure::refused(format!("os_disk: {why}. Devices: {}", bootable(base).join(", "))));
        }
    };
    match size.cmp(&asked.size) {
        std::cmp::Ordering::Less => Ok(Some((slot, size, asked.size))),
        std::cmp::Ordering::Equal => Ok(None),
        std::cmp::Ordering::Greater => Err(Failure::refused(format!(
            "os_disk: {slot} has {size}, the task asks for {}; a disk is never shrunk",
            asked.size
        ))
        .with("field", format!("{slot}.size"))
        .with("expected", asked.size.to_string())
        .with("found", size.to_string())),
    }
}

fn plan_removal(args: &Args, vm: &Vm, state: &State) -> Result<Plan<Action>, Failure> {
    let config = &vm.config.stored;
    let refuse = |why: String| {
        Err(Failure::refused(format!("VM {} ({}) is not destroyed: {why}", args.vmid, args.name)))
    };
    if config.flag("protection") {
        return refuse("it is protected; set `protection: false` first".to_owned());
    }
    let mut disks = config.drives().map_err(unreadable)?;
    disks.retain(|slot, drive| slot.holds_a_disk() && !drive.is_cdrom());
    let os_disk = config.os_disk_slot().map_err(unreadable)?;
    let data: Vec<String> = disks
        .iter()
        .filter(|(slot, _)| Some(*slot) != os_disk.as_ref())
        .map(|(slot, drive)| format!("{slot} ({drive})"))
        .collect();
    if !data.is_empty() && !args.destroy_data_disks {
        return refuse(format!(
            "it has disks besides the one it boots from: {}. They would be deleted; say `destroy_data_disks: true`",
            data.join(", ")
        ));
    }
    if vm.runs() && !args.stop {
        return refuse("it runs; say `stop: true`, or stop it first".to_owned());
    }
    let mut plan = Plan::new();
    if vm.runs() {
        plan.step(Action::Stop, vec![Change::new("status", "running", "stopped")]);
        plan.gate();
    }
    let volumes: Vec<String> = disks.values().map(|drive| drive.volume.to_string()).collect();
    let before =
        json!({"vmid": args.vmid.get(), "name": args.name.to_string(), "node": vm.node, "volumes": volumes});
    if rebuild::is_left(args, state) {
        let left = json!({"vmid": args.rebuild_vmid().map(net_types::Vmid::get)});
        plan.step(Action::RebuildCleanUp, vec![Change::new(rebuild::TEMPORARY, left, Value::Null)]);
        plan.gate();
    }
    plan.step(Action::Destroy, vec![Change::new("vm", before, Value::Null)]);
    Ok(plan)
}
