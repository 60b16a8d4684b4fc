//! The client against recorded BMCs, and against a double with everything that BMCs do differently.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connection;
mod old_tls;
mod recorded;

use std::time::Duration;

use deadline::Deadline;
use http_client::TlsPolicy;
use lab::redfish::{PASSWORD, RedfishDouble, USER};
use redfish_api::{Bmc, Connection, Credentials};

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn connection(double: &RedfishDouble) -> Connection {
    Connection {
        base_url: double.url(),
        tls: TlsPolicy::CaPath(double.ca_path().to_owned()),
        credentials: Credentials { user: USER.into(), password: PASSWORD.to_owned().into() },
        session: false,
        read_only: false,
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(10),
    }
}

fn bmc(double: &RedfishDouble) -> Bmc {
    Bmc::new(connection(double)).unwrap()
}
