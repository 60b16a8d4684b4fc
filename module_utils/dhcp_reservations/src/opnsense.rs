//! From the rows and forms of OPNsense.

use opnsense_api::{Form, OPTIONS, ReservationRow};

use crate::{Field, OptionData, Reservation, Reservations, Subnet, Values, unmark};

/// The fields of the model that are plain texts, as OPNsense names them.
pub const FIELDS: [(Field, &str); 7] = [
    (Field::HwAddress, "hw_address"),
    (Field::ClientId, "client_id"),
    (Field::IpAddress, "ip_address"),
    (Field::Hostname, "hostname"),
    (Field::NextServer, "next_server"),
    (Field::BootFileName, "option_data.boot_file_name"),
    (Field::TftpServerName, "option_data.tftp_server_name"),
];

/// What Kea calls one of [`OPTIONS`].
#[must_use]
pub fn name_in_kea(field: &str) -> String {
    field.trim_start_matches("option_data.").replace('_', "-")
}

/// What the rows tell: of the subnets only those that have a reservation, and none before 25.7.
#[must_use]
pub fn all(rows: &[ReservationRow]) -> Reservations {
    let mut subnets: Vec<Subnet> = Vec::new();
    for row in rows {
        let (Some(key), Ok(cidr)) = (&row.subnet_uuid, row.subnet.parse()) else { continue };
        if !subnets.iter().any(|subnet| subnet.key == *key) {
            subnets.push(Subnet::bare(key.clone(), cidr));
        }
    }
    within(subnets, rows)
}

/// The reservations of the rows in subnets that are known from elsewhere.
#[must_use]
pub fn within(subnets: Vec<Subnet>, rows: &[ReservationRow]) -> Reservations {
    let reservations = rows.iter().map(|row| reservation(row, &subnets)).collect();
    Reservations { subnets, reservations }
}

/// The subnets that a reservation's form offers.
#[must_use]
pub fn subnets(form: &Form) -> Vec<Subnet> {
    let choices = form.choices("subnet").iter();
    choices.filter_map(|choice| Some(Subnet::bare(choice.key.clone(), choice.label.parse().ok()?))).collect()
}

/// Reads a reservation's own form into it: before 25.7 a row leaves out most fields.
pub fn read_form(values: &mut Values, form: &Form) {
    FIELDS.iter().for_each(|(field, name)| values.set(*field, form.text(name)));
    normalise_client_id(values);
    let options = OPTIONS.map(|name| (name, form.text(name).to_owned()));
    values.set(Field::OptionData, option_data(options));
    describe(values, form.text("description"));
}

fn reservation(row: &ReservationRow, subnets: &[Subnet]) -> Reservation {
    let client_id = row.client_id.as_ref().map(ToString::to_string);
    let mut values: Values = [
        (Field::HwAddress, row.hw_address.clone()),
        (Field::ClientId, client_id.clone().unwrap_or_default()),
        (Field::IpAddress, row.ip_address.map(|ip| ip.to_string()).unwrap_or_default()),
        (Field::Hostname, row.hostname.clone()),
        (Field::NextServer, row.next_server.clone().unwrap_or_default()),
        (Field::BootFileName, row.boot_file_name.clone().unwrap_or_default()),
        (Field::TftpServerName, row.tftp_server_name.clone().unwrap_or_default()),
        (Field::OptionData, option_data(row.option_data.clone())),
    ]
    .into_iter()
    .collect();
    describe(&mut values, &row.description);
    let subnet = subnets.iter().find(|subnet| subnet.cidr.to_string() == row.subnet);
    Reservation {
        uuid: row.uuid.clone(),
        subnet: subnet.map(|subnet| subnet.key.clone()).unwrap_or_default(),
        host: row.host(),
        identifier: match client_id {
            Some(client_id) if row.hw_address.is_empty() => format!("client-id {client_id}"),
            _ => row.hw_address.clone(),
        },
        values,
    }
}

/// OPNsense stores it in upper case, Kea shows it in lower case.
fn normalise_client_id(values: &mut Values) {
    let text = values.text(Field::ClientId).to_ascii_lowercase();
    values.set(Field::ClientId, text);
}

fn option_data(options: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let set = options.into_iter().filter(|(_, data)| !data.is_empty());
    OptionData::to_text(set.map(|(name, data)| OptionData::named(&name_in_kea(name), data)).collect())
}

fn describe(values: &mut Values, description: &str) {
    let (text, owner) = unmark(description);
    values.set(Field::Description, text);
    values.set(Field::Owner, owner);
}
