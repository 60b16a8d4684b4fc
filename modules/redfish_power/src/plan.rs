//! Pure: what it takes to have the power state that is asked for.

use ansible_module::{Change, Failure, Plan};
use api_options::{redfish_failure, system_value};
use redfish_api::{Off, PowerState, System};
use serde_json::{Value, json};

use crate::args::{Args, State};

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    On,
    Off(Off),
}

pub(crate) fn plan(args: &Args, name: &str, system: &System) -> Result<Plan<Action>, Failure> {
    let refused = |error| redfish_failure(error).while_doing(name).with("system", system_value(system));
    let mut plan = Plan::new();
    if args.wait_only {
        return Ok(plan);
    }
    let action = match (args.state, system.power()) {
        (State::On, PowerState::On | PowerState::PoweringOn)
        | (State::Off, PowerState::Off | PowerState::PoweringOff) => return Ok(plan),
        (State::On, PowerState::Off | PowerState::PoweringOff) => {
            system.can_power_on().map_err(refused)?;
            Action::On
        }
        (State::Off, PowerState::On | PowerState::PoweringOn) => {
            Action::Off(system.way_down().map_err(refused)?)
        }
        (_, PowerState::Paused | PowerState::Unknown) => {
            let msg = format!(
                "{name}, system {}: refused: the power state is {}, and only On and Off are clear enough to act on",
                system.id(),
                system.power()
            );
            return Err(Failure::refused(msg).with("system", system_value(system)));
        }
    };
    let change = Change::new("PowerState", system.power().to_string(), args.state.power_state().to_string());
    plan.step(action, vec![change]);
    Ok(plan)
}

/// The calls of a plan, in order.
pub(crate) fn calls(plan: &Plan<Action>, system: &System) -> Vec<Value> {
    let of = |action: Action| match action {
        Action::On => system.power_on_call(),
        Action::Off(way) => system.power_off_call(way),
    };
    plan.steps().filter_map(|step| of(step.action).ok()).map(|call| json!(call)).collect()
}
