//! Reads on OPNsense.

use ansible_module::Failure;
use api_options::opnsense_failure;
use deadline::Deadline;
use net_types::Ipv4Cidr;
use opnsense_api::{Form, KeaGeneral, Opnsense, ReservationRow, Service};

use super::{Lease, Observed, Reservation, Subnet};
use crate::args::{Args, SubnetName};
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
    let uuid = rows.iter().find(|row| is_own(row, args)).map(|row| row.uuid.as_str());
    let form = firewall.get_reservation(uuid, deadline).map_err(opnsense_failure)?.unwrap_or_default();
    let general = firewall.kea_general(deadline).map_err(opnsense_failure)?;
    let mut observed = Observed {
        subnets: subnets(&form),
        lacking: SINCE.into_iter().filter(|(field, _)| !form.knows(stored_as(*field))).collect(),
        off: off(general),
        pending,
        ..Observed::default()
    };
    observed.reservations =
        rows.iter().map(|row| reservation(row, Some(row.uuid.as_str()) == uuid, &form, &observed)).collect();
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

fn subnets(form: &Form) -> Vec<Subnet> {
    let choices = form.choices("subnet").iter();
    choices
        .filter_map(|choice| {
            Some(Subnet {
                key: choice.key.clone(),
                cidr: choice.label.parse().ok()?,
                routers: Vec::new(),
                next_server: None,
                forbidden: Vec::new(),
            })
        })
        .collect()
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

/// `read`: the form is this row's.
fn reservation(row: &ReservationRow, read: bool, form: &Form, observed: &Observed) -> Reservation {
    let mut values: Values = [
        (Field::HwAddress, row.hw_address.clone()),
        (Field::IpAddress, row.ip_address.map(|ip| ip.to_string()).unwrap_or_default()),
        (Field::Hostname, row.hostname.clone()),
    ]
    .into_iter()
    .collect();
    let mut description = row.description.as_str();
    if read {
        FIELDS.iter().for_each(|(field, name)| values.set(*field, form.text(name)));
        description = form.text("description");
    }
    let (text, owner) = unmark(description);
    values.set(Field::Description, text);
    values.set(Field::Owner, owner);
    let subnet = observed.subnets.iter().find(|subnet| subnet.cidr.to_string() == row.subnet);
    Reservation {
        uuid: row.uuid.clone(),
        subnet: subnet.map(|subnet| subnet.key.clone()).unwrap_or_default(),
        mac: row.mac,
        identifier: if row.hw_address.is_empty() { "a client id".to_owned() } else { row.hw_address.clone() },
        values,
    }
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
