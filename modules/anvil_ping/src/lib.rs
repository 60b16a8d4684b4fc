//! `anvil_ping`: proves that the modules of the collection run on a host, and tells as whom.

mod args;
mod observe;

use std::env::consts::ARCH;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use serde_json::{Map, Value, json};

use crate::args::Args;
pub use crate::observe::Surroundings;

/// The module; it changes nothing.
#[derive(Debug)]
pub struct AnvilPing {
    args: Args,
}

impl Module for AnvilPing {
    type State = Surroundings;
    type Action = ();

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        Ok(Self { args: arguments.parse()? })
    }

    fn observe(&mut self, _: &Run) -> Result<Surroundings, Failure> {
        if self.args.data == "crash" {
            panic!("boom");
        }
        observe::surroundings()
    }

    fn plan(&self, _: &Surroundings) -> Result<Plan<()>, Failure> {
        Ok(Plan::new())
    }

    fn apply(&mut self, (): &(), _: &Surroundings, _: &Run) -> Result<(), Failure> {
        Ok(())
    }

    fn proof(&self, _: &Change, _: &Surroundings) -> Proof {
        Proof::Held
    }

    fn report(&self, found: &Surroundings, _: Option<&Plan<()>>) -> Map<String, Value> {
        let ping = json!({
            "data": self.args.data,
            "arch": ARCH,
            "host": found.host,
            "uid": found.uid,
            "user": found.user,
            "cwd": found.cwd,
            "program": found.program,
            "version": env!("CARGO_PKG_VERSION"),
            "secret_given": self.args.secret.is_some(),
        });
        Map::from_iter([("ping".to_owned(), ping)])
    }
}
