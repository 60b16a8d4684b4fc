//! The real Kea for tests: a DHCPv4 server and its control agent on loopback, in a temporary directory.
//!
//! What works where:
//! - Without root: yes. Unless the configuration names interfaces, the server listens on the loopback interface, on a
//!   port of its own, and answers [`RealKea::discover`] there.
//! - Debian's AppArmor profiles bind `/usr/sbin/kea-dhcp4` to `/etc/kea`, `/run/kea` and `/var/lib/kea`. They go by the
//!   path of the program, so a private copy of it in the temporary directory is free of them. The same copy is used
//!   where there is no AppArmor.
//! - Pid and lock files go to the temporary directory too (`KEA_PIDFILE_DIR`, `KEA_LOCKFILE_DIR`), so any number of
//!   servers run side by side.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use deadline::Deadline;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::dhcp::{Answer, Client};

const DHCP4: &str = "/usr/sbin/kea-dhcp4";
const AGENT: &str = "/usr/sbin/kea-ctrl-agent";
/// The user and the group of nobody (Debian base-passwd).
const NOBODY: u32 = 65534;
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether the programs [`RealKea`] needs are installed.
#[must_use]
pub fn installed() -> bool {
    checker_installed() && Path::new(AGENT).exists()
}

/// Whether the program [`check`] needs is installed.
#[must_use]
pub fn checker_installed() -> bool {
    Path::new(DHCP4).exists()
}

/// Where `make test-kea3` has unpacked Kea 3 with its libraries; `None` where that was not done.
#[must_use]
pub fn unpacked() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("homelab-anvil/kea3/root")).filter(|root| root.join("usr/sbin/kea-dhcp4").exists())
}

/// The hooks of Kea 3 below the directory of [`unpacked`].
#[must_use]
pub fn unpacked_hook(root: &Path, name: &str) -> PathBuf {
    libraries(root).join(format!("kea/hooks/libdhcp_{name}.so"))
}

/// `ld-linux-x86-64.so.2`, or what it is called on another architecture.
fn loader(libraries: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(libraries)?.flatten().map(|entry| entry.path());
    let is_loader =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"));
    entries.into_iter().find(is_loader).with_context(|| format!("no loader in {}", libraries.display()))
}

fn libraries(root: &Path) -> PathBuf {
    root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}

/// What `kea-dhcp4 -t` says of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Kea would start with it.
    Accepted,
    /// Kea would not start; its own words.
    Refused(String),
}

/// Runs `kea-dhcp4 -t` on `config` (`{"Dhcp4": {…}}`).
///
/// # Errors
/// The program could not be run at all.
pub fn check(config: &Value) -> Result<Verdict> {
    let home = Home::new(None)?;
    let file = home.write("check.conf", config)?;
    let output = home.program(DHCP4)?.arg("-t").arg(&file).output().context("running kea-dhcp4 -t")?;
    if output.status.success() {
        return Ok(Verdict::Accepted);
    }
    let words = [output.stdout, output.stderr].concat();
    Ok(Verdict::Refused(String::from_utf8_lossy(&words).trim().to_owned()))
}

/// A running `kea-dhcp4` with a `kea-ctrl-agent` in front of it. Both end when this is dropped, and also when the
/// thread that started them ends, so each test starts its own.
#[derive(Debug)]
pub struct RealKea {
    home: Home,
    server: Option<Child>,
    agent: Option<Child>,
    port: u16,
    /// For a server on loopback; one with interfaces of its own keeps DHCP's ports.
    client: Option<Client>,
}

/// The user and the password a control agent asks for.
#[derive(Debug, Clone, Copy)]
pub struct BasicAuth<'a> {
    pub user: &'a str,
    pub password: &'a str,
}

impl RealKea {
    /// Starts both programs with `config` (`{"Dhcp4": {…}}`) and an agent without authentication; returns when the
    /// agent answers. `control-socket`, `lease-database` and `loggers` of `config` are replaced: they name files of
    /// the machine. `interfaces-config` is kept if it is there, and the server then uses the standard ports.
    ///
    /// # Errors
    /// Kea is not installed, refuses the configuration, or does not answer in time; with Kea's own log.
    pub fn start(config: &Value) -> Result<Self> {
        Self::launch(config, None)
    }

    /// Like [`RealKea::start`], as a user that may not write the configuration file, as Debian installs it. Root only.
    ///
    /// # Errors
    /// As for [`RealKea::start`].
    pub fn start_unprivileged(config: &Value) -> Result<Self> {
        let mut home = Home::new(None)?;
        home.write("kea-dhcp4.conf", &localised(config, home.path())?)?;
        home.unprivileged = true;
        std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY))?;
        let mut kea = Self { home, server: None, agent: None, port: 0, client: Some(loopback_client()?) };
        kea.start_server()?;
        Ok(kea)
    }

    /// Starts the Kea 3 of [`unpacked`], which is spoken to through its own HTTP socket, without an agent.
    ///
    /// # Errors
    /// As for [`RealKea::start`].
    pub fn start_unpacked(root: &Path, config: &Value) -> Result<Self> {
        let home = Home::new(Some(root.to_owned()))?;
        let port = free_port()?;
        let mut config = localised(config, home.path())?;
        let dhcp4 = &mut config["Dhcp4"];
        let unix = dhcp4["control-socket"].take();
        dhcp4["control-sockets"] =
            json!([unix, {"socket-type": "http", "socket-address": "127.0.0.1", "socket-port": port}]);
        if let Some(dhcp4) = dhcp4.as_object_mut() {
            dhcp4.shift_remove("control-socket");
        }
        home.write("kea-dhcp4.conf", &config)?;
        let client = Some(loopback_client()?);
        let mut kea = Self { home, server: None, agent: None, port, client };
        kea.start_server()?;
        Ok(kea)
    }

    /// Like [`RealKea::start`], with an agent that asks for `auth`.
    ///
    /// # Errors
    /// As for [`RealKea::start`].
    pub fn start_with_auth(config: &Value, auth: BasicAuth<'_>) -> Result<Self> {
        Self::launch(config, Some(auth))
    }

    /// A port that was free a moment ago may be taken by now: another one is tried then.
    fn launch(config: &Value, auth: Option<BasicAuth<'_>>) -> Result<Self> {
        ensure!(
            installed(),
            "expected {DHCP4} and {AGENT}, found none: install kea-dhcp4-server and kea-ctrl-agent"
        );
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Self::launch_once(config, auth) {
                Err(error) if attempts < 3 && format!("{error:#}").contains("Address already in use") => {}
                outcome => return outcome,
            }
        }
    }

    fn launch_once(config: &Value, auth: Option<BasicAuth<'_>>) -> Result<Self> {
        let home = Home::new(None)?;
        home.write("kea-dhcp4.conf", &localised(config, home.path())?)?;
        let port = free_port()?;
        home.write("kea-ctrl-agent.conf", &agent_config(home.path(), port, auth))?;
        let client = config["Dhcp4"].get("interfaces-config").is_none().then(loopback_client).transpose()?;
        let mut kea = Self { home, server: None, agent: None, port, client };
        kea.start_server()?;
        kea.agent = Some(kea.home.spawn(AGENT, "kea-ctrl-agent", &[])?);
        kea.wait_for_agent()?;
        Ok(kea)
    }

    /// The agent's address, `http://127.0.0.1:PORT/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// The agent's port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's own control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(self.home.path())
    }

    /// The file the server was started with and that `config-write` without a name writes to.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.home.path().join("kea-dhcp4.conf")
    }

    /// What [`RealKea::config_path`] holds now.
    ///
    /// # Errors
    /// The file is not readable or is no JSON.
    pub fn config_file(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(self.config_path())?)?)
    }

    /// Sends one command to the server's control socket, past the agent, and returns `{"result": …}`.
    ///
    /// # Errors
    /// The socket does not answer with JSON.
    pub fn command(&self, command: &str, arguments: Option<Value>) -> Result<Value> {
        let mut request = Map::from_iter([("command".to_owned(), json!(command))]);
        request.extend(arguments.map(|arguments| ("arguments".to_owned(), arguments)));
        ask(&self.socket(), &Value::Object(request))
    }

    /// What a DHCPDISCOVER from `mac` in the subnet with this network address is answered; `None` for nothing. Needs the
    /// interfaces that a configuration without `interfaces-config` gets.
    ///
    /// # Errors
    /// `mac` is not six bytes with colons, or the answer is no DHCP.
    pub fn discover(&self, mac: &str, subnet: Ipv4Addr) -> Result<Option<Answer>> {
        self.client()?.discover(mac_bytes(mac)?, subnet)
    }

    /// The same with a DHCPREQUEST for what is offered, which makes it a lease.
    ///
    /// # Errors
    /// As for [`RealKea::discover`].
    pub fn lease(&self, mac: &str, subnet: Ipv4Addr) -> Result<Option<Answer>> {
        self.client()?.lease(mac_bytes(mac)?, subnet)
    }

    /// Stops the server, leaving the agent: it then answers that it cannot reach the server.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn stop_server(&mut self) -> Result<()> {
        end(self.server.take())
    }

    /// Starts the server again from [`RealKea::config_path`], which proves what was persisted.
    ///
    /// # Errors
    /// The server refuses its file or does not answer in time.
    pub fn restart_server(&mut self) -> Result<()> {
        self.stop_server()?;
        self.start_server()
    }

    /// What both programs have logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        ["kea-dhcp4", "kea-ctrl-agent"].map(|name| self.home.log(name)).concat()
    }

    fn client(&self) -> Result<&Client> {
        self.client
            .as_ref()
            .context("expected a configuration without interfaces-config: this server is not on loopback")
    }

    fn start_server(&mut self) -> Result<()> {
        let ports = |client: &Client| {
            anyhow::Ok([format!("-p{}", client.server().port()), format!("-P{}", client.port()?)])
        };
        let ports = self.client.as_ref().map(ports).transpose()?;
        self.server =
            Some(self.home.spawn(DHCP4, "kea-dhcp4", ports.as_ref().map_or(&[], <[String; 2]>::as_slice))?);
        let socket = self.socket();
        self.wait(|kea| {
            still_running(&mut kea.server)?;
            Ok(ask(&socket, &json!({"command": "list-commands"})).is_ok())
        })
    }

    /// By its log: on a port that somebody else took meanwhile, somebody else would answer.
    fn wait_for_agent(&mut self) -> Result<()> {
        self.wait(|kea| {
            still_running(&mut kea.agent)?;
            Ok(kea.home.log("kea-ctrl-agent").contains("CTRL_AGENT_STARTED"))
        })
    }

    fn wait(&mut self, mut ready: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let deadline = Deadline::after(START_TIMEOUT);
        deadline
            .poll(|| anyhow::Ok(ready(self)?.then_some(())))
            .with_context(|| format!("Kea did not come up; its log:\n{}", self.log()))
    }
}

impl Drop for RealKea {
    fn drop(&mut self) {
        let _ = end(self.agent.take());
        let _ = end(self.server.take());
    }
}

/// The temporary directory that a server lives in, with its private copies of the programs.
#[derive(Debug)]
struct Home {
    directory: TempDir,
    /// Where Kea 3 is unpacked, if it is that one.
    unpacked: Option<PathBuf>,
    unprivileged: bool,
}

impl Home {
    fn new(unpacked: Option<PathBuf>) -> Result<Self> {
        Ok(Self {
            directory: tempfile::Builder::new().prefix("lab-kea-").tempdir()?,
            unpacked,
            unprivileged: false,
        })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, name: &str, config: &Value) -> Result<PathBuf> {
        let file = self.path().join(name);
        std::fs::write(&file, serde_json::to_vec_pretty(config)?)?;
        Ok(file)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name).with_extension("log")).unwrap_or_default()
    }

    /// A command that runs the private copy of `program` and dies with the thread that started it.
    fn program(&self, program: &str) -> Result<Command> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).current_dir(self.path());
        if self.unprivileged {
            let user = NOBODY.to_string();
            command = Command::new("setpriv");
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--pdeathsig", "KILL", "--"]);
            command.current_dir(self.path());
        }
        match &self.unpacked {
            None => drop(command.arg(self.private_copy(program)?)),
            Some(root) => {
                // With its own C library. `-X`: Kea 3 else takes files of its packaged directories only.
                let (libraries, program) = (libraries(root), root.join(program.trim_start_matches('/')));
                command.arg(loader(&libraries)?).arg("--library-path").arg(libraries).arg(program).arg("-X");
            }
        }
        for variable in ["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR"] {
            command.env(variable, self.path());
        }
        Ok(command)
    }

    fn spawn(&self, program: &str, name: &str, options: &[String]) -> Result<Child> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path().join(format!("{name}.log")))?;
        let config = self.path().join(format!("{name}.conf"));
        let mut command = self.program(program)?;
        command.arg("-c").arg(config).args(options).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("starting {program}"))
    }

    /// Copied by `cp`, not by this process: a child that another thread forks meanwhile would inherit the open
    /// descriptor, and running the copy would then fail with "text file busy".
    fn private_copy(&self, program: &str) -> Result<PathBuf> {
        let name = Path::new(program).file_name().context("a program has a file name")?;
        let copy = self.path().join(name);
        if !copy.exists() {
            let status =
                Command::new("cp").args(["--", program]).arg(&copy).status().context("running cp")?;
            ensure!(status.success(), "cp {program} {}: {status}", copy.display());
        }
        Ok(copy)
    }
}

fn localised(config: &Value, home: &Path) -> Result<Value> {
    let mut config = config.clone();
    let dhcp4 = config.get_mut("Dhcp4").and_then(Value::as_object_mut);
    let dhcp4 = dhcp4.context("expected a configuration of the form {\"Dhcp4\": {…}}")?;
    dhcp4
        .entry("interfaces-config")
        .or_insert_with(|| json!({"interfaces": ["lo"], "dhcp-socket-type": "udp"}));
    dhcp4.insert("control-socket".into(), json!({"socket-type": "unix", "socket-name": socket(home)}));
    dhcp4.insert(
        "lease-database".into(),
        json!({"type": "memfile", "persist": true, "name": home.join("leases.csv"), "lfc-interval": 0}),
    );
    dhcp4.insert(
        "loggers".into(),
        json!([{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout"}]}]),
    );
    Ok(config)
}

fn agent_config(home: &Path, port: u16, auth: Option<BasicAuth<'_>>) -> Value {
    let mut agent = json!({
        "http-host": "127.0.0.1",
        "http-port": port,
        "control-sockets": {"dhcp4": {"socket-type": "unix", "socket-name": socket(home)}},
    });
    if let Some(BasicAuth { user, password }) = auth {
        agent["authentication"] =
            json!({"type": "basic", "realm": "kea", "clients": [{"user": user, "password": password}]});
    }
    json!({"Control-agent": agent})
}

fn socket(home: &Path) -> PathBuf {
    home.join("kea4.sock")
}

fn ask(socket: &Path, request: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    stream.write_all(request.to_string().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

fn mac_bytes(text: &str) -> Result<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.with_context(|| format!("expected a MAC address as six bytes with colons, found {text:?}"))
}

/// A client of a port that is free now and that the server is about to take.
fn loopback_client() -> Result<Client> {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    Client::new(free)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn still_running(child: &mut Option<Child>) -> Result<()> {
    match child.as_mut().map(Child::try_wait).transpose()?.flatten() {
        Some(status) => bail!("it ended with {status}"),
        None => Ok(()),
    }
}

fn end(child: Option<Child>) -> Result<()> {
    let Some(mut child) = child else { return Ok(()) };
    child.kill()?;
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Value {
        json!({"Dhcp4": {"subnet4": [{
            "id": 1, "subnet": "10.0.0.0/24", "pools": [{"pool": "10.0.0.100 - 10.0.0.199"}],
            "reservations": [{"hw-address": "52:54:00:ab:cd:ef", "ip-address": "10.0.0.5"}],
        }]}})
    }

    fn kea_here() -> bool {
        crate::present(installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)")
    }

    #[test]
    fn a_server_answers_on_its_socket_and_keeps_what_was_written() {
        if !kea_here() {
            return;
        }
        let mut kea = RealKea::start(&config()).unwrap();
        let answer = kea.command("config-get", None).unwrap();
        let mut live = answer["arguments"].clone();
        assert_eq!(live["Dhcp4"]["subnet4"][0]["reservations"][0]["ip-address"], "10.0.0.5");
        live["Dhcp4"]["subnet4"][0]["reservations"][0]["ip-address"] = json!("10.0.0.6");
        assert_eq!(kea.command("config-set", Some(live)).unwrap()["result"], 0);
        assert_eq!(kea.command("config-write", None).unwrap()["result"], 0);
        kea.restart_server().unwrap();
        let answer = kea.command("config-get", None).unwrap();
        assert_eq!(answer["arguments"]["Dhcp4"]["subnet4"][0]["reservations"][0]["ip-address"], "10.0.0.6");
    }

    #[test]
    fn a_reservation_is_offered_and_leased() {
        if !kea_here() {
            return;
        }
        let mut config = config();
        let host = &mut config["Dhcp4"]["subnet4"][0]["reservations"][0];
        host["next-server"] = json!("10.0.0.2");
        host["boot-file-name"] = json!("grub.efi");
        host["option-data"] = json!([{"name": "tftp-server-name", "data": "10.0.0.3"}]);
        let kea = RealKea::start(&config).unwrap();
        let network = "10.0.0.0".parse().unwrap();
        let offer = kea.discover("52:54:00:AB:CD:EF", network).unwrap().unwrap();
        assert_eq!((offer.message, offer.address.to_string().as_str()), (2, "10.0.0.5"));
        assert_eq!((offer.next_server.to_string().as_str(), offer.file.as_str()), ("10.0.0.2", "grub.efi"));
        assert_eq!((offer.tftp_server_name.as_deref(), offer.boot_file_name), (Some("10.0.0.3"), None));
        let lease = kea.lease("52:54:00:00:00:01", network).unwrap().unwrap();
        assert_eq!((lease.message, lease.address.to_string().as_str()), (5, "10.0.0.100"));
        assert_eq!(kea.discover("52:54:00:00:00:01", "10.9.0.0".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn a_configuration_kea_refuses_fails_with_its_words() {
        if !kea_here() {
            return;
        }
        let mut config = config();
        config["Dhcp4"]["subnet4"][0]["reservations"][0]["hw-address"] = json!("5254.00ab.cdef");
        let Verdict::Refused(words) = check(&config).unwrap() else { panic!("accepted a dotted MAC") };
        assert!(words.contains("invalid host identifier value '5254.00ab.cdef'"), "{words}");
        let error = format!("{:#}", RealKea::start(&config).unwrap_err());
        assert!(error.contains("invalid host identifier value '5254.00ab.cdef'"), "{error}");
    }

    #[test]
    fn processes_end_with_the_value() {
        if !kea_here() {
            return;
        }
        let kea = RealKea::start(&config()).unwrap();
        let (port, home) = (kea.port(), kea.home.path().to_owned());
        drop(kea);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        assert!(!home.exists());
    }
}
