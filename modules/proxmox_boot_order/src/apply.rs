//! Every write.

use std::time::{Duration, Instant};

use ansible_module::{Failure, Run};
use api_options::proxmox_failure;
use deadline::Expired;
use proxmox_api::Proxmox;
use proxmox_vm::{Vm, form, unreadable};

use crate::args::Args;
use crate::observe::{Known, State, look};
use crate::plan::{self, Action, no_window};
use crate::window::Sight;

/// Kept back from the wait for the window, for the stop and the start behind it.
const FOR_THE_CYCLE: Duration = Duration::from_secs(60);

pub(crate) fn apply(
    args: &Args,
    proxmox: &Proxmox,
    known: &mut Known,
    action: &Action,
    state: &State,
    run: &Run,
) -> Result<(), Failure> {
    let vm = state.vm.as_ref().ok_or_else(|| Failure::not_found(format!("VM {} is gone", args.vmid)))?;
    // Each of them may take long, and changes what was known.
    known.status = None;
    let end = match action {
        Action::Pin => {
            wait_for_window(args, proxmox, vm, run)?;
            return pin(args, proxmox, vm, run);
        }
        Action::Stop => {
            // The log is read again here, and nothing comes between that and the stop.
            wait_for_window(args, proxmox, vm, run)?;
            known.stopped = Some(Instant::now());
            proxmox.power(&vm.node, args.vmid, "stop", &[], &run.deadline).map_err(proxmox_failure)?
        }
        Action::Start => {
            known.started = true;
            proxmox.power(&vm.node, args.vmid, "start", &[], &run.deadline).map_err(proxmox_failure)?
        }
    };
    end.warnings.into_iter().for_each(|warning| run.warn(format!("Proxmox VE: {warning}")));
    Ok(())
}

fn pin(args: &Args, proxmox: &Proxmox, vm: &Vm, run: &Run) -> Result<(), Failure> {
    let stored = &vm.config.stored;
    let form = form(stored, &plan::pins(args, vm)?).map_err(unreadable)?;
    proxmox.set_config(&vm.node, args.vmid, &form, &vm.config, &run.deadline).map_err(proxmox_failure)
}

/// Reads the log until it says that the guest may be stopped. One that is not going to be stopped needs no window, and
/// one that is to be stopped `now` neither.
fn wait_for_window(args: &Args, proxmox: &Proxmox, vm: &Vm, run: &Run) -> Result<(), Failure> {
    let Some(log) = args.log.as_ref().filter(|_| vm.runs() && !plan::in_effect(args, vm)) else {
        return Ok(());
    };
    let left = run.deadline.remaining();
    let patience = run.deadline.at_most(left.saturating_sub(FOR_THE_CYCLE.min(left / 4)));
    let mut last = Sight::default();
    let window = patience.poll(|| {
        let status = proxmox.status(&vm.node, args.vmid, &run.deadline).map_err(proxmox_failure)?;
        last = look(log, &status)?;
        Ok::<_, Failure>(last.is_open().then_some(()))
    });
    match (window, patience.check()) {
        (Err(_), Err(Expired::TimedOut { .. })) => {
            Err(no_window(args, &last, "no safe moment came before the deadline"))
        }
        (window, _) => window,
    }
}
