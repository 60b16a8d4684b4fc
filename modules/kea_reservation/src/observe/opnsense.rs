//! Reads on OPNsense.

use ansible_module::{ErrorCode, Failure};
use api_options::opnsense_failure;
use deadline::Deadline;
use dhcp_reservations::Field;
use dhcp_reservations::opnsense::{FIELDS, all, read_form, subnets, within};
use net_types::Ipv4Cidr;
use opnsense_api::{KeaGeneral, OPTIONS, Opnsense, ReservationRow, Service};

use super::{Lease, Observed};
use crate::args::{Args, State, SubnetName};
use crate::plan;

/// Since when a field is stored (models/OPNsense/Kea/KeaDhcpv4.xml, by tag).
const SINCE: [(Field, &str); 5] = [
    (Field::ClientId, "OPNsense 26.1.8"),
    (Field::NextServer, "OPNsense 26.1.9"),
    (Field::BootFileName, "OPNsense 25.7"),
    (Field::TftpServerName, "OPNsense 25.7"),
    (Field::OptionData, "OPNsense 25.7"),
];

pub(crate) fn observe(
    firewall: &Opnsense,
    args: &Args,
    pending: bool,
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    let rows = firewall.search_reservations(deadline).map_err(opnsense_failure)?;
    let general = firewall.kea_general(deadline).map_err(opnsense_failure)?;
    let mut observed = Observed { off: off(general), pending, ..Observed::of(all(&rows)) };
    if needs_form(args, &rows, &observed) {
        look_closer(&mut observed, firewall, args, &rows, deadline)?;
    }
    if args.apply {
        let status = firewall.service_status(Service::Kea, deadline).map_err(opnsense_failure)?;
        observed.service = Some(status.as_str().to_owned());
    }
    let writes = plan::differs(args, &observed);
    if writes || args.netboot.is_some() {
        read_subnet(&mut observed, firewall, args, deadline)?;
    }
    if writes || args.clear_lease {
        observed.lease = lease(firewall, args, deadline)?;
    }
    if args.clear_lease && matches!(observed.lease, Lease::Other(_)) {
        observed.can_clear_lease = firewall.knows_del_lease(deadline).map_err(opnsense_failure)?;
    }
    Ok(observed)
}

/// From 25.7 on the rows tell all that there is to know of a reservation that is right.
fn needs_form(args: &Args, rows: &[ReservationRow], observed: &Observed) -> bool {
    match rows.iter().find(|row| is_own(row, args)) {
        Some(row) => row.subnet_uuid.is_none() || plan::differs(args, observed),
        None => args.state == State::Present || args.subnet.is_some(),
    }
}

/// The own reservation in full or an empty one: it shows every subnet, and the fields this release knows.
fn look_closer(
    observed: &mut Observed,
    firewall: &Opnsense,
    args: &Args,
    rows: &[ReservationRow],
    deadline: &Deadline,
) -> Result<(), Failure> {
    let own = rows.iter().position(|row| is_own(row, args));
    let uuid = own.map(|place| rows[place].uuid.as_str());
    let form = firewall.get_reservation(uuid, deadline).map_err(opnsense_failure)?.ok_or_else(|| {
        let msg = format!("somebody removed the reservation of {} while it was read: run again", args.host);
        Failure::new(ErrorCode::CONFLICT, msg)
    })?;
    observed.lacking = SINCE.into_iter().filter(|(field, _)| !form.knows(stored_as(*field))).collect();
    let all = within(subnets(&form), rows);
    (observed.subnets, observed.reservations) = (all.subnets, all.reservations);
    if let Some(place) = own {
        read_form(&mut observed.reservations[place].values, &form);
    }
    Ok(())
}

/// The row to read in full.
fn is_own(row: &ReservationRow, args: &Args) -> bool {
    let cidr = || row.subnet.parse::<Ipv4Cidr>().ok();
    row.host().as_ref() == Some(&args.host)
        && match (&args.subnet, args.ip) {
            (Some(SubnetName::Cidr(wanted)), _) => cidr().is_some_and(|cidr| cidr.network() == *wanted),
            (_, Some(ip)) => cidr().is_some_and(|cidr| cidr.contains(ip)),
            _ => true,
        }
}

/// Where OPNsense keeps a field; of the options, which it knows all or none, the first.
pub(crate) fn stored_as(field: Field) -> &'static str {
    if field == Field::OptionData {
        return OPTIONS[0];
    }
    FIELDS.iter().find(|(known, _)| *known == field).map_or("description", |(_, name)| name)
}

fn off(general: KeaGeneral) -> Option<String> {
    if !general.enabled {
        return Some("Kea DHCPv4 is disabled on OPNsense: enable it under Services: Kea DHCP".to_owned());
    }
    general.manual_config.then(|| {
        "Kea DHCPv4 is configured by hand on OPNsense (Manual config), so reservations that the API stores have no \
         effect: switch that off under Services: Kea DHCP"
            .to_owned()
    })
}

/// What a list of reservations does not show of their subnet.
fn read_subnet(
    observed: &mut Observed,
    firewall: &Opnsense,
    args: &Args,
    deadline: &Deadline,
) -> Result<(), Failure> {
    let Some(key) = observed.subnet(args).map(|subnet| subnet.key.clone()) else { return Ok(()) };
    let form = firewall.get_subnet(&key, deadline).map_err(opnsense_failure)?.unwrap_or_default();
    for subnet in observed.subnets.iter_mut().filter(|subnet| subnet.key == key) {
        let routers = form.text("option_data.routers").split(',');
        subnet.routers = routers.filter_map(|text| text.trim().parse().ok()).collect();
        subnet.next_server = form.text("next_server").parse().ok();
        // Before 25.1 there is no such field, and Kea's default counts.
        subnet.match_client_id = form.text("match-client-id") != "0";
    }
    Ok(())
}

/// A key without the privilege for leases, or a release without them, leaves the question open.
fn lease(firewall: &Opnsense, args: &Args, deadline: &Deadline) -> Result<Lease, Failure> {
    let Some(ip) = args.ip else { return Ok(Lease::NotChecked) };
    match firewall.leases_of(ip, deadline) {
        Ok(leases) => {
            let active = leases.into_iter().find(|lease| lease.active);
            Ok(active.map_or(Lease::Free, |lease| Lease::of(lease.mac, lease.client_id.as_ref(), &args.host)))
        }
        Err(error) if error.is_unavailable() => Ok(Lease::NotChecked),
        Err(error) => Err(opnsense_failure(error)),
    }
}
