//! Writes on plain Kea.

use std::net::Ipv4Addr;

use ansible_module::{ErrorCode, Failure};
use api_options::{Mark, kea_failure};
use deadline::Deadline;
use kea_api::{Dhcp4Config, Error, Server};
use net_types::MacAddress;
use serde_json::Value;

use crate::observe::Reservation;
use crate::observe::kea::{COMMENT, OWNER, TFTP_SERVER_NAME};
use crate::plan::Put;
use crate::values::{Field, Values};

/// One configuration with everything in it: at no moment do two reservations hold one address.
pub(crate) fn store(
    server: &Server,
    pending: &Mark,
    before: &Dhcp4Config,
    remove: &[Reservation],
    put: Option<&Put>,
    mac: MacAddress,
    deadline: &Deadline,
) -> Result<(), Failure> {
    let (after, subnet, touched) = edited(before, remove, put, mac)?;
    let was_pending = pending.is_set();
    pending.set()?;
    let outcome = server.replace(before, &after, deadline);
    let nothing_happened = matches!(
        outcome,
        Err(Error::Refused { .. } | Error::Raced | Error::NotPersisted { restored: Ok(()), .. })
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

/// The new configuration, the subnet it differs in, and the MAC addresses whose reservations differ.
fn edited(
    before: &Dhcp4Config,
    remove: &[Reservation],
    put: Option<&Put>,
    mac: MacAddress,
) -> Result<(Dhcp4Config, u64, Vec<MacAddress>), Failure> {
    let mut after = before.clone();
    let mut touched = vec![mac];
    let mut subnet = 0;
    for one in remove {
        let Some(stale) = one.mac else { continue };
        subnet = number(&one.subnet)?;
        after.remove(subnet, stale).map_err(kea_failure)?;
        touched.push(stale);
    }
    if let Some(put) = put {
        subnet = number(&put.subnet)?;
        let replaces = put.replaces.as_ref().and_then(|one| one.mac);
        let mut reservation = found(before, subnet, replaces).unwrap_or_default();
        reservation.set_mac(mac);
        fill(&mut reservation, &put.values)?;
        after.put(subnet, replaces, reservation).map_err(kea_failure)?;
        touched.extend(replaces);
    }
    Ok((after, subnet, touched))
}

fn number(subnet_id: &str) -> Result<u64, Failure> {
    subnet_id
        .parse()
        .map_err(|_| Failure::new(ErrorCode::INTERNAL, format!("`{subnet_id}` is not a subnet-id")))
}

fn found(config: &Dhcp4Config, subnet: u64, mac: Option<MacAddress>) -> Option<kea_api::Reservation> {
    let subnet = config.subnets().into_iter().find(|one| one.id == subnet)?;
    subnet.reservations.into_iter().find(|one| one.mac().is_some() && one.mac() == mac)
}

fn fill(reservation: &mut kea_api::Reservation, values: &Values) -> Result<(), Failure> {
    for (field, text) in values.iter() {
        match field {
            Field::HwAddress => {}
            Field::IpAddress => reservation.set_ip(address(text)?),
            Field::Hostname => reservation.set_hostname(text),
            Field::NextServer if text.is_empty() => reservation.set_next_server(None),
            Field::NextServer => reservation.set_next_server(Some(address(text)?)),
            Field::BootFileName => reservation.set_boot_file_name(text),
            Field::TftpServerName => reservation.set_option(TFTP_SERVER_NAME, text),
            Field::Description => reservation.set_context(COMMENT, text_or_null(text)),
            Field::Owner => reservation.set_context(OWNER, text_or_null(text)),
        }
    }
    Ok(())
}

fn address(text: &str) -> Result<Ipv4Addr, Failure> {
    text.parse().map_err(|_| Failure::new(ErrorCode::INTERNAL, format!("{text} is not an IPv4 address")))
}

fn text_or_null(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// What runs already goes into the file: the end of a run that was cut short.
pub(crate) fn persist(server: &Server, pending: &Mark, deadline: &Deadline) -> Result<(), Failure> {
    server.config_write(deadline).map_err(kea_failure)?;
    pending.clear()
}
