//! A module with nothing but the contract in it, for the tests of this crate.

use std::process::ExitCode;

use ansible_module::{
    Arguments, Change, Entry, ErrorCode, Failure, Module, Opt, Plan, Proof, Run, Spec, Table,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Probe {
    #[serde(default)]
    say: String,
    token: Option<SecretString>,
    act: Option<String>,
    undo_file: Option<String>,
}

impl Module for Probe {
    type State = ();
    type Action = ();

    fn spec() -> Spec {
        Spec::new("probe", "Shows the contract").options(Table::new(vec![
            Opt::str("say").aliases(&["speak"]),
            Opt::str("mac").quoted("a MAC address"),
            Opt::str("token").no_log().env(&["PROBE_TOKEN"]),
            Opt::str("act").choices(&["panic", "wait", "leak", "write"]),
            Opt::path("undo_file"),
        ]))
    }

    fn new(arguments: &Arguments, run: &Run) -> Result<Self, Failure> {
        run.protect("a-ticket-learnt-on-the-way");
        arguments.parse()
    }

    fn observe(&mut self, run: &Run) -> Result<(), Failure> {
        match self.act.as_deref() {
            Some("panic") => {
                panic!("lost my way with {}", self.token.as_ref().map_or("", |t| t.expose_secret()))
            }
            Some("wait") => run.deadline.poll(|| Ok(None)),
            Some("leak") => {
                let token = self.token.as_ref().map_or("", |token| token.expose_secret());
                Err(Failure::new(ErrorCode::AUTH, format!("refused {token} and a-ticket-learnt-on-the-way"))
                    .with("header", token))
            }
            _ => Ok(()),
        }
    }

    fn plan(&self, (): &()) -> Result<Plan<()>, Failure> {
        let mut plan = Plan::new();
        if self.act.as_deref() == Some("write") {
            plan.step((), vec![Change::new("line", Value::Null, "written")]);
        }
        Ok(plan)
    }

    fn apply(&mut self, (): &(), (): &(), run: &Run) -> Result<(), Failure> {
        assert!(self.say != "panic", "lost my way between two writes");
        run.deadline.poll(|| Ok(None))
    }

    fn proof(&self, _change: &Change, (): &()) -> Proof {
        Proof::Held
    }

    fn report(&self, (): &(), _planned: Option<&Plan<()>>) -> Map<String, Value> {
        json!({"probe": {"say": self.say}}).as_object().cloned().unwrap_or_default()
    }

    fn undo(&mut self, failure: &Failure, _run: &Run) {
        if let Some(file) = &self.undo_file {
            let _ = std::fs::write(file, failure.code.as_str());
        }
    }
}

fn main() -> ExitCode {
    ansible_module::main(&[Entry::of::<Probe>()])
}
