//! Launches PyPI's `fakepve`, an independent stand-in for the Proxmox VE API, with TLS.
//!
//! ```no_run
//! # use lab::pve::FakePve;
//! let pve = FakePve::builder().template(8000, "fedora-server-42", "pve1").start();
//! assert_eq!(pve.vm_config(8000)["cores"], 2);
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::http;
use crate::tls::Certificate;

/// The API token every fake has: user, token id and secret.
pub const TOKEN_USER: &str = "anvil@pve";
pub const TOKEN_ID: &str = "lab";
pub const TOKEN_SECRET: &str = "5f1b7c1e-90ab-4f7e-8d0c-lab-pve-token";
/// The password of `root@pam`.
pub const ROOT_PASSWORD: &str = "lab-root-password";

/// What the fake shall begin with.
pub struct FakePveBuilder {
    spec: Map<String, Value>,
    guests: Vec<Value>,
    nodes: Vec<String>,
    storages: Map<String, Value>,
    tokens: Map<String, Value>,
    grants: Vec<Value>,
    agents: Map<String, Value>,
}

impl FakePveBuilder {
    /// A cloud-init template as Proxmox guides make it: 10 GiB on `scsi0`, cloud-init on `ide2`, one virtio NIC.
    #[must_use]
    pub fn template(self, vmid: u32, name: &str, node: &str) -> Self {
        let config = template_config(vmid);
        self.guest("qemu", vmid, name, node, true, config)
    }

    /// A template with this configuration besides its name.
    #[must_use]
    pub fn template_with(self, vmid: u32, name: &str, node: &str, config: Value) -> Self {
        self.guest("qemu", vmid, name, node, true, config)
    }

    /// A stopped VM with this configuration besides its name.
    #[must_use]
    pub fn vm(self, vmid: u32, name: &str, node: &str, config: Value) -> Self {
        self.guest("qemu", vmid, name, node, false, config)
    }

    /// A container: it shares the VMID space.
    #[must_use]
    pub fn container(self, vmid: u32, name: &str, node: &str, config: Value) -> Self {
        self.guest("lxc", vmid, name, node, false, config)
    }

    fn guest(mut self, kind: &str, vmid: u32, name: &str, node: &str, template: bool, config: Value) -> Self {
        self.guests.push(json!({
            "kind": kind, "vmid": vmid, "name": name, "node": node, "template": template,
            "status": "stopped", "config": config,
        }));
        self.node(node)
    }

    /// A node of the cluster (those of the guests are there anyway; the default is `pve1` alone).
    #[must_use]
    pub fn node(mut self, name: &str) -> Self {
        if !self.nodes.iter().any(|known| known == name) {
            self.nodes.push(name.to_owned());
        }
        self
    }

    /// A storage besides `local` and `local-lvm`, with its storage.cfg options.
    #[must_use]
    pub fn storage(mut self, id: &str, options: Value) -> Self {
        self.storages.insert(id.to_owned(), options);
        self
    }

    /// One more API token, `user@realm!id`.
    #[must_use]
    pub fn token(mut self, full_id: &str, secret: &str) -> Self {
        self.tokens.insert(full_id.to_owned(), secret.into());
        self
    }

    /// A guest agent in that VM, which tells these interfaces while the VM runs.
    #[must_use]
    pub fn guest_agent(mut self, vmid: u32, interfaces: Value) -> Self {
        self.agents.insert(vmid.to_string(), interfaces);
        self
    }

    /// Gives `user` privileges on an ACL path. Until the first grant everybody may do everything.
    #[must_use]
    pub fn grant(mut self, user: &str, path: &str, privileges: &[&str]) -> Self {
        self.grants.push(json!([user, path, privileges]));
        self
    }

    /// Real seconds per Proxmox second. With 0, the default, a task is over before its UPID is returned.
    #[must_use]
    pub fn time_scale(mut self, scale: f64) -> Self {
        self.spec.insert("time_scale".into(), scale.into());
        self
    }

    /// Answers as that release does: `7.4`, `8.2`, `8.4` or `9.1`, the default.
    #[must_use]
    pub fn release(mut self, release: &str) -> Self {
        self.spec.insert("release".into(), release.into());
        self
    }

    /// The cluster's list knows guests by number and node only: their broadcast does not come.
    #[must_use]
    pub fn stale_list(mut self) -> Self {
        self.spec.insert("stale_list".into(), true.into());
        self
    }

    /// Proxmox seconds that a clone and a start take.
    #[must_use]
    pub fn task_seconds(mut self, clone: f64, start: f64) -> Self {
        self.spec.insert("clone_secs".into(), clone.into());
        self.spec.insert("start_secs".into(), start.into());
        self
    }

    /// Starts the fake.
    ///
    /// # Panics
    /// When it cannot: a test has nothing to go on with.
    #[must_use]
    pub fn start(self) -> FakePve {
        self.try_start().unwrap_or_else(|error| panic!("fakepve: {error:#}"))
    }

    /// # Errors
    /// When the Python environment is missing or fakepve does not come up.
    pub fn try_start(mut self) -> Result<FakePve> {
        let python = python()?;
        let directory = TempDir::with_prefix("anvil-fakepve-")?;
        let certificate = Certificate::make(Ipv4Addr::LOCALHOST, Some(directory.path()))?;
        let key = certificate.write_key(directory.path())?;
        self.spec.insert("cert".into(), path_text(certificate.pem_path()).into());
        self.spec.insert("key".into(), path_text(&key).into());
        self.spec.insert("guests".into(), self.guests.into());
        self.spec.insert("nodes".into(), self.nodes.into());
        self.spec.insert("storages".into(), self.storages.into());
        self.spec.insert("tokens".into(), self.tokens.into());
        self.spec.insert("grants".into(), self.grants.into());
        self.spec.insert("agents".into(), self.agents.into());
        let child = Command::new(python)
            .arg(crate::checkout().join("tests/lab/fakepve_server.py"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        // Owned from here on, so that it does not outlive a failure.
        let mut pve = FakePve { port: 0, child, certificate, _directory: directory };
        pve.port = first_words(&mut pve.child, &Value::Object(self.spec))?;
        Ok(pve)
    }
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Tells the server what to be, and waits for the port it listens on.
fn first_words(child: &mut Child, spec: &Value) -> Result<u16> {
    let stdin = child.stdin.as_mut().context("no stdin")?;
    writeln!(stdin, "{spec}")?;
    stdin.flush()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    let ready: Value =
        serde_json::from_str(&line).context("it ended before it listened; its words are above")?;
    Ok(u16::try_from(ready["port"].as_u64().unwrap_or_default())?)
}

/// The Python of the project's environment: `$ANVIL_VENV`, else `.venv` in the checkout.
///
/// # Errors
/// When there is none; says how to make it.
pub fn python() -> Result<PathBuf> {
    let venv = match std::env::var_os("ANVIL_VENV") {
        Some(venv) => PathBuf::from(venv),
        None => crate::checkout().join(".venv"),
    };
    let python = venv.join("bin/python");
    ensure!(
        python.exists(),
        "expected the project's Python environment, found no {}: run `make setup`, or set ANVIL_VENV",
        python.display()
    );
    Ok(python)
}

/// The configuration of [`FakePveBuilder::template`], without the name.
#[must_use]
pub fn template_config(vmid: u32) -> Value {
    json!({
        "agent": "1", "boot": "order=scsi0", "cores": 2, "cpu": "x86-64-v2-AES", "memory": "2048",
        "ide2": format!("local-lvm:vm-{vmid}-cloudinit,media=cdrom"),
        "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "ostype": "l26",
        "scsi0": format!("local-lvm:base-{vmid}-disk-0,discard=on,size=10G,ssd=1"),
        "scsihw": "virtio-scsi-single", "serial0": "socket", "template": 1, "vga": "serial0",
        "smbios1": "uuid=00000000-0000-4000-8000-000000000001",
        "vmgenid": "00000000-0000-4000-8000-000000000002",
    })
}

/// A running fake; it ends when this is dropped, or when this process does.
pub struct FakePve {
    port: u16,
    child: Child,
    certificate: Certificate,
    _directory: TempDir,
}

impl FakePve {
    #[must_use]
    pub fn builder() -> FakePveBuilder {
        let spec = json!({
            "host": "127.0.0.1", "port": 0, "password": ROOT_PASSWORD,
            "time_scale": 0.0, "clone_secs": 0.0, "start_secs": 0.0, "release": "9.1", "stale_list": false,
        });
        let Value::Object(spec) = spec else { unreachable!() };
        FakePveBuilder {
            spec,
            guests: Vec::new(),
            nodes: Vec::new(),
            storages: Map::new(),
            tokens: Map::new(),
            grants: Vec::new(),
            agents: Map::new(),
        }
        .token(&format!("{TOKEN_USER}!{TOKEN_ID}"), TOKEN_SECRET)
        .node("pve1")
    }

    #[must_use]
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host(), self.port)
    }

    /// The PEM file of its certificate.
    #[must_use]
    pub fn ca_path(&self) -> &Path {
        self.certificate.pem_path()
    }

    /// SHA-256 of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.certificate.fingerprint()
    }

    /// `data` of a GET below `/api2/json`, asked with the lab's token.
    ///
    /// # Panics
    /// When the answer is an error: quotes it.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, &[]).unwrap_or_else(|error| panic!("GET {path}: {error:#}"))
    }

    /// Sends a request below `/api2/json` with these form parameters, and returns its `data`.
    ///
    /// # Errors
    /// Whatever the fake refuses, in its words.
    pub fn call(&self, method: &str, path: &str, form: &[(&str, &str)]) -> Result<Value> {
        call(&self.url(), method, path, form)
    }

    /// The VMs of `/cluster/resources?type=vm`, templates included.
    #[must_use]
    pub fn vms(&self) -> Vec<Value> {
        self.get("/cluster/resources?type=vm").as_array().cloned().unwrap_or_default()
    }

    /// The node a VM lives on, if there is such a VM.
    #[must_use]
    pub fn node_of(&self, vmid: u32) -> Option<String> {
        let vms = self.vms();
        let vm = vms.iter().find(|vm| vm["vmid"] == vmid)?;
        vm["node"].as_str().map(str::to_owned)
    }

    /// The configuration of a VM.
    ///
    /// # Panics
    /// When there is no such VM.
    #[must_use]
    pub fn vm_config(&self, vmid: u32) -> Value {
        self.get(&self.vm_path(vmid, "config"))
    }

    /// `running` or `stopped`.
    ///
    /// # Panics
    /// When there is no such VM.
    #[must_use]
    pub fn vm_status(&self, vmid: u32) -> String {
        let status = self.get(&self.vm_path(vmid, "status/current"));
        status["status"].as_str().unwrap_or_default().to_owned()
    }

    fn vm_path(&self, vmid: u32, rest: &str) -> String {
        let node = self.node_of(vmid).unwrap_or_else(|| panic!("there is no VM {vmid}"));
        format!("/nodes/{node}/qemu/{vmid}/{rest}")
    }
}

/// Sends one request with the lab's token to a Proxmox API at `base`.
///
/// # Errors
/// Whatever the server refuses, in its words.
pub fn call(base: &str, method: &str, path: &str, form: &[(&str, &str)]) -> Result<Value> {
    let mut headers = vec![format!("Authorization: PVEAPIToken={TOKEN_USER}!{TOKEN_ID}={TOKEN_SECRET}")];
    let body: Vec<_> = form.iter().map(|(key, value)| format!("{key}={}", percent_encoded(value))).collect();
    if !body.is_empty() {
        headers.push("Content-Type: application/x-www-form-urlencoded".into());
    }
    let answer = http::request(base, method, &format!("/api2/json{path}"), &headers, &body.join("&"))?;
    Ok(answer.json()?["data"].take())
}

fn percent_encoded(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

impl Drop for FakePve {
    fn drop(&mut self) {
        // Killed, not asked: a test is over at once, and it keeps nothing on disk.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
