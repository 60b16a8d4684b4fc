//! What the firewall's config.xml would hold, and what its daemons have loaded.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::{Field, Item, Kind, Table, Values, fields, kea_general, unbound_general};
use super::release::Release;

/// A DHCP lease, as `leases4/search` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub address: String,
    pub hwaddr: String,
    pub hostname: String,
    /// Kea's state: 0 assigned, 1 declined, 2 expired.
    pub state: u8,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Store {
    pub(super) kea_general: Values,
    pub(super) unbound_general: Values,
    subnets: Vec<Item>,
    reservations: Vec<Item>,
    hosts: Vec<Item>,
    aliases: Vec<Item>,
    pub(super) leases: Vec<Lease>,
    last_uuid: u64,
    pub(super) live: Live,
}

/// What the daemons run with: the state of the last reconfigure that worked.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Live {
    /// The last `kea-dhcp4.conf` that was written, whether Kea took it or not.
    pub(super) kea_file: Value,
    pub(super) kea_running: bool,
    /// Why Kea did not start, in its words.
    pub(super) kea_refusal: Option<String>,
    pub(super) unbound_running: bool,
    pub(super) hosts: Vec<Item>,
    pub(super) aliases: Vec<Item>,
}

impl Store {
    pub(super) fn new(release: Release) -> Self {
        let mut kea_general = defaults(&kea_general(release));
        kea_general.extend(
            [("enabled", "1"), ("interfaces", "lan")].map(|(field, value)| (field.into(), value.into())),
        );
        Self { kea_general, unbound_general: defaults(&unbound_general()), ..Self::default() }
    }

    pub(super) fn load(file: &Path) -> Result<Option<Self>> {
        if !file.exists() {
            return Ok(None);
        }
        let state = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        serde_json::from_slice(&state)
            .with_context(|| format!("{} is no state of this double", file.display()))
            .map(Some)
    }

    /// What an upgrade does to a state that an older release has saved: new fields get their defaults.
    pub(super) fn migrate(&mut self, release: Release) {
        let new = |values: &mut Values, fields: &[Field]| {
            for (field, default) in defaults(fields) {
                values.entry(field).or_insert(default);
            }
        };
        new(&mut self.kea_general, &kea_general(release));
        for table in [Table::Subnets, Table::Reservations, Table::Hosts, Table::Aliases] {
            let fields = fields(table, release);
            for (index, item) in self.table_mut(table).iter_mut().enumerate() {
                new(&mut item.values, &fields);
                if item.values.get("subnet_id").is_some_and(String::is_empty) {
                    item.values.insert("subnet_id".into(), (index + 1).to_string());
                }
            }
        }
    }

    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let partial = file.with_extension("partial");
        std::fs::write(&partial, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&partial, file).with_context(|| format!("writing {}", file.display()))
    }

    pub(super) fn table(&self, table: Table) -> &Vec<Item> {
        match table {
            Table::Subnets => &self.subnets,
            Table::Reservations => &self.reservations,
            Table::Hosts => &self.hosts,
            Table::Aliases => &self.aliases,
        }
    }

    pub(super) fn table_mut(&mut self, table: Table) -> &mut Vec<Item> {
        match table {
            Table::Subnets => &mut self.subnets,
            Table::Reservations => &mut self.reservations,
            Table::Hosts => &mut self.hosts,
            Table::Aliases => &mut self.aliases,
        }
    }

    pub(super) fn find(&self, table: Table, uuid: &str) -> Option<&Item> {
        self.table(table).iter().find(|item| item.uuid == uuid)
    }

    /// The full names of a host's aliases, with commas between them.
    pub(super) fn alias_names(&self, host: &Item) -> String {
        let aliases = self.aliases.iter().filter(|alias| alias.get("host") == host.uuid);
        aliases.map(|alias| full_name(alias, host)).collect::<Vec<_>>().join(",")
    }

    /// Puts `item` in the place of the one with its UUID, or at the end.
    pub(super) fn put(&mut self, table: Table, item: Item) {
        let items = self.table_mut(table);
        match items.iter_mut().find(|old| old.uuid == item.uuid) {
            Some(old) => *old = item,
            None => items.push(item),
        }
    }

    /// An item with its defaults, not yet in its table.
    pub(super) fn blank(&mut self, table: Table, release: Release, uuid: Option<&str>) -> Item {
        let mut values = defaults(&fields(table, release));
        if let Some(id) = values.get_mut("subnet_id") {
            let taken = self.subnets.iter().filter_map(|item| item.get("subnet_id").parse::<u32>().ok());
            *id = (taken.max().unwrap_or(0) + 1).to_string();
        }
        let uuid = uuid.map_or_else(|| self.next_uuid(), str::to_owned);
        Item { uuid, values }
    }

    /// Counted, so that answers can be compared with a text; of version 4, which `set` asks for.
    fn next_uuid(&mut self) -> String {
        self.last_uuid += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.last_uuid)
    }
}

fn defaults(fields: &[Field]) -> Values {
    fields
        .iter()
        .filter(|field| !matches!(field.kind, Kind::RelationToNothing))
        .map(|field| (field.name.to_owned(), field.default.to_owned()))
        .collect()
}

/// The name that a host or one of its aliases gives; an alias without a domain has its host's.
pub(super) fn full_name(named: &Item, host: &Item) -> String {
    let domain = if named.get("domain").is_empty() { host.get("domain") } else { named.get("domain") };
    match named.get("hostname") {
        "" => domain.to_owned(),
        hostname => format!("{hostname}.{domain}"),
    }
}
