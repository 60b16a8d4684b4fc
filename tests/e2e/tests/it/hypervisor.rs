//! fakepve with a machine of QEMU for its VM: power and boot order of the one are those of the other.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use lab::program::with;
use lab::proxy::{Fate, Proxy};
use lab::pve::{FakePve, TOKEN_ID, TOKEN_SECRET, TOKEN_USER};
use lab::qemu::{Boot, Machine};
use serde_json::{Value, json};

pub(crate) const VMID: u32 = 1101;
const NODE: &str = "pve1";

/// Modules reach it through a proxy, which tells the machine of `start` and `stop` before the fake hears of it.
pub(crate) struct Hypervisor {
    pub(crate) proxy: Proxy,
    _pve: FakePve,
    machine: Arc<Mutex<Machine>>,
}

enum Power {
    On,
    Off,
}

impl Hypervisor {
    /// One that has no VM yet; the first to be started is `machine`, whose MAC address it must have. `before_off` is
    /// called when the VM is about to be stopped.
    pub(crate) fn start(machine: Machine, mac: &str, before_off: impl Fn() + Send + 'static) -> Self {
        let pve = FakePve::builder().node(NODE).start();
        let proxy = Proxy::to(&pve.url()).tls().start();
        let machine = Arc::new(Mutex::new(machine));
        let (orders, inbox) = channel::<(Power, Sender<()>)>();
        let (its, url, mac) = (Arc::clone(&machine), pve.url(), mac.to_owned());
        // A machine ends with the thread that started it, and the proxy's come and go.
        thread::spawn(move || {
            for (power, done) in inbox {
                match power {
                    Power::On => power_on(&url, &mac, &mut lock(&its)).unwrap(),
                    Power::Off => {
                        before_off();
                        lock(&its).cut_power().unwrap();
                    }
                }
                let _ = done.send(());
            }
        });
        for (path, make) in [("/status/start", Power::on as fn() -> Power), ("/status/stop", Power::off)] {
            let orders = Mutex::new(orders.clone());
            proxy.on("POST", path).always().call(move || {
                let (done, answer) = channel();
                let sent = orders.lock().unwrap_or_else(PoisonError::into_inner).send((make(), done));
                let _ = sent.map(|()| answer.recv());
                Fate::Forward
            });
        }
        Self { proxy, _pve: pve, machine }
    }

    /// The machine, for as long as nobody switches it.
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    /// How modules reach it, and `more`.
    pub(crate) fn options(&self, more: Value) -> Value {
        let reach = json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_user": TOKEN_USER, "api_token_id": TOKEN_ID, "api_token_secret": TOKEN_SECRET,
            "vmid": VMID, "name": "web01",
        });
        with(&reach, more)
    }
}

impl Power {
    fn on() -> Self {
        Self::On
    }

    fn off() -> Self {
        Self::Off
    }
}

fn power_on(url: &str, mac: &str, machine: &mut Machine) -> Result<()> {
    // A start is what makes pending values the current ones.
    let config = lab::pve::call(url, "GET", &format!("/nodes/{NODE}/qemu/{VMID}/pending"), &[])?;
    let entry = |key: &str| config.as_array().and_then(|all| all.iter().find(|entry| entry["key"] == key));
    let value = |entry: &Value| {
        entry.get("pending").or(entry.get("value")).and_then(Value::as_str).map(str::to_owned)
    };
    let text = |key: &str| entry(key).and_then(value).unwrap_or_default();
    ensure!(text("net0").to_lowercase().contains(mac), "expected {mac} in net0, found {config}");
    ensure!(text("rng0").contains("/dev/urandom"), "expected an rng0, found {config}");
    let boot = text("boot");
    let order = boot.strip_prefix("order=").with_context(|| format!("no boot order in {config}"))?;
    machine.start(match order {
        "net0" => Boot::Network,
        "scsi0" => Boot::Disk,
        "net0;scsi0" => Boot::NetworkThenDisk,
        "scsi0;net0" => Boot::DiskThenNetwork,
        other => bail!("this machine cannot boot in the order {other}"),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
