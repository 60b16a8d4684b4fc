//! Every write.

use std::time::Duration;

use ansible_module::{ErrorCode, Failure, Run};
use api_options::proxmox_failure;
use proxmox_api::{ApiError, CloneRequest, Proxmox, TaskEnd};
use proxmox_vm::{Vm, described, unreadable};

use crate::args::{Args, Goal};
use crate::fields::{self, changes};
use crate::observe::{Known, Source, State};
use crate::plan::Action;

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
        Action::Destroy => {
            proxmox.destroy(&there()?.node, args.vmid, &run.deadline).map_err(proxmox_failure)?
        }
    };
    end.warnings.into_iter().for_each(|warning| run.warn(format!("Proxmox VE: {warning}")));
    Ok(())
}

fn clone(args: &Args, proxmox: &Proxmox, source: &Source, run: &Run) -> Result<TaskEnd, Failure> {
    let mut parameters = vec![
        ("name".to_owned(), args.name.to_string()),
        ("full".to_owned(), u8::from(args.full).to_string()),
        ("description".to_owned(), fields::MARK.put_on(source.config.get("description"))),
    ];
    let optional = [
        ("storage", args.storage.clone()),
        ("format", args.format.clone()),
        ("pool", args.pool.clone()),
        ("bwlimit", args.bwlimit.map(|limit| limit.to_string())),
    ];
    parameters.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    let request = CloneRequest {
        source_node: &source.guest.node,
        source: source.guest.vmid,
        new: args.vmid,
        target: args.node.as_deref().unwrap_or(&source.guest.node),
        parameters,
    };
    proxmox.clone_vm(&request, &run.deadline).map_err(|error| explain_clone(args, source, error))
}

fn explain_clone(args: &Args, source: &Source, error: ApiError) -> Failure {
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
        let node = args.node.as_deref().unwrap_or_default();
        let msg = format!(
            "{}. Between nodes only shared storage can be cloned, and the cloud-init drive counts too: make a copy of \
             the template on {node}, or put its disks on shared storage, or clone on {} (leave out `node`)",
            failure.msg, source.guest.node
        );
        return Failure { code: ErrorCode::REFUSED, msg, ..failure };
    }
    if unnamed {
        let (template, vmid) = (source.guest.vmid, args.vmid);
        let msg = format!(
            "{}. A clone needs VM.Clone on /vms/{template}, VM.Allocate on /vms/{vmid} or on the pool named in `pool`, \
             and Datastore.AllocateSpace on the storage",
            failure.msg
        );
        return Failure { msg, ..failure };
    }
    if taken {
        let msg = format!("{}: somebody else took VMID {} meanwhile", failure.msg, args.vmid);
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
        ("forceStop".to_owned(), u8::from(args.force_stop).to_string()),
    ];
    proxmox.power(&vm.node, args.vmid, "shutdown", &form, &run.deadline).map_err(|error| {
        let failure = proxmox_failure(error).while_doing(format!("shutting down VM {}", args.vmid));
        let hint = if args.force_stop { "" } else { ". With `force_stop: true` its power is cut then" };
        Failure { msg: format!("{}{hint}", failure.msg), ..failure }
    })
}
