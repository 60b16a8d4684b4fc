//! The sushy-tools emulator, written by others than we, and a double of three things that it lacks in front of it.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use deadline::{Deadline, Expired};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::proxy::Proxy;

/// The serial that the double reports.
pub const SERIAL: &str = "EMU0001";
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// `sushy-emulator` with its fake driver: one server in memory, that is off. It ends when this is dropped, and also
/// when the thread that started it ends.
pub struct Emulator {
    child: Child,
    port: u16,
    proxy: Proxy,
    override_is_set: Arc<AtomicBool>,
    /// The emulator keeps its servers' state in a file there, over its end (sushy_tools memoize.py).
    _state: TempDir,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulator {
    /// `None`, said so, where it is missing.
    ///
    /// # Panics
    /// When it does not start: a test has nothing to go on with.
    #[must_use]
    pub fn start() -> Option<Self> {
        let program = crate::pve::python().map(|python| python.with_file_name("sushy-emulator"));
        let is_there = program.as_ref().is_ok_and(|program| program.exists());
        crate::present(is_there, "sushy-tools (make test)")
            .then(|| Self::try_start().unwrap_or_else(|error| panic!("sushy-emulator: {error:#}")))
    }

    fn try_start() -> Result<Self> {
        let program = crate::pve::python()?.with_file_name("sushy-emulator");
        let state = tempfile::tempdir()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .env("TMPDIR", state.path())
            .args(["--fake", "-i", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("running setpriv")?;
        let override_is_set = Arc::new(AtomicBool::new(false));
        let proxy = completing_proxy(&url(port), &override_is_set);
        let emulator = Self { child, port, proxy, override_is_set, _state: state };
        Deadline::after(STARTS_WITHIN)
            .poll(|| Ok::<_, Expired>(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()))?;
        Ok(emulator)
    }

    /// The emulator as it comes: it does not say which server this is.
    #[must_use]
    pub fn bare_url(&self) -> String {
        url(self.port)
    }

    /// The emulator with a serial, with an override for once, and with that one used up when the server is on. This is
    /// a double: the emulator knows none of it.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The server as the emulator itself shows it.
    ///
    /// # Errors
    /// It does not answer.
    pub fn system(&self) -> Result<Value> {
        let get = |path: &str| crate::http::request(&self.bare_url(), "GET", path, &[], "")?.json();
        let systems = get("/redfish/v1/Systems")?;
        get(systems["Members"][0]["@odata.id"].as_str().context("the emulator has no system")?)
    }

    /// What a firmware that starts now has to boot from, by an override that it thereby uses up.
    ///
    /// # Errors
    /// As for [`Emulator::system`].
    pub fn take_override(&self) -> Result<Option<String>> {
        if !self.override_is_set.swap(false, Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(self.system()?["Boot"]["BootSourceOverrideTarget"].as_str().map(str::to_owned))
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn completing_proxy(emulator: &str, override_is_set: &Arc<AtomicBool>) -> Proxy {
    let proxy = Proxy::to(emulator).tls().start();
    let (written, read) = (Arc::clone(override_is_set), Arc::clone(override_is_set));
    proxy.on("PATCH", "/Systems/").always().rewrite_request(move |body| {
        written.store(body.contains(r#""Once""#), Ordering::Relaxed);
        body.to_owned()
    });
    proxy.on("GET", "/Systems/").always().rewrite_answer(move |body| {
        let Ok(mut system) = serde_json::from_str::<Value>(body) else { return body.to_owned() };
        if system.get("PowerState").is_none() {
            return body.to_owned();
        }
        system["SerialNumber"] = json!(SERIAL);
        let is_pending = read.load(Ordering::Relaxed) && system["PowerState"] == "Off";
        system["Boot"]["BootSourceOverrideEnabled"] = json!(if is_pending { "Once" } else { "Disabled" });
        system.to_string()
    });
    proxy
}
