//! Writes on OPNsense.

use ansible_module::Failure;
use api_options::{Mark, opnsense_failure};
use deadline::Deadline;
use dhcp_reservations::opnsense::name_in_kea;
use dhcp_reservations::{Field, OptionData, mark};
use net_types::HostIdentifier;
use opnsense_api::{Error, OPTIONS, Opnsense};

use crate::observe::opnsense::stored_as;
use crate::plan::{Put, Store};

pub(crate) fn store(
    firewall: &Opnsense,
    pending: &Mark,
    store: &Store,
    host: &HostIdentifier,
    deadline: &Deadline,
) -> Result<(), Failure> {
    pending.set()?;
    for one in &store.remove {
        firewall.del_reservation(&one.uuid, deadline).map_err(opnsense_failure)?;
    }
    let put = store.put.as_ref();
    put.map_or(Ok(()), |put| write(firewall, put, host, deadline)).map_err(opnsense_failure)
}

fn write(firewall: &Opnsense, put: &Put, host: &HostIdentifier, deadline: &Deadline) -> Result<(), Error> {
    let mut fields = fields(put);
    let Some(replaces) = &put.replaces else {
        fields.push(("subnet", put.subnet.clone()));
        return add(firewall, &fields, put, host, deadline);
    };
    firewall.set_reservation(&replaces.uuid, &fields, deadline)
}

/// An addition whose answer was lost is looked for before it is sent again.
fn add(
    firewall: &Opnsense,
    fields: &[(&str, String)],
    put: &Put,
    host: &HostIdentifier,
    deadline: &Deadline,
) -> Result<(), Error> {
    let error = match firewall.add_reservation(fields, deadline) {
        Err(error) if error.may_have_happened() => error,
        outcome => return outcome.map(drop),
    };
    let rows = firewall.search_reservations(deadline).map_err(|_| error)?;
    let ip = put.values.text(Field::IpAddress);
    let is_there = rows.iter().any(|row| {
        row.host().as_ref() == Some(host) && row.ip_address.is_some_and(|address| address.to_string() == ip)
    });
    if is_there { Ok(()) } else { firewall.add_reservation(fields, deadline).map(drop) }
}

fn fields(put: &Put) -> Vec<(&'static str, String)> {
    let found = put.replaces.as_ref().map(|one| one.values.clone()).unwrap_or_default();
    let result = found.overlaid(&put.values);
    let mut fields = Vec::new();
    let mut is_described = false;
    for (field, text) in put.values.iter() {
        match field {
            Field::Description | Field::Owner => is_described = true,
            Field::OptionData => fields.extend(option_fields(text)),
            Field::ClientClasses => {}
            Field::ClientId => fields.push((stored_as(field), text.to_ascii_uppercase())),
            _ => fields.push((stored_as(field), text.to_owned())),
        }
    }
    if is_described {
        fields.push(("description", mark(result.text(Field::Description), Some(result.text(Field::Owner)))));
    }
    fields
}

/// Every option: those that are not in the list are emptied.
fn option_fields(text: &str) -> impl Iterator<Item = (&'static str, String)> {
    let options = OptionData::from_text(text);
    OPTIONS.into_iter().map(move |field| {
        let name = name_in_kea(field);
        let option = options.iter().find(|option| option.name.as_deref() == Some(&name));
        (field, option.map(|option| option.data.replace(", ", ",")).unwrap_or_default())
    })
}
