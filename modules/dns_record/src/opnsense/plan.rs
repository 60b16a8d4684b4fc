//! Pure: from what is asked and what was seen to a refusal or the writes.

use ansible_module::{Change, Failure, Plan};
use dns_client::RecordType;
use opnsense_api::HostOverrideRow;
use serde_json::{Value, json};

use super::alias;
use super::observe::{self, Observed};
use crate::args::{Args, State};

/// The change that stands for Unbound reading its configuration.
pub(crate) const SERVICE: &str = "unbound.service";
/// Changes of the record's fields begin so.
pub(crate) const RECORD: &str = "record";

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Remove {
        uuid: String,
    },
    /// A new host override, or with a UUID the fields of one.
    Put {
        uuid: Option<String>,
        fields: Vec<(&'static str, String)>,
    },
    RemoveAlias {
        uuid: String,
    },
    /// A new alias, or with a UUID the fields of one.
    PutAlias {
        uuid: Option<String>,
        fields: Vec<(&'static str, String)>,
    },
    Apply,
}

pub(crate) fn plan(args: &Args, observed: &Observed) -> Result<Plan<Action>, Failure> {
    let mut plan = Plan::new();
    match args.state {
        _ if args.rr == RecordType::Cname => alias::plan(args, observed, &mut plan)?,
        State::Present => present(args, observed, &mut plan)?,
        State::Absent => observed.own(args).into_iter().for_each(|row| remove(row, &mut plan)),
    }
    apply(args, observed, &mut plan)?;
    Ok(plan)
}

fn present(args: &Args, observed: &Observed, plan: &mut Plan<Action>) -> Result<(), Failure> {
    if !args.ptr && args.rr.is_address() && !observed.knows_addptr {
        return Err(Failure::refused(
            "this OPNsense makes a PTR record for every address: `ptr: false` needs OPNsense 26.1.3",
        ));
    }
    if args.rr == RecordType::Txt && !observed.knows_text {
        return Err(Failure::refused("this OPNsense keeps no texts: a TXT record needs OPNsense 25.7.4"));
    }
    let own = observed.own(args);
    if let (true, Some(alias)) = (own.is_empty(), observed.aliases.first()) {
        return Err(held_by_an_alias(args, observed, &alias.host));
    }
    if own.len() > 1 && !args.repair_duplicates {
        return Err(duplicates(args, &own));
    }
    own.iter().skip(1).for_each(|row| remove(row, plan));
    let found = own.first().copied();
    let asked = asked(args, observed);
    let differing =
        asked.into_iter().filter(|(field, text)| found.is_none_or(|row| text_of(row, field) != *text));
    let fields: Vec<(&str, String)> = differing.collect();
    if !fields.is_empty() {
        let changes = fields.iter().map(|(field, text)| {
            let before = found.map_or(Value::Null, |row| text_of(row, field).into());
            Change::new(path(field), before, text.as_str())
        });
        let changes = changes.collect();
        plan.step(Action::Put { uuid: found.map(|row| row.uuid.clone()), fields }, changes);
    }
    warn_of_another_ptr(args, observed, plan);
    Ok(())
}

/// The fields of the host override, as OPNsense names and writes them.
fn asked(args: &Args, observed: &Observed) -> Vec<(&'static str, String)> {
    let flag = |flag: bool| u8::from(flag).to_string();
    let mut fields = vec![
        ("enabled", flag(true)),
        ("hostname", args.hostname.clone()),
        ("domain", args.domain.clone()),
        ("rr", args.rr.to_string()),
    ];
    let value = args.value.as_ref().map(ToString::to_string).unwrap_or_default();
    fields.push((if args.rr == RecordType::Txt { "txtdata" } else { "server" }, value));
    fields.extend(args.ttl.map(|ttl| ("ttl", ttl.to_string())));
    if observed.knows_addptr && args.rr.is_address() {
        fields.push(("addptr", flag(args.ptr)));
    }
    fields.extend(args.description.clone().map(|text| ("description", text)));
    fields
}

/// A field of a row in the form it is written in. Names are compared without case, as DNS does.
pub(crate) fn text_of(row: &HostOverrideRow, field: &str) -> String {
    match field {
        "enabled" => u8::from(row.enabled).to_string(),
        "hostname" => row.hostname.to_ascii_lowercase(),
        "domain" => row.domain.to_ascii_lowercase(),
        "rr" => row.rr.clone(),
        "server" => row.server.map(|server| server.to_string()).unwrap_or_default(),
        "txtdata" => row.text.clone(),
        "ttl" => row.ttl.map(|ttl| ttl.to_string()).unwrap_or_default(),
        "addptr" => u8::from(row.addptr != Some(false)).to_string(),
        _ => row.description.clone(),
    }
}

pub(crate) fn path(field: &str) -> String {
    format!("{RECORD}.{field}")
}

pub(crate) fn object(row: &HostOverrideRow) -> Value {
    json!({
        "hostname": row.hostname,
        "domain": row.domain,
        "rr": row.rr,
        "value": observe::value(row).map(|value| value.to_string()),
        "ttl": row.ttl,
        "server": text_of(row, "server"),
        "addptr": row.addptr != Some(false),
        "enabled": row.enabled,
        "description": row.description,
        "uuid": if row.uuid.is_empty() { Value::Null } else { row.uuid.as_str().into() },
    })
}

fn remove(row: &HostOverrideRow, plan: &mut Plan<Action>) {
    let change = Change::new(format!("{RECORD}[{}]", row.uuid), object(row), Value::Null);
    plan.step(Action::Remove { uuid: row.uuid.clone() }, vec![change]);
}

fn duplicates(args: &Args, own: &[&HostOverrideRow]) -> Failure {
    let values = own.iter().filter_map(|row| observe::value(row));
    let values: Vec<String> = values.map(|value| value.to_string()).collect();
    let msg = format!(
        "{} has {} records of type {} ({}): remove all but one, or let `repair_duplicates: true` do it",
        args.fqdn(),
        own.len(),
        args.rr,
        values.join(", ")
    );
    Failure::refused(msg).with("duplicates", own.iter().map(|row| object(row)).collect::<Vec<_>>())
}

fn held_by_an_alias(args: &Args, observed: &Observed, host: &str) -> Failure {
    let holder =
        observed.rows.iter().find(|row| row.uuid == host).map(HostOverrideRow::name).unwrap_or_default();
    let msg = format!(
        "{} is an alias of {holder} on OPNsense, so Unbound would answer both: remove it first, with type CNAME and `state: \
         absent`",
        args.fqdn()
    );
    Failure::refused(msg).with("holder", holder)
}

fn warn_of_another_ptr(args: &Args, observed: &Observed, plan: &mut Plan<Action>) {
    let Some(address) = args.address() else { return };
    let Some(name) = observed.ptr_name(address) else { return };
    if args.ptr && !name.eq_ignore_ascii_case(&args.fqdn()) {
        plan.warn(format!(
            "the PTR record of {address} gives {name}, which stands before {} on OPNsense: it makes one for the first name of an \
             address only",
            args.fqdn()
        ));
    }
}

/// Behind a gate: what is stored is proved before Unbound is stopped and started.
fn apply(args: &Args, observed: &Observed, plan: &mut Plan<Action>) -> Result<(), Failure> {
    let Some(service) = observed.service.as_deref() else { return Ok(()) };
    let stores = !plan.is_empty();
    if service == "disabled" {
        if args.state == State::Present {
            return Err(Failure::refused(
                "Unbound is disabled on OPNsense, so its records have no effect: enable it under Services: Unbound DNS",
            ));
        }
        plan.warn("not applied: Unbound is disabled on OPNsense");
        return Ok(());
    }
    let before = match service {
        "running" if !(stores || observed.pending) => return Ok(()),
        "running" => "running without the stored change",
        other => other,
    };
    plan.gate();
    plan.step(Action::Apply, vec![Change::new(SERVICE, before, "running")]);
    Ok(())
}

#[cfg(test)]
mod tests;
