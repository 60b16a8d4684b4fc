//! The binary from outside: a real log, a real fakepve, and a guest that installs itself round after round.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lab::program::{Outcome, Program, with};
use lab::proxy::{Fate, Proxy};
use lab::pve::{FakePve, TOKEN_ID, TOKEN_SECRET, TOKEN_USER};
use serde_json::{Value, json};
use tempfile::TempDir;

const GUEST: &str = "10.20.30.21";
const MARK: &str = "[homelab.anvil: empty, to be installed over the network; its disk may be written over]";

struct Site {
    pve: FakePve,
    proxy: Proxy,
    module: Program,
    directory: TempDir,
}

impl Site {
    /// A VM that boots from the network and runs.
    fn new() -> Self {
        let config = json!({
            "boot": "order=net0", "cores": 2, "memory": "2048", "net0": "virtio=02:A5:00:00:04:4D,bridge=vmbr0",
            "scsi0": "local-lvm:vm-1101-disk-0,size=40G", "description": format!("Serves the web\n\n{MARK}"),
        });
        let pve = FakePve::builder().vm(1101, "web01", "pve1", config).start();
        let proxy = Proxy::to(&pve.url()).tls().start();
        let site = Self {
            pve,
            proxy,
            module: Program::new(env!("CARGO_BIN_EXE_proxmox_boot_order")),
            directory: TempDir::with_prefix("anvil-boot-order-").unwrap(),
        };
        site.power("start");
        site
    }

    fn power(&self, verb: &str) {
        self.pve.call("POST", &format!("/nodes/pve1/qemu/1101/status/{verb}"), &[]).unwrap();
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("artifacts.access.log")
    }

    fn options(&self, more: Value) -> Value {
        let reach = json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_user": TOKEN_USER, "api_token_id": TOKEN_ID, "api_token_secret": TOKEN_SECRET,
            "_ansible_inject_invocation": false, "vmid": 1101, "name": "web01", "timeout": 60,
            "log": self.log(), "client": GUEST, "settle": 1,
        });
        with(&reach, more)
    }

    fn run(&self, more: Value) -> Outcome {
        let outcome = self.module.run(&self.options(more));
        assert!(!outcome.output.contains(TOKEN_SECRET), "a secret is in: {}", outcome.output);
        assert_eq!(lab::pve_schema::complaints(&self.proxy.log()), Vec::<String>::new());
        outcome
    }

    /// The result of a run that must not fail.
    fn done(&self, options: Value) -> Value {
        self.run(options).done()
    }

    /// The result of a run that must fail.
    fn failed(&self, options: Value) -> Value {
        self.run(options).failed()
    }

    fn writes(&self) -> Vec<String> {
        let short = |path: &str| path.rsplit("/1101/").next().unwrap_or_default().to_owned();
        self.proxy.writes().iter().map(|one| format!("{} {}", one.method, short(&one.path))).collect()
    }

    fn asks(&self, path: &str, status: u16) {
        let mut log = OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let now = date("+%d/%b/%Y:%H:%M:%S %z");
        writeln!(log, r#"{GUEST} - - [{now}] "GET {path} HTTP/1.1" {status} 512 "-" "libdnf""#).unwrap();
    }

    fn installs(&self, packages: usize) {
        self.asks("/ks/web01.ks", 200);
        (0..packages).for_each(|number| self.asks(&format!("/fedora/Packages/p{number}.rpm"), 200));
    }
}

/// As nginx writes it, by a program that knows calendars.
fn date(format: &str) -> String {
    let said = std::process::Command::new("date").env("LC_ALL", "C").arg(format).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_order_is_pinned_in_the_window_and_proved() {
    let site = Site::new();
    site.installs(3);
    site.asks("/keys/ssh/web01.pub", 200);
    let result = site.done(json!({}));
    assert_eq!(site.writes(), ["PUT config", "POST status/stop", "POST status/start"]);
    assert_eq!(
        (&result["vm"]["boot"], &result["vm"]["status"], &result["power_cycled"]),
        (&json!(["scsi0", "net0"]), &json!("running"), &json!(true))
    );
    assert_eq!(
        result["read_back"],
        json!({"held": ["boot", "description", "status", "status", "current.boot"]})
    );
    let config = site.pve.vm_config(1101);
    assert_eq!(
        (&config["boot"], &config["description"]),
        (&json!("order=scsi0;net0"), &json!("Serves the web"))
    );

    site.proxy.forget();
    let again = site.done(json!({}));
    assert_eq!((&again["changed"], &again["power_cycled"]), (&json!(false), &json!(false)));
    let requests: Vec<String> =
        site.proxy.log().iter().map(|one| one.path.rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(requests, ["resources", "pending", "current"]);
}

/// The log grows while the module watches; the moment of the stop is judged by what the guest was doing then.
#[test]
fn a_guest_that_installs_itself_again_and_again_is_never_stopped_in_the_middle() {
    let site = Site::new();
    let writing = Arc::new(AtomicBool::new(true));
    let stopped = Arc::new(Mutex::new(Vec::new()));
    let (seen, moments) = (Arc::clone(&writing), Arc::clone(&stopped));
    site.proxy.on("POST", "/status/stop").always().call(move || {
        moments.lock().unwrap().push(seen.load(Ordering::SeqCst));
        Fate::Forward
    });
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                writing.store(true, Ordering::SeqCst);
                site.asks("/ks/web01.ks", 200);
                for number in 0..15 {
                    site.asks(&format!("/fedora/Packages/p{number}.rpm"), 200);
                    thread::sleep(Duration::from_millis(100));
                }
                site.asks("/keys/ssh/web01.pub", 200);
                writing.store(false, Ordering::SeqCst);
                let quiet = Instant::now();
                while quiet.elapsed() < Duration::from_secs(6) && !over.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
        let outcome = site.run(json!({"settle": 1}));
        over.store(true, Ordering::SeqCst);
        assert_eq!(outcome.done()["vm"]["boot"], json!(["scsi0", "net0"]));
    });
    assert_eq!(*stopped.lock().unwrap(), [false], "stopped once, and while nothing was written");
}

#[test]
fn without_a_window_it_refuses_with_what_it_saw_and_leaves_the_guest_alone() {
    let site = Site::new();
    site.installs(5);
    let result = site.failed(json!({"timeout": 2}));
    assert_eq!((&result["error_code"], &result["window"]["packages"]), (&json!("no_window"), &json!(5)));
    let msg = result["msg"].as_str().unwrap();
    for part in [
        "no safe moment came before the deadline",
        "5 packages so far",
        "/fedora/Packages/p4.rpm (200)",
        "`now: true`",
    ] {
        assert!(msg.contains(part), "{part}: {msg}");
    }
    assert_eq!(site.writes(), [""; 0]);
    assert_eq!(site.pve.vm_status(1101), "running");
}

/// The window closes between the write of the order and the stop: the log is read again, and the stop waits.
#[test]
fn the_log_is_read_again_immediately_before_the_stop() {
    let site = Arc::new(Site::new());
    site.installs(2);
    site.asks("/keys/ssh/web01.pub", 200);
    let guest = Arc::clone(&site);
    site.proxy.on("PUT", "/config").first().call(move || {
        guest.asks("/ks/web01.ks", 200);
        Fate::Forward
    });
    let result = site.failed(json!({"timeout": 8}));
    assert_eq!(result["error_code"], "no_window", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("the next round begun: GET /ks/web01.ks"), "{result}");
    assert_eq!(site.writes(), ["PUT config"]);
    assert_eq!(site.pve.vm_status(1101), "running");

    site.installs(2);
    site.asks("/keys/ssh/web01.pub", 200);
    site.proxy.forget();
    site.done(json!({}));
    assert_eq!(site.writes(), ["POST status/stop", "POST status/start"], "what is left is done");
}

#[test]
fn what_the_log_says_of_another_life_does_not_count() {
    let site = Site::new();
    site.installs(3);
    site.asks("/keys/ssh/web01.pub", 200);
    site.power("stop");
    // The log and the uptime count in seconds.
    thread::sleep(Duration::from_millis(2100));
    site.power("start");
    let result = site.failed(json!({"timeout": 2}));
    assert!(
        result["msg"].as_str().unwrap().contains("no request of the guest since it was started"),
        "{result}"
    );
}

#[test]
fn now_needs_no_log_and_a_cut_off_run_is_finished() {
    let site = Site::new();
    let now = json!({"now": true, "log": null, "client": null});
    // Stopped, and killed before the start.
    site.proxy.on("POST", "/status/start").first().answer(
        500,
        "start failed: QEMU exited with code 1",
        r#"{"data":null}"#,
    );
    site.failed(now.clone());
    assert_eq!(site.pve.vm_status(1101), "stopped");
    site.proxy.clear_faults();
    let result = site.done(json!({"log": "/nowhere"}));
    assert_eq!(
        (&result["vm"]["status"], &result["vm"]["boot"]),
        (&json!("running"), &json!(["scsi0", "net0"]))
    );
    assert_eq!(site.done(now)["changed"], false);
}

#[test]
fn a_stop_that_did_not_happen_is_found_by_the_uptime() {
    let site = Site::new();
    thread::sleep(Duration::from_millis(3100));
    for verb in ["stop", "start"] {
        let task = r#"{"data":null}"#;
        site.proxy.on("POST", &format!("/status/{verb}")).always().answer(200, "OK", task);
    }
    let stopped = r#"{"data":{"status":"stopped"}}"#;
    site.proxy.on("GET", "/status/current").nth(3).answer(200, "OK", stopped);
    let result = site.failed(json!({"now": true}));
    assert_eq!(result["error_code"], "read_back_mismatch", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("it was not stopped"), "{result}");
}

#[test]
fn check_mode_only_reads_and_shows_the_window() {
    let site = Site::new();
    site.installs(4);
    let result = site.module.check(&site.options(json!({}))).done();
    assert_eq!(site.writes(), [""; 0]);
    assert_eq!(
        (&result["changed"], &result["power_cycled"], &result["window"]["open"]),
        (&json!(true), &json!(true), &json!(false))
    );
}

#[test]
fn a_log_that_is_not_there_is_said_before_anything_is_written() {
    let site = Site::new();
    let result = site.failed(json!({"log": "/nowhere/access.log"}));
    assert_eq!((&result["error_code"], &result["log"]), (&json!("not_found"), &json!("/nowhere/access.log")));
    assert_eq!(site.writes(), [""; 0]);
}
