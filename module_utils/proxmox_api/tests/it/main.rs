//! Sessions with a real fakepve, through a proxy that breaks things.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod session;
mod tasks;

use std::time::Duration;

use deadline::Deadline;
use http_client::TlsPolicy;
use lab::proxy::Proxy;
use lab::pve::{FakePve, FakePveBuilder, TOKEN_ID, TOKEN_SECRET, TOKEN_USER};
use net_types::Vmid;
use proxmox_api::{CloneRequest, Connection, Credentials, Proxmox};

struct Lab {
    pve: FakePve,
    proxy: Proxy,
    api: Proxmox,
}

impl Lab {
    fn start(pve: FakePveBuilder) -> Self {
        let token =
            Credentials::Token { user: TOKEN_USER.into(), id: TOKEN_ID.into(), secret: TOKEN_SECRET.into() };
        Self::signing_in(pve, token)
    }

    fn signing_in(pve: FakePveBuilder, credentials: Credentials) -> Self {
        let pve = pve.start();
        let proxy = Proxy::to(&pve.url()).tls().start();
        let api = Proxmox::new(Connection {
            host: proxy.host(),
            port: proxy.port(),
            tls: TlsPolicy::CaPath(proxy.ca_path().to_owned()),
            credentials,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(20),
        })
        .unwrap();
        Self { pve, proxy, api }
    }

    /// Every request must be one that the real server takes.
    fn assert_sound(&self) {
        assert_eq!(lab::pve_schema::complaints(&self.proxy.log()), Vec::<String>::new());
    }

    fn count(&self, method: &str, path: &str) -> usize {
        self.proxy.log().iter().filter(|one| one.method == method && one.path.ends_with(path)).count()
    }
}

fn house() -> FakePveBuilder {
    FakePve::builder().template(8000, "fedora-42", "pve1").vm(
        200,
        "web",
        "pve1",
        serde_json::json!({"memory": 512}),
    )
}

fn vmid(number: u32) -> Vmid {
    Vmid::new(number).unwrap()
}

fn minute() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn clone_to_101() -> CloneRequest<'static> {
    CloneRequest {
        source_node: "pve1",
        source: vmid(8000),
        new: vmid(101),
        target: "pve1",
        parameters: vec![("name".into(), "web01".into()), ("full".into(), "1".into())],
    }
}
