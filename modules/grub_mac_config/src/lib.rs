//! `grub_mac_config`: the files beside `grub.cfg` that say what one machine boots over the network.

mod apply;
mod args;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use host::{FileLock, Host};
use serde_json::{Map, Value};

use crate::args::Args;
use crate::observe::State;
use crate::plan::Action;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<GrubMacConfig>()
}

struct GrubMacConfig {
    args: Args,
    host: Host,
    /// Held from the first look to the end of the run: other controllers come in under other users, whose locks on
    /// this machine would be elsewhere.
    lock: Option<FileLock>,
}

impl GrubMacConfig {
    fn on(host: Host, args: Args) -> Self {
        Self { args, host, lock: None }
    }
}

impl Module for GrubMacConfig {
    type State = State;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        Ok(Self::on(Host::local(), Args::check(arguments)?))
    }

    fn subject(&self) -> String {
        let host = self.args.host.as_deref().unwrap_or("all hosts");
        format!("GRUB files of {host} in {}", self.args.prefix_dir.display())
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        if self.lock.is_none() && !run.check_mode {
            self.lock = observe::lock(&self.args, &self.host, run)?;
        }
        observe::observe(&self.args, &self.host, run)
    }

    fn plan(&self, state: &State) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, state)
    }

    fn apply(&mut self, action: &Action, state: &State, run: &Run) -> Result<(), Failure> {
        apply::apply(&self.args, &self.host, action, state, run)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        plan::proof(change, state)
    }

    fn report(&self, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        plan::report(&self.args, state, planned)
    }

    fn diff(&self, plan: &Plan<Action>, _state: &State) -> Value {
        plan::diff(plan)
    }
}
