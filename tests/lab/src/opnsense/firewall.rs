//! The firewall's state, its daemons, and what they would answer to a client of theirs.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::model::{Network, Table};
use super::route::Daemon;
use super::store::{Lease, Store};
use super::user::User;
use super::{Address, Fault, Logged, Release, kea_conf, php};
use crate::kea::{self, Verdict};

/// How long a Kea that dies of its file is seen running.
const LAST_MOMENT: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct Firewall {
    pub(super) release: Release,
    /// The firewall's own address in its LAN.
    pub(super) address: Option<Ipv4Addr>,
    pub(super) users: Vec<User>,
    pub(super) store: Store,
    pub(super) faults: Vec<Fault>,
    pub(super) log: Vec<Logged>,
    pub(super) state_file: Option<PathBuf>,
    pub(super) kea_dies_at: Option<Instant>,
}

impl Firewall {
    pub(super) fn status(&self, daemon: Daemon) -> &'static str {
        let (general, running) = match daemon {
            Daemon::Kea => (&self.store.kea_general, self.kea_runs()),
            Daemon::Unbound => (&self.store.unbound_general, self.store.live.unbound_running),
        };
        match (running, general.get("enabled").is_some_and(|enabled| enabled == "1")) {
            (true, _) => "running",
            (false, true) => "stopped",
            (false, false) => "disabled",
        }
    }

    fn kea_runs(&self) -> bool {
        self.store.live.kea_running && self.kea_dies_at.is_none_or(|end| Instant::now() < end)
    }

    pub(super) fn stop(&mut self, daemon: Daemon) {
        match daemon {
            Daemon::Kea => self.store.live.kea_running = false,
            Daemon::Unbound => self.store.live.unbound_running = false,
        }
    }

    /// Stop, generate, start: what a reconfigure does, whatever comes of it.
    pub(super) fn restart(&mut self, daemon: Daemon) {
        self.stop(daemon);
        match daemon {
            Daemon::Kea => self.start_kea(),
            Daemon::Unbound => self.start_unbound(),
        }
    }

    fn start_kea(&mut self) {
        self.kea_dies_at = self.faults.contains(&Fault::KeaDiesSoon).then(|| Instant::now() + LAST_MOMENT);
        let general = |field: &str| self.store.kea_general.get(field).map_or("", String::as_str);
        if general("enabled") != "1" || general("interfaces").is_empty() {
            return;
        }
        if php::empty(general("manual_config")) {
            self.store.live.kea_file = self.generate();
        }
        let refusal = self.kea_refusal();
        self.store.live.kea_running = refusal.is_none();
        self.store.live.kea_refusal = refusal;
    }

    fn generate(&self) -> Value {
        let mut file = kea_conf::render(&self.store, self.release);
        let lost = |host: &Value| {
            let mac = host["hw-address"].as_str().and_then(kea_conf::mac_bytes);
            self.faults.iter().any(|fault| {
                matches!(fault, Fault::ReconfigureLoses(lost) if kea_conf::mac_bytes(lost) == mac && mac.is_some())
            })
        };
        for subnet in file["Dhcp4"]["subnet4"].as_array_mut().into_iter().flatten() {
            if let Some(hosts) = subnet["reservations"].as_array_mut() {
                hosts.retain(|host| !lost(host));
            }
        }
        file
    }

    fn kea_refusal(&self) -> Option<String> {
        if self.faults.contains(&Fault::KeaRefusesToStart) {
            return Some("Kea was told not to start".into());
        }
        let file = &self.store.live.kea_file;
        if file.is_null() || !kea::checker_installed() {
            return kea_conf::refusal(file);
        }
        match kea::check(&kea_conf::portable(file)) {
            Ok(Verdict::Accepted) => None,
            Ok(Verdict::Refused(words)) => Some(words),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    fn start_unbound(&mut self) {
        let enabled = self.store.unbound_general.get("enabled").is_some_and(|enabled| enabled == "1");
        if !enabled || self.faults.contains(&Fault::UnboundStaysStopped) {
            return;
        }
        self.store.live.unbound_running = true;
        self.store.live.hosts = self.store.table(Table::Hosts).clone();
        self.store.live.aliases = self.store.table(Table::Aliases).clone();
    }

    /// What saving Kea's settings does to subnets with `option_data_autocollect`.
    pub(super) fn collect_options(&mut self) {
        let Some(address) = self.address else { return };
        for subnet in self.store.table_mut(Table::Subnets) {
            let here = Network::parse(subnet.get("subnet")).is_some_and(|network| network.contains(address));
            if here && !php::empty(subnet.get("option_data_autocollect")) {
                for option in ["routers", "domain_name_servers", "ntp_servers"] {
                    subnet.values.insert(format!("option_data.{option}"), address.to_string());
                }
            }
        }
    }

    /// The host the running Kea knows for a MAC address.
    pub(super) fn live_host(&self, mac: &str) -> Option<&Value> {
        let wanted = kea_conf::mac_bytes(mac)?;
        let is_it = |host: &Value| {
            host["hw-address"].as_str().and_then(kea_conf::mac_bytes).as_ref() == Some(&wanted)
        };
        self.live_hosts().map(|(_, host)| host).find(|host| is_it(host))
    }

    pub(super) fn live_hosts(&self) -> impl Iterator<Item = (&Value, &Value)> {
        kea_conf::hosts(&self.store.live.kea_file).filter(|_| self.kea_runs())
    }

    /// What a DHCPDISCOVER from `mac` would be answered; the lease is remembered.
    pub(super) fn address_for(&mut self, mac: &str) -> Address {
        if !self.kea_runs() {
            return Address::None;
        }
        let bypassed = |fault: &Fault| matches!(fault, Fault::PoolAddressFor(other) if kea_conf::mac_bytes(other) == kea_conf::mac_bytes(mac));
        let host = self.live_host(mac).filter(|_| !self.faults.iter().any(bypassed));
        let reserved = host.and_then(|host| host["ip-address"].as_str()?.parse().ok());
        let address = reserved
            .map_or_else(|| self.pool_address(mac).map_or(Address::None, Address::Pool), Address::Reserved);
        self.remember_lease(mac, address);
        address
    }

    fn pool_address(&self, mac: &str) -> Option<Ipv4Addr> {
        let reserved: Vec<Ipv4Addr> =
            self.live_hosts().filter_map(|(_, host)| host["ip-address"].as_str()?.parse().ok()).collect();
        let holder = |address: &Ipv4Addr| {
            self.store
                .leases
                .iter()
                .find(|lease| lease.address == address.to_string())
                .map(|lease| lease.hwaddr.as_str())
        };
        let mut pool = kea_conf::subnets(&self.store.live.kea_file)
            .flat_map(kea_conf::pool_addresses)
            .filter(|address| !reserved.contains(address));
        let own = pool.clone().find(|address| holder(address) == Some(mac));
        own.or_else(|| pool.find(|address| holder(address).is_none()))
    }

    fn remember_lease(&mut self, mac: &str, address: Address) {
        let (Address::Reserved(ip) | Address::Pool(ip)) = address else { return };
        let hostname =
            self.live_host(mac).and_then(|host| host["hostname"].as_str()).unwrap_or_default().to_owned();
        self.store.leases.retain(|lease| lease.hwaddr != mac && lease.address != ip.to_string());
        self.store.leases.push(Lease { address: ip.to_string(), hwaddr: mac.to_owned(), hostname, state: 0 });
    }

    /// Adds an item as it is, past every rule.
    pub(super) fn seed(&mut self, table: Table, values: &[(&str, &str)]) -> String {
        let mut item = self.store.blank(table, self.release, None);
        for (field, value) in values {
            item.values.insert((*field).to_owned(), (*value).to_owned());
        }
        let uuid = item.uuid.clone();
        self.store.put(table, item);
        uuid
    }

    pub(super) fn persist(&self) -> anyhow::Result<()> {
        self.state_file.as_deref().map_or(Ok(()), |file| self.store.save(file))
    }
}

/// The request's body for the log.
pub(super) fn logged_body(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| match body {
        [] => Value::Null,
        text => json!(String::from_utf8_lossy(text)),
    })
}
