//! The real BIND, Knot and Unbound for tests: on loopback, on a port of their own, in a temporary directory.
//!
//! As for Kea, AppArmor binds the installed programs to the machine's own directories, so copies of them run.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use deadline::Deadline;
use tempfile::TempDir;

const NAMED: &str = "/usr/sbin/named";
const KNOTD: &str = "/usr/sbin/knotd";
const UNBOUND: &str = "/usr/sbin/unbound";
const DIG: &str = "/usr/bin/dig";
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether the programs are installed.
#[must_use]
pub fn installed() -> bool {
    [NAMED, KNOTD, UNBOUND, DIG].iter().all(|program| Path::new(program).exists())
}

/// A TSIG key as BIND and its clients have it.
#[derive(Debug, Clone, Copy)]
pub struct TsigKey<'a> {
    pub name: &'a str,
    pub algorithm: &'a str,
    pub secret: &'a str,
}

/// A zone of a [`Bind`].
#[derive(Debug, Clone, Copy)]
pub struct Zone<'a> {
    pub name: &'a str,
    /// Records as in a zone file, behind SOA and NS.
    pub records: &'a str,
    /// What stands in the zone's statement besides, such as `allow-update { key anvil; };`.
    pub options: &'a str,
}

/// A running `named`, the primary server of some zones. It ends when this is dropped.
#[derive(Debug)]
pub struct Bind(Daemon);

impl Bind {
    /// # Errors
    /// It is not installed or does not start; with its own log.
    pub fn start(keys: &[TsigKey<'_>], zones: &[Zone<'_>]) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("lab-bind-").tempdir()?;
        for zone in zones {
            let name = zone.name;
            let head = "$TTL 300\n@ SOA ns1.lab. admin.lab. 1 3600 600 86400 1\n@ NS ns1.lab.\n".to_owned();
            fs::write(home.path().join(format!("{name}.zone")), head + zone.records + "\n")?;
        }
        let directory = home.path().display().to_string();
        let keys: String = keys.iter().map(|key| key_statement(key)).collect();
        let zones: String = zones
            .iter()
            .map(|Zone { name, options, .. }| {
                format!("zone \"{name}\" {{ type primary; file \"{name}.zone\"; {options} }};\n")
            })
            .collect();
        let configuration = |port| {
            format!(
                "options {{ directory \"{directory}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
                 pid-file none; session-keyfile \"{directory}/session.key\"; recursion no; dnssec-validation no; \
                 allow-transfer {{ none; }}; notify no; check-integrity no; }};\ncontrols {{ }};\n{keys}{zones}"
            )
        };
        let arguments = ["-g", "-n", "1", "-c"];
        let bind = Self(Daemon::start(home, NAMED, &arguments, configuration, "all zones loaded")?);
        ensure!(!bind.log().contains("not loaded due to errors"), "a zone is wrong:\n{}", bind.log());
        Ok(bind)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// What it answers to a question for its own zones, one value a line, sorted.
    ///
    /// # Errors
    /// `dig` cannot be run or gets no answer.
    pub fn ask(&self, name: &str, rr: &str) -> Result<Vec<String>> {
        self.0.ask(name, rr)
    }

    #[must_use]
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// Holds it still: it neither answers nor reads, until [`resume`](Self::resume).
    ///
    /// # Errors
    /// The process is gone.
    pub fn pause(&self) -> Result<()> {
        self.0.signal("STOP")
    }

    /// # Errors
    /// The process is gone.
    pub fn resume(&self) -> Result<()> {
        self.0.signal("CONT")
    }
}

/// A running `knotd`, the primary server of some empty zones that one key may change. It ends when this is dropped.
#[derive(Debug)]
pub struct Knot(Daemon);

impl Knot {
    /// # Errors
    /// It is not installed or does not start; with its own log.
    pub fn start(key: &TsigKey<'_>, zones: &[&str]) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("lab-knot-").tempdir()?;
        for zone in zones {
            let head = "$TTL 300\n@ SOA ns1.lab. admin.lab. 1 3600 600 86400 1\n@ NS ns1.lab.\n";
            fs::write(home.path().join(format!("{zone}.zone")), format!("$ORIGIN {zone}.\n{head}"))?;
        }
        let directory = home.path().display().to_string();
        let zones: String = zones
            .iter()
            .map(|zone| {
                format!(" - domain: {zone}\n   storage: {directory}\n   file: {zone}.zone\n   acl: update\n")
            })
            .collect();
        let TsigKey { name, algorithm, secret } = key;
        let configuration = |port| {
            format!(
                "server:\n listen: 127.0.0.1@{port}\n rundir: {directory}\ndatabase:\n storage: {directory}\nlog:\n - target: \
                 stderr\n   any: info\nkey:\n - id: {name}\n   algorithm: {algorithm}\n   secret: {secret}\nacl:\n - id: update\n   \
                 key: {name}\n   action: update\nzone:\n{zones}"
            )
        };
        Ok(Self(Daemon::start(home, KNOTD, &["-c"], configuration, "server started")?))
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// What it answers, one value a line, sorted.
    ///
    /// # Errors
    /// `dig` cannot be run or gets no answer.
    pub fn ask(&self, name: &str, rr: &str) -> Result<Vec<String>> {
        self.0.ask(name, rr)
    }
}

/// A running `unbound`, a resolver. It ends when this is dropped.
#[derive(Debug)]
pub struct Unbound(Daemon);

impl Unbound {
    /// A resolver that asks the server at 127.0.0.1 and `port` for these zones, and nobody for others.
    ///
    /// # Errors
    /// It is not installed or does not start; with its own log.
    pub fn in_front_of(port: u16, zones: &[&str]) -> Result<Self> {
        let stubs: String = zones
            .iter()
            .map(|zone| format!("stub-zone:\n name: \"{zone}\"\n stub-addr: 127.0.0.1@{port}\n"))
            .collect();
        Self::start(None, &format!("server:\n do-not-query-localhost: no\n unblock-lan-zones: yes\n{stubs}"))
    }

    /// A resolver with data of its own (`web01.example.net A 10.20.0.21`), on this port, which must be free.
    ///
    /// # Errors
    /// As for [`Unbound::in_front_of`].
    pub fn with_data(port: u16, data: &[String]) -> Result<Self> {
        let lines: String = data.iter().map(|line| format!(" {line}\n")).collect();
        Self::start(Some(port), &format!("server:\n{lines}"))
    }

    fn start(port: Option<u16>, rest: &str) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("lab-unbound-").tempdir()?;
        let directory = home.path().display().to_string();
        let configuration = |free: u16| {
            let port = port.unwrap_or(free);
            format!(
                "server:\n interface: 127.0.0.1@{port}\n chroot: \"\"\n username: \"\"\n pidfile: \"\"\n directory: \
                 \"{directory}\"\n use-syslog: no\n module-config: \"iterator\"\n num-threads: 1\n cache-max-negative-ttl: 1\n \
                 infra-keep-probing: yes\n{rest}"
            )
        };
        let mut daemon =
            Daemon::start(home, UNBOUND, &["-d", "-v", "-p", "-c"], configuration, "start of service")?;
        daemon.port = port.unwrap_or(daemon.port);
        Ok(Self(daemon))
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// What it answers, one value a line, sorted.
    ///
    /// # Errors
    /// `dig` cannot be run or gets no answer.
    pub fn ask(&self, name: &str, rr: &str) -> Result<Vec<String>> {
        self.0.ask(name, rr)
    }
}

/// A port that is free now, for both TCP and UDP.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address: SocketAddr = tcp.local_addr()?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address.port());
        }
    }
    bail!("no port is free for both TCP and UDP")
}

fn key_statement(key: &TsigKey<'_>) -> String {
    let TsigKey { name, algorithm, secret } = key;
    format!("key \"{name}\" {{ algorithm {algorithm}; secret \"{secret}\"; }};\n")
}

/// A program that serves DNS on a port of 127.0.0.1 and logs to standard error.
#[derive(Debug)]
struct Daemon {
    home: TempDir,
    child: Child,
    port: u16,
}

impl Daemon {
    /// A port that was free a moment ago may be taken by now: another one is tried then.
    fn start(
        home: TempDir,
        program: &str,
        arguments: &[&str],
        configuration: impl Fn(u16) -> String,
        ready: &str,
    ) -> Result<Self> {
        ensure!(installed(), "expected {program}: install bind9, bind9-dnsutils, knot and unbound");
        let name = Path::new(program).file_name().context("a program has a file name")?;
        let copy = home.path().join(name);
        // By `cp`: a child that another thread forks meanwhile would inherit an open descriptor of ours.
        let copied = Command::new("cp").args(["--", program]).arg(&copy).status().context("running cp")?;
        ensure!(copied.success(), "cp {program}: {copied}");
        let (log, file) = (home.path().join("log"), home.path().join("conf"));
        let port = free_port()?;
        fs::write(&file, configuration(port))?;
        let output = fs::File::create(&log)?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&copy)
            .args(arguments)
            .arg(&file)
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let mut daemon = Self { home, child, port };
        let started = Deadline::after(START_TIMEOUT).poll(|| {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("it ended with {status}");
            }
            anyhow::Ok(daemon.log().contains(ready).then_some(()))
        });
        started.with_context(|| format!("{program} did not start; its log:\n{}", daemon.log()))?;
        Ok(daemon)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    fn ask(&self, name: &str, rr: &str) -> Result<Vec<String>> {
        let port = self.port.to_string();
        let arguments = ["@127.0.0.1", "-p", &port, "+short", "+tries=2", "+time=5", name, rr];
        let output = Command::new(DIG).args(arguments).output().context("running dig")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "dig {name} {rr}: {text}");
        let mut values: Vec<String> = text.lines().map(str::to_owned).collect();
        values.sort();
        Ok(values)
    }

    fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let status =
            Command::new("kill").args([&format!("-{name}"), &pid]).status().context("running kill")?;
        ensure!(status.success(), "kill -{name} {pid}: {status}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
