//! Every read.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ansible_module::{Failure, Run};
use api_options::proxmox_failure;
use proxmox_api::{Proxmox, VmConfig, VmStatus};
use proxmox_vm::{AWAITS_INSTALL, Holder, Vm};

use crate::args::{Args, Log};
use crate::log;
use crate::window::{Sight, judge};

/// The world as far as this task is concerned.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) vm: Option<Vm>,
    pub(crate) holder: Holder,
    /// What the log says; read while the virtual machine may have to be stopped.
    pub(crate) sight: Option<Sight>,
    /// What it runs with, asked once it was started.
    pub(crate) running: Option<VmConfig>,
}

/// What need not be asked again in a run.
#[derive(Debug, Default)]
pub(crate) struct Known {
    looked: bool,
    node: Option<String>,
    holder: Holder,
    /// Forgotten when the run changes it.
    pub(crate) status: Option<VmStatus>,
    pub(crate) stopped: Option<Instant>,
    pub(crate) started: bool,
}

pub(crate) fn observe(
    args: &Args,
    proxmox: &Proxmox,
    known: &mut Known,
    run: &Run,
) -> Result<State, Failure> {
    if !known.looked {
        known.holder = proxmox_vm::find(args.vmid, proxmox, run)?.holder;
        if let Holder::Vm { node } = &known.holder {
            known.node = Some(node.clone());
        }
        known.looked = true;
    }
    let mut state = State { holder: known.holder.clone(), ..State::default() };
    let Some(node) = &known.node else { return Ok(state) };
    state.vm = proxmox_vm::observe(args.vmid, node, &mut known.status, proxmox, run)?;
    if known.started {
        let running = proxmox.running_config(node, args.vmid, &run.deadline).map_err(proxmox_failure)?;
        state.running = Some(running);
    } else if let (Some(vm), Some(log)) = (&state.vm, &args.log) {
        state.sight = needs_sight(args, vm).then(|| look(log, &vm.status)).transpose()?;
    }
    Ok(state)
}

/// Whether something is to be done that only a complete installation allows.
fn needs_sight(args: &Args, vm: &Vm) -> bool {
    if vm.runs() { !crate::plan::in_effect(args, vm) } else { AWAITS_INSTALL.is_on(&vm.config.stored) }
}

/// What the log says about the guest now, by a status that was just read. Of a stopped one, every line counts: when it was
/// started is not known.
pub(crate) fn look(log: &Log, status: &VmStatus) -> Result<Sight, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // The uptime is cut to whole seconds, and so is the log.
    let started = if status.status == "running" { now.saturating_sub(status.uptime + 1) } else { 0 };
    let text = log::read(&log.path)?;
    Ok(judge(text.lines(), &log.rules, started.cast_signed(), now.cast_signed()))
}
