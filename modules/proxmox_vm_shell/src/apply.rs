//! Every write.

use ansible_module::{Failure, Run};
use api_options::proxmox_failure;
use proxmox_api::{ApiError, Proxmox, TaskEnd, VmConfig};
use proxmox_vm::unreadable;

use crate::args::Args;
use crate::observe::{Known, State};
use crate::plan::Action;
use crate::wanted;

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
        Action::Create => {
            known.node.clone_from(&args.node);
            create(args, proxmox, run)?
        }
        Action::Configure => {
            let vm = there()?;
            let changes = wanted::shell_changes(args, &vm.config.stored).map_err(unreadable)?;
            let form = wanted::form(&vm.config.stored, &changes).map_err(unreadable)?;
            proxmox.set_config(&vm.node, args.vmid, &form, &vm.config, &run.deadline).map_err(explain)?;
            TaskEnd::default()
        }
        Action::Start | Action::Stop => {
            known.status = None;
            known.started = *action == Action::Start;
            let verb = if known.started { "start" } else { "stop" };
            proxmox.power(&there()?.node, args.vmid, verb, &[], &run.deadline).map_err(proxmox_failure)?
        }
        Action::Destroy => {
            proxmox.destroy(&there()?.node, args.vmid, &run.deadline).map_err(proxmox_failure)?
        }
    };
    end.warnings.into_iter().for_each(|warning| run.warn(format!("Proxmox VE: {warning}")));
    Ok(())
}

/// Everything in one request: what fails half way is removed by Proxmox VE.
fn create(args: &Args, proxmox: &Proxmox, run: &Run) -> Result<TaskEnd, Failure> {
    let nothing = VmConfig::default();
    let changes = wanted::shell_changes(args, &nothing).map_err(unreadable)?;
    let mut form = vec![("name".to_owned(), args.name.to_string())];
    form.extend(args.pool.iter().map(|pool| ("pool".to_owned(), pool.clone())));
    form.extend(wanted::form(&nothing, &changes).map_err(unreadable)?);
    let node = args.node.as_deref().unwrap_or_default();
    proxmox
        .create_vm(node, args.vmid, &form, &run.deadline)
        .map_err(explain)
        .map_err(|failure| failure.while_doing(format!("creating VM {} on {node}", args.vmid)))
}

/// Until 2025, only root itself could give a virtual machine a random number generator, and no token is root
/// (qemu-server `PVE/API2/Qemu.pm`, `check_vm_modify_config_perm`).
fn explain(error: ApiError) -> Failure {
    let rootly = error.refusal().is_some_and(|refusal| refusal.text().contains("only root can set 'rng0'"));
    let failure = proxmox_failure(error);
    if !rootly {
        return failure;
    }
    let msg = format!(
        "{}. This Proxmox VE lets only root@pam with its password set the random number generator, no token: give \
         `api_user: root@pam` and `api_password`, or update it",
        failure.msg
    );
    Failure { msg, ..failure }
}
