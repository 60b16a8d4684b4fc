//! A double of Kea 3's DHCPv4 server with the hook host_cmds, on its own HTTP socket.
//!
//! Its answers are those of Kea 3.0 (src/hooks/dhcp/host_cmds/host_cmds.cc, src/lib/dhcpsrv/cfg_hosts.cc, doc/sphinx/arm/
//! ctrl-channel.rst and hooks-host-cmds.rst), seen on 3.0.4. `config-get` shows only what was configured: a real server
//! adds its defaults. It gives out no leases; where Kea 3 is unpacked, [`crate::kea::RealKea::start_unpacked`] is the real thing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const COMMANDS: [&str; 11] = [
    "config-get",
    "config-hash-get",
    "config-set",
    "config-test",
    "config-write",
    "lease4-get",
    "list-commands",
    "reservation-add",
    "reservation-del",
    "reservation-get",
    "reservation-update",
];

/// A running double; dropping it stops it.
#[derive(Debug)]
pub struct Kea3Double {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct State {
    running: Value,
    file: Value,
    may_write: bool,
}

impl Kea3Double {
    /// Starts with `config` (`{"Dhcp4": {…}}`) running and in its file.
    ///
    /// # Errors
    /// There is no port to be had.
    pub fn start(config: &Value) -> Result<Self> {
        let state = State { running: config.clone(), file: config.clone(), may_write: true };
        let state = Arc::new(Mutex::new(state));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state, runtime: Some(runtime) })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What its file holds.
    #[must_use]
    pub fn file(&self) -> Value {
        lock(&self.state).file.clone()
    }

    /// What runs.
    #[must_use]
    pub fn running(&self) -> Value {
        lock(&self.state).running.clone()
    }

    /// Whether `config-write` works.
    pub fn let_write(&self, may_write: bool) {
        lock(&self.state).may_write = may_write;
    }

    /// Goes on with what the file holds.
    pub fn restart(&self) {
        let mut state = lock(&self.state);
        state.running = state.file.clone();
    }
}

impl Drop for Kea3Double {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, Arc::clone(&state)));
    }
}

async fn converse(stream: TcpStream, state: Arc<Mutex<State>>) {
    let service = service_fn(move |request| handle(request, Arc::clone(&state)));
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn handle(
    request: hyper::Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await?.to_bytes();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    // The server's own socket answers like the agent, a list of one, and does not look at `service`.
    let answer = json!([lock(&state).answer(&request)]);
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}

fn said(result: u8, text: impl Into<String>) -> Value {
    json!({"result": result, "text": text.into()})
}

impl State {
    fn answer(&mut self, request: &Value) -> Value {
        let arguments = &request["arguments"];
        match request["command"].as_str().unwrap_or_default() {
            "list-commands" => json!({"result": 0, "arguments": COMMANDS}),
            "config-get" => {
                let mut arguments = self.running.clone();
                arguments["hash"] = json!("5C3C90EF7035249E2FF74D003C19F34EE0B83A3D329E741B52B2EF95A2C9CC5C");
                json!({"result": 0, "arguments": arguments})
            }
            "config-test" | "config-set" if arguments.get("hash").is_some() => {
                said(1, "Unsupported 'hash' parameter.")
            }
            "config-test" => said(
                0,
                "Configuration seems sane. Control-socket, hook-libraries, and D2 configuration were sanity checked, but not applied.",
            ),
            "config-set" => {
                self.running = arguments.clone();
                said(0, "Configuration successful.")
            }
            "config-write" if !self.may_write => {
                said(1, "Error during config-write: Unable to open file /etc/kea/kea-dhcp4.conf for writing")
            }
            "config-write" => {
                self.file = self.running.clone();
                json!({
                    "result": 0, "text": "Configuration written to /etc/kea/kea-dhcp4.conf successful",
                    "arguments": {"filename": "/etc/kea/kea-dhcp4.conf", "size": self.file.to_string().len()},
                })
            }
            "lease4-get" => said(3, "Lease not found."),
            "reservation-add" => self.add(arguments),
            "reservation-update" => self.update(arguments),
            "reservation-del" => self.del(arguments),
            "reservation-get" => self.get(arguments),
            other => said(2, format!("'{other}' command not supported.")),
        }
    }

    fn hosts(&mut self, subnet_id: &Value) -> Option<&mut Vec<Value>> {
        let subnets = self.running["Dhcp4"]["subnet4"].as_array_mut()?;
        let subnet = subnets.iter_mut().find(|subnet| subnet["id"] == *subnet_id)?;
        if subnet.get("reservations").is_none() {
            subnet["reservations"] = json!([]);
        }
        subnet["reservations"].as_array_mut()
    }

    fn add(&mut self, arguments: &Value) -> Value {
        if !is_memory(arguments) {
            return said(1, "Host database not available, cannot add host.");
        }
        let mut host = arguments["reservation"].clone();
        let subnet_id = host["subnet-id"].take();
        if let Some(host) = host.as_object_mut() {
            host.shift_remove("subnet-id");
        }
        let (mac, ip) = (host["hw-address"].clone(), host["ip-address"].clone());
        let Some(hosts) = self.hosts(&subnet_id) else {
            return said(1, "Mandatory 'subnet-id' parameter missing.");
        };
        let identifier = identifier_of(&host);
        if hosts.iter().any(|one| identifier_of(one) == identifier) {
            return said(
                1,
                format!(
                    "failed to add new host using the HW address '{}' to the IPv4 subnet id '{subnet_id}' as this host has already been added",
                    mac.as_str().unwrap_or_default()
                ),
            );
        }
        if hosts.iter().any(|one| one["ip-address"] == ip) {
            return said(
                1,
                format!(
                    "failed to add new host using the HW address '{} and DUID '(null)' to the IPv4 subnet id '{subnet_id}' for the address {}: There's already a reservation for this address",
                    mac.as_str().unwrap_or_default(),
                    ip.as_str().unwrap_or_default()
                ),
            );
        }
        hosts.push(host);
        said(0, "Host added.")
    }

    /// Erases first; when the addition then fails, the host is gone.
    fn update(&mut self, arguments: &Value) -> Value {
        if !is_memory(arguments) {
            return said(1, "host database not available, cannot update host");
        }
        let identifier = identifier_of(&arguments["reservation"]);
        let Some(hosts) = self.hosts(&arguments["reservation"]["subnet-id"]) else {
            return said(1, "Mandatory 'subnet-id' parameter missing.");
        };
        let before = hosts.len();
        hosts.retain(|one| identifier_of(one) != identifier);
        if hosts.len() == before {
            return said(1, "Host not updated (not found).");
        }
        let answer = self.add(arguments);
        if answer["result"] == 0 { said(0, "Host updated.") } else { answer }
    }

    fn del(&mut self, arguments: &Value) -> Value {
        if !is_memory(arguments) {
            return said(1, "Unable to delete a host because there is no hosts-database configured.");
        }
        let wanted = asked_for(arguments);
        let Some(hosts) = self.hosts(&arguments["subnet-id"]) else {
            return said(3, "Host not deleted (not found).");
        };
        let before = hosts.len();
        hosts.retain(|one| identifier_of(one) != wanted);
        if hosts.len() == before {
            said(3, "Host not deleted (not found).")
        } else {
            said(0, "Host deleted.")
        }
    }

    fn get(&mut self, arguments: &Value) -> Value {
        let wanted = asked_for(arguments);
        let hosts = self.hosts(&arguments["subnet-id"]);
        match hosts.and_then(|hosts| hosts.iter().find(|one| identifier_of(one) == wanted).cloned()) {
            Some(host) => json!({"result": 0, "text": "Host found.", "arguments": host}),
            None => said(3, "Host not found."),
        }
    }
}

fn is_memory(arguments: &Value) -> bool {
    arguments["operation-target"] == "memory"
}

fn identifier_of(host: &Value) -> (String, String) {
    let key = ["hw-address", "client-id"].into_iter().find(|key| host[key].is_string()).unwrap_or_default();
    (key.to_owned(), host[key].as_str().unwrap_or_default().to_lowercase())
}

fn asked_for(arguments: &Value) -> (String, String) {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    (text("identifier-type").to_owned(), text("identifier").to_lowercase())
}
