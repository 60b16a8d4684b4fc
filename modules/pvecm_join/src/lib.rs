//! `pvecm_join`: joins this node to a cluster; joined only when both sides prove it.

mod args;
mod keepsake;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ansible_module::{Arguments, Change, Entry, ErrorCode, Failure, Module, Plan, Proof, Run, Spec};
use deadline::Deadline;
use host::{Command, Host, New, write_atomic};
use pve_cluster::{Missing, Node, Probe, Way};
use pvecm_options::{look_here, report, sentence, unattended};
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::observe::{KNOWN_HOSTS, State, known_hosts, observe};
use crate::plan::Action;

/// What putting the SSH files back may take when the run's own time is over.
const UNDO_WITHIN: Duration = Duration::from_secs(10);

/// Seconds in practice; a node that starts its services again takes as long.
const SETTLES_WITHIN: Duration = Duration::from_secs(15);

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<PvecmJoin>()
}

struct PvecmJoin {
    args: Args,
    host: Host,
}

impl Module for PvecmJoin {
    type State = State;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        Ok(Self { args: Args::check(arguments)?, host: Host::local() })
    }

    fn subject(&self) -> String {
        format!("the join to the cluster {}", self.args.cluster_name)
    }

    fn lock(&self) -> Option<String> {
        Some("pvecm".into())
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        let own = self.look_when_no_join_runs(run)?;
        let state = observe(&self.args, &self.host, own, run)?;
        if plan::settling(&self.args, &state) { self.settle(state, run) } else { Ok(state) }
    }

    fn plan(&self, state: &State) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, state)
    }

    fn apply(&mut self, action: &Action, _: &State, run: &Run) -> Result<(), Failure> {
        let internal = |why: String| Failure::new(ErrorCode::INTERNAL, why);
        keepsake::keep(&self.host).map_err(internal)?;
        match action {
            Action::Pin => {
                let mut known = known_hosts(&self.host)?;
                known.add(&self.args.peer, &self.args.peer_host_keys);
                let path = self.host.path(KNOWN_HOSTS);
                let written = write_atomic(&path, known.to_string().as_bytes(), New { mode: 0o600 });
                written.map(drop).map_err(|error| internal(error.to_string()))
            }
            Action::Join => {
                unattended(&self.host, &self.args.words(), run)?;
                self.wait_until_proved(run)?;
                keepsake::forget(&self.host);
                Ok(())
            }
        }
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        Proof::equal(&change.after, plan::found(&self.args, &change.field, state))
    }

    fn report(&self, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let mut report = report(&state.own);
        if planned.is_some() {
            report.insert("cluster".into(), json!({"name": self.args.cluster_name}));
        }
        report
    }

    /// A node with corosync's key or configuration is part of the cluster already: what pvecm set up belongs to it.
    /// The pvecm of an interrupted run goes on, and needs what it set up.
    fn undo(&mut self, _: &Failure, run: &Run) {
        let probe = Probe::take(&self.host, &Way::Here, &Deadline::after(UNDO_WITHIN));
        let Ok(own) = probe.map(|probe| Node::read(&probe)) else {
            return run.warn("root's SSH files were not put back: this node does not answer");
        };
        if let Some(process) = own.joining {
            return run.warn(format!(
                "the join goes on by itself ({process}); run this task again to see what came of it"
            ));
        }
        if own.has_authkey || own.local_conf.is_some() || own.conf.is_some() {
            return;
        }
        match keepsake::put_back(&self.host) {
            Ok(false) => {}
            Ok(true) => {
                let reload = Command::new("systemctl").args(["reload-or-restart", "sshd"]);
                if let Err(error) =
                    self.host.run(&reload, &Deadline::after(UNDO_WITHIN)).and_then(host::Output::ok)
                {
                    run.warn(format!("sshd_config was put back and not loaded: {error}"));
                }
            }
            Err(why) => run.warn(format!("root's SSH files could not be put back: {why}")),
        }
    }
}

impl PvecmJoin {
    /// The pvecm of a run that was killed goes on; what it does must not be judged halfway.
    fn look_when_no_join_runs(&self, run: &Run) -> Result<Node, Failure> {
        let mut last = String::new();
        let own = run.deadline.poll(|| {
            let own = look_here(&self.host, run)?;
            last = own.joining.clone().unwrap_or_default();
            Ok::<_, Failure>((own.joining.is_none() || run.check_mode).then_some(own))
        });
        own.map_err(|failure| match last.as_str() {
            "" => failure,
            last => failure.while_doing(format!("waiting for the join that runs already ({last})")),
        })
    }

    /// pmxcfs follows corosync after a while: a member is given a moment before it is called half-joined.
    fn settle(&self, mut state: State, run: &Run) -> Result<State, Failure> {
        let settled = run.deadline.at_most(SETTLES_WITHIN).poll(|| {
            state = observe(&self.args, &self.host, look_here(&self.host, run)?, run)?;
            Ok::<_, Failure>((!plan::settling(&self.args, &state)).then_some(()))
        });
        match settled {
            Err(failure) if failure.code != ErrorCode::TIMEOUT => Err(failure),
            _ => run.check().map(|()| state),
        }
    }

    fn wait_until_proved(&self, run: &Run) -> Result<(), Failure> {
        let mut missing: Vec<Missing> = Vec::new();
        let proved = run.deadline.poll(|| {
            let own = look_here(&self.host, run)?;
            missing = plan::missing(&self.args, &observe(&self.args, &self.host, own, run)?);
            Ok::<_, Failure>(missing.is_empty().then_some(()))
        });
        proved.map_err(|failure| {
            let list: Vec<Value> =
                missing.iter().map(|one| json!({"proof": one.proof, "why": one.why})).collect();
            let doing =
                format!("pvecm came to its end, and these proofs are missing ({})", sentence(&missing));
            failure.while_doing(doing).with("missing", list)
        })
    }
}
