//! Pure: which service reads its configuration, and whether the batch holds.

use ansible_module::{Change, ErrorCode, Failure, Plan};
use net_types::HostIdentifier;
use opnsense_api::{HostOverrideRow, ReservationRow, Service};
use serde_json::{Map, Value, json};

use crate::args::{Args, Record, Reservation};
use crate::observe::{Observed, Seen};

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Reconfigure(Service),
}

/// An entry of the batch, what is asked of it and what the firewall holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) service: Service,
    pub(crate) field: String,
    pub(crate) asked: Value,
    pub(crate) found: Value,
    /// What the firewall holds as an object of the result.
    pub(crate) shown: Value,
}

impl Entry {
    fn holds(&self) -> bool {
        self.asked == self.found
    }
}

/// `check_mode`: what the batch's tasks did not store is something they would have stored.
pub(crate) fn plan(args: &Args, observed: &Observed, check_mode: bool) -> Result<Plan<Action>, Failure> {
    let entries = entries(args, observed);
    if !check_mode {
        refuse_what_does_not_hold(&entries)?;
    }
    let mut plan = Plan::new();
    for seen in &observed.services {
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.service == seen.service).collect();
        reconfigure(args, seen, &own, &mut plan)?;
    }
    Ok(plan)
}

fn reconfigure(args: &Args, seen: &Seen, batch: &[&Entry], plan: &mut Plan<Action>) -> Result<(), Failure> {
    let name = seen.service.name();
    if seen.status == "disabled" {
        return Err(Failure::refused(format!(
            "{name} is disabled on OPNsense, so what is stored for it has no effect: enable it there"
        ))
        .with("service", name));
    }
    let would_be_stored = batch.iter().any(|entry| !entry.holds());
    let before = match seen.status.as_str() {
        "running" if !(seen.pending || would_be_stored || args.force) => return Ok(()),
        "running" => "running without what was stored last",
        other => other,
    };
    let mut changes = vec![Change::new(field_of(seen.service), before, "running")];
    changes.extend(
        batch.iter().map(|entry| Change::new(entry.field.as_str(), entry.found.clone(), entry.asked.clone())),
    );
    plan.step(Action::Reconfigure(seen.service), changes);
    Ok(())
}

/// The change that stands for a service reading its configuration.
pub(crate) fn field_of(service: Service) -> String {
    format!("{}.service", service.name())
}

fn refuse_what_does_not_hold(entries: &[Entry]) -> Result<(), Failure> {
    let wrong: Vec<&Entry> = entries.iter().filter(|entry| !entry.holds()).collect();
    let Some(first) = wrong.first() else { return Ok(()) };
    let sentences: Vec<String> = wrong
        .iter()
        .map(|entry| format!("{}: asked for {}, found {}", entry.field, entry.asked, entry.found))
        .collect();
    let mismatches: Vec<Value> = wrong
        .iter()
        .map(|entry| json!({"field": entry.field, "expected": entry.asked, "found": entry.found}))
        .collect();
    let msg = format!(
        "{} of {} entries of the batch are not stored as they should be, and nothing was applied: {}",
        wrong.len(),
        entries.len(),
        sentences.join("; ")
    );
    Err(Failure::new(ErrorCode::READ_BACK_MISMATCH, msg)
        .with("field", first.field.clone())
        .with("mismatches", mismatches))
}

pub(crate) fn entries(args: &Args, observed: &Observed) -> Vec<Entry> {
    let reservations = args.reservations.iter().map(|asked| reservation(asked, observed));
    let records = args.records.iter().map(|asked| record(asked, observed));
    reservations.chain(records).collect()
}

fn reservation(asked: &Reservation, observed: &Observed) -> Entry {
    let host = asked.host();
    // One MAC address may have a reservation in every subnet.
    let own = observed.reservations.iter().filter(|row| row.host().is_some() && row.host() == host);
    let right = |row: &&ReservationRow| row.ip_address == Some(asked.ip_address);
    let row = own.clone().find(right).or_else(|| own.clone().next());
    let mut wanted = Map::new();
    wanted.insert("ip_address".into(), asked.ip_address.to_string().into());
    let fields = [
        ("hostname", &asked.hostname),
        ("next_server", &asked.next_server),
        ("boot_file_name", &asked.boot_file_name),
        ("tftp_server_name", &asked.tftp_server_name),
    ];
    for (name, text) in fields {
        wanted.extend(text.clone().map(|text| (name.to_owned(), text.into())));
    }
    let found = row.map_or(Value::Null, |row| {
        let fields = wanted.iter().map(|(name, text)| (name.clone(), found_text(row, name, text)));
        Value::Object(fields.collect())
    });
    let (key, identifier) = match &host {
        Some(HostIdentifier::ClientId(client_id)) => ("client_id", client_id.to_string()),
        host => ("hw_address", host.as_ref().map(ToString::to_string).unwrap_or_default()),
    };
    let mut shown = Map::from_iter([(key.to_owned(), identifier.as_str().into())]);
    shown.extend(found.as_object().cloned().unwrap_or_default());
    Entry {
        service: Service::Kea,
        field: format!("reservation[{identifier} {}]", asked.ip_address),
        asked: Value::Object(wanted),
        found,
        shown: shown.into(),
    }
}

/// A field of a row; a hostname is taken as it is asked for when only its case differs.
fn found_text(row: &ReservationRow, name: &str, asked: &Value) -> Value {
    let known = |text: &Option<String>| text.clone().unwrap_or_default();
    let text = match name {
        "ip_address" => row.ip_address.map(|ip| ip.to_string()).unwrap_or_default(),
        "hostname" => row.hostname.clone(),
        "next_server" => known(&row.next_server),
        "boot_file_name" => known(&row.boot_file_name),
        _ => known(&row.tftp_server_name),
    };
    match asked.as_str() {
        Some(asked) if name == "hostname" && asked.eq_ignore_ascii_case(&text) => asked.into(),
        _ => text.into(),
    }
}

fn record(asked: &Record, observed: &Observed) -> Entry {
    let name = asked.fqdn();
    let is_it = |row: &&HostOverrideRow| row.enabled && row.rr == asked.rr && row.name() == name;
    let servers: Vec<Value> = observed
        .records
        .iter()
        .filter(is_it)
        .map(|row| row.server.map_or(Value::Null, |server| server.to_string().into()))
        .collect();
    let found = match &servers[..] {
        [] => Value::Null,
        [one] => one.clone(),
        _ => Value::Array(servers),
    };
    let shown = json!({"hostname": asked.hostname, "domain": asked.domain, "rr": asked.rr, "server": found});
    Entry {
        service: Service::Unbound,
        field: format!("record[{name} {}]", asked.rr),
        asked: asked.server.to_string().into(),
        found,
        shown,
    }
}

#[cfg(test)]
mod tests;
