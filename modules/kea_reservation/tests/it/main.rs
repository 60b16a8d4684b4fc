//! The binary from outside: against a double of OPNsense behind a proxy that breaks things, and against the real Kea.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod kea3;
mod opnsense;
mod persist;
mod plain_kea;

use std::io::Write;

use lab::opnsense::{Builder, KEY, OpnsenseDouble, SECRET};
use lab::program::Program;
use lab::proxy::Proxy;
use serde_json::{Value, json};

/// A firewall behind a proxy, and the module's binary.
struct Site {
    firewall: OpnsenseDouble,
    proxy: Proxy,
    module: Program,
}

impl Site {
    fn new(firewall: Builder) -> Self {
        let firewall = firewall.start();
        let proxy = Proxy::to(&firewall.url()).tls().start();
        Self { firewall, proxy, module: Program::new(env!("CARGO_BIN_EXE_kea_reservation")) }
    }

    /// How the module reaches this firewall.
    fn reach(&self) -> Value {
        json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_key": KEY, "api_secret": SECRET, "timeout": 30,
        })
    }

    fn options(&self, options: Value) -> Value {
        lab::program::with(&self.reach(), options)
    }

    /// The methods and paths of the requests since the last `forget`; the same one several times in a row counts once,
    /// since how often a status is asked is a matter of time.
    fn requests(&self) -> Vec<String> {
        let log = self.proxy.log();
        let mut requests: Vec<String> =
            log.iter().map(|one| format!("{} {}", one.method, without_uuid(&one.path))).collect();
        requests.dedup();
        requests
    }
}

/// A path with `UUID` in the place of one.
fn without_uuid(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.len() == 36 { "UUID" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// A firewall with two subnets.
fn firewall() -> Builder {
    OpnsenseDouble::builder()
        .subnet_with(&[
            ("subnet", "10.20.0.0/24"),
            ("pools", "10.20.0.100-10.20.0.199"),
            ("option_data.routers", "10.20.0.1"),
        ])
        .subnet("10.30.0.0/24", "10.30.0.100-10.30.0.199")
}

fn web01() -> Value {
    json!({"mac": "02:A5:00:00:00:65", "ip": "10.20.0.21", "hostname": "web01", "_ansible_inject_invocation": false})
}

fn web01_with(options: Value) -> Value {
    lab::program::with(&web01(), options)
}

/// Forty runs at once, each for a host of its own. Their requests come to the server one run after the other: no two write
/// at once, and none from what it read before another wrote.
fn forty_at_once(proxy: &Proxy, module: &Program, reach: &Value) {
    const HOSTS: usize = 40;
    proxy.forget();
    std::thread::scope(|scope| {
        for number in 1..=HOSTS {
            scope.spawn(move || {
                let host = json!({
                    "mac": format!("02:a5:00:00:01:{number:02x}"), "ip": format!("10.20.0.{}", 20 + number),
                    "hostname": format!("host{number}"), "timeout": 240,
                });
                assert_eq!(module.run(&lab::program::with(reach, host)).done()["changed"], true);
            });
        }
    });
    let log = proxy.log();
    let turns = 1 + log.windows(2).filter(|two| two[0].connection != two[1].connection).count();
    let requests = log.len();
    let _ = writeln!(
        std::io::stderr(),
        "{HOSTS} runs at once: {requests} requests in {turns} turns, no two runs at once"
    );
    assert_eq!(turns, HOSTS);
}
