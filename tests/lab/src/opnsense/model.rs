//! The fields of OPNsense's models, release by release, and how each shows its value.
//!
//! Sources: opnsense/core models/OPNsense/Kea/KeaDhcpv4.xml, models/OPNsense/Unbound/Unbound.xml and
//! models/OPNsense/Base/FieldTypes. Left out: DDNS, high availability, raw DHCP options, MX details beyond presence.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::php;
use super::release::Release;
use super::store::Store;

/// Values of one item by flattened field name (`option_data.routers`).
pub(super) type Values = BTreeMap<String, String>;

/// One row of a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Item {
    pub(super) uuid: String,
    pub(super) values: Values,
}

impl Item {
    /// A field's value, `""` when it has none.
    pub(super) fn get(&self, field: &str) -> &str {
        self.values.get(field).map_or("", String::as_str)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Subnets,
    Reservations,
    Hosts,
    Aliases,
}

impl Table {
    /// The table's node in its model, as messages name it.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Subnets => "subnets.subnet4",
            Self::Reservations => "reservations.reservation",
            Self::Hosts => "hosts.host",
            Self::Aliases => "aliases.alias",
        }
    }

    /// The root key of an item in requests and answers.
    pub(super) fn root(self) -> &'static str {
        self.path().split_once('.').map_or("", |(_, root)| root)
    }
}

type Choices = &'static [(&'static str, &'static str)];

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    /// Free text a predicate accepts.
    Text(fn(&str) -> bool),
    Description,
    Address {
        v4_only: bool,
    },
    AddressList,
    Network,
    Mac,
    Pools,
    Hostname {
        ip: bool,
        wildcard: bool,
        strict: bool,
    },
    DomainList,
    Choice(Choices),
    ManyOf(Choices),
    Relation(Table),
    /// A list of items of a table this double leaves empty.
    RelationToNothing,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) required: bool,
    pub(super) default: &'static str,
    /// Instead of the kind's own validation message.
    pub(super) message: Option<String>,
    /// What a choice that is not required calls its empty value.
    blank: &'static str,
}

fn field(name: &'static str, kind: Kind) -> Field {
    let default = if matches!(kind, Kind::Bool) { "0" } else { "" };
    Field { name, kind, required: false, default, message: None, blank: "None" }
}

impl Field {
    fn required(self) -> Self {
        Self { required: true, ..self }
    }

    fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    fn message(self, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..self }
    }

    fn blank(self, blank: &'static str) -> Self {
        Self { blank, ..self }
    }

    /// What the field's setter does before it stores a text.
    pub(super) fn normal_form(&self, text: &str) -> String {
        match self.kind {
            Kind::Address { .. } | Kind::AddressList | Kind::Network => text.trim().to_lowercase(),
            Kind::Mac | Kind::Hostname { .. } | Kind::DomainList => text.trim().to_owned(),
            _ => text.to_owned(),
        }
    }

    /// The value as `get_…` shows it: a string, or a map of options. Empty PHP arrays become `[]`.
    pub(super) fn node_data(&self, value: &str, store: &Store) -> Value {
        match self.kind {
            Kind::AddressList | Kind::DomainList => value
                .split(',')
                .map(|entry| (entry.to_owned(), option(entry, true)))
                .collect::<Map<_, _>>()
                .into(),
            Kind::Choice(choices) => {
                self.options(choices.iter().map(|&(key, label)| (key, label.to_owned())), value)
            }
            Kind::ManyOf(choices) => {
                let selected: Vec<&str> = value.split(',').collect();
                let option =
                    |&(key, label): &(&str, &str)| (key.to_owned(), option(label, selected.contains(&key)));
                choices.iter().map(option).collect::<Map<_, _>>().into()
            }
            Kind::Relation(table) => {
                let mut items: Vec<_> =
                    store.table(table).iter().map(|item| (item.uuid.as_str(), label(table, item))).collect();
                items.sort_by(|left, right| php::natural(&left.1, &right.1));
                self.options(items.into_iter(), value)
            }
            Kind::RelationToNothing => json!([]),
            _ => json!(value),
        }
    }

    fn options<'a>(&self, choices: impl Iterator<Item = (&'a str, String)>, value: &str) -> Value {
        let blank = (!self.required).then(|| (String::new(), option(self.blank, value.is_empty())));
        let options = choices.map(|(key, label)| (key.to_owned(), option(&label, key == value)));
        let map: Map<_, _> = blank.into_iter().chain(options).collect();
        if map.is_empty() { json!([]) } else { map.into() }
    }

    /// The value as people read it.
    pub(super) fn description(&self, value: &str, store: &Store) -> String {
        match self.kind {
            Kind::Choice(choices) | Kind::ManyOf(choices) => {
                let label =
                    |key| choices.iter().find(|choice| choice.0 == key).map_or(key, |choice| choice.1);
                value.split(',').filter(|key| !key.is_empty()).map(label).collect::<Vec<_>>().join(", ")
            }
            Kind::Relation(table) => {
                let item = store.table(table).iter().find(|item| item.uuid == value);
                item.map_or_else(|| value.to_owned(), |item| label(table, item))
            }
            _ => value.to_owned(),
        }
    }
}

fn option(label: &str, selected: bool) -> Value {
    json!({"value": label, "selected": i32::from(selected)})
}

fn label(table: Table, item: &Item) -> String {
    match table {
        Table::Hosts => format!("{}.{}", item.get("hostname"), item.get("domain")),
        _ => item.get("subnet").to_owned(),
    }
}

/// The fields of `table` in `release`, in the model's order.
pub(super) fn fields(table: Table, release: Release) -> Vec<Field> {
    match table {
        Table::Subnets => subnet(release),
        Table::Reservations => reservation(release),
        Table::Hosts => host(release),
        Table::Aliases => alias(),
    }
}

/// A message of Kea's model: they got full stops in 25.7.8.
pub(super) fn sentence(text: &str, release: Release) -> String {
    let stop = if release >= Release::V25_7_8 { "." } else { "" };
    format!("{text}{stop}")
}

/// Kea's `general` settings.
pub(super) fn kea_general(release: Release) -> Vec<Field> {
    let mut fields = vec![field("enabled", Kind::Bool).required()];
    if release >= Release::V25_1_5 {
        fields.push(field("manual_config", Kind::Bool));
    }
    fields.extend([
        field("interfaces", Kind::ManyOf(&[("lan", "LAN"), ("opt1", "MGMT")])),
        field("valid_lifetime", POSITIVE).required().default("4000"),
        field("fwrules", Kind::Bool).required().default("1"),
        field("dhcp_socket_type", Kind::Choice(&[("udp", "udp"), ("raw", "raw")])).required().default("raw"),
    ]);
    fields
}

/// Unbound's `general` settings, those that matter to host overrides.
pub(super) fn unbound_general() -> Vec<Field> {
    vec![
        field("enabled", Kind::Bool).default("1"),
        field("port", Kind::Integer { min: 1, max: 65535 }).default("53"),
        field("regdhcp", Kind::Bool),
        field("regdhcpstatic", Kind::Bool),
    ]
}

const POSITIVE: Kind = Kind::Integer { min: 0, max: i64::MAX };
const V4: Kind = Kind::Address { v4_only: true };

fn subnet(release: Release) -> Vec<Field> {
    let mut fields = Vec::new();
    if release >= Release::V26_7_2 {
        fields.push(field("subnet_id", Kind::Integer { min: 1, max: 4_294_967_294 }).required());
    }
    fields.push(field("subnet", Kind::Network).required());
    fields.push(field("next_server", V4));
    fields.push(field("option_data_autocollect", Kind::Bool).required().default("1"));
    fields.extend(option_data(release));
    fields.push(field("option_data.v6_only_preferred", Kind::Integer { min: 300, max: i64::MAX }));
    fields.push(field("match-client-id", Kind::Bool).required().default("1"));
    if release >= Release::V26_1 {
        let allocators: Choices =
            &[("iterative", "Iterative"), ("random", "Random"), ("flq", "Free Lease Queue")];
        fields.push(field("allocator", Kind::Choice(allocators)).blank("Default"));
    }
    fields.push(field("pools", Kind::Pools));
    fields.push(field("description", Kind::Description));
    fields
}

fn reservation(release: Release) -> Vec<Field> {
    let related = sentence("Related subnet not found", release);
    let mac = field("hw_address", Kind::Mac);
    let mut fields = vec![
        field("subnet", Kind::Relation(Table::Subnets)).required().message(related),
        field("ip_address", V4),
        if release >= Release::V26_1_8 { mac } else { mac.required() },
    ];
    if release >= Release::V26_1_8 {
        let message = "Value must be a colon-separated hexadecimal sequence (e.g., 01:02:f3).";
        fields.push(field("client_id", Kind::Text(is_client_id)).message(message));
    }
    fields.push(field("hostname", Kind::Hostname { ip: true, wildcard: false, strict: false }));
    fields.push(field("description", Kind::Description));
    if release >= Release::V26_1_9 {
        fields.push(field("next_server", V4));
    }
    if release >= Release::V25_7 {
        fields.extend(option_data(release));
    }
    if release >= Release::V26_1_5 {
        fields.push(field("option", Kind::RelationToNothing));
    }
    fields
}

fn option_data(release: Release) -> Vec<Field> {
    let domains = sentence("Please specify a valid list of domains", release);
    vec![
        field("option_data.domain_name_servers", Kind::AddressList),
        field("option_data.domain_search", Kind::DomainList).message(domains),
        field("option_data.routers", Kind::AddressList),
        field("option_data.static_routes", Kind::Text(is_single_line)),
        field("option_data.classless_static_route", Kind::Text(is_single_line)),
        field("option_data.domain_name", Kind::Hostname { ip: false, wildcard: false, strict: true }),
        field("option_data.ntp_servers", Kind::AddressList),
        field("option_data.time_servers", Kind::AddressList),
        field("option_data.tftp_server_name", Kind::Text(is_unquoted)),
        field("option_data.boot_file_name", Kind::Text(is_unquoted)),
    ]
}

fn host(release: Release) -> Vec<Field> {
    let types: Choices = match release {
        early if early < Release::V25_7_4 => {
            &[("A", "A (IPv4 address)"), ("AAAA", "AAAA (IPv6 address)"), ("MX", "MX (Mail server)")]
        }
        _ => &[
            ("A", "A (IPv4 address)"),
            ("AAAA", "AAAA (IPv6 address)"),
            ("MX", "MX (mail server)"),
            ("TXT", "TXT (text)"),
        ],
    };
    let name = Kind::Hostname { ip: false, wildcard: true, strict: false };
    let mut fields = vec![
        field("enabled", Kind::Bool).required().default("1"),
        field("hostname", name).message("A valid hostname must be specified."),
        field("domain", Kind::Text(is_domain_name)).required().message("A valid domain must be specified."),
        field("rr", Kind::Choice(types)).required().default("A"),
        field("mxprio", Kind::Integer { min: i64::MIN, max: i64::MAX }),
        field("mx", Kind::Hostname { ip: true, wildcard: false, strict: true }),
        field("ttl", Kind::Integer { min: 0, max: 2_147_483_647 }),
        field("server", Kind::Address { v4_only: false }),
    ];
    if release >= Release::V25_7_4 {
        fields.push(field("txtdata", Kind::Description));
    }
    if release >= Release::V26_1_3 {
        fields.push(field("addptr", Kind::Bool).required().default("1"));
    }
    fields.push(field("description", Kind::Description));
    fields
}

fn alias() -> Vec<Field> {
    vec![
        field("enabled", Kind::Bool).required().default("1"),
        field("host", Kind::Relation(Table::Hosts)).required(),
        field("hostname", Kind::Hostname { ip: false, wildcard: true, strict: false }),
        field("domain", Kind::Text(is_domain_name)).message("A valid domain must be specified."),
        field("description", Kind::Description),
    ]
}

fn is_client_id(text: &str) -> bool {
    let pairs: Vec<&str> = text.split(':').collect();
    pairs.len() > 1
        && pairs.iter().all(|pair| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_single_line(text: &str) -> bool {
    !text.contains('\n')
}

fn is_unquoted(text: &str) -> bool {
    !text.contains(['\n', '"'])
}

fn is_domain_name(text: &str) -> bool {
    text.split('.').all(|label| {
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let inside = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inside && edge(label.bytes().next()) && edge(label.bytes().last())
    })
}

/// An IPv4 network in CIDR notation; host bits may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    address: u32,
    prefix: u32,
}

impl Network {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let prefix = prefix.bytes().all(|byte| byte.is_ascii_digit()).then(|| prefix.parse().ok())??;
        (prefix <= 32).then_some(Self { address: u32::from(address.parse::<Ipv4Addr>().ok()?), prefix })
    }

    pub(super) fn contains(self, address: Ipv4Addr) -> bool {
        self.first() == u32::from(address) & self.mask()
    }

    /// First and last address.
    pub(super) fn range(self) -> (u32, u32) {
        (self.first(), self.first() | !self.mask())
    }

    fn first(self) -> u32 {
        self.address & self.mask()
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0)
    }
}
