//! A double of a BMC that speaks Redfish, with a switch for each thing that some BMC does differently.
//!
//! It serves a [`Tree`], a made one or a recorded one (read-only then), over HTTPS on loopback. Power states move with
//! the reads of the system, not with the clock. Whatever a test does with it, the double panics when it is dropped if
//! it was ever asked for anything that takes the power away, restarts a running system, or writes what no module has
//! to write.
//!
//! ```no_run
//! use lab::redfish::{Quirk, RedfishDouble, Tree};
//!
//! let bmc = RedfishDouble::builder(Tree::idrac8()).quirk(Quirk::StaleTag).start();
//! assert_eq!(bmc.power(), "Off");
//! ```

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::tls::Certificate;
use machine::Machine;
use server::Shared;

pub use tree::Tree;

pub mod emulator;
mod machine;
mod server;
mod tree;

/// The user of every double.
pub const USER: &str = "admin";
/// That user's password.
pub const PASSWORD: &str = "lab-redfish-password";

/// What this BMC does differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// ETags are weak; a write with one is answered 412, the strong form is taken.
    WeakTagRefused,
    /// The first write with an ETag finds it stale (412).
    StaleTag,
    /// A write with any `If-Match` is answered 412.
    IfMatchRefused,
    /// A write without `If-Match` is answered 428.
    IfMatchRequired,
    /// No ETag anywhere.
    NoEtag,
    /// The server is switched on by somebody else while the first write is on its way, which is answered 412.
    TurnsOnMeanwhile,
    /// An override without the mode is refused.
    ModeRequired,
    /// An override with the mode is refused.
    ModeForbidden,
    /// So many writes meet the power-on self-test (iLO's words).
    PostInProgress(usize),
    /// Somebody else has switched the server on: 409.
    AlreadyOn,
    /// So many power-ons are answered 409 although the server is off (iDRAC10 after a power-off).
    PowerOnRace(usize),
    /// Writes are answered 202 with a task monitor.
    Tasks,
    /// The same, and the task fails.
    TaskFails,
    /// So many reads of the system show the old or a passing power state.
    LatePower(usize),
    /// The power state never moves.
    StuckPower,
    /// A graceful shutdown is accepted and does not happen.
    StaysOn,
    /// No session is left: 503.
    SessionLimit,
    /// The virtual CD reads as inserted, and ejecting it is an error because nothing is there.
    EjectOfNothing,
    /// An override is answered OK and not set.
    OverrideIgnored,
    /// An override for once is set for ever.
    OverrideSticks,
    /// The firmware does not use the override up.
    OverrideNotConsumed,
    /// An override is set and answered with an error (Dell's 13th generation).
    ErrorThoughApplied,
    /// So many reads are answered 503.
    BusyReads(usize),
    /// The service root is known without a slash at the end only.
    NoSlash,
    /// InsertMedia wants this parameter as well.
    InsertNeeds(&'static str),
    /// An image is answered OK and not inserted.
    ImageIgnored,
    /// An image is inserted and shown under another name.
    ImageRenamed,
    /// Virtual media are written to with PATCH (Lenovo).
    MediaByPatch,
}

/// One request with the status of its answer. Headers with secrets are not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub method: String,
    pub path: String,
    pub if_match: Option<String>,
    /// `nobody`, `basic` or `session`.
    pub by: &'static str,
    pub body: Value,
    pub status: u16,
}

impl Logged {
    /// Why no module may ever send this.
    fn fault(&self) -> Option<&'static str> {
        let is_reset = self.path.ends_with("ComputerSystem.Reset");
        match self.method.as_str() {
            "GET" => None,
            "POST" if is_reset => (!is_gentle(&self.body))
                .then_some("a reset that is neither On, GracefulShutdown nor PushPowerButton"),
            "POST" => {
                let known =
                    ["/Sessions", "/Actions/VirtualMedia.InsertMedia", "/Actions/VirtualMedia.EjectMedia"];
                (!known.iter().any(|end| self.path.ends_with(end))).then_some("a POST to something unknown")
            }
            "PATCH" => {
                let fields = self.body.as_object().map(|body| body.keys().cloned().collect::<Vec<_>>());
                let fields = fields.unwrap_or_default();
                let known = fields == ["Boot"] || self.path.contains("/VirtualMedia/");
                (!known).then_some("a PATCH of something else than Boot")
            }
            "DELETE" => {
                (!self.path.contains("/Sessions/")).then_some("a DELETE of something else than a session")
            }
            _ => Some("an unknown method"),
        }
    }
}

/// Whether the body of a reset takes the power from nobody and restarts nothing.
pub(crate) fn is_gentle(body: &Value) -> bool {
    let kind = body["ResetType"].as_str().unwrap_or_default();
    ["On", "GracefulShutdown", "PushPowerButton"].contains(&kind)
}

/// How a double is to be started.
#[derive(Debug)]
pub struct Builder {
    tree: Tree,
    quirks: Vec<Quirk>,
    read_only: bool,
}

impl Builder {
    #[must_use]
    pub fn quirk(mut self, quirk: Quirk) -> Self {
        self.quirks.push(quirk);
        self
    }

    /// Refuses every write (405), as a recording does.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// # Panics
    /// When it cannot be started: a test has nothing to go on with.
    #[must_use]
    pub fn start(self) -> RedfishDouble {
        let certificate =
            Certificate::make(std::net::Ipv4Addr::LOCALHOST, None).expect("a certificate for the double");
        let machine = Arc::new(Mutex::new(Machine::new(self.tree, self.quirks, self.read_only)));
        let (runtime, address) =
            server::serve(&certificate, Arc::clone(&machine)).expect("a free port on loopback");
        RedfishDouble { port: address.port(), certificate, machine, _runtime: runtime }
    }
}

/// A running double.
pub struct RedfishDouble {
    port: u16,
    certificate: Certificate,
    machine: Shared,
    _runtime: Runtime,
}

impl Drop for RedfishDouble {
    fn drop(&mut self) {
        let faults: Vec<String> = self
            .log()
            .iter()
            .filter_map(|one| Some(format!("{} {} {}: {}", one.method, one.path, one.body, one.fault()?)))
            .collect();
        if !std::thread::panicking() {
            assert!(faults.is_empty(), "what must never be sent was sent: {faults:#?}");
        }
    }
}

impl RedfishDouble {
    #[must_use]
    pub fn builder(tree: Tree) -> Builder {
        Builder { tree, quirks: Vec::new(), read_only: false }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host(), self.port)
    }

    #[must_use]
    pub fn ca_path(&self) -> &Path {
        self.certificate.pem_path()
    }

    /// The options by which a module reaches it.
    #[must_use]
    pub fn options(&self) -> Value {
        json!({
            "api_host": self.host(), "api_port": self.port, "ca_path": self.ca_path(), "api_user": USER,
            "api_password": PASSWORD, "timeout": 20, "_ansible_inject_invocation": false,
        })
    }

    /// SHA-256 of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.certificate.fingerprint()
    }

    /// Every request so far.
    #[must_use]
    pub fn log(&self) -> Vec<Logged> {
        self.machine().log.clone()
    }

    /// The requests that were no GET, sessions left out, as `METHOD PATH BODY`; the path's last part only.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let log = self.log();
        let writes = log.iter().filter(|one| one.method != "GET" && !one.path.contains("/Sessions"));
        writes
            .map(|one| {
                let last = one.path.rsplit('/').next().unwrap_or_default();
                format!("{} {last} {}", one.method, one.body)
            })
            .collect()
    }

    /// Whether it was only ever read.
    #[must_use]
    pub fn was_only_read(&self) -> bool {
        self.log().iter().all(|one| one.method == "GET")
    }

    #[must_use]
    pub fn power(&self) -> String {
        self.machine().power()
    }

    /// Somebody presses a button.
    pub fn set_power(&self, state: &str) {
        self.machine().set_power(state);
    }

    /// A resource as it is now; null when there is none.
    #[must_use]
    pub fn resource(&self, path: &str) -> Value {
        self.machine().tree.get(path).cloned().unwrap_or(json!(null))
    }

    /// What it booted from, one entry for each power-on: a target, or `default`.
    #[must_use]
    pub fn boots(&self) -> Vec<String> {
        self.machine().boots.clone()
    }

    /// Sessions that nobody has closed.
    #[must_use]
    pub fn open_sessions(&self) -> usize {
        self.machine().sessions.len()
    }
}
