//! Pure: from what is asked and what was seen to a refusal or the updates.

use std::net::IpAddr;

use ansible_module::{Change, Failure, Plan};
use dns_client::{RecordData, RecordSet, RecordType, Update};
use serde_json::Value;

use super::observe::{Observed, Reverse, value};
use crate::args::{Args, State};

pub(crate) const VALUE: &str = "record.value";
pub(crate) const TTL: &str = "record.ttl";
/// Seconds, where neither the task nor the record says any.
const DEFAULT_TTL: u32 = 3600;

/// The field of an address' PTR record.
pub(crate) fn ptr(address: IpAddr) -> String {
    format!("ptr.{address}")
}

/// Old PTR records go first and the new one comes last: the name's own record, which a later run starts from, tells it
/// what a run that was killed has left to do.
pub(crate) fn plan(args: &Args, observed: &Observed) -> Result<Plan<Update>, Failure> {
    let mut plan = Plan::new();
    if args.state == State::Present {
        refuse_what_others_hold(args, observed)?;
    }
    let former = observed
        .reverses
        .iter()
        .filter(|reverse| args.state == State::Absent || Some(reverse.address) != args.address());
    former.for_each(|reverse| forget_ptr(args, reverse, &mut plan));
    own_record(args, observed, &mut plan);
    if let (State::Present, Some(address)) = (args.state, args.address()) {
        observed
            .reverse(address)
            .into_iter()
            .for_each(|reverse| give_ptr(args, observed, reverse, &mut plan));
    }
    Ok(plan)
}

fn refuse_what_others_hold(args: &Args, observed: &Observed) -> Result<(), Failure> {
    let name = args.fqdn();
    if let Some(target) = &observed.alias_of {
        let msg = format!(
            "{name} is an alias (CNAME) of {target}, and beside one no other record may stand: remove it first, with type \
             CNAME and `state: absent`"
        );
        return Err(Failure::refused(msg).with("holder", target.as_str()));
    }
    if !observed.others.is_empty() {
        let types: Vec<&str> = observed.others.iter().map(|rr| rr.as_str()).collect();
        let msg = format!(
            "{name} has records of its own ({}), so it cannot be an alias: remove them first",
            types.join(", ")
        );
        return Err(Failure::refused(msg).with("holder", name));
    }
    match &observed.own {
        Some(own) if own.values.len() > 1 && !args.repair_duplicates => Err(duplicates(args, own)),
        _ => refuse_reverse(args, observed),
    }
}

fn duplicates(args: &Args, own: &RecordSet) -> Failure {
    let msg = format!(
        "{} has {} records of type {} ({own}): remove all but one, or let `repair_duplicates: true` do it",
        args.fqdn(),
        own.values.len(),
        args.rr,
    );
    Failure::refused(msg).with("duplicates", value(Some(own)))
}

fn refuse_reverse(args: &Args, observed: &Observed) -> Result<(), Failure> {
    let Some(reverse) = args.address().and_then(|address| observed.reverse(address)) else { return Ok(()) };
    if reverse.zone.is_none() {
        return Err(Failure::refused(format!(
            "the server keeps no zone for {}, the PTR record of {}: add the reverse zone there, or give `ptr: false`",
            reverse.name, reverse.address
        )));
    }
    if let [holder, ..] = reverse.holders.as_slice() {
        let msg = format!(
            "{} belongs to {holder}, as its PTR record says and {holder} has this address: remove that name first, or give \
             `ptr: false` for a second name of the address",
            reverse.address
        );
        return Err(Failure::refused(msg).with("holder", holder.as_str()));
    }
    Ok(())
}

fn own_record(args: &Args, observed: &Observed, plan: &mut Plan<Update>) {
    let own = observed.own.as_ref();
    let ttl = args.ttl.or(own.map(|set| set.ttl)).unwrap_or(DEFAULT_TTL);
    let after: Vec<RecordData> = match args.state {
        State::Present => args.value.iter().cloned().collect(),
        State::Absent => Vec::new(),
    };
    let mut changes = Vec::new();
    let before = value(own);
    if own.map_or(&[][..], |set| &set.values) != after.as_slice() {
        let after = after.first().map_or(Value::Null, |value| value.as_str().into());
        changes.push(Change::new(VALUE, before, after));
    }
    let ttl_before = own.map(|set| set.ttl);
    if args.state == State::Present && ttl_before != Some(ttl) {
        changes.push(Change::new(TTL, ttl_before.map_or(Value::Null, Value::from), ttl));
    }
    if !changes.is_empty() {
        let (zone, name, rr) = (observed.zone.clone(), args.fqdn(), args.rr);
        plan.step(Update { zone, name, rr, before: own.cloned(), after, ttl }, changes);
    }
}

/// Takes our name out of an address' PTR record; others in it stay.
fn forget_ptr(args: &Args, reverse: &Reverse, plan: &mut Plan<Update>) {
    let name = args.fqdn();
    let Some(set) = &reverse.ptr else { return };
    let after: Vec<RecordData> = set.values.iter().filter(|one| one.as_str() != name).cloned().collect();
    if after.len() < set.values.len() {
        put_ptr(reverse, after, set.ttl, plan);
    }
}

/// A PTR record that gives names which have another address by now is replaced.
fn give_ptr(args: &Args, observed: &Observed, reverse: &Reverse, plan: &mut Plan<Update>) {
    let name = args.fqdn();
    let set = reverse.ptr.as_ref();
    if set.is_some_and(|set| set.values.iter().any(|one| one.as_str() == name)) {
        return;
    }
    let Ok(ours) = RecordData::parse(RecordType::Ptr, &name) else { return };
    let ttl = args.ttl.or(observed.own.as_ref().map(|own| own.ttl)).unwrap_or(DEFAULT_TTL);
    put_ptr(reverse, vec![ours], ttl, plan);
}

fn put_ptr(reverse: &Reverse, after: Vec<RecordData>, ttl: u32, plan: &mut Plan<Update>) {
    let Some(zone) = reverse.zone.clone() else { return };
    let set = (!after.is_empty()).then(|| RecordSet { values: after.clone(), ttl });
    let change = Change::new(ptr(reverse.address), value(reverse.ptr.as_ref()), value(set.as_ref()));
    let (name, rr, before) = (reverse.name.clone(), RecordType::Ptr, reverse.ptr.clone());
    plan.step(Update { zone, name, rr, before, after, ttl }, vec![change]);
}

#[cfg(test)]
mod tests;
