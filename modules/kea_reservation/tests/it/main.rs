//! The binary from outside: against a double of OPNsense behind a proxy that breaks things, and against the real Kea.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod kea3;
mod opnsense;
mod persist;
mod plain_kea;

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

    /// The methods and paths of the requests since the last `forget`.
    fn requests(&self) -> Vec<String> {
        self.proxy.log().iter().map(|one| format!("{} {}", one.method, without_uuid(&one.path))).collect()
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
