//! What OPNsense refuses, and in which words.
//!
//! Sources: opnsense/core models/OPNsense/Base/FieldTypes, models/OPNsense/Base/Constraints, KeaDhcpv4.php.

use std::net::Ipv4Addr;

use super::model::{Field, Item, Kind, Network, Table, Values, fields, sentence};
use super::php;
use super::release::Release;
use super::store::Store;

/// A field and what is wrong with it.
pub(super) type Problem = (String, String);

/// Everything wrong with `item` when `store` already holds it.
pub(super) fn problems(table: Table, item: &Item, store: &Store, release: Release) -> Vec<Problem> {
    let mut problems = Vec::new();
    for field in fields(table, release) {
        for message in constraints(table, field.name, item, store, release) {
            problems.push((field.name.to_owned(), message));
        }
        problems.extend(
            own(&field, item.get(field.name), store, release).map(|message| (field.name.to_owned(), message)),
        );
    }
    if table == Table::Reservations {
        problems.extend(reservation(item, store, release));
    }
    problems
}

/// Everything wrong with settings that are no table.
pub(super) fn setting_problems(
    fields: &[Field],
    values: &Values,
    store: &Store,
    release: Release,
) -> Vec<Problem> {
    let value = |field: &Field| values.get(field.name).map_or("", String::as_str);
    fields
        .iter()
        .filter_map(|field| Some((field.name.to_owned(), own(field, value(field), store, release)?)))
        .collect()
}

/// What the field's type has against `value`.
fn own(field: &Field, value: &str, store: &Store, release: Release) -> Option<String> {
    if value.is_empty() {
        return field.required.then(|| "A value is required.".to_owned());
    }
    let message = match field.kind {
        Kind::Bool => (!matches!(value, "0" | "1")).then_some("Value should be a boolean (0,1).".to_owned()),
        Kind::Integer { min, max } => {
            let fits = value.parse::<i64>().is_ok_and(|number| (min..=max).contains(&number));
            (!fits).then_some("Invalid integer value.".to_owned())
        }
        Kind::Text(accepts) => (!accepts(value)).then_some("Text does not validate.".to_owned()),
        Kind::Description => {
            let fits = value.len() <= 255 && !value.contains(['\n', '\r']);
            (!fits).then_some("Description should be a string between 1 and 255 characters.".to_owned())
        }
        Kind::Address { v4_only } => {
            network_problem(if v4_only { php::is_ipv4(value) } else { php::is_ip(value) })
        }
        Kind::AddressList => network_problem(value.split(',').all(php::is_ipv4)),
        Kind::Network => network_problem(Network::parse(value).is_some()),
        Kind::Mac => (!php::is_mac(value)).then_some("Invalid MAC address.".to_owned()),
        Kind::Pools => value
            .split('\n')
            .find(|pool| !pool.is_empty() && !is_pool(pool))
            .map(|pool| format!("Entry \"{pool}\" is not a valid range or subnet.")),
        Kind::Hostname { ip, wildcard, strict } => {
            let accepted = is_hostname(value, ip, strict) || (wildcard && value == "*");
            (!accepted).then(|| hostname_message(value, release))
        }
        Kind::DomainList => {
            let wrong = value.split(',').find(|name| !is_hostname(name, false, true));
            wrong.map(|name| hostname_message(name, release))
        }
        Kind::Choice(choices) => not_in_list(choices.iter().any(|choice| choice.0 == value), "", release),
        Kind::ManyOf(choices) => value
            .split(',')
            .find_map(|key| not_in_list(choices.iter().any(|choice| choice.0 == key), key, release)),
        Kind::Relation(table) => not_in_list(store.find(table, value).is_some(), "", release),
        Kind::RelationToNothing => not_in_list(false, value, release),
    }?;
    Some(field.message.clone().unwrap_or(message))
}

fn network_problem(valid: bool) -> Option<String> {
    (!valid).then(|| "Please specify a valid network segment or IP address.".to_owned())
}

/// Fields that take one option name none in their message.
fn not_in_list(found: bool, key: &str, release: Release) -> Option<String> {
    let key = if release >= Release::V26_1 { format!(" [{key}]") } else { String::new() };
    (!found).then(|| format!("Option{key} not in list."))
}

fn hostname_message(value: &str, release: Release) -> String {
    if release >= Release::V26_1_6 {
        format!("[{value}] is not a valid IP address or hostname.")
    } else {
        "Please specify a valid IP address or hostname.".to_owned()
    }
}

fn is_hostname(value: &str, ip: bool, strict: bool) -> bool {
    if php::is_ip(value) {
        return ip;
    }
    php::is_domain(value, strict)
        && !value.contains(|character: char| character.is_whitespace() || "/*".contains(character))
}

fn is_pool(text: &str) -> bool {
    match text.split('-').map(str::trim).collect::<Vec<_>>()[..] {
        [first, last] => php::is_ipv4(first) && php::is_ipv4(last),
        [network] => Network::parse(network).is_some(),
        _ => false,
    }
}

/// What the value of `rr` asks for: the field, the types, the message.
const NEEDED_BY_TYPE: [(&str, &[&str], &str); 4] = [
    ("mxprio", &["MX"], "The field MX Priority is required."),
    ("mx", &["MX"], "The field MX Host is required."),
    ("server", &["A", "AAAA"], "The field IP address is required."),
    ("txtdata", &["TXT"], "The field TXT Data is required."),
];

/// Constraints that look at other fields or other items. One that names a second field shows up there too.
fn constraints(table: Table, field: &str, item: &Item, store: &Store, release: Release) -> Vec<String> {
    let twice = |fields: &[&str]| is_twice(table, fields, item, store, release);
    let message = match (table, field) {
        (Table::Subnets, "subnet_id") if twice(&["subnet_id"]) => "Subnet ID must be unique.".to_owned(),
        (Table::Subnets, "subnet") if release >= Release::V25_7_11 && twice(&["subnet"]) => {
            "Subnet must be unique.".to_owned()
        }
        (Table::Reservations, _) if unique_keys(field).iter().any(|key| twice(key)) => {
            sentence("Duplicate entry exists", release)
        }
        (Table::Hosts, _) => return needed_by_type(field, item),
        (Table::Aliases, "hostname") if is_nameless(item) => {
            "The host field is required if a domain has not been specified.".to_owned()
        }
        (Table::Aliases, "domain") if is_nameless(item) => {
            "The domain field is required if a host has not been specified.".to_owned()
        }
        _ => return Vec::new(),
    };
    vec![message]
}

/// The keys of a reservation that a field takes part in.
fn unique_keys(field: &str) -> &'static [&'static [&'static str]] {
    match field {
        "subnet" => &[&["hw_address", "subnet"], &["client_id", "subnet"]],
        "ip_address" => &[&["ip_address"]],
        "hw_address" => &[&["hw_address", "subnet"]],
        "client_id" => &[&["client_id", "subnet"]],
        _ => &[],
    }
}

fn needed_by_type(field: &str, item: &Item) -> Vec<String> {
    let missing = |(needed, types, _): &&(&str, &[&str], &str)| {
        (field == *needed || field == "rr") && item.get(needed).is_empty() && types.contains(&item.get("rr"))
    };
    NEEDED_BY_TYPE.iter().filter(missing).map(|(_, _, message)| (*message).to_owned()).collect()
}

fn is_nameless(alias: &Item) -> bool {
    alias.get("hostname").is_empty() && alias.get("domain").is_empty()
}

/// Whether another item has the same texts in `fields`. Nothing is normalised: `AA-BB…` and `aa:bb…` differ, and
/// before 25.7.8 so do `AA:BB…` and `aa:bb…`. An empty first field is never a duplicate.
fn is_twice(table: Table, fields: &[&str], item: &Item, store: &Store, release: Release) -> bool {
    let Some(first) = fields.first() else { return false };
    if php::empty(item.get(first)) {
        return false;
    }
    let ignore_case = *first == "hw_address" && release >= Release::V25_7_8;
    let key = |item: &Item| {
        let key = fields.iter().map(|field| item.get(field)).collect::<Vec<_>>().join("\n");
        if ignore_case { key.to_lowercase() } else { key }
    };
    store.table(table).iter().any(|other| other.uuid != item.uuid && key(other) == key(item))
}

/// The rules of `KeaDhcpv4::performValidation`.
fn reservation(item: &Item, store: &Store, release: Release) -> Vec<Problem> {
    let mut problems = Vec::new();
    let subnet = store
        .find(Table::Subnets, item.get("subnet"))
        .and_then(|subnet| Network::parse(subnet.get("subnet")));
    let address = item.get("ip_address").parse::<Ipv4Addr>().ok();
    if !subnet.zip(address).is_some_and(|(subnet, address)| subnet.contains(address)) {
        problems.push(("ip_address".into(), "Address not in specified subnet".into()));
    }
    if release >= Release::V26_1_8 {
        let refusal = match (php::empty(item.get("client_id")), php::empty(item.get("hw_address"))) {
            (false, false) => Some("Either a client ID or a MAC address should be specified, but not both"),
            (true, true) => Some("Either a client ID or a MAC address should be specified."),
            _ => None,
        };
        problems.extend(refusal.map(|message| ("hw_address".into(), message.into())));
    }
    problems
}
