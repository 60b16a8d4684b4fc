//! Record sets on a DNS server, changed by dynamic updates (RFC 2136) signed with TSIG.

mod observe;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ansible_module::{Change, Failure, Plan, Proof, Run};
use deadline::{Deadline, Expired};
use dns_client::{Ask, Error, Key, RecordSet, Server, Update};
use serde_json::{Map, Value, json};

use crate::args::{Args, State, UpdateOptions};
use crate::failure::dns_failure;
use crate::resolver::{Expected, Wanted};

pub(crate) use observe::Observed;

/// How long a server may answer from a cache of its own after it took an update (PowerDNS has one).
const CACHE: Duration = Duration::from_secs(30);

/// A DNS server and the key that may change it.
#[derive(Debug)]
pub(crate) struct Rfc2136 {
    server: Server,
    key: Key,
    /// The addresses the name has or had in this run: their PTR records are its concern.
    addresses: BTreeSet<IpAddr>,
}

impl Rfc2136 {
    /// # Errors
    /// `bad_argument`, `unreachable` when the server's name has no address.
    pub(crate) fn new(args: &Args, options: &UpdateOptions) -> Result<Self, Failure> {
        let key =
            Key::new(&options.key_name, options.key_algorithm, &options.key_secret).map_err(|error| {
                let option = if matches!(error, Error::Name { .. }) { "key_name" } else { "key_secret" };
                Failure::bad_argument(option, error)
            })?;
        let server = Server::new(&options.dns_server, options.dns_port).map_err(dns_failure)?;
        Ok(Self { server, key, addresses: args.address().into_iter().collect() })
    }

    /// Two runs at once for one name are one behind the other; those for others go on.
    pub(crate) fn lock(&self, args: &Args) -> String {
        format!("dns {} {}", self.server, args.fqdn())
    }

    pub(crate) fn observe(&mut self, args: &Args, run: &Run) -> Result<Observed, Failure> {
        let observed = observe::observe(&self.server, args, &mut self.addresses, &run.deadline)?;
        if run.check_mode {
            // Nothing is changed by it, and a wrong key is told before the real run.
            for step in plan::plan(args, &observed)?.steps() {
                self.server.rehearse(&self.key, &step.action, &run.deadline).map_err(dns_failure)?;
            }
        }
        Ok(observed)
    }

    pub(crate) fn plan(args: &Args, observed: &Observed) -> Result<Plan<Update>, Failure> {
        plan::plan(args, observed)
    }

    pub(crate) fn apply(&self, update: &Update, deadline: &Deadline) -> Result<(), Failure> {
        self.server.update(&self.key, update, deadline).map_err(dns_failure)?;
        let asked = |found: Option<RecordSet>| match found {
            Some(set) => set.values == update.after,
            None => update.after.is_empty(),
        };
        let seen = deadline.at_most(CACHE).poll(|| {
            let answer = self.server.query(&update.name, update.rr, Ask::Authoritative, deadline)?;
            Ok(asked(answer.set(&update.name, update.rr)).then_some(()))
        });
        match seen {
            // That it still answers something else is for the read-back to tell.
            Ok(()) | Err(Error::Expired(Expired::TimedOut { .. })) => Ok(()),
            Err(error) => Err(dns_failure(error)),
        }
    }

    pub(crate) fn proof(change: &Change, observed: &Observed) -> Proof {
        Proof::equal(&change.after, observed.value_of(&change.field))
    }

    pub(crate) fn report(
        args: &Args,
        observed: &Observed,
        planned: Option<&Plan<Update>>,
    ) -> Map<String, Value> {
        let mut shown = observed.clone();
        for step in planned.into_iter().flat_map(Plan::steps) {
            shown.carry_out(args, &step.action);
        }
        let record = shown.own.as_ref().map(|set| {
            json!({
                "hostname": args.hostname, "domain": args.domain, "zone": shown.zone, "rr": args.rr.as_str(),
                "value": observe::value(Some(set)), "ttl": set.ttl,
            })
        });
        let result = json!({
            "record": record,
            "ptr_name": args.address().and_then(|address| shown.ptr_name(address)),
            "pending_apply": false,
        });
        result.as_object().cloned().unwrap_or_default()
    }

    /// What a resolver has to answer once nothing is left to do.
    pub(crate) fn expected(args: &Args, observed: &Observed) -> Vec<Expected> {
        let values = |set: Option<&RecordSet>| set.map_or_else(Vec::new, |set| set.values.clone());
        let wanted = Wanted::Only(values(observed.own.as_ref()));
        let mut expected = vec![Expected { name: args.fqdn(), rr: args.rr, wanted }];
        if args.state == State::Present && args.has_ptr() {
            let own = observed.reverses.iter().filter(|reverse| Some(reverse.address) == args.address());
            expected.extend(own.map(|reverse| Expected {
                name: reverse.name.clone(),
                rr: dns_client::RecordType::Ptr,
                wanted: Wanted::Only(values(reverse.ptr.as_ref())),
            }));
        }
        expected
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        self.server.calls()
    }
}
