//! Pure: what is refused, and which writes lead from what is to what is asked.

use ansible_module::{Change, ErrorCode, Failure, Plan};
use proxmox_vm::{AWAITS_INSTALL, Vm, bootable, changes, read, strings, unreadable};
use serde_json::{Value, json};

use crate::args::Args;
use crate::observe::State;
use crate::window::Sight;

/// No moment to stop the virtual machine in came before the deadline.
pub(crate) const NO_WINDOW: ErrorCode = ErrorCode::custom("no_window");

/// The boot order that a running virtual machine was started with.
pub(crate) const CURRENT_BOOT: &str = "current.boot";

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Pin,
    Stop,
    Start,
}

pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    state.holder.refuse_others(args.vmid, &args.name, state.vm.as_ref())?;
    let Some(vm) = &state.vm else {
        return Err(Failure::not_found(format!("there is no VM {} ({})", args.vmid, args.name)));
    };
    check_devices(args, vm)?;
    if let Some(sight) = state.sight.as_ref().filter(|sight| !vm.runs() && !sight.is_open()) {
        return Err(no_window(args, sight, "it is stopped, and was not seen to be installed"));
    }
    let mut plan = Plan::new();
    let changes = pins(args, vm)?;
    if !changes.is_empty() {
        plan.step(Action::Pin, changes);
        plan.gate();
    }
    let current = current_boot(vm);
    let wanted = wanted_boot(args);
    let mut started = vec![Change::new("status", "stopped", "running")];
    if current != wanted {
        started.push(Change::new(CURRENT_BOOT, current, wanted));
    }
    if vm.runs() && !in_effect(args, vm) {
        plan.step(Action::Stop, vec![Change::new("status", "running", "stopped")]);
        plan.gate();
        plan.step(Action::Start, started);
    } else if !vm.runs() {
        plan.step(Action::Start, started);
    }
    Ok(plan)
}

/// The virtual machine runs with the boot order that is asked for.
pub(crate) fn in_effect(args: &Args, vm: &Vm) -> bool {
    vm.runs() && !vm.config.pending.contains("boot") && current_boot(vm) == wanted_boot(args)
}

fn wanted_boot(args: &Args) -> Value {
    strings(args.boot_order.iter().map(String::as_str))
}

fn current_boot(vm: &Vm) -> Value {
    read(&vm.config.current, "boot").unwrap_or_default()
}

/// The boot order, and a description that no longer says that the disk may be written over.
pub(crate) fn pins(args: &Args, vm: &Vm) -> Result<Vec<Change>, Failure> {
    let stored = &vm.config.stored;
    let mut wanted = vec![("boot".to_owned(), wanted_boot(args))];
    if let Some(text) = AWAITS_INSTALL.taken_off(stored) {
        wanted.push(("description".to_owned(), if text.is_empty() { Value::Null } else { json!(text) }));
    }
    changes(wanted, stored).map_err(unreadable)
}

fn check_devices(args: &Args, vm: &Vm) -> Result<(), Failure> {
    match args.boot_order.iter().find(|device| vm.config.stored.get(device).is_none()) {
        Some(device) => Err(Failure::refused(format!(
            "boot_order: the virtual machine has no device `{device}`; it has {}",
            bootable(&vm.config.stored).join(", ")
        ))),
        None => Ok(()),
    }
}

/// The refusal to stop, or to take for installed, what was not seen to be complete.
pub(crate) fn no_window(args: &Args, sight: &Sight, why: &str) -> Failure {
    let msg = format!(
        "VM {} ({}) is not power-cycled: {why}. The log shows {sight}. Stopped in the middle, it would be left with a \
         half-written disk. If you know it to be idle, say `now: true`",
        args.vmid, args.name
    );
    let mut failure = Failure::new(NO_WINDOW, msg).with("window", sight.object());
    failure.nothing_sent = true;
    failure
}
