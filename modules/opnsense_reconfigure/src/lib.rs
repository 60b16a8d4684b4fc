//! `opnsense_reconfigure`: puts in effect, once, what a batch stored on OPNsense, and verifies the batch.

mod args;
mod observe;
mod plan;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use api_options::{Mark, opnsense_apply};
use opnsense_api::{Opnsense, Service};
use serde_json::{Map, Value, json};

use crate::args::Args;
pub use crate::observe::Observed;
pub use crate::plan::Action;

/// The module.
#[derive(Debug)]
pub struct OpnsenseReconfigure {
    args: Args,
    firewall: Opnsense,
    marks: Vec<(Service, Mark)>,
    check_mode: bool,
}

impl Module for OpnsenseReconfigure {
    type State = Observed;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, run: &Run) -> Result<Self, Failure> {
        let args = Args::new(arguments)?;
        let firewall = args.opnsense.connect()?;
        let mark = |service: &Service| (*service, Mark::of_opnsense(&args.opnsense, *service));
        let marks = args.services.iter().map(mark).collect();
        Ok(Self { args, firewall, marks, check_mode: run.check_mode })
    }

    fn subject(&self) -> String {
        format!("services of {}", self.args.opnsense.address())
    }

    fn lock(&self) -> Option<String> {
        Some(self.args.opnsense.lock())
    }

    fn observe(&mut self, run: &Run) -> Result<Observed, Failure> {
        observe::observe(&self.firewall, &self.args, &self.marks, &run.deadline)
    }

    fn plan(&self, observed: &Observed) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, observed, self.check_mode)
    }

    fn apply(&mut self, action: &Action, _: &Observed, run: &Run) -> Result<(), Failure> {
        let Action::Reconfigure(wanted) = action;
        let marks = self.marks.iter().filter(|(service, _)| service == wanted);
        for (service, mark) in marks {
            opnsense_apply(&self.firewall, *service, mark, &run.deadline)?;
        }
        Ok(())
    }

    fn proof(&self, change: &Change, observed: &Observed) -> Proof {
        if let Some(seen) = observed.services.iter().find(|seen| plan::field_of(seen.service) == change.field)
        {
            return Proof::equal(&change.after, seen.status.clone());
        }
        let entries = plan::entries(&self.args, observed);
        let entry = entries.into_iter().find(|entry| entry.field == change.field);
        Proof::equal(&change.after, entry.map_or(Value::Null, |entry| entry.found))
    }

    fn report(&self, observed: &Observed, _: Option<&Plan<Action>>) -> Map<String, Value> {
        let services = observed.services.iter().map(|seen| {
            let state = json!({"status": seen.status, "pending_apply": seen.pending});
            (seen.service.name().to_owned(), state)
        });
        let result = json!({
            "services": services.collect::<Map<String, Value>>(),
            "reservations": self.found(observed, Service::Kea),
            "records": self.found(observed, Service::Unbound),
        });
        result.as_object().cloned().unwrap_or_default()
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.firewall.calls())
    }
}

impl OpnsenseReconfigure {
    /// The batch as it is stored.
    fn found(&self, observed: &Observed, service: Service) -> Vec<Value> {
        let entries =
            plan::entries(&self.args, observed).into_iter().filter(|entry| entry.service == service);
        entries.map(|entry| entry.shown).collect()
    }
}
