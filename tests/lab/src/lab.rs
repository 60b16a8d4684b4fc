//! The whole lab: a Proxmox VE, an OPNsense and the guests that boot, all on loopback and high ports.
//!
//! Both APIs stand behind a [`Proxy`], so that every request is counted and any can be broken. A VM that is
//! started asks the firewall for an address, as its DHCP client would, and comes up there as a real sshd.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guests::{Guest, KeyPair};
use crate::opnsense::{Address, OpnsenseDouble};
use crate::proxy::Proxy;
use crate::pve::{self, FakePve};

/// The network that the lab's inventory declares.
pub const SUBNET: &str = "127.20.30.0/24";
/// What a guest without a reservation gets an address from.
pub const POOL: &str = "127.20.30.200-127.20.30.250";
/// The node that the templates live on.
pub const NODE: &str = "pve1";
/// The templates, an older and a newer one.
pub const TEMPLATES: [(u32, &str); 2] = [(8000, "fedora-server-41-1.4"), (8001, "fedora-server-42-1.1")];

/// How often the supervisor looks which VMs run.
const LOOKS_EVERY: Duration = Duration::from_millis(150);

/// How the lab is to be started.
#[derive(Default)]
pub struct LabBuilder {
    directory: Option<PathBuf>,
    real_time: bool,
    pve: Option<FakePve>,
}

impl LabBuilder {
    /// Keeps keys, certificates and the inventory in this directory instead of a temporary one.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Clones and starts take a second or so, as on a fast machine, instead of no time.
    #[must_use]
    pub fn real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// Another cluster than the one with [`TEMPLATES`] on [`NODE`].
    #[must_use]
    pub fn proxmox(mut self, pve: FakePve) -> Self {
        self.pve = Some(pve);
        self
    }

    /// Starts everything.
    ///
    /// # Panics
    /// When something does not start: a test has nothing to go on with.
    #[must_use]
    pub fn start(self) -> Lab {
        self.try_start().unwrap_or_else(|error| panic!("lab: {error:#}"))
    }

    /// # Errors
    /// When a part does not start, and which.
    pub fn try_start(self) -> Result<Lab> {
        let temporary = TempDir::with_prefix("anvil-lab-")?;
        let directory = self.directory.unwrap_or_else(|| temporary.path().to_owned());
        fs::create_dir_all(&directory)?;
        let pve = match self.pve {
            Some(pve) => pve,
            None => cluster(self.real_time)?,
        };
        let firewall = Arc::new(OpnsenseDouble::builder().subnet(SUBNET, POOL).try_start()?);
        let proxmox = Proxy::to(&pve.url()).tls().certificate_in(&subdirectory(&directory, "proxmox")?);
        let opnsense =
            Proxy::to(&firewall.url()).tls().certificate_in(&subdirectory(&directory, "opnsense")?);
        let (proxmox, opnsense) = (proxmox.try_start()?, opnsense.try_start()?);
        let key = KeyPair::make(&subdirectory(&directory, "ssh")?, "id_ed25519")?;
        let guest_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let supervisor = Supervisor::start(pve.url(), Arc::clone(&firewall), guest_port, key.public.clone());
        let lab = Lab {
            directory,
            supervisor,
            proxmox,
            opnsense,
            pve,
            firewall,
            key,
            guest_port,
            _temporary: temporary,
        };
        lab.write_inventory()?;
        lab.write_description()?;
        Ok(lab)
    }
}

fn cluster(real_time: bool) -> Result<FakePve> {
    let mut builder = FakePve::builder().node(NODE);
    for (vmid, name) in TEMPLATES {
        builder = builder.template(vmid, name, NODE);
    }
    if real_time {
        builder = builder.time_scale(1.0).task_seconds(1.0, 0.5);
    }
    builder.try_start()
}

fn subdirectory(directory: &Path, name: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// A running lab; everything stops when it is dropped.
pub struct Lab {
    directory: PathBuf,
    supervisor: Supervisor,
    proxmox: Proxy,
    opnsense: Proxy,
    pve: FakePve,
    firewall: Arc<OpnsenseDouble>,
    key: KeyPair,
    guest_port: u16,
    _temporary: TempDir,
}

impl Lab {
    #[must_use]
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    /// The lab as most tests want it.
    ///
    /// # Panics
    /// When something does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// The cluster itself; requests to it are not in the proxy's log.
    #[must_use]
    pub fn pve(&self) -> &FakePve {
        &self.pve
    }

    /// The firewall itself.
    #[must_use]
    pub fn firewall(&self) -> &OpnsenseDouble {
        &self.firewall
    }

    /// What the modules see of the cluster: log and faults.
    #[must_use]
    pub fn proxmox(&self) -> &Proxy {
        &self.proxmox
    }

    /// What the modules see of the firewall: log and faults.
    #[must_use]
    pub fn opnsense(&self) -> &Proxy {
        &self.opnsense
    }

    /// The key that the guests let in.
    #[must_use]
    pub fn key(&self) -> &KeyPair {
        &self.key
    }

    /// The port on which every guest's sshd listens.
    #[must_use]
    pub fn guest_port(&self) -> u16 {
        self.guest_port
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The inventory: a copy of `tests/lab/inventory` with the lab's addresses; identities are written into it.
    #[must_use]
    pub fn inventory(&self) -> PathBuf {
        self.directory.join("inventory/hosts.yml")
    }

    /// The file of host keys that the inventory names.
    #[must_use]
    pub fn known_hosts(&self) -> PathBuf {
        self.directory.join("ssh/known_hosts")
    }

    /// What happened to guests so far, a line each.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        self.supervisor.state().events.clone()
    }

    /// The address on which the guest of a VM is up.
    #[must_use]
    pub fn guest_address(&self, vmid: u32) -> Option<Ipv4Addr> {
        self.supervisor.state().up.get(&vmid).copied()
    }

    /// The environment that `ansible-playbook` needs: the secrets of both APIs, nothing else.
    #[must_use]
    pub fn secrets(&self) -> [(&'static str, &'static str); 2] {
        [("PROXMOX_TOKEN_SECRET", pve::TOKEN_SECRET), ("OPNSENSE_API_SECRET", crate::opnsense::SECRET)]
    }

    /// The inventory's `anvil_proxmox_api` and `anvil_opnsense_api`: everything but the secrets.
    #[must_use]
    pub fn connections(&self) -> (Value, Value) {
        let proxmox = json!({
            "api_host": self.proxmox.host(), "api_port": self.proxmox.port(),
            "api_user": pve::TOKEN_USER, "api_token_id": pve::TOKEN_ID, "ca_path": self.proxmox.ca_path(),
        });
        let opnsense = json!({
            "api_host": self.opnsense.host(), "api_port": self.opnsense.port(),
            "api_key": crate::opnsense::KEY, "ca_path": self.opnsense.ca_path(),
        });
        (proxmox, opnsense)
    }

    fn write_inventory(&self) -> Result<()> {
        let source = crate::checkout().join("tests/lab/inventory");
        let target = self.directory.join("inventory");
        copy_tree(&source, &target)?;
        let (proxmox, opnsense) = self.connections();
        let vars = json!({
            "ansible_user": current_user()?,
            "ansible_port": self.guest_port,
            "ansible_ssh_private_key_file": self.key.private,
            // No connection outlives its task, so nothing is left running.
            "ansible_ssh_args": format!(
                "-F /dev/null -o ControlMaster=no -o IdentitiesOnly=yes -o UserKnownHostsFile={}",
                self.known_hosts().display()
            ),
            "anvil_proxmox_api": proxmox,
            "anvil_opnsense_api": opnsense,
            "guest_ready_known_hosts": self.known_hosts(),
            "proxmox_vm_ssh_keys": [self.key.public],
        });
        let group = subdirectory(&target, "group_vars/management_plane")?;
        Ok(fs::write(group.join("lab.yml"), format!("{vars:#}\n"))?)
    }

    /// `lab.json`: where everything is. Written last, so whoever waits for it finds the rest.
    fn write_description(&self) -> Result<()> {
        let text = json!({
            "pid": std::process::id(),
            "inventory": self.inventory(),
            "proxmox": {
                "url": self.proxmox.url(), "ca_path": self.proxmox.ca_path(),
                "fingerprint": self.proxmox.fingerprint(),
                "user": pve::TOKEN_USER, "token_id": pve::TOKEN_ID, "token_secret": pve::TOKEN_SECRET,
            },
            "opnsense": {
                "url": self.opnsense.url(), "ca_path": self.opnsense.ca_path(),
                "fingerprint": self.opnsense.fingerprint(),
                "key": crate::opnsense::KEY, "secret": crate::opnsense::SECRET,
                "subnet": SUBNET, "pool": POOL,
            },
            "guests": {
                "port": self.guest_port, "private_key": self.key.private, "known_hosts": self.known_hosts(),
            },
        });
        let unfinished = self.directory.join(".lab.json");
        let mut file =
            fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        std::io::Write::write_all(&mut file, format!("{text:#}\n").as_bytes())?;
        Ok(fs::rename(unfinished, self.directory.join("lab.json"))?)
    }
}

/// A guest's sshd runs as this user, so nobody else can log in.
fn current_user() -> Result<String> {
    let said = Command::new("id").arg("-un").output().context("cannot run id")?;
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Starts a guest for every VM that runs, and stops those of the others.
struct Supervisor {
    stop: Option<Sender<()>>,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    up: BTreeMap<u32, Ipv4Addr>,
    events: Vec<String>,
}

impl Supervisor {
    fn start(
        pve_url: String,
        firewall: Arc<OpnsenseDouble>,
        guest_port: u16,
        installers_key: String,
    ) -> Self {
        let (stop, stopped) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let watch = Watch {
            pve_url,
            firewall,
            guest_port,
            installers_key,
            state: Arc::clone(&state),
            guests: BTreeMap::new(),
        };
        let thread = thread::spawn(move || watch.until(&stopped));
        Self { stop: Some(stop), state, thread: Some(thread) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watch {
    pve_url: String,
    firewall: Arc<OpnsenseDouble>,
    guest_port: u16,
    /// Let in by guests that no cloud-init told whom to let in.
    installers_key: String,
    state: Arc<Mutex<State>>,
    guests: BTreeMap<u32, Guest>,
}

impl Watch {
    fn until(mut self, stopped: &Receiver<()>) {
        let mut last_trouble = String::new();
        while stopped.recv_timeout(LOOKS_EVERY) == Err(RecvTimeoutError::Timeout) {
            match self.look() {
                Ok(()) => last_trouble.clear(),
                Err(error) => {
                    let trouble = format!("lab: {error:#}");
                    if trouble != last_trouble {
                        self.note(&trouble);
                    }
                    last_trouble = trouble;
                }
            }
        }
    }

    fn look(&mut self) -> Result<()> {
        let vms = pve::call(&self.pve_url, "GET", "/cluster/resources?type=vm", &[])?;
        let running: BTreeMap<u32, &str> = vms
            .as_array()
            .into_iter()
            .flatten()
            .filter(|vm| vm["status"] == "running")
            .filter_map(|vm| Some((u32::try_from(vm["vmid"].as_u64()?).ok()?, vm["node"].as_str()?)))
            .collect();
        let down: Vec<u32> = self.guests.keys().filter(|vmid| !running.contains_key(vmid)).copied().collect();
        for vmid in down {
            self.power_off(vmid);
        }
        for (vmid, node) in running {
            if !self.guests.contains_key(&vmid) {
                self.boot(vmid, node)?;
            }
        }
        Ok(())
    }

    fn boot(&mut self, vmid: u32, node: &str) -> Result<()> {
        let config = pve::call(&self.pve_url, "GET", &format!("/nodes/{node}/qemu/{vmid}/config"), &[])?;
        let machine = Machine::read(&config)?;
        let (address, source) = match self.firewall.address_for(&machine.mac) {
            Address::Reserved(address) => (address, "reserved"),
            Address::Pool(address) => (address, "out of the pool"),
            Address::None => return Ok(()),
        };
        let keys = if machine.cloud_init { &machine.ssh_keys } else { &self.installers_key };
        let mut guest = Guest::builder(&machine.name, address, self.guest_port).authorized_keys(keys);
        if let Some(size) = machine.os_disk_gib {
            guest = guest.root_size_gib(size);
        }
        self.guests.insert(vmid, guest.try_start()?);
        self.change(|state| state.up.insert(vmid, address));
        self.note(&format!("{} (VM {vmid}, {}) is up on {address}, {source}", machine.name, machine.mac));
        Ok(())
    }

    fn power_off(&mut self, vmid: u32) {
        if let Some(guest) = self.guests.remove(&vmid) {
            self.note(&format!("{} (VM {vmid}) is down", guest.name()));
        }
        self.change(|state| state.up.remove(&vmid));
    }

    fn note(&self, event: &str) {
        self.change(|state| state.events.push(event.to_owned()));
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        change(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

/// What a VM's configuration says about the machine that boots.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    name: String,
    mac: String,
    /// Without it the guest was installed.
    cloud_init: bool,
    ssh_keys: String,
    os_disk_gib: Option<u64>,
}

impl Machine {
    fn read(config: &Value) -> Result<Self> {
        let text = |key: &str| config[key].as_str().unwrap_or_default();
        let net0 = text("net0").split(',').next().unwrap_or_default();
        let (_, mac) = net0.split_once('=').with_context(|| format!("no MAC in net0: {:?}", text("net0")))?;
        let size = text("scsi0").split(',').find_map(|option| option.strip_prefix("size="));
        Ok(Self {
            name: text("name").to_owned(),
            mac: mac.to_owned(),
            cloud_init: text("ide2").contains("cloudinit"),
            ssh_keys: percent_decoded(text("sshkeys")),
            os_disk_gib: size.and_then(|size| size.strip_suffix('G')?.parse().ok()),
        })
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let pair = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_what_boots() {
        let config = json!({
            "name": "web01", "net0": "virtio=02:A5:00:00:00:65,bridge=vmbr0,tag=30",
            "scsi0": "local-lvm:vm-101-disk-0,discard=on,size=64G", "ide2": "local-lvm:vm-101-cloudinit,media=cdrom", "sshkeys": "ssh-ed25519%20AAAA%2B%2F%20me%0A",
        });
        let machine = Machine {
            name: "web01".into(),
            mac: "02:A5:00:00:00:65".into(),
            cloud_init: true,
            ssh_keys: "ssh-ed25519 AAAA+/ me\n".into(),
            os_disk_gib: Some(64),
        };
        assert_eq!(Machine::read(&config).unwrap(), machine);
        let without = Machine::read(&json!({"net0": "virtio=02:A5:00:00:00:65"})).unwrap();
        assert_eq!((without.cloud_init, without.ssh_keys.as_str(), without.os_disk_gib), (false, "", None));
        assert!(
            Machine::read(&json!({"net0": "virtio"})).unwrap_err().to_string().contains("no MAC in net0")
        );
    }

    #[test]
    fn what_is_no_percent_code_stays() {
        assert_eq!(percent_decoded("50%, %4 %zz %41"), "50%, %4 %zz A");
    }
}
