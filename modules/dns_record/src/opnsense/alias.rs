//! Aliases: other names of a host override. Each follows one override, so a host with an A and an AAAA record takes two.

use ansible_module::{Change, Failure, Plan, Proof};
use dns_client::RecordData;
use opnsense_api::{HostAlias, HostOverrideRow};
use serde_json::{Value, json};

use super::observe::{self, Observed};
use super::plan::Action;
use crate::args::{Args, State};

const ALIAS: &str = "alias";

/// The host override that an alias follows.
fn host<'a>(alias: &HostAlias, observed: &'a Observed) -> Option<&'a HostOverrideRow> {
    observed.rows.iter().find(|row| row.uuid == alias.host)
}

/// The overrides of the name that the alias is to follow.
fn targets<'a>(args: &Args, observed: &'a Observed) -> Vec<&'a HostOverrideRow> {
    let Some(target) = &args.value else { return Vec::new() };
    let has_address = |row: &&HostOverrideRow| row.enabled && matches!(row.rr.as_str(), "A" | "AAAA");
    observed.rows.iter().filter(has_address).filter(|row| row.name() == target.as_str()).collect()
}

/// What Unbound answers for the alias: the addresses of its hosts.
pub(super) fn values(observed: &Observed) -> Vec<RecordData> {
    let enabled = observed.aliases.iter().filter(|alias| alias.enabled);
    let hosts = enabled.filter_map(|alias| host(alias, observed)).filter(|row| row.enabled);
    hosts.filter_map(observe::value).collect()
}

pub(super) fn plan(args: &Args, observed: &Observed, plan: &mut Plan<Action>) -> Result<(), Failure> {
    let mut left: Vec<&HostAlias> = observed.aliases.iter().collect();
    if args.state == State::Present {
        refuse(args, observed)?;
        let mut missing = Vec::new();
        for target in targets(args, observed) {
            match left.iter().position(|alias| alias.host == target.uuid) {
                Some(place) => put(args, observed, target, Some(left.remove(place)), plan),
                None => missing.push(target),
            }
        }
        // One that follows another host is turned to this one: at no moment is the name gone.
        for target in missing {
            let other = (!left.is_empty()).then(|| left.remove(0));
            put(args, observed, target, other, plan);
        }
    }
    for alias in left {
        let before = name_of_host(alias, observed);
        let change = Change::new(format!("{ALIAS}[{}]", alias.uuid), before, Value::Null);
        plan.step(Action::RemoveAlias { uuid: alias.uuid.clone() }, vec![change]);
    }
    Ok(())
}

fn refuse(args: &Args, observed: &Observed) -> Result<(), Failure> {
    let (name, target) = (args.fqdn(), args.value.as_ref().map(RecordData::as_str).unwrap_or_default());
    if let Some(row) = observed.rows.iter().find(|row| row.name() == name) {
        let msg = format!(
            "{name} is a host override of type {} itself, so it cannot be an alias: remove it first",
            row.rr
        );
        return Err(Failure::refused(msg).with("holder", name));
    }
    if targets(args, observed).is_empty() {
        return Err(Failure::refused(format!(
            "{target} is no enabled host override with an address on OPNsense, and an alias there can only follow one: add \
             {target} first, or give {name} an A record of its own"
        )));
    }
    Ok(())
}

fn put(
    args: &Args,
    observed: &Observed,
    target: &HostOverrideRow,
    found: Option<&HostAlias>,
    plan: &mut Plan<Action>,
) {
    let mut fields = Vec::new();
    let mut changes = Vec::new();
    if found.is_none_or(|alias| alias.host != target.uuid || !alias.enabled) {
        let before = match found {
            Some(alias) if !alias.enabled => "disabled".into(),
            Some(alias) => name_of_host(alias, observed),
            None => Value::Null,
        };
        fields.extend([("enabled", "1".to_owned()), ("host", target.uuid.clone())]);
        changes.push(Change::new(field(target, "host"), before, target.name()));
    }
    if let Some(text) =
        args.description.as_ref().filter(|text| found.is_none_or(|one| one.description != **text))
    {
        fields.push(("description", text.clone()));
        let before = found.map_or(Value::Null, |alias| alias.description.as_str().into());
        changes.push(Change::new(field(target, "description"), before, text.as_str()));
    }
    if found.is_none() {
        fields.extend([("hostname", args.hostname.clone()), ("domain", args.domain.clone())]);
    }
    if !changes.is_empty() {
        plan.step(Action::PutAlias { uuid: found.map(|alias| alias.uuid.clone()), fields }, changes);
    }
}

/// `alias.AAAA.host`
fn field(target: &HostOverrideRow, name: &str) -> String {
    format!("{ALIAS}.{}.{name}", target.rr)
}

fn name_of_host(alias: &HostAlias, observed: &Observed) -> Value {
    host(alias, observed).map_or(Value::Null, |row| row.name().into())
}

pub(super) fn proof(change: &Change, observed: &Observed) -> Proof {
    let Some((rr, field)) = change.field.strip_prefix("alias.").and_then(|rest| rest.split_once('.')) else {
        let is_left = observed.aliases.iter().any(|alias| change.field == format!("{ALIAS}[{}]", alias.uuid));
        return if is_left { Proof::Mismatch { found: change.before.clone() } } else { Proof::Held };
    };
    let follows = |alias: &&HostAlias| host(alias, observed).is_some_and(|row| row.rr == rr);
    let found: Vec<Value> = observed
        .aliases
        .iter()
        .filter(follows)
        .map(|alias| match field {
            "host" if !alias.enabled => "disabled".into(),
            "host" => name_of_host(alias, observed),
            _ => alias.description.as_str().into(),
        })
        .collect();
    match <[Value; 1]>::try_from(found) {
        Ok([one]) => Proof::equal(&change.after, one),
        Err(others) => Proof::Mismatch { found: others.into() },
    }
}

/// The alias as the result shows it; `planned`: as it would be.
pub(super) fn object(args: &Args, observed: &Observed, planned: bool) -> Value {
    let first = observed.aliases.first();
    let target = match (planned, &args.value) {
        (true, Some(value)) => Some(value.to_string()),
        (true, None) => None,
        (false, _) => first.and_then(|alias| host(alias, observed)).map(HostOverrideRow::name),
    };
    let Some(target) = target else { return Value::Null };
    let description = args.description.clone().or_else(|| first.map(|alias| alias.description.clone()));
    json!({
        "hostname": args.hostname,
        "domain": args.domain,
        "rr": args.rr.as_str(),
        "value": target,
        "ttl": null,
        "enabled": planned || first.is_some_and(|alias| alias.enabled),
        "description": description.unwrap_or_default(),
        "uuid": first.map(|alias| alias.uuid.as_str()),
    })
}
