//! Every read.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ansible_module::Failure;
use deadline::Deadline;
use dns_client::{Ask, Error, RecordSet, RecordType, Server, Update, reverse_name};
use serde_json::Value;

use super::plan;
use crate::args::Args;
use crate::failure::dns_failure;

/// The server's zones around one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The zone that the name is in.
    pub(crate) zone: String,
    pub(crate) own: Option<RecordSet>,
    /// What the name is an alias of, when it is asked for as something else.
    pub(crate) alias_of: Option<String>,
    /// The other types that the name has, looked for when it is to become an alias.
    pub(crate) others: Vec<RecordType>,
    pub(crate) reverses: Vec<Reverse>,
}

/// The PTR record of one address.
#[derive(Clone, Debug)]
pub(crate) struct Reverse {
    pub(crate) address: IpAddr,
    /// `21.0.20.10.in-addr.arpa`
    pub(crate) name: String,
    /// `None` when the server keeps no zone for it.
    pub(crate) zone: Option<String>,
    pub(crate) ptr: Option<RecordSet>,
    /// The names the record gives, other than ours, that have this address.
    pub(crate) holders: Vec<String>,
}

impl Observed {
    pub(crate) fn reverse(&self, address: IpAddr) -> Option<&Reverse> {
        self.reverses.iter().find(|reverse| reverse.address == address)
    }

    pub(crate) fn ptr_name(&self, address: IpAddr) -> Option<String> {
        self.reverse(address)?.ptr.as_ref().map(ToString::to_string)
    }

    /// What a field of a change holds now.
    pub(crate) fn value_of(&self, field: &str) -> Value {
        if field == plan::VALUE {
            return value(self.own.as_ref());
        }
        if field == plan::TTL {
            return self.own.as_ref().map_or(Value::Null, |set| set.ttl.into());
        }
        let reverse = self.reverses.iter().find(|reverse| plan::ptr(reverse.address) == field);
        reverse.map_or(Value::Null, |reverse| value(reverse.ptr.as_ref()))
    }

    /// As it would be after an update.
    pub(crate) fn carry_out(&mut self, args: &Args, update: &Update) {
        let values = update.after.clone();
        let after = (!values.is_empty()).then_some(RecordSet { values, ttl: update.ttl });
        if (update.name.as_str(), update.rr) == (args.fqdn().as_str(), args.rr) {
            self.own = after;
        } else if let Some(reverse) = self.reverses.iter_mut().find(|reverse| reverse.name == update.name) {
            reverse.ptr = after;
        }
    }
}

/// One value as text, several as a list, none as null.
pub(crate) fn value(set: Option<&RecordSet>) -> Value {
    match set.map(|set| set.values.as_slice()) {
        None | Some([]) => Value::Null,
        Some([one]) => one.as_str().into(),
        Some(several) => several.iter().map(dns_client::RecordData::as_str).collect(),
    }
}

pub(crate) fn observe(
    server: &Server,
    args: &Args,
    addresses: &mut BTreeSet<IpAddr>,
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    read(server, args, addresses, deadline).map_err(dns_failure)
}

fn read(
    server: &Server,
    args: &Args,
    addresses: &mut BTreeSet<IpAddr>,
    deadline: &Deadline,
) -> Result<Observed, Error> {
    let name = args.fqdn();
    let zone = match args.zone() {
        Some(zone) => zone.to_owned(),
        None => server.zone_of(&name, deadline)?,
    };
    let answer = server.query(&name, args.rr, Ask::Authoritative, deadline)?;
    let own = answer.set(&name, args.rr);
    let is_alias = args.rr == RecordType::Cname;
    let alias_of = if is_alias { None } else { answer.alias(&name) };
    let others = if is_alias && own.is_none() { other_types(server, &name, deadline)? } else { Vec::new() };
    let mut reverses = Vec::new();
    if args.has_ptr() {
        addresses.extend(own.iter().flat_map(|set| &set.values).filter_map(dns_client::RecordData::address));
        for address in addresses.iter() {
            reverses.push(reverse(server, &name, *address, args.address(), deadline)?);
        }
    }
    Ok(Observed { zone, own, alias_of, others, reverses })
}

fn other_types(server: &Server, name: &str, deadline: &Deadline) -> Result<Vec<RecordType>, Error> {
    let mut found = Vec::new();
    for rr in RecordType::ALL.into_iter().filter(|rr| *rr != RecordType::Cname) {
        if server.query(name, rr, Ask::Authoritative, deadline)?.set(name, rr).is_some() {
            found.push(rr);
        }
    }
    Ok(found)
}

fn reverse(
    server: &Server,
    own_name: &str,
    address: IpAddr,
    asked: Option<IpAddr>,
    deadline: &Deadline,
) -> Result<Reverse, Error> {
    let name = reverse_name(address);
    let zone = match server.zone_of(&name, deadline) {
        Err(Error::NotAuthoritative { .. }) => {
            return Ok(Reverse { address, name, zone: None, ptr: None, holders: Vec::new() });
        }
        zone => zone?,
    };
    let answer = server.query(&name, RecordType::Ptr, Ask::Authoritative, deadline)?;
    let ptr = answer.set(&name, RecordType::Ptr);
    let mut holders = Vec::new();
    let others = ptr.iter().flat_map(|set| &set.values).filter(|other| other.as_str() != own_name);
    for other in others.filter(|_| asked == Some(address)) {
        if still_has(server, other.as_str(), address, deadline)? {
            holders.push(other.to_string());
        }
    }
    Ok(Reverse { address, name, zone: Some(zone), ptr, holders })
}

/// Whether another name has the address. One that other servers keep counts as if it had: nobody here knows better.
fn still_has(server: &Server, name: &str, address: IpAddr, deadline: &Deadline) -> Result<bool, Error> {
    let rr = RecordType::of_address(address);
    match server.query(name, rr, Ask::Authoritative, deadline) {
        Err(Error::NotAuthoritative { .. }) => Ok(true),
        answer => {
            let set = answer?.set(name, rr);
            Ok(set.is_some_and(|set| set.values.iter().any(|value| value.address() == Some(address))))
        }
    }
}
