//! What the cluster uses, asked once for a batch. The cluster is `fakepve`, seen through a proxy that counts.

use lab::proxy::Proxy;
use lab::pve::{FakePve, FakePveBuilder, TOKEN_ID, TOKEN_SECRET, TOKEN_USER};
use serde_json::{Value, json};

use crate::inventory::{Inventory, vmids};

struct Cluster {
    proxy: Proxy,
    _pve: FakePve,
}

impl Cluster {
    fn start(pve: FakePveBuilder) -> Self {
        let pve = pve.start();
        Self { proxy: Proxy::to(&pve.url()).tls().start(), _pve: pve }
    }

    /// The connection options, and `more`.
    fn with(&self, more: &Value) -> Value {
        let mut arguments = json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_user": TOKEN_USER, "api_token_id": TOKEN_ID, "api_token_secret": TOKEN_SECRET,
        });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    }

    /// How often the list of guests was read; nothing is ever written.
    fn looks(&self) -> usize {
        assert!(self.proxy.writes().is_empty());
        self.proxy.log().iter().filter(|exchange| exchange.path.ends_with("/cluster/resources")).count()
    }
}

fn net(mac: &str) -> Value {
    json!({"net0": format!("virtio={mac},bridge=vmbr0")})
}

fn full_house() -> FakePveBuilder {
    FakePve::builder()
        .vm(1000, "db", "pve1", net("BC:24:11:00:00:01"))
        .container(1001, "dns", "pve2", json!({"net0": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02"}))
        .template(1002, "fedora-server-42", "pve1")
        .vm(700, "old", "pve2", net("02:A5:00:00:03:EB"))
        .container(701, "older", "pve1", json!({"net3": "name=eth3,bridge=vmbr0,hwaddr=02:A5:00:00:03:EC"}))
}

#[test]
fn vms_containers_templates_and_their_macs_are_passed_over() {
    let cluster = Cluster::start(full_house());
    let inventory = Inventory::of(&["web01"]);
    let result = inventory.run("web01", &cluster.with(&json!({})));
    assert_eq!(result["identity"]["vmid"], 1005, "{result}");
    assert_eq!(result["api_calls"], json!({"GET": 7}), "rights, guests, and five configurations");
    assert_eq!(cluster.looks(), 1);
    assert_eq!(cluster.proxy.connections(), 1);
}

#[test]
fn a_full_range_names_guests() {
    let cluster = Cluster::start(full_house());
    let result = Inventory::of(&["web01"]).run("web01", &cluster.with(&json!({"vmid_range": "1000-1004"})));
    let msg = result["msg"].as_str().unwrap();
    for holder in [
        "1000: VM 1000 (db) on node pve1",
        "1001: container 1001 (dns) on node pve2",
        "1002: template 1002 (fedora-server-42) on node pve1",
        "1003: its MAC 02:a5:00:00:03:eb is that of VM 700 (old) on node pve2",
        "1004: its MAC 02:a5:00:00:03:ec is that of container 701 (older) on node pve1",
    ] {
        assert!(msg.contains(holder), "{holder}: {msg}");
    }
}

#[test]
fn a_batch_looks_once_and_the_next_batch_anew() {
    let cluster = Cluster::start(full_house());
    let hosts: Vec<String> = (1..=20).map(|number| format!("web{number:02}")).collect();
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let inventory = Inventory::of(&names);
    let batch = cluster.with(&json!({"hosts": names}));
    let check = cluster.with(&json!({"hosts": names, "_ansible_check_mode": true}));
    let expected: Vec<u64> = (1005..1025).collect();

    assert_eq!(vmids(&inventory.run_all(&names, &check)), expected);
    assert_eq!(cluster.looks(), 1, "check mode");
    assert_eq!(vmids(&inventory.run_all(&names, &batch)), expected);
    assert_eq!(cluster.looks(), 2, "the run itself looks anew");

    cluster.proxy.forget();
    assert_eq!(vmids(&inventory.run_all(&names, &batch)), expected);
    assert_eq!(cluster.proxy.log().len(), 0, "nothing to allocate, nobody is asked");
    assert_eq!(cluster.proxy.connections(), 0);
}

#[test]
fn a_host_that_is_allocated_again_is_not_served_from_the_batch_before() {
    let cluster = Cluster::start(full_house());
    let inventory = Inventory::of(&["web01", "web02"]);
    let batch = cluster.with(&json!({"hosts": ["web01", "web02"]}));
    inventory.run("web01", &batch);
    std::fs::remove_file(inventory.path("web01/identity.yml")).unwrap();
    inventory.run("web01", &batch);
    assert_eq!(cluster.looks(), 2);
}

#[test]
fn an_identity_whose_vm_exists_is_no_conflict() {
    let cluster = Cluster::start(full_house());
    let inventory = Inventory::of(&["db"]);
    inventory.write("db/identity.yml", "anvil_assigned_vmid: 1000\n");
    let result = inventory.run("db", &cluster.with(&json!({})));
    assert_eq!(result["identity"]["vmid"], 1000, "{result}");
    assert_eq!(cluster.proxy.log().len(), 0, "the VMID is given, nothing is allocated");
}

#[test]
fn a_user_who_does_not_see_everything_is_refused() {
    let blind = full_house().grant("anvil@pve", "/vms/1000", &["VM.Audit"]);
    let cluster = Cluster::start(blind);
    let inventory = Inventory::of(&["web01"]);
    let result = inventory.run("web01", &cluster.with(&json!({})));
    assert_eq!(result["error_code"], "auth", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("grant VM.Audit on /vms"), "{result}");
    assert_eq!(inventory.identity("web01"), None);

    let sees = Cluster::start(full_house().grant("anvil@pve", "/vms", &["VM.Audit"]));
    assert_eq!(inventory.run("web01", &sees.with(&json!({})))["identity"]["vmid"], 1005);
}

#[test]
fn a_node_that_does_not_answer_is_told_and_tried_once() {
    let cluster = Cluster::start(full_house());
    cluster.proxy.on("GET", "/nodes/pve2/").always().answer(595, "No route to host", "");
    let inventory = Inventory::of(&["web01"]);
    let result = inventory.run("web01", &cluster.with(&json!({})));
    assert_eq!(result["identity"]["vmid"], 1003, "the MAC of VM 700 is not known: {result}");
    let warning = result["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("node pve2 does not answer"), "{result}");
    let asked: std::collections::BTreeSet<String> = cluster
        .proxy
        .log()
        .into_iter()
        .filter(|exchange| exchange.path.contains("/nodes/pve2/"))
        .map(|e| e.path)
        .collect();
    assert_eq!(asked.len(), 1);
}

#[test]
fn a_guest_that_is_gone_meanwhile_is_no_failure() {
    let cluster = Cluster::start(full_house());
    let gone = "Configuration file 'nodes/pve1/qemu-server/1000.conf' does not exist";
    cluster.proxy.on("GET", "/qemu/1000/config").answer(500, gone, "");
    let result = Inventory::of(&["web01"]).run("web01", &cluster.with(&json!({})));
    assert_eq!(result["identity"]["vmid"], 1005, "{result}");
}

#[test]
fn without_an_answer_nothing_is_written_and_no_secret_is_told() {
    let cluster = Cluster::start(full_house());
    cluster.proxy.on("GET", "/cluster/resources").answer(500, "cluster not ready - no quorum?", "");
    let inventory = Inventory::of(&["web01"]);
    let result = inventory.run("web01", &cluster.with(&json!({"_ansible_inject_invocation": true})));
    assert_eq!(result["error_code"], "api_error");
    assert!(result["msg"].as_str().unwrap().contains("no quorum"), "{result}");
    assert!(!result.to_string().contains(TOKEN_SECRET));
    assert_eq!(inventory.identity("web01"), None);
}
