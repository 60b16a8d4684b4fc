//! `dns_record`: one DNS record with its PTR, in OPNsense's Unbound or on a server that takes dynamic updates.

mod args;
mod failure;
mod opnsense;
mod resolver;
mod rfc2136;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Failure, Item, Module, Plan, Proof, Run, Spec};
use dns_client::{Server, Update};
use serde_json::{Map, Value};

use crate::args::{Args, Backend};
use crate::opnsense::Firewall;
use crate::resolver::Expected;
use crate::rfc2136::Rfc2136;

/// The module.
#[derive(Debug)]
pub struct DnsRecord {
    args: Args,
    keeper: Keeper,
    resolver: Option<Server>,
}

/// Who keeps the record.
#[derive(Debug)]
enum Keeper {
    Firewall(Box<Firewall>),
    Server(Box<Rfc2136>),
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Observed {
    kept: Kept,
    /// What the resolver answered, when it was asked.
    resolver: Option<Value>,
}

#[derive(Clone, Debug)]
enum Kept {
    Firewall(opnsense::Observed),
    Server(rfc2136::Observed),
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Action(Write);

#[derive(Clone, Debug, PartialEq)]
enum Write {
    Firewall(opnsense::Action),
    Server(Update),
}

impl Module for DnsRecord {
    type State = Observed;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        let args = Args::new(arguments)?;
        let keeper = match &args.backend {
            Backend::Opnsense(options) => Keeper::Firewall(Box::new(Firewall::new(options)?)),
            Backend::Rfc2136(options) => Keeper::Server(Box::new(Rfc2136::new(&args, options)?)),
        };
        let resolver = args.resolver.as_ref().map(|(host, port)| Server::new(host, *port)).transpose();
        let resolver = resolver.map_err(|error| Failure::bad_argument("resolver", error))?;
        Ok(Self { args, keeper, resolver })
    }

    fn subject(&self) -> String {
        format!("record {} {}", self.args.fqdn(), self.args.rr)
    }

    fn lock(&self) -> Option<String> {
        Some(match &self.keeper {
            Keeper::Firewall(firewall) => firewall.lock(),
            Keeper::Server(server) => server.lock(&self.args),
        })
    }

    /// When nothing is left to do the resolver is asked: after the last write, and when there was none to send, since an
    /// earlier run may have died before it asked.
    fn observe(&mut self, run: &Run) -> Result<Observed, Failure> {
        let kept = match &mut self.keeper {
            Keeper::Firewall(firewall) => Kept::Firewall(firewall.observe(&self.args, run)?),
            Keeper::Server(server) => Kept::Server(server.observe(&self.args, run)?),
        };
        let mut observed = Observed { kept, resolver: None };
        if let Some(resolver) = &self.resolver
            && self.plan(&observed).is_ok_and(|plan| plan.is_empty())
        {
            let expected = self.expected(&observed);
            if !expected.is_empty() {
                observed.resolver = Some(resolver::confirm(resolver, &expected, &run.deadline)?);
            }
        }
        Ok(observed)
    }

    fn plan(&self, observed: &Observed) -> Result<Plan<Action>, Failure> {
        match &observed.kept {
            Kept::Firewall(kept) => {
                Ok(mapped(opnsense::plan(&self.args, kept)?, |action| Action(Write::Firewall(action))))
            }
            Kept::Server(kept) => {
                Ok(mapped(Rfc2136::plan(&self.args, kept)?, |update| Action(Write::Server(update))))
            }
        }
    }

    fn apply(&mut self, action: &Action, _: &Observed, run: &Run) -> Result<(), Failure> {
        match (&action.0, &self.keeper) {
            (Write::Firewall(action), Keeper::Firewall(firewall)) => {
                firewall.apply(&self.args, action, &run.deadline)
            }
            (Write::Server(update), Keeper::Server(server)) => server.apply(update, &run.deadline),
            _ => unreachable!("a plan is made for the one who keeps the record"),
        }
    }

    fn proof(&self, change: &Change, observed: &Observed) -> Proof {
        match &observed.kept {
            Kept::Firewall(kept) => opnsense::proof(&self.args, change, kept),
            Kept::Server(kept) => Rfc2136::proof(change, kept),
        }
    }

    fn report(&self, observed: &Observed, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let mut result = match &observed.kept {
            Kept::Firewall(kept) => {
                let planned = planned.map(|plan| mapped(plan.clone(), firewalls));
                opnsense::report(&self.args, kept, planned.as_ref())
            }
            Kept::Server(kept) => {
                let planned = planned.map(|plan| mapped(plan.clone(), servers));
                Rfc2136::report(&self.args, kept, planned.as_ref())
            }
        };
        result.insert("resolver".into(), observed.resolver.clone().unwrap_or_default());
        result
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(match &self.keeper {
            Keeper::Firewall(firewall) => firewall.calls(),
            Keeper::Server(server) => server.calls(),
        })
    }
}

impl DnsRecord {
    fn expected(&self, observed: &Observed) -> Vec<Expected> {
        match (&observed.kept, &self.keeper) {
            (Kept::Firewall(kept), Keeper::Firewall(firewall)) => firewall.expected(&self.args, kept),
            (Kept::Server(kept), _) => Rfc2136::expected(&self.args, kept),
            _ => Vec::new(),
        }
    }
}

fn firewalls(action: Action) -> opnsense::Action {
    match action.0 {
        Write::Firewall(action) => action,
        Write::Server(_) => unreachable!("a plan is made for the one who keeps the record"),
    }
}

fn servers(action: Action) -> Update {
    match action.0 {
        Write::Server(update) => update,
        Write::Firewall(_) => unreachable!("a plan is made for the one who keeps the record"),
    }
}

/// The same plan with other words for its writes.
fn mapped<A, B>(plan: Plan<A>, word: impl Fn(A) -> B) -> Plan<B> {
    let mut mapped = Plan::new();
    for item in plan.items {
        match item {
            Item::Gate => mapped.gate(),
            Item::Step(step) => mapped.step(word(step.action), step.changes),
        }
    }
    mapped.warnings = plan.warnings;
    mapped
}
