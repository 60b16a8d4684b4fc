//! `ssh_ready`: waits until a guest answers SSH with a key, pins its host keys and proves what it is.

mod apply;
mod args;
mod guest;
mod observe;
mod plan;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use serde_json::{Map, Value, json};
use ssh::HostKey;

use crate::args::Args;
pub use crate::guest::Facts;
pub use crate::observe::{Guest, State};
pub use crate::plan::Action;

/// The module.
#[derive(Debug)]
pub struct SshReady {
    args: Args,
    /// Asked once: reading back concerns the file only.
    guest: Option<Guest>,
}

impl Module for SshReady {
    type State = State;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        Ok(Self { args: Args::check(arguments)?, guest: None })
    }

    fn subject(&self) -> String {
        format!("the guest at {}", self.args.address)
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        let known_hosts = observe::known_hosts(&self.args)?;
        let guest = match self.guest.take() {
            Some(guest) => guest,
            None => observe::wait_for_guest(&self.args, &known_hosts, run)?,
        };
        self.guest = Some(guest.clone());
        Ok(State { guest, known_hosts })
    }

    fn plan(&self, state: &State) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args.address, &self.args.expected, state)
    }

    fn apply(&mut self, action: &Action, _: &State, run: &Run) -> Result<(), Failure> {
        apply::apply(action, &self.args, run)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        let entries = state.known_hosts.entries(&self.args.address);
        let pinned: Vec<&HostKey> = entries
            .iter()
            .filter(|entry| !entry.revoked && plan::field(entry.key.kind()) == change.field)
            .map(|entry| &entry.key)
            .collect();
        let held = pinned.iter().find(|key| change.after == key.fingerprint()).or(pinned.first());
        Proof::equal(&change.after, held.map_or(Value::Null, |key| key.fingerprint().into()))
    }

    fn report(&self, state: &State, _: Option<&Plan<Action>>) -> Map<String, Value> {
        let Guest { address, host_keys, facts } = &state.guest;
        let keys: Vec<Value> = host_keys
            .iter()
            .map(|key| json!({"type": key.kind(), "sha256": key.fingerprint(), "key": key.base64()}))
            .collect();
        let guest = json!({
            "address": address.to_string(),
            "hostname": facts.hostname,
            "root_size_gib": facts.root_size_gib,
            "host_keys": keys,
        });
        Map::from_iter([("guest".to_owned(), guest)])
    }
}
