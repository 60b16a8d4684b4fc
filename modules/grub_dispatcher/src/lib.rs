//! `grub_dispatcher`: the block of `grub.cfg` by which GRUB takes a machine's own file.

mod apply;
mod args;
mod observe;
mod plan;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use host::{FileLock, Host};
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::observe::State;
use crate::plan::Write;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<GrubDispatcher>()
}

struct GrubDispatcher {
    args: Args,
    host: Host,
    /// Held from the first look to the end of the run, against controllers that come in under other users.
    lock: Option<FileLock>,
}

impl Module for GrubDispatcher {
    type State = State;
    type Action = Write;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        Ok(Self { args: Args::check(arguments)?, host: Host::local(), lock: None })
    }

    fn subject(&self) -> String {
        self.args.path().display().to_string()
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        if self.lock.is_none() && !run.check_mode {
            self.lock = Some(observe::lock(&self.args, run)?);
        }
        observe::observe(&self.args, &self.host, run)
    }

    fn plan(&self, state: &State) -> Result<Plan<Write>, Failure> {
        plan::plan(&self.args, state)
    }

    fn apply(&mut self, action: &Write, state: &State, _run: &Run) -> Result<(), Failure> {
        apply::apply(&self.args, action, state)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        Proof::equal(&change.after, plan::text(state.content.as_deref()))
    }

    fn report(&self, state: &State, planned: Option<&Plan<Write>>) -> Map<String, Value> {
        plan::report(&self.args, state, planned)
    }

    fn diff(&self, plan: &Plan<Write>, _state: &State) -> Value {
        let side = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (mut before, mut after) = (String::new(), String::new());
        for change in plan.changes() {
            before.push_str(&side(&change.before));
            after.push_str(&side(&change.after));
        }
        json!({"before_header": self.subject(), "after_header": self.subject(), "before": before, "after": after})
    }
}
