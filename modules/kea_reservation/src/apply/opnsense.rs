//! Writes on OPNsense.

use ansible_module::Failure;
use api_options::{Mark, opnsense_failure};
use deadline::Deadline;
use net_types::MacAddress;
use opnsense_api::{Error, Opnsense};

use crate::observe::Reservation;
use crate::observe::opnsense::stored_as;
use crate::plan::Put;
use crate::values::{Field, Values, mark};

pub(crate) fn store(
    firewall: &Opnsense,
    pending: &Mark,
    remove: &[Reservation],
    put: Option<&Put>,
    mac: MacAddress,
    deadline: &Deadline,
) -> Result<(), Failure> {
    pending.set()?;
    for one in remove {
        firewall.del_reservation(&one.uuid, deadline).map_err(opnsense_failure)?;
    }
    put.map_or(Ok(()), |put| write(firewall, put, mac, deadline)).map_err(opnsense_failure)
}

fn write(firewall: &Opnsense, put: &Put, mac: MacAddress, deadline: &Deadline) -> Result<(), Error> {
    let mut fields = fields(put);
    let Some(replaces) = &put.replaces else {
        fields.push(("subnet", put.subnet.clone()));
        return add(firewall, &fields, put, mac, deadline);
    };
    firewall.set_reservation(&replaces.uuid, &fields, deadline)
}

/// An addition whose answer was lost is looked for before it is sent again.
fn add(
    firewall: &Opnsense,
    fields: &[(&str, String)],
    put: &Put,
    mac: MacAddress,
    deadline: &Deadline,
) -> Result<(), Error> {
    let error = match firewall.add_reservation(fields, deadline) {
        Err(error) if error.may_have_happened() => error,
        outcome => return outcome.map(drop),
    };
    let rows = firewall.search_reservations(deadline).map_err(|_| error)?;
    let ip = put.values.text(Field::IpAddress);
    let is_there = rows
        .iter()
        .any(|row| row.mac == Some(mac) && row.ip_address.is_some_and(|address| address.to_string() == ip));
    if is_there { Ok(()) } else { firewall.add_reservation(fields, deadline).map(drop) }
}

fn fields(put: &Put) -> Vec<(&'static str, String)> {
    let is_described = |field: &Field| matches!(field, Field::Description | Field::Owner);
    let mut fields: Vec<(&str, String)> = put
        .values
        .iter()
        .filter(|(field, _)| !is_described(field))
        .map(|(field, text)| (stored_as(field), text.to_owned()))
        .collect();
    if put.values.iter().any(|(field, _)| is_described(&field)) {
        let found = put.replaces.as_ref().map(|one| one.values.clone()).unwrap_or_default();
        let result: Values = found.overlaid(&put.values);
        fields.push(("description", mark(result.text(Field::Description), Some(result.text(Field::Owner)))));
    }
    fields
}
