//! `ipmi_boot_once`: a server that is off boots once from where it is told, over plain IPMI.

mod args;
mod plan;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use api_options::{IpmiTarget, ipmi_failure};
use ipmi::{BootFlags, Power};
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::plan::Action;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<IpmiBootOnce>()
}

/// The server as its BMC tells.
struct Seen {
    power: Power,
    flags: BootFlags,
}

struct IpmiBootOnce {
    args: Args,
    target: IpmiTarget,
    made: Vec<String>,
}

impl Module for IpmiBootOnce {
    type State = Seen;
    type Action = Action;

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
        Some(self.target.lock())
    }

    fn observe(&mut self, run: &Run) -> Result<Seen, Failure> {
        self.target.admit(run)?;
        let tool = self.target.tool();
        let read = || Ok(Seen { power: tool.power(&run.deadline)?, flags: tool.boot_flags(&run.deadline)? });
        read().map_err(ipmi_failure)
    }

    fn plan(&self, seen: &Seen) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, self.target.name(), seen)
    }

    fn apply(&mut self, action: &Action, _seen: &Seen, run: &Run) -> Result<(), Failure> {
        self.made.extend(plan::commands(action));
        let tool = self.target.tool();
        let done = match action {
            Action::SetFlags { device, efi } => tool.boot_once(*device, *efi, &run.deadline),
            Action::PowerOn => tool.power_on(&run.deadline),
        };
        done.map_err(|error| ipmi_failure(error).while_doing(self.subject()))
    }

    fn proof(&self, change: &Change, seen: &Seen) -> Proof {
        Proof::equal(&change.after, plan::value(&change.field, seen))
    }

    fn report(&self, seen: &Seen, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let commands = match planned {
            Some(plan) => plan.steps().flat_map(|step| plan::commands(&step.action)).collect(),
            None => self.made.clone(),
        };
        let server = json!({
            "serial": self.target.serial(),
            "power": seen.power.to_string(),
            "boot": {
                "device": seen.flags.device(),
                "valid": seen.flags.valid,
                "efi": seen.flags.efi,
                "persistent": seen.flags.persistent,
            },
        });
        Map::from_iter([("server".to_owned(), server), ("commands".to_owned(), commands.into())])
    }
}
