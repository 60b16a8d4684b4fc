//! A fresh OS in a VM that keeps its identity and its data. Pure.
//!
//! The template is cloned to a temporary VM, whose disk is grown and given to the VM as an unused volume; there it
//! takes the slot of the old disk in one write, which leaves the old one unused; that is removed, then the temporary
//! VM. The temporary VM's VMID follows from the VM's own and its description names the volume that is replaced, so
//! that at every step what is there tells how far an earlier run came.

use ansible_module::{Change, Failure, Plan};
use proxmox_api::VmConfig;
use proxmox_api::values::{Drive, Size, Slot, Volume};
use proxmox_vm::{Vm, described, unreadable};
use serde_json::{Value, json};

use crate::args::{Args, Goal};
use crate::fields;
use crate::observe::{Source, State, Temporary};
use crate::plan::Action;

/// Where the fresh disk waits for its slot. Proxmox VE itself takes the lowest number that is free (pve-guest-common
/// `PVE/AbstractConfig.pm`, `add_unused_volume`).
pub(crate) const WAITING: &str = "unused255";

const BEGIN: &str = "[homelab.anvil: temporary, makes a fresh OS disk for VM ";
const MIDDLE: &str = " in place of ";

/// What the temporary VM's description says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) vmid: String,
    pub(crate) slot: Slot,
    /// The volume to replace.
    pub(crate) old: String,
}

impl Mark {
    pub(crate) fn text(&self) -> String {
        format!("{BEGIN}{}{MIDDLE}{}={}]", self.vmid, self.slot, self.old)
    }

    pub(crate) fn read(config: &VmConfig) -> Option<Self> {
        let (_, rest) = config.get("description")?.split_once(BEGIN)?;
        let (vmid, rest) = rest.split_once(MIDDLE)?;
        let (place, _) = rest.split_once(']')?;
        let (slot, old) = place.split_once('=')?;
        Some(Self { vmid: vmid.to_owned(), slot: slot.parse().ok()?, old: old.to_owned() })
    }
}

/// The temporary VM's name.
pub(crate) fn temporary_name(args: &Args) -> String {
    format!("anvil-rebuild-{}", args.vmid)
}

/// How far a rebuild has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    Fresh,
    Cloned,
    /// The fresh disk waits in the VM.
    Given,
    /// The VM boots from it; the old one is there, unused.
    Swapped,
    /// Only the temporary VM is left.
    Discarded,
}

/// A rebuild as it stands.
pub(crate) struct Rebuild<'a> {
    pub(crate) mark: Mark,
    pub(crate) progress: Progress,
    /// Missing before the clone.
    temporary: Option<&'a Vm>,
}

/// The rebuild that is under way or to be begun.
pub(crate) fn rebuild<'a>(args: &Args, vm: &Vm, state: &'a State) -> Result<Rebuild<'a>, Failure> {
    match &state.temporary {
        None => begin(args, vm),
        Some(temporary) => {
            let (there, mark) = ours(args, temporary)?;
            let progress = progress(vm, there, &mark)?;
            Ok(Rebuild { mark, progress, temporary: Some(there) })
        }
    }
}

fn begin<'a>(args: &Args, vm: &Vm) -> Result<Rebuild<'a>, Failure> {
    let stored = &vm.config.stored;
    let refuse =
        |why: String| Err(Failure::refused(format!("the OS disk of VM {} is not rebuilt: {why}", args.vmid)));
    if stored.flag("protection") {
        return refuse(
            "it is protected, so its old disk could not be removed; set `protection: false` first".into(),
        );
    }
    if let Some(snapshot) = stored.get("parent") {
        return refuse(format!(
            "its snapshots hold the old disk (the newest is {snapshot}); remove them first"
        ));
    }
    if let Some(volume) = stored.get(WAITING) {
        return refuse(format!("{WAITING} is needed and holds {volume}"));
    }
    let slot = fields::os_disk(args, stored).map_err(unreadable)?;
    let Some((slot, _)) = slot else {
        return refuse(fields::no_os_disk(args));
    };
    if args.hardware.disks.iter().any(|disk| disk.slot == slot) {
        return refuse(format!("{slot} is declared as a data disk"));
    }
    match drive(stored, &slot)?.map(|drive| drive.volume) {
        Some(volume @ Volume::Stored { .. }) => {
            let mark = Mark { vmid: args.vmid.to_string(), slot, old: volume.to_string() };
            Ok(Rebuild { mark, progress: Progress::Fresh, temporary: None })
        }
        other => refuse(format!("{slot} is no volume of a storage: {other:?}")),
    }
}

/// The temporary VM, if it is this VM's.
fn ours<'a>(args: &Args, temporary: &'a Temporary) -> Result<(&'a Vm, Mark), Failure> {
    let vmid = args.rebuild_vmid().map_or_else(String::new, |vmid| vmid.to_string());
    let foreign = |found: String| {
        Failure::refused(format!(
            "VMID {vmid} is needed for the temporary virtual machine of a rebuild and belongs to another guest: {found}. \
             Give rebuild_vmid; what a killed clone left is removed with `qm destroy {vmid}`"
        ))
    };
    let vm = match temporary {
        Temporary::Read(vm) => vm,
        Temporary::Listed(guest) => return Err(foreign(described(guest))),
    };
    let mark = Mark::read(&vm.config.stored).filter(|mark| mark.vmid == args.vmid.to_string());
    mark.map(|mark| (vm, mark))
        .ok_or_else(|| foreign(vm.config.stored.get("name").unwrap_or("a guest without a name").to_owned()))
}

fn progress(vm: &Vm, temporary: &Vm, mark: &Mark) -> Result<Progress, Failure> {
    let stored = &vm.config.stored;
    let now = drive(stored, &mark.slot)?.map(|drive| drive.volume.to_string());
    let replaced = now.as_ref().is_some_and(|volume| *volume != mark.old);
    let waits = stored.get(WAITING).is_some();
    let kept = disk_of(&temporary.config.stored)?.is_some();
    match (replaced, waits, kept) {
        (false, false, true) if now.is_some() => Ok(Progress::Cloned),
        (false, true, false) if now.is_some() => Ok(Progress::Given),
        (true, false, false) if unused_key(stored, &mark.old).is_some() => Ok(Progress::Swapped),
        (true, false, false) => Ok(Progress::Discarded),
        _ => Err(Failure::refused(format!(
            "an unfinished rebuild does not look as any step leaves it: {} holds {}, {WAITING} {}, and the temporary \
             virtual machine {} its disk. Somebody changed it since; finish it by hand",
            mark.slot,
            now.as_deref().unwrap_or("nothing"),
            stored.get(WAITING).unwrap_or("nothing"),
            if kept { "has" } else { "gave away" },
        ))),
    }
}

fn drive(config: &VmConfig, slot: &Slot) -> Result<Option<Drive>, Failure> {
    config.parsed(&slot.to_string()).map_err(unreadable)
}

/// The disk that a fresh clone boots from.
pub(crate) fn disk_of(temporary: &VmConfig) -> Result<Option<(Slot, Size)>, Failure> {
    let Some(slot) = temporary.os_disk_slot().map_err(unreadable)? else { return Ok(None) };
    let size = drive(temporary, &slot)?.and_then(|drive| drive.size());
    Ok(size.map(|size| (slot, size)))
}

/// The key under which a volume is kept that no slot holds.
pub(crate) fn unused_key<'a>(config: &'a VmConfig, volume: &str) -> Option<&'a str> {
    config.unused().find(|(_, held)| *held == volume).map(|(key, _)| key)
}

/// The value of the slot once the waiting disk is in it: the old disk's options.
pub(crate) fn swapped(config: &VmConfig, slot: &Slot) -> Result<Option<String>, Failure> {
    let (Some(waiting), Some(mut drive)) = (config.get(WAITING), drive(config, slot)?) else {
        return Ok(None);
    };
    drive.volume = waiting.into();
    drive.options.retain(|key, _| key != "size" && key != "format");
    Ok(Some(drive.to_string()))
}

/// Adds what is left to do. Returns the configuration that the rest of the plan starts from.
pub(crate) fn add(args: &Args, vm: &Vm, state: &State, plan: &mut Plan<Action>) -> Result<VmConfig, Failure> {
    let Rebuild { mark, progress, temporary } = rebuild(args, vm, state)?;
    let stored = &vm.config.stored;
    if progress < Progress::Swapped && vm.runs() && !args.stop {
        return Err(Failure::refused(format!(
            "VM {} runs, and is stopped to give it a fresh OS disk; say `stop: true`",
            args.vmid
        )));
    }
    // A disk that waits already was grown before it was given.
    let mut size_then = args.os_disk.as_ref().map(|asked| asked.size);
    if progress < Progress::Given {
        let (slot, size) = fresh_disk(args, temporary, state)?;
        let wanted = wanted_size(args, stored, &mark.slot, size)?;
        if progress == Progress::Fresh {
            let source = state.source.as_ref().map(|source| described(&source.guest));
            let clone = json!({"vmid": args.rebuild_vmid().map(net_types::Vmid::get), "template": source});
            plan.step(Action::RebuildClone, vec![Change::new(TEMPORARY, Value::Null, clone)]);
            plan.gate();
        }
        if size < wanted {
            let grown = Change::new(FRESH_SIZE, size.to_string(), wanted.to_string());
            plan.step(Action::RebuildGrow { slot, size: wanted }, vec![grown]);
            plan.gate();
        }
        size_then = Some(wanted);
    }
    let mut base = stored.clone();
    if let (true, Some(size), Some(mut drive)) =
        (progress < Progress::Swapped, size_then, drive(stored, &mark.slot)?)
    {
        drive.options.insert("size".to_owned(), size.to_string());
        base.set(mark.slot.to_string(), drive.to_string());
    }
    if progress < Progress::Swapped && vm.runs() {
        plan.step(Action::Stop, vec![Change::new("status", "running", "stopped")]);
        plan.gate();
    }
    if progress < Progress::Given {
        plan.step(Action::RebuildGive, vec![Change::new(WAITING, Value::Null, FRESH)]);
        plan.gate();
    }
    if progress < Progress::Swapped {
        let field = format!("{}.volume", mark.slot);
        plan.step(Action::RebuildSwap, vec![Change::new(field, mark.old.clone(), FRESH)]);
        plan.gate();
    }
    if progress < Progress::Discarded {
        plan.step(Action::RebuildDiscard, vec![Change::new(OLD, mark.old.clone(), Value::Null)]);
        plan.gate();
    }
    let there = json!({"vmid": args.rebuild_vmid().map(net_types::Vmid::get)});
    plan.step(Action::RebuildCleanUp, vec![Change::new(TEMPORARY, there, Value::Null)]);
    plan.gate();
    Ok(base)
}

pub(crate) const TEMPORARY: &str = "rebuild.temporary_vm";
pub(crate) const FRESH_SIZE: &str = "rebuild.fresh_disk.size";
pub(crate) const OLD: &str = "rebuild.old_disk";
const FRESH: &str = "(a fresh clone of the template's)";

fn fresh_disk(args: &Args, temporary: Option<&Vm>, state: &State) -> Result<(Slot, Size), Failure> {
    let (config, owner) = match (temporary, &state.source) {
        (Some(vm), _) => (&vm.config.stored, "the temporary virtual machine".to_owned()),
        (None, Some(Source { guest, config })) => (config, described(guest)),
        (None, None) => {
            return Err(Failure::not_found(format!(
                "rebuild_os_disk: the task names no template to give VM {} a fresh OS from: give template, \
                 template_vmid or template_prefix",
                args.vmid
            )));
        }
    };
    disk_of(config)?.ok_or_else(|| {
        Failure::refused(format!("rebuild_os_disk: {owner} has no disk of known size that it boots from"))
    })
}

/// As large as the task says, or else as the old disk; never smaller than the template's.
fn wanted_size(args: &Args, stored: &VmConfig, slot: &Slot, fresh: Size) -> Result<Size, Failure> {
    match &args.os_disk {
        Some(asked) if asked.size < fresh => Err(Failure::refused(format!(
            "os_disk: the template's disk has {fresh}, the task asks for {}; a disk is never shrunk",
            asked.size
        ))),
        Some(asked) => Ok(asked.size),
        None => Ok(drive(stored, slot)?.and_then(|drive| drive.size()).map_or(fresh, |old| old.max(fresh))),
    }
}

/// What a task that does not rebuild says of a rebuild that another left unfinished.
pub(crate) fn unfinished(args: &Args, state: &State) -> Option<String> {
    let Some(Temporary::Listed(guest)) = &state.temporary else { return None };
    (args.state != Goal::Absent && guest.name.as_deref() == Some(&temporary_name(args))).then(|| {
        format!(
            "a rebuild of the OS disk of VM {} was begun and not finished: {} is there; say `rebuild_os_disk: true` to \
             finish it",
            args.vmid,
            described(guest)
        )
    })
}

/// The temporary VM that goes with the VM when that is destroyed.
pub(crate) fn is_left(args: &Args, state: &State) -> bool {
    state.temporary.as_ref().is_some_and(|temporary| ours(args, temporary).is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mark_is_read_in_any_description(
            vmid in 100_u32..999_999_999, slot in "(scsi|sata)[0-5]", old in "[a-z-]{2,9}:([0-9]{3}/)?vm-[0-9]{3}-disk-[0-9](\\.qcow2)?",
            before in "[a-z \n]{0,20}", after in "[a-z\\] \n]{0,20}",
        ) {
            let mark = Mark { vmid: vmid.to_string(), slot: slot.parse().unwrap(), old };
            let mut config = VmConfig::default();
            prop_assert_eq!(Mark::read(&config), None);
            config.set("description", format!("{before}{}{after}", mark.text()));
            prop_assert_eq!(Mark::read(&config), Some(mark));
        }
    }
}
