//! Reads on OPNsense.

use ansible_module::{ErrorCode, Failure};
use api_options::opnsense_failure;
use deadline::Deadline;
use net_types::Ipv4Cidr;
use opnsense_api::{KeaGeneral, Opnsense, ReservationRow, Service};

use super::{Lease, Observed, Reservation, Subnet};
use crate::args::{Args, State, SubnetName};
use crate::plan;
use crate::values::{Field, Values, unmark};

/// The fields of the model, as OPNsense names them.
pub(crate) const FIELDS: [(Field, &str); 6] = [
    (Field::HwAddress, "hw_address"),
    (Field::IpAddress, "ip_address"),
    (Field::Hostname, "hostname"),
    (Field::NextServer, "next_server"),
    (Field::BootFileName, "option_data.boot_file_name"),
    (Field::TftpServerName, "option_data.tftp_server_name"),
];

/// Since when a field is stored (models/OPNsense/Kea/KeaDhcpv4.xml, by tag).
const SINCE: [(Field, &str); 3] = [
    (Field::NextServer, "OPNsense 26.1.9"),
    (Field::BootFileName, "OPNsense 25.7"),
    (Field::TftpServerName, "OPNsense 25.7"),
];

pub(crate) fn observe(
    firewall: &Opnsense,
    args: &Args,
    pending: bool,
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    let rows = firewall.search_reservations(deadline).map_err(opnsense_failure)?;
    let general = firewall.kea_general(deadline).map_err(opnsense_failure)?;
    let mut observed = Observed { off: off(general), pending, ..Observed::default() };
    read_rows(&mut observed, &rows);
    if needs_form(args, &rows, &observed) {
        read_form(&mut observed, firewall, args, &rows, deadline)?;
    }
    if args.apply {
        let status = firewall.service_status(Service::Kea, deadline).map_err(opnsense_failure)?;
        observed.service = Some(status.as_str().to_owned());
    }
    let writes = plan::differs(args, &observed);
    if writes {
        add_what_a_write_needs(&mut observed, firewall, args, deadline)?;
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

fn read_rows(observed: &mut Observed, rows: &[ReservationRow]) {
    for row in rows {
        let (Some(key), Ok(cidr)) = (&row.subnet_uuid, row.subnet.parse()) else { continue };
        if !observed.subnets.iter().any(|subnet| subnet.key == *key) {
            observed.subnets.push(subnet(key.clone(), cidr));
        }
    }
    observed.reservations = rows.iter().map(|row| reservation(row, observed)).collect();
}

/// The own reservation in full or an empty one: it shows every subnet, and the fields this release knows.
fn read_form(
    observed: &mut Observed,
    firewall: &Opnsense,
    args: &Args,
    rows: &[ReservationRow],
    deadline: &Deadline,
) -> Result<(), Failure> {
    let own = rows.iter().position(|row| is_own(row, args));
    let uuid = own.map(|place| rows[place].uuid.as_str());
    let form = firewall.get_reservation(uuid, deadline).map_err(opnsense_failure)?.ok_or_else(|| {
        let msg = format!("somebody removed the reservation of {} while it was read: run again", args.mac);
        Failure::new(ErrorCode::CONFLICT, msg)
    })?;
    let choices = form.choices("subnet").iter();
    observed.subnets =
        choices.filter_map(|choice| Some(subnet(choice.key.clone(), choice.label.parse().ok()?))).collect();
    observed.lacking = SINCE.into_iter().filter(|(field, _)| !form.knows(stored_as(*field))).collect();
    observed.reservations = rows.iter().map(|row| reservation(row, observed)).collect();
    if let Some(place) = own {
        let values = &mut observed.reservations[place].values;
        FIELDS.iter().for_each(|(field, name)| values.set(*field, form.text(name)));
        describe(values, form.text("description"));
    }
    Ok(())
}

/// The row to read in full.
fn is_own(row: &ReservationRow, args: &Args) -> bool {
    let cidr = || row.subnet.parse::<Ipv4Cidr>().ok();
    row.mac == Some(args.mac)
        && match (&args.subnet, args.ip) {
            (Some(SubnetName::Cidr(wanted)), _) => cidr().is_some_and(|cidr| cidr.network() == *wanted),
            (_, Some(ip)) => cidr().is_some_and(|cidr| cidr.contains(ip)),
            _ => true,
        }
}

pub(crate) fn stored_as(field: Field) -> &'static str {
    FIELDS.iter().find(|(known, _)| *known == field).map_or("description", |(_, name)| name)
}

fn subnet(key: String, cidr: Ipv4Cidr) -> Subnet {
    Subnet { key, cidr, routers: Vec::new(), next_server: None, forbidden: Vec::new() }
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

fn reservation(row: &ReservationRow, observed: &Observed) -> Reservation {
    let mut values: Values = [
        (Field::HwAddress, row.hw_address.clone()),
        (Field::IpAddress, row.ip_address.map(|ip| ip.to_string()).unwrap_or_default()),
        (Field::Hostname, row.hostname.clone()),
        (Field::NextServer, row.next_server.clone().unwrap_or_default()),
        (Field::BootFileName, row.boot_file_name.clone().unwrap_or_default()),
        (Field::TftpServerName, row.tftp_server_name.clone().unwrap_or_default()),
    ]
    .into_iter()
    .collect();
    describe(&mut values, &row.description);
    let subnet = observed.subnets.iter().find(|subnet| subnet.cidr.to_string() == row.subnet);
    Reservation {
        uuid: row.uuid.clone(),
        subnet: subnet.map(|subnet| subnet.key.clone()).unwrap_or_default(),
        mac: row.mac,
        identifier: if row.hw_address.is_empty() { "a client id".to_owned() } else { row.hw_address.clone() },
        values,
    }
}

fn describe(values: &mut Values, description: &str) {
    let (text, owner) = unmark(description);
    values.set(Field::Description, text);
    values.set(Field::Owner, owner);
}

fn add_what_a_write_needs(
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
    }
    Ok(())
}

/// A key without the privilege for leases, or a release without them, leaves the question open.
pub(crate) fn lease(firewall: &Opnsense, args: &Args, deadline: &Deadline) -> Result<Lease, Failure> {
    let Some(ip) = args.ip else { return Ok(Lease::NotChecked) };
    match firewall.leases_of(ip, deadline) {
        Ok(leases) => {
            let holder = leases.into_iter().find(|lease| lease.active).map(|lease| lease.mac);
            Ok(Lease::of(holder, args.mac))
        }
        Err(error) if error.is_unavailable() => Ok(Lease::NotChecked),
        Err(error) => Err(opnsense_failure(error)),
    }
}
