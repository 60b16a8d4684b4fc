//! `redfish_boot_once`: a server that is off boots once from where it is told, and nothing else happens.

mod args;
mod plan;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Entry, ErrorCode, Failure, Module, Plan, Proof, Run, Spec};
use api_options::{RedfishTarget, redfish_failure, system_value};
use deadline::Deadline;
use redfish_api::System;
use serde_json::{Map, Value};

use crate::args::Args;
use crate::plan::Action;

/// What taking a stuck override back may take when the run is over already.
const UNDO: std::time::Duration = std::time::Duration::from_secs(20);

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<RedfishBootOnce>()
}

struct RedfishBootOnce {
    args: Args,
    target: RedfishTarget,
    /// `BootSourceOverrideEnabled` before the first write.
    enabled_before: Option<String>,
}

impl Module for RedfishBootOnce {
    type State = System;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        let args = Args::check(arguments)?;
        Ok(Self { args, target: RedfishTarget::new(arguments)?, enabled_before: None })
    }

    fn subject(&self) -> String {
        format!("server behind {}", self.target.name())
    }

    fn lock(&self) -> Option<String> {
        Some(self.target.lock())
    }

    fn observe(&mut self, run: &Run) -> Result<System, Failure> {
        self.target.observe(run)
    }

    fn plan(&self, system: &System) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, &self.target.name(), system)
    }

    fn apply(&mut self, action: &Action, system: &System, run: &Run) -> Result<(), Failure> {
        match action {
            Action::SetOverride(request) => {
                self.enabled_before = system.boot().enabled;
                let warning = self.target.bmc()?.boot_once(system, request, &run.deadline);
                warning.map_err(redfish_failure)?.into_iter().for_each(|warning| run.warn(warning));
            }
            Action::PowerOn => {
                let bmc = self.target.bmc()?;
                bmc.power_on(system, &run.deadline).map_err(redfish_failure)?;
                if self.args.verify_consumed {
                    bmc.wait_consumed(system, &run.deadline).map_err(redfish_failure)?;
                }
            }
        }
        Ok(())
    }

    fn proof(&self, change: &Change, system: &System) -> Proof {
        plan::proof(&self.args, change, system)
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

    /// An override that was asked for once and stuck would boot from there at every start.
    fn undo(&mut self, failure: &Failure, run: &Run) {
        let Some(system) = self.target.last() else { return };
        let is_stuck = |enabled: Option<&str>| enabled == Some("Continuous");
        let by_us = is_stuck(system.boot().enabled.as_deref()) && !is_stuck(self.enabled_before.as_deref());
        if failure.code != ErrorCode::READ_BACK_MISMATCH || !by_us {
            return;
        }
        let Ok(bmc) = self.target.bmc() else { return };
        match bmc.clear_override(system, &Deadline::after(UNDO)) {
            Ok(()) => run.warn("the override stuck as Continuous and was switched off again"),
            Err(error) => run.warn(format!(
                "the override stuck as Continuous and could not be switched off: the server boots from there at every \
                 start ({error})"
            )),
        }
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        self.target.api_calls()
    }
}
