//! The binary from outside, against a real fakepve behind a proxy that breaks things.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::program::{Outcome, Program, with};
use lab::proxy::Proxy;
use lab::pve::{FakePve, FakePveBuilder, TOKEN_ID, TOKEN_SECRET, TOKEN_USER};
use serde_json::{Value, json};

const MAC: &str = "02:a5:00:00:04:4d";

struct Site {
    pve: FakePve,
    proxy: Proxy,
    module: Program,
}

impl Site {
    fn new(pve: FakePveBuilder) -> Self {
        let pve = pve.start();
        let proxy = Proxy::to(&pve.url()).tls().start();
        Self { pve, proxy, module: Program::new(env!("CARGO_BIN_EXE_proxmox_vm_shell")) }
    }

    /// `options` and how to reach this cluster.
    fn with(&self, options: &Value) -> Value {
        let reach = json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_user": TOKEN_USER, "api_token_id": TOKEN_ID, "api_token_secret": TOKEN_SECRET,
            "timeout": 60, "_ansible_inject_invocation": false,
        });
        with(&reach, options.clone())
    }

    fn run(&self, options: &Value) -> Outcome {
        self.judged(self.module.run(&self.with(options)))
    }

    fn check(&self, options: &Value) -> Outcome {
        self.judged(self.module.check(&self.with(options)))
    }

    fn judged(&self, outcome: Outcome) -> Outcome {
        assert!(!outcome.output.contains(TOKEN_SECRET), "a secret is in: {}", outcome.output);
        assert_eq!(lab::pve_schema::complaints(&self.proxy.log()), Vec::<String>::new());
        outcome
    }

    /// The result of a run that must not fail.
    fn done(&self, options: &Value) -> Value {
        self.run(options).done()
    }

    /// The result of a run that must fail.
    fn failed(&self, options: &Value) -> Value {
        self.run(options).failed()
    }

    fn config(&self) -> Value {
        self.pve.vm_config(1101)
    }

    /// As the installation leaves it, with its boot order pinned.
    fn install(&self) {
        let set = |form: &[(&str, &str)]| {
            self.pve.call("PUT", "/nodes/pve1/qemu/1101/config", form).unwrap();
        };
        let power = |verb: &str| {
            self.pve.call("POST", &format!("/nodes/pve1/qemu/1101/status/{verb}"), &[]).unwrap();
        };
        power("stop");
        set(&[("boot", "order=scsi0;net0"), ("delete", "description")]);
        power("start");
        self.proxy.forget();
    }
}

fn web01() -> Value {
    json!({
        "vmid": 1101, "name": "web01", "node": "pve1", "cores": 2, "memory": 4096, "description": "Serves the web",
        "net": [{"mac": MAC, "bridge": "vmbr0", "vlan": 20}], "tags": ["web"],
        "disks": [{"slot": "scsi0", "storage": "local-lvm", "size": 40, "discard": true}],
        "state": "started",
    })
}

fn web01_with(others: Value) -> Value {
    with(&web01(), others)
}

#[test]
fn one_request_makes_it_and_the_next_run_reads_three_times() {
    let site = Site::new(FakePve::builder());
    let result = site.done(&web01());
    insta::assert_json_snapshot!(result, @r#"
    {
      "vm": {
        "vmid": 1101,
        "name": "web01",
        "node": "pve1",
        "status": "running",
        "installed": false,
        "boot": [
          "net0"
        ],
        "rng": "/dev/urandom",
        "mac": "02:a5:00:00:04:4d",
        "net": {
          "net0": {
            "model": "virtio",
            "macaddr": "02:a5:00:00:04:4d",
            "bridge": "vmbr0",
            "tag": 20,
            "firewall": false,
            "link_down": false
          }
        },
        "disks": {
          "efidisk0": {
            "efitype": "4m",
            "size": "528K",
            "storage": "local-lvm",
            "volume": "local-lvm:vm-1101-disk-0"
          },
          "scsi0": {
            "discard": "on",
            "size": "40G",
            "storage": "local-lvm",
            "volume": "local-lvm:vm-1101-disk-1"
          }
        },
        "cores": 2,
        "memory": 4096,
        "tags": [
          "web"
        ],
        "pending": []
      },
      "started": true,
      "read_back": {
        "held": [
          "vm",
          "machine",
          "bios",
          "rng0.source",
          "efidisk0.storage",
          "efidisk0.efitype",
          "ostype",
          "cores",
          "memory",
          "agent",
          "scsihw",
          "tags",
          "description",
          "net0.macaddr",
          "net0.bridge",
          "net0.tag",
          "scsi0.storage",
          "scsi0.size",
          "scsi0.discard",
          "boot",
          "status"
        ]
      },
      "changed": true
    }
    "#);
    let writes: Vec<String> =
        site.proxy.writes().iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_eq!(
        writes,
        ["POST /api2/json/nodes/pve1/qemu", "POST /api2/json/nodes/pve1/qemu/1101/status/start"]
    );
    let config = site.config();
    for (key, text) in [
        ("machine", "q35"),
        ("bios", "ovmf"),
        ("scsihw", "virtio-scsi-single"),
        ("rng0", "source=/dev/urandom"),
        ("boot", "order=net0"),
        ("net0", "virtio=02:A5:00:00:04:4D,bridge=vmbr0,tag=20"),
        ("agent", "1"),
    ] {
        assert_eq!(config[key], text, "{key}: {config}");
    }
    assert!(config["efidisk0"].as_str().unwrap().starts_with("local-lvm:vm-1101-disk-"), "{config}");
    assert_eq!(site.pve.vm_status(1101), "running");

    site.proxy.forget();
    let again = site.done(&web01());
    assert_eq!((&again["changed"], &again["vm"]), (&json!(false), &result["vm"]));
    let requests: Vec<String> =
        site.proxy.log().iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_eq!(
        requests,
        [
            "GET /api2/json/cluster/resources",
            "GET /api2/json/nodes/pve1/qemu/1101/pending",
            "GET /api2/json/nodes/pve1/qemu/1101/status/current"
        ]
    );
}

#[test]
fn check_mode_only_reads_and_foretells_what_the_run_does() {
    let site = Site::new(FakePve::builder());
    let foretold = site.check(&web01()).done();
    assert!(site.proxy.writes().is_empty());
    assert_eq!(site.pve.node_of(1101), None);
    let done = site.done(&web01());
    let plain = |vm: &Value| {
        let mut vm = vm.clone();
        for disk in vm["disks"].as_object_mut().unwrap().values_mut() {
            disk["volume"] = Value::Null;
        }
        // The size of the firmware's disk is Proxmox VE's own.
        vm["disks"]["efidisk0"]["size"] = Value::Null;
        vm
    };
    assert_eq!(plain(&foretold["vm"]), plain(&done["vm"]));
}

#[test]
fn an_installed_one_is_left_alone_refused_or_given_up() {
    let site = Site::new(FakePve::builder());
    site.done(&web01());
    site.install();
    let options = web01_with(json!({"description": null}));
    let again = site.done(&options);
    assert_eq!((&again["changed"], &again["vm"]["installed"]), (&json!(false), &json!(true)), "{again}");

    let refused = site.failed(&with(&options, json!({"memory": 8192})));
    assert_eq!(
        (&refused["error_code"], &refused["fields"]),
        (&json!("refused"), &json!(["memory"])),
        "{refused}"
    );
    assert!(site.proxy.writes().is_empty());

    let anew = with(&options, json!({"overwrite_disk": true}));
    let given_up = site.done(&anew);
    assert_eq!(
        (&given_up["vm"]["installed"], &given_up["vm"]["boot"], &given_up["vm"]["status"]),
        (&json!(false), &json!(["net0"]), &json!("running"))
    );
    assert_eq!(site.done(&anew)["changed"], false);
}

#[test]
fn an_old_proxmox_that_keeps_the_generator_to_root_is_explained() {
    let site = Site::new(FakePve::builder());
    site.proxy.on("POST", "/qemu").always().answer(
        500,
        "only root can set 'rng0' config",
        r#"{"data":null}"#,
    );
    let result = site.failed(&web01());
    let msg = result["msg"].as_str().unwrap();
    for part in [
        "creating VM 1101 on pve1",
        "only root can set 'rng0' config",
        "`api_user: root@pam` and `api_password`",
    ] {
        assert!(msg.contains(part), "{part}: {msg}");
    }
}

#[test]
fn a_lost_answer_makes_no_second_one() {
    let site = Site::new(FakePve::builder());
    site.proxy.on("POST", "/qemu").first().lose_answer();
    site.done(&web01());
    let creations = site.proxy.writes().iter().filter(|one| one.path.ends_with("/nodes/pve1/qemu")).count();
    assert_eq!(creations, 1);
    assert_eq!(site.pve.vms().len(), 1);
}

#[test]
fn a_generator_that_did_not_take_stops_the_start() {
    let site = Site::new(FakePve::builder());
    site.done(&web01_with(json!({"state": "present"})));
    site.pve.call("PUT", "/nodes/pve1/qemu/1101/config", &[("delete", "rng0")]).unwrap();
    site.proxy.on("PUT", "/config").always().answer(200, "OK", r#"{"data":null}"#);
    let result = site.failed(&web01());
    assert_eq!(
        (&result["error_code"], &result["field"]),
        (&json!("read_back_mismatch"), &json!("rng0.source")),
        "{result}"
    );
    assert_eq!(site.pve.vm_status(1101), "stopped");
}

#[test]
fn it_is_removed_while_it_is_empty() {
    let site = Site::new(FakePve::builder());
    site.done(&web01_with(json!({"state": "present"})));
    let gone = json!({"vmid": 1101, "name": "web01", "state": "absent"});
    assert_eq!(site.check(&gone).done()["changed"], true);
    assert_eq!(site.pve.node_of(1101).as_deref(), Some("pve1"));
    assert_eq!(site.done(&gone)["vm"], Value::Null);
    assert_eq!(site.pve.node_of(1101), None);
    assert_eq!(site.done(&gone)["changed"], false);
}
