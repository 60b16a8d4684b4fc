//! Writes on plain Kea.

use std::net::Ipv4Addr;

use ansible_module::{ErrorCode, Failure};
use api_options::{Mark, kea_failure};
use deadline::Deadline;
use dhcp_reservations::kea::{COMMENT, OWNER, TFTP_SERVER_NAME, is_option_data};
use dhcp_reservations::{Field, OptionData, Values};
use kea_api::{Dhcp4Config, Error, HostChange, Server};
use net_types::HostIdentifier;
use serde_json::Value;

use crate::observe::Observed;
use crate::plan::Store;

/// At no moment do two reservations hold one address: a change of one host that no other can be in the way of is one host
/// command, where there are any; every other change is one configuration with everything in it.
pub(crate) fn store(
    server: &Server,
    pending: &Mark,
    observed: &Observed,
    store: &Store,
    host: &HostIdentifier,
    deadline: &Deadline,
) -> Result<(), Failure> {
    let before = observed
        .config
        .as_ref()
        .ok_or_else(|| Failure::new(ErrorCode::INTERNAL, "Kea's configuration was not read"))?;
    let (after, subnet, touched) = edited(before, store, host)?;
    let was_pending = pending.is_set();
    pending.set()?;
    let outcome = match host_change(before, &after, subnet, host, store) {
        Some(change) if observed.host_commands => server.change_host(subnet, &change, deadline),
        _ => server.replace(before, &after, deadline),
    };
    let nothing_happened = matches!(
        outcome,
        Err(Error::Refused { .. }
            | Error::NoFile(_)
            | Error::Raced
            | Error::NotPersisted { restored: Ok(()), .. })
    );
    if outcome.is_ok() || (nothing_happened && !was_pending) {
        pending.clear()?;
    }
    outcome.map_err(kea_failure)?;
    let now = server.config_get(deadline).map_err(kea_failure)?;
    if now.same_but_for(before, subnet, &touched) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::CONFLICT,
        "after the write, Kea's configuration differs from the one before in more than this reservation: somebody else \
         changed it at the same moment; compare it with your backup",
    ))
}

fn host_change(
    before: &Dhcp4Config,
    after: &Dhcp4Config,
    subnet: u64,
    host: &HostIdentifier,
    store: &Store,
) -> Option<HostChange> {
    if !store.is_of_one_host() {
        return None;
    }
    let host = store.remove.first().map_or(Some(host), |one| one.host.as_ref());
    match (found(before, subnet, host), found(after, subnet, host)) {
        (None, Some(new)) => Some(HostChange::Add(new)),
        (Some(old), None) => Some(HostChange::Del(old)),
        (Some(old), Some(new)) if old.ip() == new.ip() => Some(HostChange::Update { old, new }),
        _ => None,
    }
}

/// The new configuration, the subnet it differs in, and the hosts whose reservations differ.
fn edited(
    before: &Dhcp4Config,
    store: &Store,
    host: &HostIdentifier,
) -> Result<(Dhcp4Config, u64, Vec<HostIdentifier>), Failure> {
    let mut after = before.clone();
    let mut touched = vec![host.clone()];
    let mut subnet = 0;
    for one in &store.remove {
        let Some(stale) = &one.host else { continue };
        subnet = number(&one.subnet)?;
        after.remove(subnet, stale).map_err(kea_failure)?;
        touched.push(stale.clone());
    }
    if let Some(put) = &store.put {
        subnet = number(&put.subnet)?;
        let replaces = put.replaces.as_ref().and_then(|one| one.host.as_ref());
        let mut reservation = found(before, subnet, replaces).unwrap_or_default();
        reservation.set_host(host);
        fill(&mut reservation, &put.values)?;
        after.put(subnet, replaces, reservation).map_err(kea_failure)?;
        touched.extend(replaces.cloned());
    }
    Ok((after, subnet, touched))
}

fn number(subnet_id: &str) -> Result<u64, Failure> {
    subnet_id
        .parse()
        .map_err(|_| Failure::new(ErrorCode::INTERNAL, format!("`{subnet_id}` is not a subnet-id")))
}

fn found(config: &Dhcp4Config, subnet: u64, host: Option<&HostIdentifier>) -> Option<kea_api::Reservation> {
    let subnet = config.subnets().into_iter().find(|one| one.id == subnet)?;
    subnet.reservations.into_iter().find(|one| host.is_some() && one.host().as_ref() == host)
}

fn fill(reservation: &mut kea_api::Reservation, values: &Values) -> Result<(), Failure> {
    for (field, text) in values.iter() {
        match field {
            Field::HwAddress | Field::ClientId => {}
            Field::IpAddress => reservation.set_ip(address(text)?),
            Field::Hostname => reservation.set_hostname(text),
            Field::NextServer if text.is_empty() => reservation.set_next_server(None),
            Field::NextServer => reservation.set_next_server(Some(address(text)?)),
            Field::BootFileName => reservation.set_boot_file_name(text),
            Field::TftpServerName => reservation.set_option(TFTP_SERVER_NAME, text),
            Field::OptionData => set_option_data(reservation, text),
            Field::ClientClasses => {
                reservation.set_client_classes(serde_json::from_str(text).unwrap_or_default());
            }
            Field::Description => reservation.set_context(COMMENT, text_or_null(text)),
            Field::Owner => reservation.set_context(OWNER, text_or_null(text)),
        }
    }
    Ok(())
}

/// Option 66 and options of vendors' spaces stay.
fn set_option_data(reservation: &mut kea_api::Reservation, text: &str) {
    let others = reservation.options().filter(|entry| !is_option_data(entry)).cloned();
    let options = others.chain(OptionData::from_text(text).iter().map(OptionData::to_kea)).collect();
    reservation.set_options(options);
}

fn address(text: &str) -> Result<Ipv4Addr, Failure> {
    text.parse().map_err(|_| Failure::new(ErrorCode::INTERNAL, format!("{text} is not an IPv4 address")))
}

fn text_or_null(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// What runs already goes into the file: the end of a run that was cut short.
pub(crate) fn persist(server: &Server, pending: &Mark, deadline: &Deadline) -> Result<(), Failure> {
    server.persist(deadline).map_err(kea_failure)?;
    pending.clear()
}
