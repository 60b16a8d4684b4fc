//! `ipmi_power`: a server on, or off without force, over plain IPMI; or waited for until it is.

mod args;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use api_options::{IpmiTarget, ipmi_failure};
use ipmi::{Ipmitool, Power};
use serde_json::{Map, Value, json};

use crate::args::Args;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<IpmiPower>()
}

struct IpmiPower {
    args: Args,
    target: IpmiTarget,
    made: Vec<&'static str>,
}

impl Module for IpmiPower {
    type State = Power;
    /// The power to have.
    type Action = Power;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        Ok(Self { args: arguments.parse()?, target: IpmiTarget::new(arguments)?, made: Vec::new() })
    }

    fn subject(&self) -> String {
        format!("server behind {}", self.target.name())
    }

    fn lock(&self) -> Option<String> {
        // A wait may take an hour and writes nothing.
        (!self.args.wait_only).then(|| self.target.lock())
    }

    fn observe(&mut self, run: &Run) -> Result<Power, Failure> {
        self.target.admit(run)?;
        let tool = self.target.tool();
        let failed = |error| ipmi_failure(error).while_doing(self.subject());
        if self.args.wait_only && !run.check_mode {
            tool.wait_for(self.args.state.power(), &run.deadline).map_err(failed)?;
        }
        tool.power(&run.deadline).map_err(failed)
    }

    fn plan(&self, power: &Power) -> Result<Plan<Power>, Failure> {
        let mut plan = Plan::new();
        let wanted = self.args.state.power();
        if !self.args.wait_only && *power != wanted {
            plan.step(wanted, vec![Change::new("power", power.to_string(), wanted.to_string())]);
        }
        Ok(plan)
    }

    fn apply(&mut self, wanted: &Power, _power: &Power, run: &Run) -> Result<(), Failure> {
        self.made.push(command(*wanted));
        let done = match wanted {
            Power::On => self.target.tool().power_on(&run.deadline),
            Power::Off => self.target.tool().power_soft(&run.deadline),
        };
        done.map_err(|error| ipmi_failure(error).while_doing(self.subject()))
    }

    fn proof(&self, change: &Change, power: &Power) -> Proof {
        Proof::equal(&change.after, power.to_string())
    }

    fn report(&self, power: &Power, planned: Option<&Plan<Power>>) -> Map<String, Value> {
        let commands = match planned {
            Some(plan) => plan.steps().map(|step| command(step.action)).collect(),
            None => self.made.clone(),
        };
        let server = json!({"serial": self.target.serial(), "power": power.to_string()});
        Map::from_iter([("server".to_owned(), server), ("commands".to_owned(), commands.into())])
    }
}

fn command(wanted: Power) -> &'static str {
    match wanted {
        Power::On => Ipmitool::power_on_command(),
        Power::Off => Ipmitool::power_soft_command(),
    }
}
