//! The client against small real servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod http;
mod server;
mod tls;

use std::time::Duration;

use deadline::Deadline;
use http_client::{Auth, Client, ClientConfig, TlsPolicy};

fn config(base_url: String, tls: TlsPolicy) -> ClientConfig {
    ClientConfig {
        base_url,
        tls,
        auth: Auth::Header { name: "Authorization".into(), value: "PVEAPIToken=u@pve!t=very-secret".into() },
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(20),
    }
}

fn client(base_url: String, tls: TlsPolicy) -> Client {
    Client::new(config(base_url, tls)).unwrap()
}

fn minute() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}
