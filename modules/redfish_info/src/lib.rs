//! `redfish_info`: what a BMC says of its systems, as far as one needs it to declare a server. It only reads.

mod args;
mod observe;

use std::collections::BTreeMap;
use std::convert::Infallible;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use api_options::RedfishOptions;
use redfish_api::Bmc;
use serde_json::{Map, Value};

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<RedfishInfo>()
}

struct RedfishInfo {
    options: RedfishOptions,
    bmc: Bmc,
}

impl Module for RedfishInfo {
    type State = Vec<Value>;
    /// There is nothing that this module could write.
    type Action = Infallible;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, run: &Run) -> Result<Self, Failure> {
        let options: RedfishOptions = arguments.parse()?;
        Ok(Self { bmc: options.connect(run)?, options })
    }

    fn observe(&mut self, run: &Run) -> Result<Vec<Value>, Failure> {
        observe::systems(&self.bmc, &self.options, run)
    }

    fn plan(&self, _systems: &Vec<Value>) -> Result<Plan<Infallible>, Failure> {
        Ok(Plan::new())
    }

    fn apply(&mut self, action: &Infallible, _systems: &Vec<Value>, _run: &Run) -> Result<(), Failure> {
        match *action {}
    }

    fn proof(&self, _change: &Change, _systems: &Vec<Value>) -> Proof {
        Proof::Held
    }

    fn report(&self, systems: &Vec<Value>, _planned: Option<&Plan<Infallible>>) -> Map<String, Value> {
        Map::from_iter([("systems".to_owned(), Value::from(systems.clone()))])
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.bmc.calls())
    }
}
