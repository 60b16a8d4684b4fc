//! Against the sushy-tools emulator, written by others than we.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadline::{Deadline, Expired};
use lab::program::{Program, with};
use lab::proxy::Proxy;
use serde_json::{Value, json};
use tempfile::TempDir;

/// `sushy-emulator` with its fake driver: one server in memory, that is off.
struct Emulator {
    child: Child,
    port: u16,
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
    fn start() -> Option<Self> {
        let program = lab::pve::python().map(|python| python.with_file_name("sushy-emulator"));
        let is_there = program.as_ref().is_ok_and(|program| program.exists());
        if !lab::present(is_there, "sushy-tools (make test)") {
            return None;
        }
        let state = tempfile::tempdir().unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program.unwrap())
            .env("TMPDIR", state.path())
            .args(["--fake", "-i", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let emulator = Self { child, port, _state: state };
        Deadline::after(Duration::from_secs(60))
            .poll(|| Ok::<_, Expired>(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()))
            .unwrap();
        Some(emulator)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The server as the emulator itself shows it.
    fn system(&self) -> Value {
        let get = |path: &str| lab::http::request(&self.url(), "GET", path, &[], "").unwrap().json().unwrap();
        let systems = get("/redfish/v1/Systems");
        get(systems["Members"][0]["@odata.id"].as_str().unwrap())
    }

    fn options(proxy: &Proxy) -> Value {
        json!({
            "api_host": proxy.host(), "api_port": proxy.port(), "ca_path": proxy.ca_path(), "api_user": "u",
            "api_password": "p-unused", "target": "Pxe", "power_on": true, "timeout": 90,
        })
    }
}

/// A double of three things that the emulator lacks: a serial, an override for once, and that it is used up.
fn completing_proxy(emulator: &Emulator) -> Proxy {
    let proxy = Proxy::to(&emulator.url()).tls().start();
    let once = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&once);
    proxy.on("PATCH", "/Systems/").always().rewrite_request(move |body| {
        seen.store(body.contains(r#""Once""#), Ordering::Relaxed);
        body.to_owned()
    });
    proxy.on("GET", "/Systems/").always().rewrite_answer(move |body| {
        let Ok(mut system) = serde_json::from_str::<Value>(body) else { return body.to_owned() };
        if system.get("PowerState").is_none() {
            return body.to_owned();
        }
        system["SerialNumber"] = json!("EMU0001");
        let is_pending = once.load(Ordering::Relaxed) && system["PowerState"] == "Off";
        system["Boot"]["BootSourceOverrideEnabled"] = json!(if is_pending { "Once" } else { "Disabled" });
        system.to_string()
    });
    proxy
}

#[test]
fn it_boots_the_emulated_server_once() {
    let Some(emulator) = Emulator::start() else { return };
    let module = Program::new(env!("CARGO_BIN_EXE_redfish_boot_once"));

    // As it comes, the emulator does not say which server this is.
    let bare = Proxy::to(&emulator.url()).tls().start();
    let refused = module.run(&Emulator::options(&bare)).failed();
    assert_eq!((&refused["error_code"], &refused["guard"]), (&json!("refused"), &json!("unknown_serial")));
    assert!(bare.log().iter().all(|one| one.method == "GET"));

    let proxy = completing_proxy(&emulator);
    let options = with(&Emulator::options(&proxy), json!({"serial": "EMU0001", "verify_consumed": true}));
    let predicted = module.check(&options).done();
    assert!(proxy.log().iter().all(|one| one.method == "GET"));
    let made = module.run(&options).done();
    assert_eq!(made["changed"], true);
    assert_eq!(made["calls"], predicted["calls"]);
    let system = emulator.system();
    assert_eq!(
        (&system["PowerState"], &system["Boot"]["BootSourceOverrideTarget"]),
        (&json!("On"), &json!("Pxe"))
    );

    let again = module.run(&options).failed();
    assert!(again["msg"].as_str().unwrap().contains("already on"), "{again}");
    let writes: Vec<String> =
        proxy.log().iter().filter(|one| one.method != "GET").map(|one| one.method.clone()).collect();
    assert_eq!(writes, ["PATCH", "POST"]);
}
