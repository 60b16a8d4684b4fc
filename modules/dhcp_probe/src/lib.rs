//! `dhcp_probe`: one DISCOVER, the OFFERs, and whether they say what is expected. It only observes.

mod args;
mod observe;
mod plan;

use std::convert::Infallible;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use dhcp_client::Offer;
use serde_json::{Map, Value};

use crate::args::Args;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<DhcpProbe>()
}

struct DhcpProbe {
    args: Args,
}

impl Module for DhcpProbe {
    type State = Vec<Offer>;
    /// There is nothing that this module could write.
    type Action = Infallible;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, run: &Run) -> Result<Self, Failure> {
        Ok(Self { args: Args::check(arguments, run.deadline.remaining())? })
    }

    fn observe(&mut self, run: &Run) -> Result<Vec<Offer>, Failure> {
        observe::offers(&self.args, run)
    }

    fn plan(&self, offers: &Vec<Offer>) -> Result<Plan<Infallible>, Failure> {
        plan::judge(&self.args, offers)?;
        Ok(Plan::new())
    }

    fn apply(&mut self, action: &Infallible, _offers: &Vec<Offer>, _run: &Run) -> Result<(), Failure> {
        match *action {}
    }

    fn proof(&self, _change: &Change, _offers: &Vec<Offer>) -> Proof {
        Proof::Held
    }

    fn report(&self, offers: &Vec<Offer>, _planned: Option<&Plan<Infallible>>) -> Map<String, Value> {
        plan::report(offers)
    }
}
