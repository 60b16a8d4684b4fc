//! Every write.

use std::time::Duration;

use ansible_module::{ErrorCode, Failure, Run};
use api_options::proxmox_failure;
use net_types::Vmid;
use proxmox_api::values::Volume;
use proxmox_api::{ApiError, CloneRequest, GivenDisk, Proxmox, TaskEnd};
use proxmox_vm::{Vm, described, unreadable};

use crate::args::{Args, Goal};
use crate::fields::{self, changes};
use crate::observe::{Known, Source, State, Temporary};
use crate::plan::Action;
use crate::rebuild::{self, Progress, Rebuild, rebuild};

/// What a guest gets to shut down, when less than that is left of the run: most of it.
const SHUTDOWN: Duration = Duration::from_secs(180);

pub(crate) fn apply(
    args: &Args,
    proxmox: &Proxmox,
    known: &mut Known,
    action: &Action,
    state: &State,
    run: &Run,
) -> Result<(), Failure> {
    let there = || state.vm.as_ref().ok_or_else(|| Failure::not_found(format!("VM {} is gone", args.vmid)));
    let end = match action {
        Action::Clone => {
            let source = state.source.as_ref().ok_or_else(|| Failure::not_found("the template is gone"))?;
            known.node = Some(args.node.clone().unwrap_or_else(|| source.guest.node.clone()));
            clone(args, proxmox, source, run)?
        }
        Action::Configure => configure(args, proxmox, there()?, run)?,
        Action::Grow { slot, size } => {
            let vm = there()?;
            proxmox.resize(&vm.node, args.vmid, slot, *size, &run.deadline).map_err(proxmox_failure)?
        }
        Action::Start => {
            known.status = None;
            let started = proxmox.power(&there()?.node, args.vmid, "start", &[], &run.deadline);
            started
                .map_err(proxmox_failure)
                .map_err(|failure| failure.while_doing(format!("starting VM {}", args.vmid)))?
        }
        Action::Stop => {
            known.status = None;
            stop(args, proxmox, there()?, run)?
        }
        Action::Regenerate => {
            let vm = there()?;
            let done =
                proxmox.regenerate_cloud_init(&vm.node, args.vmid, &run.deadline).map_err(proxmox_failure)?;
            known.regenerated = done;
            if !done {
                run.warn(
                    "this Proxmox VE cannot write cloud-init's drive anew while a virtual machine runs: the guest sees \
                     the settings after it was stopped and started",
                );
            }
            TaskEnd::default()
        }
        Action::RebuildClone => {
            let source = state.source.as_ref().ok_or_else(|| Failure::not_found("the template is gone"))?;
            clone_temporary(args, proxmox, known, (source, there()?), run)?
        }
        Action::RebuildGrow { slot, size } => {
            let (vmid, temporary) = temporary(args, state)?;
            proxmox.resize(&temporary.node, vmid, slot, *size, &run.deadline).map_err(proxmox_failure)?
        }
        Action::RebuildGive => give(args, proxmox, state, run)?,
        Action::RebuildSwap => swap(args, proxmox, (there()?, state), run)?,
        Action::RebuildDiscard => discard(args, proxmox, (there()?, state), run)?,
        Action::RebuildCleanUp => {
            let (vmid, vm) = temporary(args, state)?;
            known.temporary = Some(vm.node.clone());
            clean_up(proxmox, vmid, vm, run)?
        }
        Action::Destroy => {
            proxmox.destroy(&there()?.node, args.vmid, &run.deadline).map_err(proxmox_failure)?
        }
    };
    end.warnings.into_iter().for_each(|warning| run.warn(format!("Proxmox VE: {warning}")));
    Ok(())
}

fn temporary<'a>(args: &Args, state: &'a State) -> Result<(Vmid, &'a Vm), Failure> {
    let vm = state.temporary.as_ref().and_then(Temporary::vm);
    args.rebuild_vmid()
        .zip(vm)
        .ok_or_else(|| Failure::not_found("the temporary virtual machine of the rebuild is gone"))
}

/// On the VM's node, and on its old disk's storage unless the task says otherwise: a disk is given away only where
/// it is.
fn clone_temporary(
    args: &Args,
    proxmox: &Proxmox,
    known: &mut Known,
    (source, vm): (&Source, &Vm),
    run: &Run,
) -> Result<TaskEnd, Failure> {
    let Rebuild { mark, .. } = rebuild(args, vm, &State::default())?;
    let old = Volume::from(mark.old.as_str());
    let storage = args.storage.as_deref().or(old.storage()).filter(|_| args.full);
    let parameters = clone_parameters(args, &rebuild::temporary_name(args), mark.text(), storage);
    let new = args.rebuild_vmid().ok_or_else(|| Failure::bad_argument("rebuild_vmid", "missing"))?;
    known.temporary = Some(vm.node.clone());
    let request = CloneRequest {
        source_node: &source.guest.node,
        source: source.guest.vmid,
        new,
        target: &vm.node,
        parameters,
    };
    proxmox
        .clone_vm(&request, &run.deadline)
        .map_err(|error| explain_clone(args, source, &vm.node, new, error))
}

fn give(args: &Args, proxmox: &Proxmox, state: &State, run: &Run) -> Result<TaskEnd, Failure> {
    let (vmid, temporary) = temporary(args, state)?;
    let (slot, _) = rebuild::disk_of(&temporary.config.stored)?
        .ok_or_else(|| Failure::not_found("the temporary virtual machine has no disk to give"))?;
    let given =
        GivenDisk { node: &temporary.node, from: vmid, disk: &slot, to: args.vmid, target: rebuild::WAITING };
    proxmox.give_disk(&given, &run.deadline).map_err(|error| {
        let impossible =
            error.refusal().is_some_and(|refusal| refusal.text().contains("does not support moving"));
        let failure = proxmox_failure(error).while_doing("giving the fresh disk to the virtual machine");
        if !impossible {
            return failure;
        }
        // Trying again would not help, so nothing is left for a next run.
        let left = match clean_up(proxmox, vmid, temporary, run) {
            Ok(_) => String::new(),
            Err(why) => format!(". The temporary virtual machine {vmid} could not be removed: {}", why.msg),
        };
        let msg = format!("{}; the OS disk cannot be rebuilt on this storage{left}", failure.msg);
        Failure { code: ErrorCode::REFUSED, msg, ..failure }
    })
}

/// One write puts the waiting disk into the slot, and the old one out of it.
fn swap(args: &Args, proxmox: &Proxmox, (vm, state): (&Vm, &State), run: &Run) -> Result<TaskEnd, Failure> {
    let Rebuild { mark, .. } = rebuild(args, vm, state)?;
    let text = rebuild::swapped(&vm.config.stored, &mark.slot)?
        .ok_or_else(|| Failure::not_found(format!("there is no fresh disk in {}", rebuild::WAITING)))?;
    let form = [(mark.slot.to_string(), text)];
    proxmox.set_config(&vm.node, args.vmid, &form, &vm.config, &run.deadline).map_err(proxmox_failure)?;
    Ok(TaskEnd::default())
}

/// To delete an unused volume's key deletes the volume (qemu-server `PVE/API2/Qemu.pm`, `update_vm_api`).
fn discard(
    args: &Args,
    proxmox: &Proxmox,
    (vm, state): (&Vm, &State),
    run: &Run,
) -> Result<TaskEnd, Failure> {
    let Rebuild { mark, progress, .. } = rebuild(args, vm, state)?;
    if let (Progress::Swapped, Some(key)) = (progress, rebuild::unused_key(&vm.config.stored, &mark.old)) {
        let form = [("delete".to_owned(), key.to_owned())];
        proxmox.set_config(&vm.node, args.vmid, &form, &vm.config, &run.deadline).map_err(proxmox_failure)?;
    }
    Ok(TaskEnd::default())
}

/// A protected template makes a protected clone.
fn clean_up(proxmox: &Proxmox, vmid: Vmid, vm: &Vm, run: &Run) -> Result<TaskEnd, Failure> {
    if vm.config.stored.flag("protection") {
        let form = [("protection".to_owned(), "0".to_owned())];
        proxmox.set_config(&vm.node, vmid, &form, &vm.config, &run.deadline).map_err(proxmox_failure)?;
    }
    proxmox.destroy(&vm.node, vmid, &run.deadline).map_err(|error| {
        proxmox_failure(error).while_doing(format!("removing the temporary virtual machine {vmid}"))
    })
}

fn clone_parameters(
    args: &Args,
    name: &str,
    description: String,
    storage: Option<&str>,
) -> Vec<(String, String)> {
    let mut parameters = vec![
        ("name".to_owned(), name.to_owned()),
        ("full".to_owned(), u8::from(args.full).to_string()),
        ("description".to_owned(), description),
    ];
    let optional = [
        ("snapname", args.snapname.clone()),
        ("storage", storage.map(str::to_owned)),
        ("format", args.format.clone()),
        ("pool", args.pool.clone()),
        ("bwlimit", args.bwlimit.map(|limit| limit.to_string())),
    ];
    parameters.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    parameters
}

fn clone(args: &Args, proxmox: &Proxmox, source: &Source, run: &Run) -> Result<TaskEnd, Failure> {
    let description = fields::MARK.put_on(source.config.get("description"));
    let parameters = clone_parameters(args, args.name.as_str(), description, args.storage.as_deref());
    let target = args.node.as_deref().unwrap_or(&source.guest.node);
    let request = CloneRequest {
        source_node: &source.guest.node,
        source: source.guest.vmid,
        new: args.vmid,
        target,
        parameters,
    };
    proxmox
        .clone_vm(&request, &run.deadline)
        .map_err(|error| explain_clone(args, source, target, args.vmid, error))
}

fn explain_clone(args: &Args, source: &Source, node: &str, vmid: Vmid, error: ApiError) -> Failure {
    let local = error.refusal().is_some_and(|refusal| {
        let text = refusal.text();
        text.contains("uses local storage") || text.contains("non-shared storage")
    });
    let taken = error.refusal().is_some_and(proxmox_api::Refusal::is_taken);
    // Which of the alternatives was missing is not said.
    let unnamed =
        error.refusal().is_some_and(|refusal| refusal.status == 403 && refusal.missing_privilege().is_none());
    let failure = proxmox_failure(error).while_doing(format!("cloning {}", described(&source.guest)));
    if local {
        let elsewhere = if args.rebuild_os_disk {
            String::new()
        } else {
            format!(", or clone on {} (leave out `node`)", source.guest.node)
        };
        let msg = format!(
            "{}. Between nodes only shared storage can be cloned, and the cloud-init drive counts too: make a copy of \
             the template on {node}, or put its disks on shared storage{elsewhere}",
            failure.msg
        );
        return Failure { code: ErrorCode::REFUSED, msg, ..failure };
    }
    if unnamed {
        let template = source.guest.vmid;
        let msg = format!(
            "{}. A clone needs VM.Clone on /vms/{template}, VM.Allocate on /vms/{vmid} or on the pool named in `pool`, \
             and Datastore.AllocateSpace on the storage",
            failure.msg
        );
        return Failure { msg, ..failure };
    }
    if taken {
        let msg = format!("{}: somebody else took VMID {} meanwhile", failure.msg, vmid);
        return Failure { msg, ..failure };
    }
    failure
}

/// Everything that differs from what the VM really has now, in one request.
fn configure(args: &Args, proxmox: &Proxmox, vm: &Vm, run: &Run) -> Result<TaskEnd, Failure> {
    let stored = &vm.config.stored;
    let changes = changes(args, stored).map_err(unreadable)?;
    let form = fields::form(args, stored, &changes).map_err(unreadable)?;
    proxmox.set_config(&vm.node, args.vmid, &form, &vm.config, &run.deadline).map_err(proxmox_failure)?;
    Ok(TaskEnd::default())
}

fn stop(args: &Args, proxmox: &Proxmox, vm: &Vm, run: &Run) -> Result<TaskEnd, Failure> {
    // Who is about to be destroyed need not put its house in order.
    if args.state == Goal::Absent {
        return proxmox.power(&vm.node, args.vmid, "stop", &[], &run.deadline).map_err(proxmox_failure);
    }
    let patience = SHUTDOWN.min(run.deadline.remaining() * 3 / 4).as_secs().max(1);
    let form = [
        ("timeout".to_owned(), patience.to_string()),
        ("forceStop".to_owned(), u8::from(args.stop).to_string()),
    ];
    proxmox.power(&vm.node, args.vmid, "shutdown", &form, &run.deadline).map_err(|error| {
        let failure = proxmox_failure(error).while_doing(format!("shutting down VM {}", args.vmid));
        let hint = if args.stop { "" } else { ". With `stop: true` its power is cut then" };
        Failure { msg: format!("{}{hint}", failure.msg), ..failure }
    })
}
