//! `redfish_power`: a server on, or off without force; or waited for until it is.

mod args;
mod plan;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use api_options::{RedfishTarget, redfish_failure, system_value};
use redfish_api::System;
use serde_json::{Map, Value};

use crate::args::Args;
use crate::plan::Action;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<RedfishPower>()
}

struct RedfishPower {
    args: Args,
    target: RedfishTarget,
}

impl Module for RedfishPower {
    type State = System;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        Ok(Self { args: arguments.parse()?, target: RedfishTarget::new(arguments)? })
    }

    fn subject(&self) -> String {
        format!("server behind {}", self.target.name())
    }

    fn lock(&self) -> Option<String> {
        // A wait may take an hour and writes nothing.
        (!self.args.wait_only).then(|| self.target.lock())
    }

    fn observe(&mut self, run: &Run) -> Result<System, Failure> {
        let system = self.target.observe(run)?;
        if run.check_mode {
            return Ok(system);
        }
        let bmc = self.target.bmc()?;
        let wanted = self.args.state.power_state();
        let waited = if self.args.wait_only && system.power() != wanted {
            bmc.wait_for(&system, wanted, &run.deadline)
        } else if system.power().is_passing() {
            bmc.settled(&system, &run.deadline).map(drop)
        } else {
            return Ok(system);
        };
        waited.map_err(|error| redfish_failure(error).while_doing(self.subject()))?;
        self.target.observe(run)
    }

    fn plan(&self, system: &System) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, &self.target.name(), system)
    }

    fn apply(&mut self, action: &Action, system: &System, run: &Run) -> Result<(), Failure> {
        let bmc = self.target.bmc()?;
        let done = match action {
            Action::On => bmc.power_on(system, &run.deadline),
            Action::Off(way) => bmc.power_off(system, *way, &run.deadline),
        };
        done.map_err(|error| redfish_failure(error).while_doing(self.subject()))
    }

    fn proof(&self, change: &Change, system: &System) -> Proof {
        Proof::equal(&change.after, system.power().to_string())
    }

    fn report(&self, system: &System, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let calls = match planned {
            Some(plan) => plan::calls(plan, system),
            None => self.target.made(),
        };
        let mut result = Map::new();
        result.insert("system".into(), system_value(system));
        result.insert("calls".into(), calls.into());
        result
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        self.target.api_calls()
    }
}
