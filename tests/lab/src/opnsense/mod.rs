//! A double of OPNsense's API: Kea reservations and leases, Unbound host overrides, over HTTPS on loopback.
//!
//! Written from opnsense/core; what changed between releases follows the chosen [`Release`]. It refuses what the
//! real one refuses, in its words, and shares its traps: 200 for refusals, `[]` for what is not there, fields dropped
//! without a word, `{"status":"ok"}` for a reconfigure after which Kea is dead. Where `kea-dhcp4` is installed, its own
//! check decides that last point.
//!
//! Left out: form-encoded bodies, CSV up- and download, raw DHCP options, DDNS, high availability, IPv6, CSRF sessions,
//! writing aliases through their host, names that Unbound takes from DHCP (`regdhcp`, `regdhcpstatic`).
//!
//! ```no_run
//! use lab::opnsense::{OpnsenseDouble, Release};
//!
//! let firewall = OpnsenseDouble::builder()
//!     .release(Release::V25_7)
//!     .subnet("10.0.0.0/24", "10.0.0.100-10.0.0.199")
//!     .start();
//! assert!(firewall.live_reservations().is_empty());
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::kea::RealKea;
use crate::tls::Certificate;
use firewall::Firewall;
use model::{Item, Table};
use route::Daemon;
use server::Shared;
use store::{Store, full_name};

pub use release::Release;
pub use store::Lease;
pub use user::{Privilege, User};

mod api;
mod firewall;
mod grid;
mod kea_conf;
mod model;
mod php;
mod release;
mod route;
mod rules;
mod server;
mod store;
mod user;

/// The key of the user that every double has unless others are given.
pub const KEY: &str = "lab-key";
/// That user's secret.
pub const SECRET: &str = "lab-secret";

/// Something that goes wrong inside the firewall. What goes wrong on the way to it is the proxy's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Kea does not start, whatever its file says; reconfigure still answers `ok`.
    KeaRefusesToStart,
    /// Kea starts, and dies of its file a moment later; its status says `running` until then.
    KeaDiesSoon,
    /// Writes to this field (`next_server`, `option_data.boot_file_name`) are dropped without a word.
    IgnoresField(&'static str),
    /// Writes are answered as saved, and are not.
    ForgetsWrites,
    /// This MAC address gets an address of the pool although it has a reservation.
    PoolAddressFor(String),
    /// The file that a reconfigure writes lacks this MAC address' reservation; it stays stored.
    ReconfigureLoses(String),
    /// Unbound does not start again after a reconfigure.
    UnboundStaysStopped,
}

/// What a DHCP client would get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// The address reserved for it.
    Reserved(Ipv4Addr),
    /// Any address of the pool.
    Pool(Ipv4Addr),
    /// No answer: Kea does not run, or its pool is used up.
    None,
}

/// One request with its answer. Headers are not kept, so no secret is.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    pub method: String,
    /// Path and query as the client wrote them.
    pub path: String,
    /// The JSON body; null without.
    pub body: Value,
    pub status: u16,
    pub answer: Value,
    /// Whether it was a POST to something that changes the firewall.
    pub write: bool,
}

/// A reservation, as it is stored or as Kea runs with it. Empty texts are unset fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservation {
    /// OPNsense's UUID; unknown (empty) for a live one before 26.1.8.
    pub uuid: String,
    /// The subnet in CIDR notation.
    pub subnet: String,
    pub ip_address: String,
    pub hw_address: String,
    pub hostname: String,
    pub description: String,
    pub next_server: String,
    pub tftp_server_name: String,
    pub boot_file_name: String,
}

/// A host override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOverride {
    pub uuid: String,
    pub enabled: bool,
    pub hostname: String,
    pub domain: String,
    pub rr: String,
    pub server: String,
    pub description: String,
}

/// A name that Unbound answers, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The full name; for a PTR record the IP address.
    pub name: String,
    /// `A`, `AAAA`, `MX`, `TXT` or `PTR`.
    pub rr: String,
    pub value: String,
}

/// How a double is to be started.
#[derive(Debug)]
pub struct Builder {
    release: Release,
    address: SocketAddr,
    directory: Option<PathBuf>,
    state_file: Option<PathBuf>,
    users: Vec<User>,
    firewall_address: Option<Ipv4Addr>,
    kea_settings: Vec<(String, String)>,
    seeds: Vec<Seed>,
    leases: Vec<Lease>,
}

#[derive(Debug)]
enum Seed {
    Subnet(Vec<(String, String)>),
    Reservation { subnet: String, values: Vec<(String, String)> },
    Host(Vec<(String, String)>),
}

impl Builder {
    /// The release to behave like (default 26.7.2).
    #[must_use]
    pub fn release(self, release: Release) -> Self {
        Self { release, ..self }
    }

    /// The loopback address and port to listen on (default 127.0.0.1 and a free port).
    #[must_use]
    pub fn listen(self, address: Ipv4Addr, port: u16) -> Self {
        Self { address: SocketAddr::from((address, port)), ..self }
    }

    /// Keeps the certificate in this directory instead of a temporary one.
    #[must_use]
    pub fn certificate_in(self, directory: &Path) -> Self {
        Self { directory: Some(directory.to_owned()), ..self }
    }

    /// Saves the state to this file after each write. A file that is there already is where the double goes on from;
    /// seeds are then left aside.
    #[must_use]
    pub fn state_file(self, file: &Path) -> Self {
        Self { state_file: Some(file.to_owned()), ..self }
    }

    /// A user; the first one given replaces the default ([`KEY`], [`SECRET`]).
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.users.push(user);
        self
    }

    /// The firewall's own address, which saving Kea's settings writes into subnets as router, DNS and NTP server.
    #[must_use]
    pub fn firewall_address(self, address: Ipv4Addr) -> Self {
        Self { firewall_address: Some(address), ..self }
    }

    /// A subnet (CIDR) with its pools (`first-last` or CIDR, one a line; may be empty).
    #[must_use]
    pub fn subnet(self, cidr: &str, pools: &str) -> Self {
        self.subnet_with(&[("subnet", cidr), ("pools", pools)])
    }

    /// A subnet with these fields of the model.
    #[must_use]
    pub fn subnet_with(mut self, values: &[(&str, &str)]) -> Self {
        self.seeds.push(Seed::Subnet(owned(values)));
        self
    }

    /// A reservation in the subnet with this CIDR, which must come before it, with fields of the model
    /// (`option_data.boot_file_name`). Nothing is checked: a state that the API would refuse, or that an older release
    /// let pass, can be seeded.
    #[must_use]
    pub fn reservation(mut self, subnet: &str, values: &[(&str, &str)]) -> Self {
        self.seeds.push(Seed::Reservation { subnet: subnet.to_owned(), values: owned(values) });
        self
    }

    /// A host override with these fields of the model, unchecked.
    #[must_use]
    pub fn host_override(mut self, values: &[(&str, &str)]) -> Self {
        self.seeds.push(Seed::Host(owned(values)));
        self
    }

    /// A lease that Kea has given out.
    #[must_use]
    pub fn lease(mut self, address: &str, mac: &str) -> Self {
        let (address, hwaddr) = (address.to_owned(), mac.to_owned());
        self.leases.push(Lease { address, hwaddr, hostname: String::new(), state: 0 });
        self
    }

    /// One of Kea's general settings: `("enabled", "0")`, `("manual_config", "1")`.
    #[must_use]
    pub fn kea_setting(mut self, field: &str, value: &str) -> Self {
        self.kea_settings.push((field.to_owned(), value.to_owned()));
        self
    }

    /// Starts the double with everything seeded live.
    ///
    /// # Panics
    /// When it cannot: a test has nothing to go on with.
    #[must_use]
    pub fn start(self) -> OpnsenseDouble {
        self.try_start().unwrap_or_else(|error| panic!("OPNsense double: {error:#}"))
    }

    /// # Errors
    /// The port is taken, the state file is unreadable, or a reservation names a subnet that is not there.
    pub fn try_start(self) -> Result<OpnsenseDouble> {
        let certificate = Certificate::make(localhost(self.address), self.directory.as_deref())?;
        let address = self.address;
        let shared = Shared::new(self.firewall()?);
        let (runtime, address) = server::serve(address, &certificate, Arc::clone(&shared))?;
        Ok(OpnsenseDouble { address, certificate, shared, runtime: Some(runtime) })
    }

    fn firewall(self) -> Result<Firewall> {
        let known = self.state_file.as_deref().map(Store::load).transpose()?.flatten();
        let fresh = known.is_none();
        let mut firewall = Firewall {
            release: self.release,
            address: self.firewall_address,
            users: self.users,
            store: known.unwrap_or_else(|| Store::new(self.release)),
            faults: Vec::new(),
            log: Vec::new(),
            state_file: self.state_file,
            kea_dies_at: None,
        };
        firewall.store.migrate(self.release);
        if firewall.users.is_empty() {
            firewall.users.push(User::admin(KEY, SECRET));
        }
        if fresh {
            firewall.store.kea_general.extend(self.kea_settings);
            for seed in &self.seeds {
                plant(&mut firewall, seed)?;
            }
            firewall.store.leases = self.leases;
            firewall.restart(Daemon::Kea);
            firewall.restart(Daemon::Unbound);
            firewall.persist()?;
        }
        Ok(firewall)
    }
}

fn plant(firewall: &mut Firewall, seed: &Seed) -> Result<()> {
    match seed {
        Seed::Subnet(values) => firewall.seed(Table::Subnets, &borrowed(values)),
        Seed::Host(values) => firewall.seed(Table::Hosts, &borrowed(values)),
        Seed::Reservation { subnet, values } => {
            let known = firewall.store.table(Table::Subnets).iter().find(|item| item.get("subnet") == subnet);
            let uuid = known.map(|item| item.uuid.clone());
            let uuid =
                uuid.ok_or_else(|| anyhow::anyhow!("expected a subnet {subnet} before its reservation"))?;
            let mut values = borrowed(values);
            values.push(("subnet", &uuid));
            firewall.seed(Table::Reservations, &values)
        }
    };
    Ok(())
}

fn owned(values: &[(&str, &str)]) -> Vec<(String, String)> {
    values.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
}

fn borrowed(values: &[(String, String)]) -> Vec<(&str, &str)> {
    values.iter().map(|(field, value)| (field.as_str(), value.as_str())).collect()
}

fn localhost(address: SocketAddr) -> Ipv4Addr {
    match address {
        SocketAddr::V4(address) => *address.ip(),
        SocketAddr::V6(_) => Ipv4Addr::LOCALHOST,
    }
}

/// A running double; dropping it stops it.
pub struct OpnsenseDouble {
    address: SocketAddr,
    certificate: Certificate,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl OpnsenseDouble {
    /// A double without subnets, of the newest release.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            release: Release::V26_7_2,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            directory: None,
            state_file: None,
            users: Vec::new(),
            firewall_address: None,
            kea_settings: Vec::new(),
            seeds: Vec::new(),
            leases: Vec::new(),
        }
    }

    /// `https://ADDRESS:PORT`, without a slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The self-signed certificate as a PEM file.
    #[must_use]
    pub fn pem_path(&self) -> &Path {
        self.certificate.pem_path()
    }

    /// SHA-256 of the certificate, upper-case hex pairs with colons.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.certificate.fingerprint()
    }

    /// Every request so far, in order.
    #[must_use]
    pub fn log(&self) -> Vec<Logged> {
        self.shared.firewall().log.clone()
    }

    /// The requests that could change the firewall, reconfigure among them.
    #[must_use]
    pub fn writes(&self) -> Vec<Logged> {
        self.log().into_iter().filter(|logged| logged.write).collect()
    }

    /// The requests that only read.
    #[must_use]
    pub fn reads(&self) -> Vec<Logged> {
        self.log().into_iter().filter(|logged| !logged.write).collect()
    }

    /// How many TLS connections were opened.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Empties the log and the count of connections; the state stays.
    pub fn forget(&self) {
        self.shared.firewall().log.clear();
        self.shared.connections.store(0, Ordering::Relaxed);
    }

    /// From now on `fault` goes wrong too.
    pub fn inject(&self, fault: Fault) {
        self.shared.firewall().faults.push(fault);
    }

    /// Nothing goes wrong any more. What went wrong stays as it is until the next reconfigure.
    pub fn heal(&self) {
        self.shared.firewall().faults.clear();
    }

    /// The reservations that are stored, live or not.
    #[must_use]
    pub fn stored_reservations(&self) -> Vec<Reservation> {
        let firewall = self.shared.firewall();
        firewall.store.table(Table::Reservations).iter().map(|item| stored(item, &firewall.store)).collect()
    }

    /// The reservations that the running Kea has; none when it does not run.
    #[must_use]
    pub fn live_reservations(&self) -> Vec<Reservation> {
        self.shared.firewall().live_hosts().map(|(subnet, host)| live(subnet, host)).collect()
    }

    /// The host overrides that are stored, live or not.
    #[must_use]
    pub fn stored_overrides(&self) -> Vec<HostOverride> {
        self.shared.firewall().store.table(Table::Hosts).iter().map(host_override).collect()
    }

    /// What the running Unbound answers; nothing when it does not run.
    #[must_use]
    pub fn live_records(&self) -> Vec<Record> {
        let firewall = self.shared.firewall();
        let live = &firewall.store.live;
        if live.unbound_running { records(&live.hosts, &live.aliases) } else { Vec::new() }
    }

    /// The leases that Kea has given out.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        self.shared.firewall().store.leases.clone()
    }

    /// What a DHCPDISCOVER from `mac` (six bytes with colons, any case) would be answered. The lease is remembered, as
    /// Kea does.
    #[must_use]
    pub fn address_for(&self, mac: &str) -> Address {
        let mut firewall = self.shared.firewall();
        let address = firewall.address_for(&mac.to_lowercase());
        let _ = firewall.persist();
        address
    }

    /// Kea's file as the last reconfigure wrote it.
    #[must_use]
    pub fn kea_file(&self) -> Value {
        self.shared.firewall().store.live.kea_file.clone()
    }

    /// Why Kea did not start, in its own words.
    #[must_use]
    pub fn kea_refusal(&self) -> Option<String> {
        self.shared.firewall().store.live.kea_refusal.clone()
    }

    /// The real Kea, serving on loopback what the last reconfigure wrote (without what belongs to the firewall's own
    /// machine: devices, hook libraries, paths). Its offers prove what a client would really get.
    ///
    /// # Errors
    /// Kea is not installed, or refuses the file.
    pub fn real_kea(&self) -> Result<RealKea> {
        RealKea::start(&kea_conf::portable(&self.kea_file()))
    }

    /// The UUID of a subnet.
    #[must_use]
    pub fn subnet_uuid(&self, cidr: &str) -> Option<String> {
        let firewall = self.shared.firewall();
        let item = firewall.store.table(Table::Subnets).iter().find(|item| item.get("subnet") == cidr);
        item.map(|item| item.uuid.clone())
    }

    /// Stores a reservation past every rule, as another administrator or an older release might have; returns its
    /// UUID. It is not live before a reconfigure.
    ///
    /// # Panics
    /// There is no such subnet.
    pub fn store_reservation(&self, subnet: &str, values: &[(&str, &str)]) -> String {
        let subnet = self.subnet_uuid(subnet).unwrap_or_else(|| panic!("the double has no subnet {subnet}"));
        let values = [values, &[("subnet", &subnet)]].concat();
        self.shared.firewall().seed(Table::Reservations, &values)
    }

    /// Stores a host override past every rule; returns its UUID. It is not live before a reconfigure.
    pub fn store_override(&self, values: &[(&str, &str)]) -> String {
        self.shared.firewall().seed(Table::Hosts, values)
    }
}

impl Drop for OpnsenseDouble {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn stored(item: &Item, store: &Store) -> Reservation {
    let text = |field: &str| item.get(field).to_owned();
    let subnet = store.find(Table::Subnets, item.get("subnet"));
    Reservation {
        uuid: item.uuid.clone(),
        subnet: subnet.map_or_else(|| text("subnet"), |subnet| subnet.get("subnet").to_owned()),
        ip_address: text("ip_address"),
        hw_address: text("hw_address"),
        hostname: text("hostname"),
        description: text("description"),
        next_server: text("next_server"),
        tftp_server_name: text("option_data.tftp_server_name"),
        boot_file_name: text("option_data.boot_file_name"),
    }
}

fn live(subnet: &Value, host: &Value) -> Reservation {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Reservation {
        uuid: text(&host["user-context"]["uuid"]),
        subnet: text(&subnet["subnet"]),
        ip_address: text(&host["ip-address"]),
        hw_address: text(&host["hw-address"]),
        hostname: text(&host["hostname"]),
        description: text(&host["user-context"]["description"]),
        next_server: text(&host["next-server"]),
        tftp_server_name: kea_conf::option(host, "tftp-server-name").to_owned(),
        boot_file_name: kea_conf::option(host, "boot-file-name").to_owned(),
    }
}

fn host_override(item: &Item) -> HostOverride {
    let text = |field: &str| item.get(field).to_owned();
    HostOverride {
        uuid: item.uuid.clone(),
        enabled: item.get("enabled") == "1",
        hostname: text("hostname"),
        domain: text("domain"),
        rr: text("rr"),
        server: text("server"),
        description: text("description"),
    }
}

/// What plugins.inc.d/unbound.inc writes for host overrides: names, those of their aliases, and one PTR record an
/// address.
fn records(hosts: &[Item], aliases: &[Item]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for host in hosts.iter().filter(|host| host.get("enabled") == "1") {
        let (rr, value) = (host.get("rr"), value(host));
        let own = [host].into_iter();
        let aliases =
            aliases.iter().filter(|alias| alias.get("host") == host.uuid && alias.get("enabled") == "1");
        for named in own.chain(aliases) {
            records.push(Record { name: full_name(named, host), rr: rr.to_owned(), value: value.clone() });
        }
        let is_address = matches!(rr, "A" | "AAAA");
        let has_ptr = records.iter().any(|record| record.rr == "PTR" && record.name == value);
        if is_address && !has_ptr && host.get("addptr") != "0" {
            records.push(Record { name: value, rr: "PTR".to_owned(), value: full_name(host, host) });
        }
    }
    records
}

fn value(host: &Item) -> String {
    match host.get("rr") {
        "MX" => format!("{} {}", host.get("mxprio"), host.get("mx")),
        "TXT" => host.get("txtdata").to_owned(),
        _ => host.get("server").to_owned(),
    }
}

#[cfg(test)]
mod tests;
