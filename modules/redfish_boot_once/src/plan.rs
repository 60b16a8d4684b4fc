//! Pure: may this server be booted, and by which calls.

use ansible_module::{Change, Failure, Plan, Proof};
use api_options::{redfish_failure, system_value};
use redfish_api::{BootOnce, PowerState, System};
use serde_json::{Value, json};

use crate::args::Args;

const TARGET: &str = "Boot.BootSourceOverrideTarget";
const ENABLED: &str = "Boot.BootSourceOverrideEnabled";
const MODE: &str = "Boot.BootSourceOverrideMode";
const POWER: &str = "PowerState";

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    SetOverride(BootOnce),
    PowerOn,
}

pub(crate) fn plan(args: &Args, name: &str, system: &System) -> Result<Plan<Action>, Failure> {
    refuse_unless_off(name, system)?;
    let refused = |error| redfish_failure(error).while_doing(name).with("system", system_value(system));
    let request = request(args, system).map_err(refused)?;
    if args.power_on {
        system.can_power_on().map_err(refused)?;
    }
    let mut plan = Plan::new();
    warnings(&request, system).into_iter().for_each(|warning| plan.warn(warning));
    if !system.has_override(&request) {
        let boot = system.boot();
        let mut changes = vec![
            Change::new(TARGET, boot.target, request.target.clone()),
            Change::new(ENABLED, boot.enabled, "Once"),
        ];
        changes.extend(request.mode.clone().map(|mode| Change::new(MODE, boot.mode, mode)));
        plan.step(Action::SetOverride(request), changes);
    }
    // The server is switched on only when the override was seen to be there.
    plan.gate();
    if args.power_on {
        plan.step(Action::PowerOn, vec![Change::new(POWER, "Off", "On")]);
    }
    Ok(plan)
}

fn refuse_unless_off(name: &str, system: &System) -> Result<(), Failure> {
    let why = match system.power() {
        PowerState::Off => return Ok(()),
        PowerState::On => "is already on, and a running server is never reset: shut it down first",
        PowerState::PoweringOn => "is just being switched on, and a running server is never reset",
        PowerState::PoweringOff => "is on its way down: wait until it is off (redfish_power with wait_only)",
        PowerState::Paused => "is paused, and a server that was started is never reset",
        PowerState::Unknown => "has an unknown power state, so it may be running",
    };
    let msg = format!("{name}, system {}: refused: the server {why}", system.id());
    Err(Failure::refused(msg)
        .with("power_state", system.power().to_string())
        .with("system", system_value(system)))
}

fn request(args: &Args, system: &System) -> Result<BootOnce, redfish_api::Error> {
    Ok(BootOnce { target: system.boot_target(&args.target)?, mode: args.mode.clone() })
}

/// `Cd` is the drive of the server itself on some boards.
fn warnings(request: &BootOnce, system: &System) -> Option<String> {
    let offers = |target: &str| system.boot().targets.is_some_and(|all| all.iter().any(|one| one == target));
    let usb = request.target == "Cd" && offers("UsbCd");
    usb.then(|| {
        format!("system {}: Cd may mean the server's own drive; its virtual CD is UsbCd", system.id())
    })
}

/// The calls of a plan, in order.
pub(crate) fn calls(plan: &Plan<Action>, system: &System) -> Vec<Value> {
    let of = |action: &Action| match action {
        Action::SetOverride(request) => system.boot_once_calls(request),
        Action::PowerOn => system.power_on_call().into_iter().collect(),
    };
    plan.steps().flat_map(|step| of(&step.action)).map(|call| json!(call)).collect()
}

pub(crate) fn proof(args: &Args, change: &Change, system: &System) -> Proof {
    if change.field == POWER {
        return Proof::equal(&change.after, system.power().to_string());
    }
    // It may stand in the settings, where the system shows nothing of it yet.
    if request(args, system).is_ok_and(|request| system.has_override(&request)) {
        return Proof::Held;
    }
    let boot = system.boot();
    let found = match change.field.as_str() {
        TARGET => boot.target,
        ENABLED => boot.enabled,
        _ => boot.mode,
    };
    Proof::equal(&change.after, found)
}
