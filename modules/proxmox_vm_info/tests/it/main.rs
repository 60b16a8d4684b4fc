//! The binary from outside, against a real fakepve.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::program::{Outcome, Program, with};
use lab::proxy::Proxy;
use lab::pve::{FakePve, FakePveBuilder, TOKEN_ID, TOKEN_SECRET, TOKEN_USER};
use serde_json::{Value, json};

struct Site {
    pve: FakePve,
    proxy: Proxy,
    module: Program,
}

impl Site {
    fn new(pve: FakePveBuilder) -> Self {
        let pve = pve.start();
        let proxy = Proxy::to(&pve.url()).tls().start();
        Self { pve, proxy, module: Program::new(env!("CARGO_BIN_EXE_proxmox_vm_info")) }
    }

    /// Runs, and holds that only reads were sent, which the real servers would take.
    fn run(&self, options: &Value) -> Outcome {
        let reach = json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_user": TOKEN_USER, "api_token_id": TOKEN_ID, "api_token_secret": TOKEN_SECRET,
            "_ansible_inject_invocation": false,
        });
        let outcome = self.module.run(&with(&reach, options.clone()));
        assert!(self.proxy.writes().is_empty());
        assert_eq!(lab::pve_schema::complaints(&self.proxy.log()), Vec::<String>::new());
        assert!(!outcome.output.contains(TOKEN_SECRET));
        outcome
    }

    fn vms(&self, options: Value) -> Value {
        let result = self.run(&options).done();
        assert_eq!(result["changed"], false);
        result["vms"].clone()
    }

    fn vmids(&self, options: Value) -> Vec<u64> {
        self.vms(options).as_array().unwrap().iter().map(|vm| vm["vmid"].as_u64().unwrap()).collect()
    }
}

fn house() -> FakePveBuilder {
    let web = json!({
        "cores": 4, "memory": "8192", "agent": "1", "boot": "order=scsi0;net0", "tags": "prod;web",
        "net0": "virtio=02:A5:00:00:04:4D,bridge=vmbr1,tag=20", "net1": "virtio=02:A5:00:00:04:4E,bridge=vmbr2",
        "scsi0": "local-lvm:vm-1101-disk-0,size=40G", "scsi1": "local-lvm:vm-1101-disk-1,serial=web01-data,size=100G",
        "ide2": "local-lvm:vm-1101-cloudinit,media=cdrom", "unused0": "local-lvm:vm-1101-disk-9",
        "ipconfig0": "ip=dhcp", "cipassword": "hush", "description": "Serves the web",
    });
    let interfaces = json!([
        {"name": "lo", "hardware-address": "00:00:00:00:00:00",
         "ip-addresses": [{"ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8}]},
        {"name": "ens19", "hardware-address": "02:a5:00:00:04:4e"},
        {"name": "ens18", "hardware-address": "02:a5:00:00:04:4d", "ip-addresses": [
            {"ip-address": "169.254.7.8", "ip-address-type": "ipv4", "prefix": 16},
            {"ip-address": "fe80::a5ff:fe00:44d", "ip-address-type": "ipv6", "prefix": 64},
            {"ip-address": "10.20.0.40", "ip-address-type": "ipv4", "prefix": 24},
        ]},
    ]);
    FakePve::builder()
        .template(8042, "fedora-server-42", "pve1")
        .vm(1101, "web01", "pve1", web)
        .vm(1102, "web02", "pve2", json!({"tags": "web"}))
        .vm(1200, "db01", "pve2", json!({}))
        .container(300, "dns", "pve1", json!({}))
        .guest_agent(1101, interfaces)
}

#[test]
fn vms_are_found_by_number_name_beginning_node_and_tags() {
    let site = Site::new(house());
    for (options, expected) in [
        (json!({}), vec![1101, 1102, 1200, 8042]),
        (json!({"vmid": 1101}), vec![1101]),
        (json!({"vmid": 300}), vec![]),
        (json!({"vmid": 4711}), vec![]),
        (json!({"name": "WEB02"}), vec![1102]),
        (json!({"prefix": "web"}), vec![1101, 1102]),
        (json!({"node": "pve2"}), vec![1102, 1200]),
        (json!({"tags": ["Web"]}), vec![1101, 1102]),
        (json!({"tags": ["web", "prod"]}), vec![1101]),
        (json!({"node": "pve2", "tags": ["web"]}), vec![1102]),
    ] {
        assert_eq!(site.vmids(options.clone()), expected, "{options}");
    }
}

#[test]
fn one_vm_is_read_with_the_fewest_requests() {
    let site = Site::new(house());
    site.vms(json!({"vmid": 1101}));
    let paths: Vec<String> = site.proxy.log().iter().map(|one| one.path.replace("/api2/json", "")).collect();
    assert_eq!(paths, ["/cluster/resources", "/nodes/pve1/qemu", "/nodes/pve1/qemu/1101/pending"]);
    site.proxy.forget();
    site.vms(json!({"vmid": 1101, "config": false}));
    assert_eq!(site.proxy.log().len(), 2);
}

#[test]
fn settings_are_objects_and_addresses_stand_at_their_cards() {
    let site = Site::new(house());
    site.pve.call("POST", "/nodes/pve1/qemu/1101/status/start", &[]).unwrap();
    site.pve.call("PUT", "/nodes/pve1/qemu/1101/config", &[("memory", "16384")]).unwrap();
    insta::assert_json_snapshot!(site.vms(json!({"vmid": 1101, "agent": true})), @r#"
    [
      {
        "vmid": 1101,
        "name": "web01",
        "node": "pve1",
        "status": "running",
        "template": false,
        "lock": null,
        "tags": [
          "prod",
          "web"
        ],
        "net": {
          "net0": {
            "model": "virtio",
            "macaddr": "02:a5:00:00:04:4d",
            "bridge": "vmbr1",
            "tag": 20,
            "firewall": false,
            "link_down": false,
            "addresses": [
              "10.20.0.40/24"
            ]
          },
          "net1": {
            "model": "virtio",
            "macaddr": "02:a5:00:00:04:4e",
            "bridge": "vmbr2",
            "firewall": false,
            "link_down": false,
            "addresses": []
          }
        },
        "disks": {
          "scsi0": {
            "size": "40G",
            "storage": "local-lvm",
            "volume": "local-lvm:vm-1101-disk-0"
          },
          "scsi1": {
            "serial": "web01-data",
            "size": "100G",
            "storage": "local-lvm",
            "volume": "local-lvm:vm-1101-disk-1"
          }
        },
        "cdroms": {
          "ide2": {
            "media": "cdrom",
            "storage": "local-lvm",
            "volume": "local-lvm:vm-1101-cloudinit"
          }
        },
        "unused": {
          "unused0": "local-lvm:vm-1101-disk-9"
        },
        "config": {
          "agent": {
            "enabled": true
          },
          "boot": [
            "scsi0",
            "net0"
          ],
          "cores": 4,
          "description": "Serves the web",
          "ipconfig0": {
            "ip": "dhcp",
            "gw": null,
            "ip6": null,
            "gw6": null
          },
          "memory": 16384
        },
        "pending": [
          "memory"
        ],
        "restart_needed": true,
        "agent_error": null
      }
    ]
    "#);
}

#[test]
fn an_agent_that_does_not_answer_is_no_failure() {
    let site = Site::new(house());
    site.pve.call("POST", "/nodes/pve2/qemu/1102/status/start", &[]).unwrap();
    let vms = site.vms(json!({"prefix": "web", "agent": true}));
    assert_eq!(vms[0].get("agent_error"), None, "1101 does not run: nobody is asked");
    assert!(vms[1]["agent_error"].as_str().unwrap().contains("QEMU guest agent is not running"), "{vms}");

    // Before version 9 another privilege was needed; the server names the one that it wants.
    let words = "Permission check failed (/vms/1102, VM.GuestAgent.Audit)";
    site.proxy.on("GET", "/agent/").always().answer(403, words, r#"{"data":null}"#);
    let vms = site.vms(json!({"vmid": 1102, "agent": true}));
    assert!(
        vms[0]["agent_error"].as_str().unwrap().contains("Grant VM.GuestAgent.Audit on /vms/1102"),
        "{vms}"
    );
}

#[test]
fn a_node_that_is_away_is_a_warning() {
    let site = Site::new(house());
    site.proxy.on("GET", "/nodes/pve2/qemu").always().answer(595, "No route to host", "");
    let result = site.run(&json!({"config": false})).done();
    let told: Vec<_> =
        result["vms"].as_array().unwrap().iter().map(|vm| vm["status"].as_str().unwrap()).collect();
    assert_eq!(told, ["stopped", "unknown", "unknown", "stopped"]);
    assert!(result["warnings"][0].as_str().unwrap().contains("node pve2 cannot be reached"), "{result}");
}

#[test]
fn names_and_tags_are_those_of_the_nodes_not_of_a_broadcast_that_is_late() {
    let site = Site::new(house());
    // pve-manager PVE/API2Tools.pm, extract_vm_stats: without a broadcast a guest has neither name nor status.
    site.proxy.on("GET", "/cluster/resources").always().rewrite_answer(|body| {
        let mut answer: Value = serde_json::from_str(body).unwrap();
        for row in answer["data"].as_array_mut().unwrap() {
            row.as_object_mut()
                .unwrap()
                .retain(|key, _| ["id", "vmid", "node", "type"].contains(&key.as_str()));
            row["status"] = json!("unknown");
        }
        answer.to_string()
    });
    assert_eq!(site.vmids(json!({"prefix": "web"})), [1101, 1102]);
    assert_eq!(site.vms(json!({"vmid": 8042}))[0]["template"], true);
}
