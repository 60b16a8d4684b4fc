//! `redfish_virtual_media`: an image in a server's virtual CD, or nothing in it.

mod args;
mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use api_options::{RedfishTarget, redfish_failure, system_value};
use deadline::Deadline;
use redfish_api::{Slot, System};
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::plan::Action;

/// What ejecting may take when the run is over already.
const UNDO: Duration = Duration::from_secs(20);

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<RedfishVirtualMedia>()
}

/// The server with its slots.
struct Observed {
    system: System,
    slots: Vec<Slot>,
}

struct RedfishVirtualMedia {
    args: Args,
    target: RedfishTarget,
    /// Where this run inserted something.
    inserted: Option<Slot>,
}

impl Module for RedfishVirtualMedia {
    type State = Observed;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        let args = Args::check(arguments)?;
        Ok(Self { args, target: RedfishTarget::new(arguments)?, inserted: None })
    }

    fn subject(&self) -> String {
        format!("virtual media of {}", self.target.name())
    }

    fn lock(&self) -> Option<String> {
        Some(self.target.lock())
    }

    fn observe(&mut self, run: &Run) -> Result<Observed, Failure> {
        let system = self.target.observe(run)?;
        let slots = self.target.bmc()?.slots(&system, &run.deadline).map_err(redfish_failure)?;
        Ok(Observed { system, slots })
    }

    fn plan(&self, observed: &Observed) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, &self.target.name(), &observed.slots)
    }

    fn apply(&mut self, action: &Action, _observed: &Observed, run: &Run) -> Result<(), Failure> {
        let bmc = self.target.bmc()?;
        let done = match action {
            Action::Eject(slot) => bmc.eject(slot, &run.deadline),
            Action::Insert(slot, image) => {
                self.inserted = Some(slot.clone());
                bmc.insert(slot, image, &run.deadline)
            }
        };
        done.map_err(|error| redfish_failure(error).while_doing(self.subject()))
    }

    fn proof(&self, change: &Change, observed: &Observed) -> Proof {
        plan::proof(change, &observed.slots)
    }

    fn report(&self, observed: &Observed, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let calls = match planned {
            Some(plan) => plan::calls(plan),
            None => self.target.made(),
        };
        let slots: Vec<Value> = observed.slots.iter().map(|slot| json!(slot.state())).collect();
        Map::from_iter([
            ("system".to_owned(), system_value(&observed.system)),
            ("virtual_media".to_owned(), slots.into()),
            ("calls".to_owned(), calls.into()),
        ])
    }

    /// An image that was half inserted must not be booted from later. The slot was empty before.
    fn undo(&mut self, _failure: &Failure, run: &Run) {
        let (Some(slot), Ok(bmc)) = (&self.inserted, self.target.bmc()) else { return };
        let deadline = Deadline::after(UNDO);
        let ejected = bmc.slot_again(slot, &deadline).and_then(|now| {
            let holds = now.state().inserted;
            if holds { bmc.eject(&now, &deadline).map(|()| true) } else { Ok(false) }
        });
        let id = slot.state().id;
        match ejected {
            Ok(true) => run.warn(format!("what was inserted into slot {id} was ejected again")),
            Ok(false) => {}
            Err(error) => {
                run.warn(format!("slot {id} may still hold the image: it could not be ejected ({error})"))
            }
        }
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        self.target.api_calls()
    }
}
