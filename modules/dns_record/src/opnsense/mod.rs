//! Host overrides and aliases of OPNsense's Unbound.

mod alias;
mod apply;
mod observe;
mod plan;

use std::collections::BTreeMap;

use ansible_module::{Change, Failure, Plan, Proof, Run};
use api_options::{Mark, OpnsenseOptions};
use deadline::Deadline;
use dns_client::{RecordData, RecordType, reverse_name};
use opnsense_api::{HostOverrideRow, Opnsense, Service};
use serde_json::{Map, Value, json};

use crate::args::{Args, State};
use crate::resolver::{Expected, Wanted};

pub(crate) use observe::Observed;
pub(crate) use plan::Action;
pub(crate) use plan::plan;

/// A firewall, and what a run has to remember of it.
#[derive(Debug)]
pub(crate) struct Firewall {
    api: Opnsense,
    lock: String,
    mark: Mark,
    /// What the record said before the first write; `None` before the first look.
    former: Option<Vec<RecordData>>,
}

impl Firewall {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn new(options: &OpnsenseOptions) -> Result<Self, Failure> {
        let mark = Mark::of_opnsense(options, Service::Unbound);
        Ok(Self { api: options.connect()?, lock: options.lock(), mark, former: None })
    }

    pub(crate) fn lock(&self) -> String {
        self.lock.clone()
    }

    pub(crate) fn observe(&mut self, args: &Args, run: &Run) -> Result<Observed, Failure> {
        let observed = observe::observe(&self.api, args, self.mark.is_set(), &run.deadline)?;
        self.former.get_or_insert_with(|| observed.values(args));
        Ok(observed)
    }

    pub(crate) fn apply(&self, args: &Args, action: &Action, deadline: &Deadline) -> Result<(), Failure> {
        apply::apply(&self.api, &self.mark, args, action, deadline)
    }

    /// What Unbound has to answer once nothing is left to do; nothing while a change is not in effect.
    ///
    /// Without its override a name is one of the rest of the world, which may have it too: what is known of it is that
    /// it is no longer what it was.
    pub(crate) fn expected(&self, args: &Args, observed: &Observed) -> Vec<Expected> {
        if observed.pending {
            return Vec::new();
        }
        if args.state == State::Absent {
            let former = self.former.iter().flatten();
            return former
                .map(|value| Expected {
                    name: args.fqdn(),
                    rr: value.rr(),
                    wanted: Wanted::Without(vec![value.clone()]),
                })
                .collect();
        }
        let values = observed.values(args);
        let mut expected: Vec<Expected> = values
            .iter()
            .map(|value| Expected {
                name: args.fqdn(),
                rr: value.rr(),
                wanted: Wanted::Only(vec![value.clone()]),
            })
            .collect();
        if let Some(address) = args.address()
            && let Some(name) = observed.ptr_name(address)
            && let Ok(name) = RecordData::parse(RecordType::Ptr, &name)
        {
            expected.push(Expected {
                name: reverse_name(address),
                rr: RecordType::Ptr,
                wanted: Wanted::Only(vec![name]),
            });
        }
        expected
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        self.api.calls()
    }
}

pub(crate) fn proof(args: &Args, change: &Change, observed: &Observed) -> Proof {
    if change.field == plan::SERVICE {
        return Proof::equal(&change.after, observed.service.clone().unwrap_or_default());
    }
    let stored = if args.rr == RecordType::Cname {
        alias::proof(change, observed)
    } else {
        stored(args, change, observed)
    };
    match stored {
        Proof::Held if !args.apply => {
            Proof::Pending("stored; homelab.anvil.opnsense_reconfigure puts it in effect".to_owned())
        }
        proof => proof,
    }
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

pub(crate) fn report(args: &Args, observed: &Observed, planned: Option<&Plan<Action>>) -> Map<String, Value> {
    let would_pend = !args.apply && planned.is_some_and(|plan| !plan.is_empty());
    let pending_apply = would_pend || observed.pending;
    let (record, ptr_name) = if args.rr == RecordType::Cname {
        (alias::object(args, observed, planned.is_some()), None)
    } else {
        let row = match planned {
            Some(_) if args.state == State::Absent => None,
            Some(plan) => Some(as_it_would_be(args, observed, plan)),
            None => observed.own(args).first().copied().cloned(),
        };
        let ptr_name = row.as_ref().and_then(|row| ptr_name_with(observed, row));
        (row.as_ref().map_or(Value::Null, plan::object), ptr_name)
    };
    let result = json!({"record": record, "ptr_name": ptr_name, "pending_apply": pending_apply});
    result.as_object().cloned().unwrap_or_default()
}

/// The name that the address of a row gives back, when the row is as it is here.
fn ptr_name_with(observed: &Observed, row: &HostOverrideRow) -> Option<String> {
    let mut rows = observed.rows.clone();
    match rows.iter().position(|one| one.uuid == row.uuid) {
        Some(place) => rows[place] = row.clone(),
        None => rows.push(row.clone()),
    }
    Observed { rows, ..observed.clone() }.ptr_name(row.server?)
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
        text: String::new(),
        ttl: None,
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
            "server" => row.server = args.address(),
            "txtdata" => row.text.clone_from(text),
            "ttl" => row.ttl = args.ttl,
            "addptr" => row.addptr = Some(args.ptr),
            "description" => row.description.clone_from(text),
            _ => {}
        }
    }
    row
}
