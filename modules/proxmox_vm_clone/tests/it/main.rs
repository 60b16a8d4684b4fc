//! The binary from outside, against a real fakepve behind a proxy that breaks things.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod creation;
mod existing;
mod fault_table;
mod faults;
mod plays;
mod rebuild;
mod refusals;
mod releases;
mod removal;
mod reports;

use std::collections::BTreeSet;

use lab::program::{Program, with};
use lab::proxy::Proxy;
use lab::pve::{FakePve, FakePveBuilder, TOKEN_ID, TOKEN_SECRET, TOKEN_USER};
use serde_json::{Value, json};

const MAC: &str = "02:a5:00:00:04:4d";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBad+/Key= admin@site:1";
const PASSWORD: &str = "guest-Passw0rd/+=";

struct Site {
    pve: FakePve,
    proxy: Proxy,
    module: Program,
}

impl Site {
    fn new(pve: FakePveBuilder) -> Self {
        let pve = pve.start();
        let proxy = Proxy::to(&pve.url()).tls().start();
        Self { pve, proxy, module: Program::new(env!("CARGO_BIN_EXE_proxmox_vm_clone")) }
    }

    fn with(&self, options: &Value) -> Value {
        through(&self.proxy, options)
    }

    fn run(&self, options: &Value) -> lab::program::Outcome {
        let outcome = self.module.run(&self.with(options));
        self.assert_nothing_leaks(&outcome.output);
        outcome
    }

    /// The result of a run that must not fail.
    fn done(&self, options: &Value) -> Value {
        self.run(options).done()
    }

    /// The result of a run that must fail.
    fn failed(&self, options: &Value) -> Value {
        self.run(options).failed()
    }

    fn check(&self, options: &Value) -> lab::program::Outcome {
        let outcome = self.module.check(&self.with(options));
        self.assert_nothing_leaks(&outcome.output);
        outcome
    }

    fn assert_nothing_leaks(&self, output: &str) {
        for secret in [TOKEN_SECRET, PASSWORD] {
            assert!(!output.contains(secret), "a secret is in: {output}");
        }
        assert_eq!(lab::pve_schema::complaints(&self.proxy.log()), Vec::<String>::new());
    }

    /// The configuration of VM 1101.
    fn config(&self) -> Value {
        self.pve.vm_config(1101)
    }

    /// The methods and paths of the requests since the last `forget`, polls of tasks folded into one.
    fn requests(&self) -> Vec<String> {
        let mut requests: Vec<String> = self
            .proxy
            .log()
            .iter()
            .map(|one| {
                let path = one.path.trim_start_matches("/api2/json");
                match path.split_once("/tasks/") {
                    Some((node, rest)) => {
                        format!("{} {node}/tasks/UPID/{}", one.method, rest.rsplit('/').next().unwrap())
                    }
                    None => format!("{} {path}", one.method),
                }
            })
            .collect();
        requests.dedup();
        requests
    }

    /// web01 is exactly what was declared, and runs; there is one of it.
    fn assert_built(&self) {
        self.assert_host_built(1);
    }

    fn assert_host_built(&self, number: u32) {
        assert_host_built(&self.pve, number);
    }
}

/// The host of [`host`] is exactly what was declared, and runs; there is one of it, and no volume that it does not name.
fn assert_host_built(pve: &FakePve, number: u32) {
    let (vmid, name) = (1100 + number, format!("web{number:02}"));
    let config = pve.vm_config(vmid);
    let has = |key: &str, part: &str| {
        let text = config[key].as_str().map_or_else(|| config[key].to_string(), str::to_owned);
        assert!(text.contains(part), "{key}: expected {part} in {text}; {config}");
    };
    has("name", &name);
    has("net0", &format!("virtio=02:A5:00:00:04:{:02X},bridge=vmbr1,tag=20", 0x4c + number));
    has("scsi0", "size=40G");
    has("scsi0", "discard=on");
    has("scsi1", &format!("serial={name}-data"));
    has("scsi1", "size=100G");
    has("cores", "4");
    has("memory", "8192");
    has("tags", "prod;web");
    has("boot", "order=scsi0;net0");
    has("ipconfig0", "ip=dhcp");
    has("ciuser", "admin");
    has("cipassword", "****");
    assert_eq!(config["description"], "Serves the web");
    assert!(config.get("unused0").is_none(), "an orphaned disk: {config}");
    assert_eq!(pve.vm_status(vmid), "running");
    assert_eq!(vms_named(pve, &name), 1);
    assert_no_orphans(pve, vmid);
}

/// How many VMs have a name, asked of their nodes: the cluster's list may be behind.
fn vms_named(pve: &FakePve, name: &str) -> usize {
    let nodes: BTreeSet<String> =
        pve.vms().iter().filter_map(|vm| vm["node"].as_str().map(str::to_owned)).collect();
    let lists = nodes.iter().map(|node| pve.get(&format!("/nodes/{node}/qemu")));
    lists.map(|list| list.as_array().unwrap().iter().filter(|vm| vm["name"] == name).count()).sum()
}

/// Every volume that belongs to a VMID is named by that VM's configuration.
fn assert_no_orphans(pve: &FakePve, vmid: u32) {
    let config = pve.node_of(vmid).map_or(Value::Null, |_| pve.vm_config(vmid));
    let named: Vec<&str> =
        config.as_object().into_iter().flat_map(|all| all.values()).filter_map(Value::as_str).collect();
    for (volume, _) in rebuild::volumes(pve, vmid) {
        let is_named = |text: &&&str| text.split(',').next() == Some(volume.as_str());
        assert!(named.iter().find(is_named).is_some(), "an orphaned volume: {volume}; {config}");
    }
}

/// `options` and how to reach the cluster behind a proxy.
fn through(proxy: &Proxy, options: &Value) -> Value {
    let reach = json!({
        "api_host": proxy.host(), "api_port": proxy.port(), "ca_path": proxy.ca_path(),
        "api_user": TOKEN_USER, "api_token_id": TOKEN_ID, "api_token_secret": TOKEN_SECRET,
        "timeout": 60, "_ansible_inject_invocation": false,
    });
    with(&reach, options.clone())
}

/// Two Fedora templates, the older with the higher VMID.
fn house() -> FakePveBuilder {
    FakePve::builder().template(8042, "fedora-server-42", "pve1").template(8099, "fedora-server-9", "pve1")
}

/// Everything a host of the site declares.
fn web01() -> Value {
    host(1)
}

/// web01, web02 ...: many hosts fit on one cluster, which takes longer to start than a host to build.
fn host(number: u32) -> Value {
    let name = format!("web{number:02}");
    json!({
        "vmid": 1100 + number, "name": name, "template_prefix": "fedora-server-", "cores": 4, "memory": 8192,
        "net": [{
            "slot": "net0", "mac": format!("02:a5:00:00:04:{:02x}", 0x4c + number), "bridge": "vmbr1", "vlan": 20,
        }],
        "disks": [{
            "slot": "scsi1", "storage": "local-lvm", "size": 100, "serial": format!("{name}-data"), "discard": true,
        }],
        "os_disk": {"size": 40},
        "cloud_init": {
            "user": "admin", "password": PASSWORD, "ssh_keys": [KEY], "ip_config": [{"ip": "dhcp"}],
        },
        "tags": ["web", "prod"], "description": "Serves the web", "boot_order": ["scsi0", "net0"],
        "state": "started",
    })
}

fn web01_with(others: Value) -> Value {
    with(&web01(), others)
}
