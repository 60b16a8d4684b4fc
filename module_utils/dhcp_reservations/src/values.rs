//! The fields of a reservation, the same for both backends.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::OptionData;

/// The end of a description that marks its owner on OPNsense.
const MARK: &str = "[anvil:";

/// A field of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    HwAddress,
    ClientId,
    IpAddress,
    Hostname,
    NextServer,
    BootFileName,
    TftpServerName,
    /// A list, as [`OptionData::to_text`] writes it.
    OptionData,
    /// A list, as [`Field::list_text`] writes it.
    ClientClasses,
    Description,
    Owner,
}

impl Field {
    pub const ALL: [Self; 11] = [
        Self::HwAddress,
        Self::ClientId,
        Self::IpAddress,
        Self::Hostname,
        Self::NextServer,
        Self::BootFileName,
        Self::TftpServerName,
        Self::OptionData,
        Self::ClientClasses,
        Self::Description,
        Self::Owner,
    ];

    /// Its key in the result.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HwAddress => "hw_address",
            Self::ClientId => "client_id",
            Self::IpAddress => "ip_address",
            Self::Hostname => "hostname",
            Self::NextServer => "next_server",
            Self::BootFileName => "boot_file_name",
            Self::TftpServerName => "tftp_server_name",
            Self::OptionData => "option_data",
            Self::ClientClasses => "client_classes",
            Self::Description => "description",
            Self::Owner => "owner",
        }
    }

    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }

    /// The text of a list of names; their order does not count.
    #[must_use]
    pub fn list_text<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { String::new() } else { json!(names).to_string() }
    }

    /// The value in a result or a diff: a list for a field that is one.
    #[must_use]
    pub fn shown(self, text: &str) -> Value {
        match self {
            Self::OptionData | Self::ClientClasses if text.is_empty() => json!([]),
            Self::OptionData | Self::ClientClasses => serde_json::from_str(text).unwrap_or_default(),
            _ => text.into(),
        }
    }

    /// Whether two texts of this field mean the same.
    #[must_use]
    pub fn same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Hostname => one.eq_ignore_ascii_case(other),
            Self::HwAddress => spelling(one) == spelling(other),
            Self::OptionData => OptionData::same(one, other),
            _ => one == other,
        }
    }
}

/// Colons in either case are one spelling; OPNsense hands other separators on to Kea, which may refuse to start.
fn spelling(mac: &str) -> String {
    mac.to_ascii_lowercase()
}

/// Texts of fields; an empty text is an unset field, a missing one is not spoken of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<Field, String>);

impl Values {
    /// The text of a field; empty when it is unset or not spoken of.
    #[must_use]
    pub fn text(&self, field: Field) -> &str {
        self.0.get(&field).map_or("", String::as_str)
    }

    pub fn set(&mut self, field: Field, text: impl Into<String>) {
        self.0.insert(field, text.into());
    }

    pub fn iter(&self) -> impl Iterator<Item = (Field, &str)> {
        self.0.iter().map(|(field, text)| (*field, text.as_str()))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn speaks_of(&self, field: Field) -> bool {
        self.0.contains_key(&field)
    }

    /// These values with those of `other` laid over them.
    #[must_use]
    pub fn overlaid(&self, other: &Self) -> Self {
        let mut values = self.clone();
        values.0.extend(other.0.clone());
        values
    }

    /// Every field, for the result.
    #[must_use]
    pub fn to_object(&self) -> Map<String, Value> {
        Field::ALL.map(|field| (field.name().to_owned(), field.shown(self.text(field)))).into_iter().collect()
    }
}

impl FromIterator<(Field, String)> for Values {
    fn from_iter<I: IntoIterator<Item = (Field, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// A description with the mark of its owner at its end.
#[must_use]
pub fn mark(description: &str, owner: Option<&str>) -> String {
    match owner.filter(|owner| !owner.is_empty()) {
        None => description.to_owned(),
        Some(owner) if description.is_empty() => format!("{MARK}{owner}]"),
        Some(owner) => format!("{description} {MARK}{owner}]"),
    }
}

/// The description and the owner of a marked description.
#[must_use]
pub fn unmark(text: &str) -> (&str, &str) {
    let marked = text.strip_suffix(']').and_then(|text| text.rsplit_once(MARK));
    match marked {
        Some((description, owner)) if !owner.is_empty() && !owner.contains(['[', ']']) => {
            (description.strip_suffix(' ').unwrap_or(description), owner)
        }
        _ => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_off_again() {
        for (description, owner, stored) in [
            ("front end", "web01", "front end [anvil:web01]"),
            ("", "web01", "[anvil:web01]"),
            ("front end", "", "front end"),
            ("", "", ""),
            ("rack [3]", "", "rack [3]"),
            ("[anvil:a]", "b", "[anvil:a] [anvil:b]"),
            ("front end ", "web01", "front end  [anvil:web01]"),
            ("rack [anvil:]", "", "rack [anvil:]"),
        ] {
            assert_eq!(mark(description, Some(owner)), stored);
            assert_eq!(unmark(stored), (description, owner), "{stored}");
        }
    }

    #[test]
    fn what_means_the_same() {
        assert!(Field::Hostname.same("Web01", "web01"));
        assert!(Field::HwAddress.same("02:A5:00:00:00:65", "02:a5:00:00:00:65"));
        assert!(!Field::HwAddress.same("02-a5-00-00-00-65", "02:a5:00:00:00:65"), "Kea may refuse it");
        assert!(!Field::BootFileName.same("Grub", "grub"));
    }
}
