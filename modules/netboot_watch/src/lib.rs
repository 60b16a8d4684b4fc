//! `netboot_watch`: where a machine's network boot stands, from the logs of the servers. It only observes.

mod args;
mod observe;
mod report;
mod sources;

use std::convert::Infallible;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use host::Host;
use netboot::chain::Chain;
use serde_json::{Map, Value};

use crate::args::Args;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<NetbootWatch>()
}

struct NetbootWatch {
    args: Args,
    host: Host,
}

impl Module for NetbootWatch {
    type State = Chain;
    /// There is nothing that this module could write.
    type Action = Infallible;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        Ok(Self { args: Args::check(arguments)?, host: Host::local() })
    }

    fn observe(&mut self, run: &Run) -> Result<Chain, Failure> {
        observe::observe(&self.args, &self.host, run)
    }

    fn plan(&self, _chain: &Chain) -> Result<Plan<Infallible>, Failure> {
        Ok(Plan::new())
    }

    fn apply(&mut self, action: &Infallible, _chain: &Chain, _run: &Run) -> Result<(), Failure> {
        match *action {}
    }

    fn proof(&self, _change: &Change, _chain: &Chain) -> Proof {
        Proof::Held
    }

    fn report(&self, chain: &Chain, _planned: Option<&Plan<Infallible>>) -> Map<String, Value> {
        report::report(&self.args, chain)
    }
}
