//! The binary from outside, against a double of OPNsense behind a proxy that breaks things.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod opnsense;
mod rfc2136;
mod role;

use lab::opnsense::{Builder, KEY, OpnsenseDouble, Record, SECRET};
use lab::program::{Program, with};
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
        Self { firewall, proxy, module: Program::new(env!("CARGO_BIN_EXE_dns_record")) }
    }

    /// web01, with other options laid over it.
    fn web01(&self, options: Value) -> Value {
        let web01 = json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_key": KEY, "api_secret": SECRET, "timeout": 30, "_ansible_inject_invocation": false,
            "hostname": "web01", "domain": "example.net", "value": "10.20.0.21",
        });
        with(&web01, options)
    }

    fn live(&self, rr: &str) -> Vec<Record> {
        self.firewall.live_records().into_iter().filter(|record| record.rr == rr).collect()
    }
}

fn firewall() -> Builder {
    OpnsenseDouble::builder()
}

fn record(name: &str, rr: &str, value: &str) -> Record {
    Record { name: name.into(), rr: rr.into(), value: value.into() }
}
