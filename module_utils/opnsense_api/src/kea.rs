//! Kea reservations, subnets and leases (Kea/Api/Dhcpv4Controller.php, LeasesController.php).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use deadline::Deadline;
use net_types::{ClientId, HostIdentifier, MacAddress};
use serde_json::{Value, json};

use crate::api::{Endpoint, Opnsense, again_if_lost, endpoint, judge_write};
use crate::error::Error;
use crate::form::{Form, nest, scalar};
use crate::grid;

const DHCPV4: &str = "kea/dhcpv4";
const LEASES: &str = "kea/leases4";

/// The switches that decide whether a stored reservation can have any effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeaGeneral {
    pub enabled: bool,
    /// Somebody writes Kea's file by hand: what the API stores is not rendered (25.1.5 and newer).
    pub manual_config: bool,
}

/// A reservation as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRow {
    pub uuid: String,
    /// The prefix of its subnet.
    pub subnet: String,
    /// The UUID of its subnet; `None` before 25.7.
    pub subnet_uuid: Option<String>,
    pub ip_address: Option<Ipv4Addr>,
    /// As stored, in whatever spelling; empty when a client id is used.
    pub hw_address: String,
    pub mac: Option<MacAddress>,
    /// 26.1.8 and newer.
    pub client_id: Option<ClientId>,
    pub hostname: String,
    pub description: String,
    /// `None` on a release that does not store it; the same holds for the next two.
    pub next_server: Option<String>,
    pub boot_file_name: Option<String>,
    pub tftp_server_name: Option<String>,
    /// The [`OPTIONS`] that are set.
    pub option_data: BTreeMap<&'static str, String>,
}

/// The DHCP options that a reservation can have since 25.7, besides those of its own fields.
pub const OPTIONS: [&str; 8] = [
    "option_data.domain_name_servers",
    "option_data.domain_search",
    "option_data.routers",
    "option_data.static_routes",
    "option_data.classless_static_route",
    "option_data.domain_name",
    "option_data.ntp_servers",
    "option_data.time_servers",
];

impl ReservationRow {
    /// What the host is known by; `None` when that is stored in a form that cannot be read.
    #[must_use]
    pub fn host(&self) -> Option<HostIdentifier> {
        self.mac.map(Into::into).or_else(|| self.client_id.clone().map(Into::into))
    }
}

/// A lease as the leases page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv4Addr,
    pub mac: Option<MacAddress>,
    pub client_id: Option<ClientId>,
    pub hostname: String,
    /// False for a declined or expired one.
    pub active: bool,
}

impl Opnsense {
    /// # Errors
    /// As OPNsense answers.
    pub fn kea_general(&self, deadline: &Deadline) -> Result<KeaGeneral, Error> {
        let answer = self.get(endpoint(DHCPV4, "get"), &[], deadline)?;
        let general = &answer["dhcpv4"]["general"];
        if !general.is_object() {
            return Err(Error::protocol(endpoint(DHCPV4, "get").path(false), "dhcpv4.general", &answer));
        }
        let flag = |name: &str| scalar(&general[name]) == "1";
        Ok(KeaGeneral { enabled: flag("enabled"), manual_config: flag("manual_config") })
    }

    /// Every reservation of every subnet.
    ///
    /// # Errors
    /// As OPNsense answers; [`Error::Partial`].
    pub fn search_reservations(&self, deadline: &Deadline) -> Result<Vec<ReservationRow>, Error> {
        let search = endpoint(DHCPV4, "search_reservation");
        let answer = self.get(search, &[], deadline)?;
        let rows = grid::entries(&search.path(false), &answer)?;
        Ok(rows
            .iter()
            .map(|row| ReservationRow {
                uuid: row.text("uuid"),
                subnet: row.label("subnet"),
                subnet_uuid: Some(row.text("subnet")).filter(|text| *text != row.label("subnet")),
                ip_address: row.text("ip_address").parse().ok(),
                hw_address: row.text("hw_address"),
                mac: row.text("hw_address").parse().ok(),
                client_id: row.text("client_id").parse().ok(),
                hostname: row.text("hostname"),
                description: row.text("description"),
                next_server: row.known("next_server"),
                boot_file_name: row.known("option_data.boot_file_name"),
                tftp_server_name: row.known("option_data.tftp_server_name"),
                option_data: OPTIONS
                    .into_iter()
                    .map(|name| (name, row.text(name)))
                    .filter(|(_, data)| !data.is_empty())
                    .collect(),
            })
            .collect())
    }

    /// One reservation, or `None` when there is none of that UUID. Without a UUID: an empty one, which shows
    /// the fields this release knows. Both list the subnets in `choices("subnet")`.
    ///
    /// # Errors
    /// As OPNsense answers.
    pub fn get_reservation(&self, uuid: Option<&str>, deadline: &Deadline) -> Result<Option<Form>, Error> {
        self.get_form(endpoint(DHCPV4, "get_reservation"), uuid, "reservation", deadline)
    }

    /// One subnet, or `None` when there is none of that UUID.
    ///
    /// # Errors
    /// As OPNsense answers.
    pub fn get_subnet(&self, uuid: &str, deadline: &Deadline) -> Result<Option<Form>, Error> {
        self.get_form(endpoint(DHCPV4, "get_subnet"), Some(uuid), "subnet4", deadline)
    }

    /// Stores a new reservation and returns its UUID. Nothing is in effect before a reconfigure. When the answer is
    /// lost ([`Error::may_have_happened`]), look before repeating it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the fields OPNsense does not take.
    pub fn add_reservation(&self, fields: &[(&str, String)], deadline: &Deadline) -> Result<String, Error> {
        self.add(endpoint(DHCPV4, "add_reservation"), "reservation", fields, deadline)
    }

    /// Changes the given fields of a reservation. An unknown UUID makes a new one. It is sent again when the answer
    /// is lost.
    ///
    /// # Errors
    /// [`Error::Refused`] with the fields OPNsense does not take.
    pub fn set_reservation(
        &self,
        uuid: &str,
        fields: &[(&str, String)],
        deadline: &Deadline,
    ) -> Result<(), Error> {
        self.set(endpoint(DHCPV4, "set_reservation").of(uuid), "reservation", fields, deadline)
    }

    /// It is sent again when the answer is lost.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it was gone already.
    pub fn del_reservation(&self, uuid: &str, deadline: &Deadline) -> Result<(), Error> {
        self.del(endpoint(DHCPV4, "del_reservation").of(uuid), deadline)
    }

    /// The leases of one address: none or one.
    ///
    /// # Errors
    /// As OPNsense answers; [`Error::is_unavailable`] when the key may not ask.
    pub fn leases_of(&self, address: Ipv4Addr, deadline: &Deadline) -> Result<Vec<Lease>, Error> {
        // The phrase also finds longer addresses that begin with this one.
        let found = self.search_leases(&address.to_string(), deadline)?;
        Ok(found.into_iter().filter(|lease| lease.address == address).collect())
    }

    /// The leases of one card, reserved or out of a pool.
    ///
    /// # Errors
    /// As OPNsense answers; [`Error::is_unavailable`] when the key may not ask.
    pub fn leases_of_mac(&self, mac: MacAddress, deadline: &Deadline) -> Result<Vec<Lease>, Error> {
        let found = self.search_leases(&mac.to_string(), deadline)?;
        Ok(found.into_iter().filter(|lease| lease.mac == Some(mac)).collect())
    }

    /// The leases with a phrase in any of their fields.
    fn search_leases(&self, phrase: &str, deadline: &Deadline) -> Result<Vec<Lease>, Error> {
        let search = endpoint(LEASES, "search");
        let query = [grid::ALL[0], grid::ALL[1], ("searchPhrase", phrase)];
        let rows = grid::rows(&search.path(false), &self.get(search, &query, deadline)?)?;
        let lease = |row: &grid::Row| {
            Some(Lease {
                address: row.text("address").parse().ok()?,
                mac: row.text("hwaddr").parse().ok(),
                client_id: row.text("client_id").parse().ok(),
                hostname: row.text("hostname"),
                active: row.text("state") == "0" || row.value("state").is_null(),
            })
        };
        Ok(rows.iter().filter_map(lease).collect())
    }

    /// Forgets the lease of an address (26.1.6 and newer).
    ///
    /// # Errors
    /// [`Error::NoEndpoint`] on older releases.
    pub fn del_lease(&self, address: Ipv4Addr, deadline: &Deadline) -> Result<(), Error> {
        let text = address.to_string();
        let answer = self.act(endpoint(LEASES, "del_lease").of(&text), deadline)?;
        if answer["status"] == "ok" {
            return Ok(());
        }
        Err(Error::protocol(endpoint(LEASES, "del_lease").path(false), "a status", &answer))
    }

    /// Whether this release can forget a lease; asked with a GET, which is refused where the endpoint exists.
    ///
    /// # Errors
    /// As OPNsense answers.
    pub fn knows_del_lease(&self, deadline: &Deadline) -> Result<bool, Error> {
        match self.get(endpoint(LEASES, "del_lease"), &[], deadline) {
            Ok(_) => Ok(true),
            Err(Error::NoEndpoint { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn get_form(
        &self,
        call: Endpoint<'static>,
        uuid: Option<&str>,
        root: &str,
        deadline: &Deadline,
    ) -> Result<Option<Form>, Error> {
        let answer = match uuid {
            Some(uuid) => self.get(call.of(uuid), &[], deadline)?,
            None => self.get(call, &[], deadline)?,
        };
        read_form(&call.path(false), root, uuid.is_some(), &answer)
    }

    pub(crate) fn add(
        &self,
        call: Endpoint<'_>,
        root: &str,
        fields: &[(&str, String)],
        deadline: &Deadline,
    ) -> Result<String, Error> {
        let answer = self.post(call, json!({root: nest(fields)}), deadline)?;
        judge_write(&call.path(false), "saved", &answer)?;
        Ok(answer["uuid"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) fn set(
        &self,
        call: Endpoint<'_>,
        root: &str,
        fields: &[(&str, String)],
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let document = json!({root: nest(fields)});
        let answer = again_if_lost(|| self.post(call, document.clone(), deadline))?;
        judge_write(&call.path(false), "saved", &answer)
    }

    pub(crate) fn del(&self, call: Endpoint<'_>, deadline: &Deadline) -> Result<(), Error> {
        let first = self.act(call, deadline);
        let is_second = first.as_ref().is_err_and(Error::may_have_happened);
        let answer = if is_second { self.act(call, deadline) } else { first }?;
        match judge_write(&call.path(false), "deleted", &answer) {
            Err(Error::NotFound { .. }) if is_second => Ok(()),
            outcome => outcome,
        }
    }
}

/// An entry that is not there is an empty list; an empty entry there always is.
fn read_form(path: &str, root: &str, may_be_gone: bool, answer: &Value) -> Result<Option<Form>, Error> {
    match answer.get(root) {
        Some(fields) if fields.is_object() => Ok(Some(Form::parse(fields))),
        None if may_be_gone && answer.as_array().is_some_and(Vec::is_empty) => Ok(None),
        _ => Err(Error::protocol(path.to_owned(), "an entry", answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_list_says_that_an_entry_is_not_there() {
        let told = |may_be_gone, answer: Value| match read_form("x", "host", may_be_gone, &answer) {
            Ok(form) => format!("{:?}", form.map(|form| form.text("hostname").to_owned())),
            Err(error) => error.to_string(),
        };
        insta::assert_snapshot!(told(true, json!({"host": {"hostname": "web01"}})), @r#"Some("web01")"#);
        insta::assert_snapshot!(told(true, json!([])), @"None");
        insta::assert_snapshot!(told(false, json!([])), @"x: expected an entry, found []: is this an OPNsense?");
        insta::assert_snapshot!(told(true, json!({"message": "busy"})), @r#"x: expected an entry, found {"message":"busy"}: is this an OPNsense?"#);
        insta::assert_snapshot!(told(true, json!({"host": []})), @r#"x: expected an entry, found {"host":[]}: is this an OPNsense?"#);
    }
}
