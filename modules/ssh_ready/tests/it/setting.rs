//! Where a test takes place: an address of its own, a key, a known_hosts file.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use lab::guests::{Guest, GuestBuilder, KeyPair};
use lab::opnsense::OpnsenseDouble;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Each test gets its own loopback address, so that ports never collide.
static NEXT: AtomicU8 = AtomicU8::new(1);

pub(crate) struct Setting {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
    public_key: String,
    private_key: PathBuf,
    directory: TempDir,
}

pub(crate) fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

impl Setting {
    pub(crate) fn new() -> Self {
        let address = Ipv4Addr::new(127, 77, 1, NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = TempDir::new().unwrap();
        let key = KeyPair::make(directory.path(), "id").unwrap();
        Self {
            address,
            port: free_port(address),
            public_key: key.public,
            private_key: key.private,
            directory,
        }
    }

    pub(crate) fn guest(&self, name: &str) -> GuestBuilder {
        self.guest_at(name, self.address)
    }

    pub(crate) fn guest_at(&self, name: &str, address: Ipv4Addr) -> GuestBuilder {
        Guest::builder(name, address, self.port).authorized_keys(&self.public_key)
    }

    /// Arguments that reach the guest, with further ones.
    pub(crate) fn asks(&self, further: &Value) -> Value {
        let own = json!({
            "host": self.address.to_string(),
            "port": self.port,
            "user": user(),
            "private_key_file": self.private_key,
            "known_hosts": self.known_hosts_file(),
            "timeout": 60,
        });
        super::with(&own, further)
    }

    pub(crate) fn with_firewall(&self, firewall: &OpnsenseDouble, mac: &str) -> Value {
        let address = firewall.address();
        json!({
            "mac": mac,
            "api_host": address.ip().to_string(),
            "api_port": address.port(),
            "api_key": lab::opnsense::KEY,
            "api_secret": lab::opnsense::SECRET,
            "ca_path": firewall.pem_path(),
        })
    }

    pub(crate) fn run(&self, arguments: &Value) -> Value {
        self.run_with(arguments, None)
    }

    /// A run that finds this SSH agent.
    pub(crate) fn run_with(&self, arguments: &Value, agent: Option<&Agent>) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_ssh_ready"))
            .env_clear()
            .env("HOME", self.directory.path())
            .envs(agent.map(|agent| ("SSH_AUTH_SOCK", agent.socket.as_path())))
            .write_stdin(arguments.to_string())
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON object on standard output")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn known_hosts_file(&self) -> PathBuf {
        self.path("known_hosts")
    }

    /// Empty when the file does not exist.
    pub(crate) fn known_hosts(&self) -> String {
        fs::read_to_string(self.known_hosts_file()).unwrap_or_default()
    }

    /// Whether ssh(1) logs in when it trusts nothing but our file.
    pub(crate) fn openssh_logs_in(&self) -> bool {
        std::process::Command::new("ssh")
            .args(["-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"])
            .args(["-o", "GlobalKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-o"])
            .arg(format!("UserKnownHostsFile={}", self.known_hosts_file().display()))
            .args([Path::new("-i"), &self.private_key])
            .args(["-p", &self.port.to_string(), &self.address.to_string(), "true"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    }
}

/// An SSH agent; it ends with the test.
pub(crate) struct Agent {
    socket: PathBuf,
    child: Child,
}

impl Agent {
    pub(crate) fn start(setting: &Setting) -> Self {
        let socket = setting.path("agent");
        let child = std::process::Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "ssh-agent", "-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("setpriv (util-linux) and ssh-agent (openssh-client) are installed");
        let until = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < until, "the agent does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { socket, child }
    }

    pub(crate) fn add(&self, setting: &Setting) {
        let added = std::process::Command::new("ssh-add")
            .arg("-q")
            .arg(&setting.private_key)
            .env("SSH_AUTH_SOCK", &self.socket)
            .status()
            .unwrap();
        assert!(added.success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
