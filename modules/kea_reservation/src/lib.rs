//! `kea_reservation`: one DHCPv4 reservation, on OPNsense or on plain Kea, that really holds.

mod apply;
mod args;
mod boot;
mod observe;
mod plan;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
use api_options::{Mark, kea_failure, opnsense_apply, opnsense_failure};
use dhcp_reservations::{Field, Reservation};
use kea_api::Server;
use opnsense_api::{Opnsense, Service};
use serde_json::{Map, Value, json};

use crate::args::{Args, Backend, Persist, State};
use crate::observe::Lease;
pub use crate::observe::Observed;
pub use crate::plan::{Action, Put, Store};

/// The module.
#[derive(Debug)]
pub struct KeaReservation {
    args: Args,
    server: Reached,
    pending: Mark,
    /// Who had the address before the first write.
    lease: Lease,
}

#[derive(Debug)]
enum Reached {
    Opnsense(Box<Opnsense>),
    Kea(Server),
}

impl Module for KeaReservation {
    type State = Observed;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        let args = Args::new(arguments)?;
        let (server, pending) = match args.backend {
            Backend::Opnsense => (
                Reached::Opnsense(Box::new(args.opnsense.connect()?)),
                Mark::of_opnsense(&args.opnsense, Service::Kea),
            ),
            Backend::Kea => {
                (Reached::Kea(args.kea.connect(args.opnsense.tls())?), Mark::of(&args.kea.lock()))
            }
        };
        Ok(Self { args, server, pending, lease: Lease::NotChecked })
    }

    fn subject(&self) -> String {
        match self.args.wanted.text(Field::Hostname) {
            "" => format!("reservation of {}", self.args.host),
            hostname => format!("reservation of {} ({hostname})", self.args.host),
        }
    }

    fn lock(&self) -> Option<String> {
        Some(match self.args.backend {
            Backend::Opnsense => self.args.opnsense.lock(),
            Backend::Kea => self.args.kea.lock(),
        })
    }

    fn observe(&mut self, run: &Run) -> Result<Observed, Failure> {
        let pending = self.pending.is_set();
        let observed = match &mut self.server {
            Reached::Opnsense(firewall) => {
                observe::opnsense::observe(firewall, &self.args, pending, &run.deadline)
            }
            Reached::Kea(server) => {
                if self.args.persist == Persist::File && server.kept_in().is_none() {
                    let given = self.args.kea_config_file.as_deref();
                    server.keep_in(observe::kea::config_file(server, given, &run.deadline)?);
                }
                observe::kea::observe(server, &self.args, pending, &run.deadline)
            }
        }?;
        if self.lease == Lease::NotChecked {
            self.lease = observed.lease.clone();
        }
        Ok(observed)
    }

    fn plan(&self, observed: &Observed) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, observed)
    }

    fn apply(&mut self, action: &Action, observed: &Observed, run: &Run) -> Result<(), Failure> {
        let deadline = &run.deadline;
        let host = &self.args.host;
        match (action, &self.server) {
            (Action::Store(store), Reached::Opnsense(firewall)) => {
                apply::opnsense::store(firewall, &self.pending, store, host, deadline)
            }
            (Action::Store(store), Reached::Kea(server)) => {
                apply::kea::store(server, &self.pending, observed, store, host, deadline)
            }
            (Action::Apply, Reached::Opnsense(firewall)) => {
                opnsense_apply(firewall, Service::Kea, &self.pending, deadline)
            }
            (Action::Apply, Reached::Kea(server)) => apply::kea::persist(server, &self.pending, deadline),
            (Action::ClearLease(ip), Reached::Opnsense(firewall)) => {
                firewall.del_lease(*ip, deadline).map_err(opnsense_failure)
            }
            (Action::ClearLease(ip), Reached::Kea(server)) => {
                server.lease4_del(*ip, deadline).map_err(kea_failure)
            }
        }
    }

    fn proof(&self, change: &Change, observed: &Observed) -> Proof {
        let proof = proof(&self.args, change, observed);
        let is_stored = change.field.starts_with(plan::RESERVATION);
        match proof {
            Proof::Held if is_stored && self.args.stores_only() => {
                Proof::Pending("stored; homelab.anvil.opnsense_reconfigure puts it in effect".to_owned())
            }
            proof => proof,
        }
    }

    fn report(&self, observed: &Observed, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let file = match self.args.backend {
            Backend::Opnsense => "option 67",
            Backend::Kea => "BOOTP file field",
        };
        let would_pend = planned.is_some_and(|plan| !plan.is_empty()) && self.args.stores_only();
        let result = json!({
            "reservation": self.reservation(observed, planned.is_some()),
            "boot_file_sent_as": file,
            "lease": self.lease.word(),
            "pending_apply": would_pend || observed.pending && self.args.backend == Backend::Opnsense,
        });
        result.as_object().cloned().unwrap_or_default()
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        match &self.server {
            Reached::Opnsense(firewall) => Some(firewall.calls()),
            Reached::Kea(server) => server.calls(),
        }
    }
}

impl KeaReservation {
    fn reservation(&self, observed: &Observed, planned: bool) -> Value {
        if planned && self.args.state == State::Absent {
            return Value::Null;
        }
        let own = observed.own(&self.args).first().copied().cloned();
        let Some(mut one) = own.or_else(|| planned.then(Reservation::default)) else {
            return Value::Null;
        };
        if planned {
            one.values = one.values.overlaid(&self.args.wanted);
            if let Some(owner) = &self.args.owner {
                one.values.set(Field::Owner, owner.clone());
            }
            if let Some(subnet) = observed.subnet(&self.args) {
                one.subnet = subnet.key.clone();
            }
        }
        let cidr = observed.cidr_of(&one.subnet);
        Value::Object(one.to_object(cidr))
    }
}

fn proof(args: &Args, change: &Change, observed: &Observed) -> Proof {
    let own = observed.own(args);
    match change.field.as_str() {
        plan::SERVICE => {
            let found = observed.service.clone().unwrap_or_else(|| "unknown".to_owned());
            Proof::equal(&change.after, found)
        }
        plan::CONFIG_FILE => {
            Proof::equal(&change.after, if observed.pending { "not written" } else { "written" })
        }
        plan::LEASE => match &observed.lease {
            Lease::Other(holder) => Proof::Mismatch { found: holder.as_str().into() },
            Lease::NotChecked => Proof::Unreadable("leases cannot be seen any more".to_owned()),
            Lease::Free | Lease::Own => Proof::Held,
        },
        removed if removed.ends_with(']') => gone(change, observed),
        field => {
            let field = field.rsplit('.').next().and_then(Field::by_name);
            match (own.first(), field) {
                (Some(own), Some(field)) => {
                    let (asked, found) = (args.asked(field), own.values.text(field));
                    if field.same(asked, found) {
                        Proof::Held
                    } else {
                        Proof::Mismatch { found: field.shown(found) }
                    }
                }
                _ => Proof::Mismatch { found: Value::Null },
            }
        }
    }
}

/// A removed reservation is gone when no other has its identifier and address.
fn gone(change: &Change, observed: &Observed) -> Proof {
    let is_it = |one: &&Reservation| {
        change.before["hw_address"] == one.identifier
            && change.before["ip_address"] == one.values.text(Field::IpAddress)
            && change.before["subnet"] == observed.cidr_of(&one.subnet)
    };
    match observed.reservations.iter().find(is_it) {
        None => Proof::Held,
        Some(one) => Proof::Mismatch { found: one.values.text(Field::IpAddress).into() },
    }
}
