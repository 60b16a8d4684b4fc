//! Every read.

use ansible_module::Failure;
use api_options::{kea_failure, opnsense_failure};
use deadline::Deadline;
use dhcp_reservations::{Reservations, kea, opnsense};
use kea_api::Server;
use opnsense_api::Opnsense;

pub(crate) fn on_kea(server: &Server, deadline: &Deadline) -> Result<Reservations, Failure> {
    let config = server.config_get(deadline).map_err(kea_failure)?;
    Ok(kea::all(&config))
}

/// Before 25.7 the rows name no subnet by its UUID: an empty form lists them.
pub(crate) fn on_opnsense(firewall: &Opnsense, deadline: &Deadline) -> Result<Reservations, Failure> {
    let rows = firewall.search_reservations(deadline).map_err(opnsense_failure)?;
    if rows.iter().all(|row| row.subnet_uuid.is_some()) {
        return Ok(opnsense::all(&rows));
    }
    let form = firewall.get_reservation(None, deadline).map_err(opnsense_failure)?.unwrap_or_default();
    Ok(opnsense::within(opnsense::subnets(&form), &rows))
}
