//! Unbound host overrides and their aliases (Unbound/Api/SettingsController.php, models/OPNsense/Unbound/Unbound.xml).

use std::net::IpAddr;

use deadline::Deadline;

use crate::api::{Opnsense, endpoint};
use crate::error::Error;
use crate::form::Form;
use crate::grid;

const SETTINGS: &str = "unbound/settings";

/// A host override as the list shows it. Nothing keeps two of them from being equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOverrideRow {
    pub uuid: String,
    pub enabled: bool,
    /// May be empty (the domain itself) or `*`.
    pub hostname: String,
    pub domain: String,
    /// `A`, `AAAA`, `MX` or `TXT`.
    pub rr: String,
    /// The address of A and AAAA.
    pub server: Option<IpAddr>,
    /// The text of TXT; empty before 25.7.4, which has none.
    pub text: String,
    /// Seconds; `None` for Unbound's default.
    pub ttl: Option<u32>,
    pub description: String,
    /// Whether its address gets a PTR record; `None` before 26.1.3, where every first name of an address gets one.
    pub addptr: Option<bool>,
}

impl HostOverrideRow {
    /// The name, in lower case: the same one for `web01` in `lab.example` and for `web01.lab` in `example`.
    #[must_use]
    pub fn name(&self) -> String {
        let name = format!("{}.{}", self.hostname, self.domain);
        name.trim_matches('.').to_ascii_lowercase()
    }
}

/// Another name of a host override, which Unbound answers with that one's record. It goes with its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAlias {
    pub uuid: String,
    pub enabled: bool,
    /// The UUID of its host override.
    pub host: String,
    pub hostname: String,
    /// Empty for that of its host.
    pub domain: String,
    pub description: String,
}

impl HostAlias {
    /// The name, in lower case, as [`HostOverrideRow::name`].
    fn name(&self, hosts: &[HostOverrideRow]) -> String {
        let host = hosts.iter().find(|row| row.uuid == self.host).map(|row| row.domain.as_str());
        let domain = if self.domain.is_empty() { host.unwrap_or_default() } else { &self.domain };
        format!("{}.{domain}", self.hostname).trim_matches('.').to_ascii_lowercase()
    }
}

impl Opnsense {
    /// Every host override.
    ///
    /// # Errors
    /// As OPNsense answers; [`Error::Partial`].
    pub fn search_host_overrides(&self, deadline: &Deadline) -> Result<Vec<HostOverrideRow>, Error> {
        let search = endpoint(SETTINGS, "search_host_override");
        let rows = grid::entries(&search.path(false), &self.get(search, &[], deadline)?)?;
        Ok(rows
            .iter()
            .map(|row| HostOverrideRow {
                uuid: row.text("uuid"),
                enabled: row.flag("enabled"),
                hostname: row.text("hostname"),
                domain: row.text("domain"),
                // Up to 25.1 the row holds the long name: "A (IPv4 address)".
                rr: row.text("rr").split(' ').next().unwrap_or_default().to_owned(),
                server: row.text("server").parse().ok(),
                text: row.text("txtdata"),
                ttl: row.text("ttl").parse().ok(),
                description: row.text("description"),
                addptr: row.known("addptr").map(|text| text == "1"),
            })
            .collect())
    }

    /// One host override, or `None` when there is none of that UUID. Without a UUID: an empty one, which shows
    /// the fields this release knows (`addptr` since 26.1.3).
    ///
    /// # Errors
    /// As OPNsense answers.
    pub fn get_host_override(&self, uuid: Option<&str>, deadline: &Deadline) -> Result<Option<Form>, Error> {
        self.get_form(endpoint(SETTINGS, "get_host_override"), uuid, "host", deadline)
    }

    /// Stores a new host override and returns its UUID. Nothing is in effect before a reconfigure. When the
    /// answer is lost ([`Error::may_have_happened`]), look before repeating it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the fields OPNsense does not take.
    pub fn add_host_override(&self, fields: &[(&str, String)], deadline: &Deadline) -> Result<String, Error> {
        self.add(endpoint(SETTINGS, "add_host_override"), "host", fields, deadline)
    }

    /// Changes the given fields of a host override. An unknown UUID makes a new one. It is sent again when the
    /// answer is lost.
    ///
    /// # Errors
    /// [`Error::Refused`] with the fields OPNsense does not take.
    pub fn set_host_override(
        &self,
        uuid: &str,
        fields: &[(&str, String)],
        deadline: &Deadline,
    ) -> Result<(), Error> {
        self.set(endpoint(SETTINGS, "set_host_override").of(uuid), "host", fields, deadline)
    }

    /// Removes a host override and its aliases. It is sent again when the answer is lost.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is gone already.
    pub fn del_host_override(&self, uuid: &str, deadline: &Deadline) -> Result<(), Error> {
        self.del(endpoint(SETTINGS, "del_host_override").of(uuid), deadline)
    }

    /// The aliases of a name (in lower case). `hosts` are all host overrides.
    ///
    /// # Errors
    /// As OPNsense answers; [`Error::Partial`].
    pub fn host_aliases(
        &self,
        name: &str,
        hosts: &[HostOverrideRow],
        deadline: &Deadline,
    ) -> Result<Vec<HostAlias>, Error> {
        let search = endpoint(SETTINGS, "search_host_alias");
        let rows = grid::entries(&search.path(false), &self.get(search, &[], deadline)?)?;
        let mut aliases = Vec::new();
        for row in rows {
            let begins = |name: &str| {
                let rest = name.strip_prefix(&row.text("hostname").to_ascii_lowercase());
                rest.is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with('.') || row.text("hostname").is_empty()
                })
            };
            // Which host it follows is in a row only as the page shows it, up to 25.1.
            if !begins(name) {
                continue;
            }
            let uuid = row.text("uuid");
            let form = self.get_form(endpoint(SETTINGS, "get_host_alias"), Some(&uuid), "alias", deadline)?;
            let Some(form) = form else { continue };
            let text = |field: &str| form.text(field).to_owned();
            let alias = HostAlias {
                enabled: form.text("enabled") == "1",
                host: text("host"),
                hostname: text("hostname"),
                domain: text("domain"),
                description: text("description"),
                uuid,
            };
            if alias.name(hosts) == name {
                aliases.push(alias);
            }
        }
        Ok(aliases)
    }

    /// Stores a new alias and returns its UUID, as [`add_host_override`](Self::add_host_override).
    ///
    /// # Errors
    /// [`Error::Refused`] with the fields OPNsense does not take.
    pub fn add_host_alias(&self, fields: &[(&str, String)], deadline: &Deadline) -> Result<String, Error> {
        self.add(endpoint(SETTINGS, "add_host_alias"), "alias", fields, deadline)
    }

    /// Changes the given fields of an alias, as [`set_host_override`](Self::set_host_override).
    ///
    /// # Errors
    /// [`Error::Refused`] with the fields OPNsense does not take.
    pub fn set_host_alias(
        &self,
        uuid: &str,
        fields: &[(&str, String)],
        deadline: &Deadline,
    ) -> Result<(), Error> {
        self.set(endpoint(SETTINGS, "set_host_alias").of(uuid), "alias", fields, deadline)
    }

    /// Removes an alias. It is sent again when the answer is lost.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is gone already.
    pub fn del_host_alias(&self, uuid: &str, deadline: &Deadline) -> Result<(), Error> {
        self.del(endpoint(SETTINGS, "del_host_alias").of(uuid), deadline)
    }
}
