//! `kea_reservation_info`: the DHCPv4 reservations of OPNsense or plain Kea. It only observes.

mod args;
mod observe;

use std::collections::BTreeMap;
use std::convert::Infallible;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use dhcp_reservations::Reservations;
use kea_api::Server;
use opnsense_api::Opnsense;
use serde_json::{Map, Value, json};

use crate::args::{Args, Backend};

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<KeaReservationInfo>()
}

struct KeaReservationInfo {
    args: Args,
    server: Reached,
}

enum Reached {
    Opnsense(Box<Opnsense>),
    Kea(Server),
}

impl Module for KeaReservationInfo {
    type State = Reservations;
    /// There is nothing that this module could write.
    type Action = Infallible;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        let args = Args::new(arguments)?;
        let server = match args.backend {
            Backend::Opnsense => Reached::Opnsense(Box::new(args.opnsense.connect()?)),
            Backend::Kea => Reached::Kea(args.kea.connect(args.opnsense.tls())?),
        };
        Ok(Self { args, server })
    }

    fn observe(&mut self, run: &Run) -> Result<Reservations, Failure> {
        match &self.server {
            Reached::Opnsense(firewall) => observe::on_opnsense(firewall, &run.deadline),
            Reached::Kea(server) => observe::on_kea(server, &run.deadline),
        }
    }

    fn plan(&self, _: &Reservations) -> Result<Plan<Infallible>, Failure> {
        Ok(Plan::new())
    }

    fn apply(&mut self, action: &Infallible, _: &Reservations, _: &Run) -> Result<(), Failure> {
        match *action {}
    }

    fn proof(&self, _: &Change, _: &Reservations) -> Proof {
        Proof::Held
    }

    fn report(&self, all: &Reservations, _: Option<&Plan<Infallible>>) -> Map<String, Value> {
        let mut found: Vec<_> = all
            .reservations
            .iter()
            .filter(|one| self.args.filter.takes(one, &all.cidr_of(&one.subnet)))
            .collect();
        found.sort_by_key(|one| one.ip());
        let found: Vec<Value> =
            found.into_iter().map(|one| one.to_object(all.cidr_of(&one.subnet)).into()).collect();
        let subnets: Vec<Value> = all
            .subnets
            .iter()
            .map(|subnet| json!({"subnet": subnet.cidr.to_string(), "subnet_key": subnet.key}))
            .collect();
        Map::from_iter([("reservations".to_owned(), found.into()), ("subnets".to_owned(), subnets.into())])
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        match &self.server {
            Reached::Opnsense(firewall) => Some(firewall.calls()),
            Reached::Kea(server) => server.calls(),
        }
    }
}
