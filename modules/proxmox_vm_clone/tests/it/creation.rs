//! From nothing to a running VM.

use serde_json::{Value, json};

use crate::{KEY, MAC, Site, house, web01, web01_with};

#[test]
fn one_task_takes_a_template_to_a_running_vm_and_the_next_run_reads_three_times() {
    let site = Site::new(house());
    let result = site.done(&web01());
    site.assert_built();
    insta::assert_json_snapshot!(result, @r#"
    {
      "template": {
        "vmid": 8042,
        "name": "fedora-server-42",
        "node": "pve1"
      },
      "vm": {
        "vmid": 1101,
        "name": "web01",
        "node": "pve1",
        "status": "running",
        "mac": "02:a5:00:00:04:4d",
        "net": {
          "net0": {
            "model": "virtio",
            "macaddr": "02:a5:00:00:04:4d",
            "bridge": "vmbr1",
            "tag": 20,
            "firewall": false,
            "link_down": false
          }
        },
        "disks": {
          "scsi0": {
            "discard": "on",
            "size": "40G",
            "ssd": "1",
            "storage": "local-lvm",
            "volume": "local-lvm:vm-1101-disk-0"
          },
          "scsi1": {
            "discard": "on",
            "serial": "web01-data",
            "size": "100G",
            "storage": "local-lvm",
            "volume": "local-lvm:vm-1101-disk-1"
          }
        },
        "cores": 4,
        "memory": 8192,
        "tags": [
          "prod",
          "web"
        ],
        "restart_needed": false,
        "pending": [],
        "guest_reboot_needed": false,
        "rebuilt": false
      },
      "read_back": {
        "held": [
          "vm",
          "cores",
          "memory",
          "tags",
          "description",
          "net0.macaddr",
          "net0.bridge",
          "net0.tag",
          "scsi1.storage",
          "scsi1.size",
          "scsi1.serial",
          "scsi1.discard",
          "boot",
          "ciuser",
          "sshkeys",
          "ipconfig0.ip",
          "scsi0.size",
          "status"
        ],
        "unreadable": {
          "cipassword": "Proxmox VE shows it masked"
        }
      },
      "changed": true
    }
    "#);
    insta::assert_json_snapshot!(site.requests(), @r#"
    [
      "GET /cluster/resources",
      "GET /cluster/nextid",
      "GET /nodes/pve1/qemu",
      "GET /nodes/pve1/qemu/8042/pending",
      "POST /nodes/pve1/qemu/8042/clone",
      "GET /nodes/pve1/tasks/UPID/status",
      "GET /nodes/pve1/qemu/1101/pending",
      "GET /nodes/pve1/qemu/1101/status/current",
      "PUT /nodes/pve1/qemu/1101/config",
      "GET /nodes/pve1/qemu/1101/pending",
      "PUT /nodes/pve1/qemu/1101/resize",
      "GET /nodes/pve1/tasks/UPID/status",
      "GET /nodes/pve1/qemu/1101/pending",
      "POST /nodes/pve1/qemu/1101/status/start",
      "GET /nodes/pve1/tasks/UPID/status",
      "GET /nodes/pve1/qemu/1101/pending",
      "GET /nodes/pve1/qemu/1101/status/current"
    ]
    "#);
    assert_eq!(site.proxy.connections(), 1);

    site.proxy.forget();
    let again = site.done(&web01());
    assert_eq!(again["changed"], false, "{again}");
    assert_eq!(again["vm"], result["vm"]);
    insta::assert_json_snapshot!(site.requests(), @r#"
    [
      "GET /cluster/resources",
      "GET /nodes/pve1/qemu/1101/pending",
      "GET /nodes/pve1/qemu/1101/status/current"
    ]
    "#);
    assert_eq!(site.proxy.connections(), 1);
}

#[test]
fn keys_arrive_as_they_were_given() {
    let site = Site::new(house());
    site.done(&web01());
    let stored = site.config()["sshkeys"].as_str().unwrap().to_owned();
    assert_eq!(stored.parse::<proxmox_keys::Decoded>().unwrap().0, KEY);
}

/// Decodes independently of the code under test.
mod proxmox_keys {
    use std::str::FromStr;

    pub(super) struct Decoded(pub(super) String);

    impl FromStr for Decoded {
        type Err = std::string::FromUtf8Error;

        fn from_str(text: &str) -> Result<Self, Self::Err> {
            let mut parts = text.split('%');
            let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
            for part in parts {
                bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
                bytes.extend(&part.as_bytes()[2..]);
            }
            String::from_utf8(bytes).map(Self)
        }
    }
}

#[test]
fn check_mode_only_reads_and_shows_everything() {
    let site = Site::new(house());
    let result = site.check(&web01()).done();
    assert!(site.proxy.writes().is_empty());
    assert_eq!(site.pve.node_of(1101), None);
    insta::assert_snapshot!(result["diff"]["before"].as_str().unwrap(), @r#"
    cores: 2
    memory: 2048
    description: [homelab.anvil: cloned and not yet configured; run the task again to finish]
    net0.bridge: vmbr0
    boot: ["scsi0"]
    cipassword: (hidden)
    scsi0.size: 10G
    status: stopped
    "#);
    insta::assert_snapshot!(result["diff"]["after"].as_str().unwrap(), @r#"
    vm: {"vmid":1101,"name":"web01","node":"pve1","template":"fedora-server-42 (VMID 8042 on pve1)"}
    cores: 4
    memory: 8192
    tags: ["prod","web"]
    description: Serves the web
    net0.macaddr: 02:a5:00:00:04:4d
    net0.bridge: vmbr1
    net0.tag: 20
    scsi1.storage: local-lvm
    scsi1.size: 100G
    scsi1.serial: web01-data
    scsi1.discard: true
    boot: ["scsi0","net0"]
    ciuser: admin
    sshkeys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBad+/Key= admin@site:1"]
    ipconfig0.ip: dhcp
    cipassword: (hidden, set by this task)
    scsi0.size: 40G
    status: running
    "#);
    insta::assert_json_snapshot!(result["vm"], @r#"
    {
      "vmid": 1101,
      "name": "web01",
      "node": "pve1",
      "status": "running",
      "mac": "02:a5:00:00:04:4d",
      "net": {
        "net0": {
          "model": "virtio",
          "macaddr": "02:a5:00:00:04:4d",
          "bridge": "vmbr1",
          "tag": 20,
          "firewall": false,
          "link_down": false
        }
      },
      "disks": {
        "scsi0": {
          "discard": "on",
          "size": "40G",
          "ssd": "1",
          "storage": "local-lvm",
          "volume": null
        },
        "scsi1": {
          "discard": "on",
          "serial": "web01-data",
          "size": "100G",
          "storage": "local-lvm",
          "volume": null
        }
      },
      "cores": 4,
      "memory": 8192,
      "tags": [
        "prod",
        "web"
      ],
      "restart_needed": false,
      "pending": [],
      "guest_reboot_needed": false,
      "rebuilt": false
    }
    "#);
    assert_eq!(result["changed"], true);
    assert_eq!(result["template"]["name"], "fedora-server-42");
}

#[test]
fn check_mode_foretells_what_the_run_then_does() {
    let site = Site::new(house());
    let foretold = site.check(&web01()).done();
    let done = site.done(&web01());
    let without_volume = |vm: &Value| {
        let mut vm = vm.clone();
        for disk in vm["disks"].as_object_mut().unwrap().values_mut() {
            disk["volume"] = Value::Null;
        }
        vm
    };
    assert_eq!(without_volume(&foretold["vm"]), without_volume(&done["vm"]));
}

#[test]
fn what_the_template_brought_is_left_alone() {
    let site = Site::new(house());
    let options = json!({
        "vmid": 1101, "name": "web01", "template": "fedora-server-42", "net": [{"mac": MAC}],
    });
    let result = site.done(&options);
    let config = site.config();
    assert_eq!(config["net0"], "virtio=02:A5:00:00:04:4D,bridge=vmbr0");
    assert_eq!(
        (&config["cores"], &config["agent"], &config["boot"]),
        (&json!(2), &json!("1"), &json!("order=scsi0"))
    );
    assert!(config.get("description").is_none(), "the mark is gone: {config}");
    assert_eq!(result["vm"]["status"], "stopped", "present leaves the power alone");
    assert_eq!(site.done(&options)["changed"], false);
}

#[test]
fn a_template_on_another_node_is_cloned_from_there() {
    let site = Site::new(house().node("pve2"));
    let result = site.done(&web01_with(json!({"node": "pve2"})));
    assert_eq!(site.pve.node_of(1101).as_deref(), Some("pve2"));
    assert_eq!(result["vm"]["node"], "pve2");
    let clone = site.proxy.log().into_iter().find(|one| one.path.ends_with("/clone")).unwrap();
    assert_eq!(clone.path, "/api2/json/nodes/pve1/qemu/8042/clone");
    assert!(clone.body.contains("target=pve2"), "{}", clone.body);
    site.assert_built();
    assert_eq!(site.done(&web01_with(json!({"node": "pve2"})))["changed"], false);
}

#[test]
fn local_storage_on_the_way_is_explained() {
    let site = Site::new(house().node("pve2"));
    site.proxy.on("POST", "/clone").always().answer(
        500,
        "can't clone VM to node 'pve2' (VM uses local storage)",
        r#"{"data":null}"#,
    );
    let result = site.failed(&web01_with(json!({"node": "pve2"})));
    assert_eq!(result["error_code"], "refused");
    let msg = result["msg"].as_str().unwrap();
    for part in ["VM uses local storage", "cloud-init drive counts too", "copy of the template on pve2"] {
        assert!(msg.contains(part), "{part}: {msg}");
    }
}

#[test]
fn a_slow_clone_is_waited_for() {
    let site = Site::new(house().time_scale(0.05).task_seconds(20.0, 10.0));
    site.done(&web01());
    site.assert_built();
}

#[test]
fn a_clone_slower_than_the_timeout_is_told_with_its_task_and_finished_by_the_next_run() {
    let site = Site::new(house().time_scale(0.05).task_seconds(60.0, 0.0));
    let result = site.failed(&web01_with(json!({"timeout": 1})));
    assert_eq!(result["error_code"], "timeout", "{result}");
    assert!(result["upid"].as_str().unwrap().starts_with("UPID:pve1:"), "{result}");
    assert!(result["msg"].as_str().unwrap().contains("still running"), "{result}");
    site.done(&web01());
    site.assert_built();
    assert_eq!(site.proxy.writes().iter().filter(|one| one.path.ends_with("/clone")).count(), 1);
}

#[test]
fn two_runs_at_once_make_one_vm() {
    let site = Site::new(house().time_scale(0.05).task_seconds(10.0, 0.0));
    let options = site.with(&web01());
    let results: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..2).map(|_| scope.spawn(|| site.module.run(&options).done())).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    site.assert_built();
    let changed = results.iter().filter(|result| result["changed"] == true).count();
    assert_eq!(changed, 1, "{results:?}");
}

#[test]
fn two_controllers_racing_for_one_vmid_end_with_one_vm() {
    let site = Site::new(house().time_scale(0.05).task_seconds(10.0, 0.0));
    let options = site.with(&web01());
    let other = lab::program::Program::new(env!("CARGO_BIN_EXE_proxmox_vm_clone"));
    let rival = site.with(&web01_with(json!({"name": "db01"})));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let runs = [scope.spawn(|| site.module.run(&options)), scope.spawn(|| other.run(&rival))];
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.status != 0).collect();
    assert_eq!(failed.len(), 1, "one wins");
    let code = failed[0].result["error_code"].as_str().unwrap();
    assert!(["conflict", "refused"].contains(&code), "{}", failed[0].output);
    assert_eq!(site.pve.vms().iter().filter(|vm| vm["template"] != 1).count(), 1);
}

#[test]
fn a_cluster_list_that_is_behind_does_not_mislead() {
    let site = Site::new(house());
    // Until the broadcast came, a guest has neither name nor template mark (PVE/API2Tools.pm).
    site.proxy.on("GET", "/cluster/resources").always().rewrite_answer(|body| {
        let mut answer: Value = serde_json::from_str(body).unwrap();
        for row in answer["data"].as_array_mut().unwrap() {
            row.as_object_mut()
                .unwrap()
                .retain(|key, _| ["id", "vmid", "node", "type", "lock"].contains(&key.as_str()));
            row["status"] = json!("unknown");
        }
        answer.to_string()
    });
    site.done(&web01());
    site.assert_built();
    assert_eq!(site.done(&web01())["changed"], false);
}

#[test]
fn a_server_of_version_7_grows_disks_before_it_answers() {
    let site = Site::new(house());
    site.proxy.on("PUT", "/resize").always().rewrite_answer(|_| r#"{"data":null}"#.into());
    site.done(&web01());
    site.assert_built();
}

#[test]
fn a_snapshot_of_a_vm_is_cloned() {
    let mut config = lab::pve::template_config(300);
    config.as_object_mut().unwrap().remove("template");
    let site = Site::new(house().vm(300, "golden", "pve1", config));
    let path = "/nodes/pve1/qemu/300";
    site.pve.call("PUT", &format!("{path}/config"), &[("cores", "6")]).unwrap();
    site.pve.call("POST", &format!("{path}/snapshot"), &[("snapname", "clean")]).unwrap();
    site.pve.call("PUT", &format!("{path}/config"), &[("cores", "1")]).unwrap();

    let options = json!({"vmid": 1101, "name": "web01", "template": "golden", "snapname": "clean"});
    assert_eq!(site.check(&options).done()["vm"]["cores"], 6);
    site.done(&options);
    assert_eq!(site.config()["cores"], 6);
    assert_eq!(site.done(&options)["changed"], false);

    let msg = site.failed(&json!({"vmid": 1102, "name": "web02", "template": "golden", "snapname": "none"}))
        ["msg"]
        .to_string();
    assert!(
        msg.contains("snapshot 'none' does not exist") && msg.contains("golden (VMID 300 on pve1)"),
        "{msg}"
    );
}

#[test]
fn a_second_vm_of_the_name_is_told() {
    let site = Site::new(house().vm(200, "web01", "pve1", json!({})));
    let result = site.done(&web01_with(json!({"state": "present"})));
    let warning = result["warnings"][0].as_str().unwrap();
    assert!(warning.contains("same name: web01 (VMID 200 on pve1)"), "{warning}");
    assert_eq!(result["vm"]["vmid"], 1101);
}
