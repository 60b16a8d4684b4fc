//! `dns_record`: one address record of OPNsense's Unbound, with its PTR.

mod apply;
mod args;
mod observe;
mod plan;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use api_options::Mark;
use opnsense_api::{HostOverrideRow, Opnsense, Service};
use serde_json::{Map, Value, json};

use crate::args::{Args, State};
pub use crate::observe::Observed;
pub use crate::plan::Action;

/// The module.
#[derive(Debug)]
pub struct DnsRecord {
    args: Args,
    firewall: Opnsense,
    mark: Mark,
}

impl Module for DnsRecord {
    type State = Observed;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        let args = Args::new(arguments)?;
        let firewall = args.opnsense.connect()?;
        let mark = Mark::of_opnsense(&args.opnsense, Service::Unbound);
        Ok(Self { args, firewall, mark })
    }

    fn subject(&self) -> String {
        format!("record {} {}", self.args.fqdn(), self.args.rr)
    }

    fn lock(&self) -> Option<String> {
        Some(self.args.opnsense.lock())
    }

    fn observe(&mut self, run: &Run) -> Result<Observed, Failure> {
        observe::observe(&self.firewall, &self.args, self.mark.is_set(), &run.deadline)
    }

    fn plan(&self, observed: &Observed) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, observed)
    }

    fn apply(&mut self, action: &Action, _: &Observed, run: &Run) -> Result<(), Failure> {
        apply::apply(&self.firewall, &self.mark, &self.args, action, &run.deadline)
    }

    fn proof(&self, change: &Change, observed: &Observed) -> Proof {
        if change.field == plan::SERVICE {
            return Proof::equal(&change.after, observed.service.clone().unwrap_or_default());
        }
        match stored(&self.args, change, observed) {
            Proof::Held if !self.args.apply => {
                Proof::Pending("stored; homelab.anvil.opnsense_reconfigure puts it in effect".to_owned())
            }
            proof => proof,
        }
    }

    fn report(&self, observed: &Observed, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let would_pend = !self.args.apply && planned.is_some_and(|plan| !plan.is_empty());
        let row = match planned {
            Some(_) if self.args.state == State::Absent => None,
            Some(plan) => Some(as_it_would_be(&self.args, observed, plan)),
            None => observed.own(&self.args).first().copied().cloned(),
        };
        let ptr_name = row.as_ref().and_then(|row| {
            let before = observed.rows.iter().position(|one| one.uuid == row.uuid);
            let mut rows = observed.rows.clone();
            match before {
                Some(place) => rows[place] = row.clone(),
                None => rows.push(row.clone()),
            }
            Observed { rows, ..observed.clone() }.ptr_name(row.server?)
        });
        let result = json!({
            "record": row.as_ref().map_or(Value::Null, plan::object),
            "ptr_name": ptr_name,
            "pending_apply": would_pend || observed.pending,
        });
        result.as_object().cloned().unwrap_or_default()
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.firewall.calls())
    }
}

/// The row that check mode did not write.
fn as_it_would_be(args: &Args, observed: &Observed, plan: &Plan<Action>) -> HostOverrideRow {
    let found = observed.own(args).first().copied().cloned();
    let mut row = found.unwrap_or_else(|| HostOverrideRow {
        uuid: String::new(),
        enabled: true,
        hostname: args.hostname.clone(),
        domain: args.domain.clone(),
        rr: args.rr.to_string(),
        server: None,
        description: String::new(),
        addptr: None,
    });
    let puts = plan.steps().filter_map(|step| match &step.action {
        Action::Put { fields, .. } => Some(fields),
        _ => None,
    });
    for (field, text) in puts.flatten() {
        match *field {
            "enabled" => row.enabled = true,
            "server" => row.server = args.value,
            "addptr" => row.addptr = Some(args.ptr),
            "description" => row.description.clone_from(text),
            _ => {}
        }
    }
    row
}

fn stored(args: &Args, change: &Change, observed: &Observed) -> Proof {
    if change.field.ends_with(']') {
        let uuid = change.before["uuid"].as_str().unwrap_or_default();
        return match observed.rows.iter().find(|row| row.uuid == uuid) {
            None => Proof::Held,
            Some(row) => Proof::Mismatch { found: plan::object(row) },
        };
    }
    let field = change.field.rsplit('.').next().unwrap_or_default();
    match &observed.own(args)[..] {
        [] => Proof::Mismatch { found: Value::Null },
        [row] => Proof::equal(&change.after, plan::text_of(row, field)),
        rows => Proof::Mismatch { found: rows.iter().map(|row| plan::text_of(row, field)).collect() },
    }
}
