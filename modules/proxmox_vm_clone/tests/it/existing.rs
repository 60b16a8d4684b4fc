//! A VM that is there: what is changed, and what is left alone.

use lab::program::with;
use serde_json::{Value, json};

use crate::{MAC, PASSWORD, Site, house, web01, web01_with};

fn built() -> Site {
    let site = Site::new(house());
    site.done(&web01());
    site.proxy.forget();
    site
}

fn only(options: Value) -> Value {
    with(&json!({"vmid": 1101, "name": "web01"}), options)
}

#[test]
fn inside_one_device_only_the_named_option_changes() {
    let site = built();
    site.done(&only(json!({"state": "stopped"})));
    let result = site.done(&only(json!({"net": [{"firewall": true}], "disks": [{
        "slot": "scsi1", "storage": "local-lvm", "size": "100G", "ssd": true,
    }]})));
    assert_eq!(result["read_back"]["held"], json!(["net0.firewall", "scsi1.ssd"]));
    let config = site.config();
    assert_eq!(config["net0"], "virtio=02:A5:00:00:04:4D,bridge=vmbr1,firewall=1,tag=20");
    assert_eq!(config["scsi1"], "local-lvm:vm-1101-disk-1,discard=on,serial=web01-data,size=100G,ssd=1");
    assert_eq!(result["vm"]["mac"], MAC);
}

#[test]
fn spelling_is_no_difference() {
    let site = built();
    let result = site.done(&only(json!({
        "net": [{"mac": "02-A5-00-00-04-4D", "model": "virtio", "firewall": false}],
        "tags": ["PROD", "web", "web"], "memory": "8192", "description": "Serves the web\n",
        "os_disk": {"size": "40G"}, "agent": "enabled=1", "startup": null,
        "disks": [{"slot": "scsi1", "storage": "local-lvm", "size": "100G", "backup": true, "ssd": false}],
    })));
    assert_eq!(result["changed"], false, "{result}");
    assert_eq!(site.proxy.log().len(), 3);
    assert!(site.proxy.writes().is_empty());
}

#[test]
fn what_a_running_vm_cannot_take_is_pending_and_stays_told() {
    let site = built();
    let more = only(json!({"memory": 16384}));
    let result = site.done(&more);
    let why = result["read_back"]["pending"]["memory"].as_str().unwrap();
    assert!(why.contains("keeps 8192 until it is stopped and started"), "{why}");
    assert_eq!(
        (&result["vm"]["restart_needed"], &result["vm"]["pending"]),
        (&json!(true), &json!(["memory"]))
    );

    let again = site.done(&more);
    assert_eq!((&again["changed"], &again["vm"]["restart_needed"]), (&json!(false), &json!(true)));

    site.done(&with(&more, json!({"state": "stopped"})));
    let started = site.done(&with(&more, json!({"state": "started"})));
    assert_eq!((&started["vm"]["restart_needed"], &started["vm"]["memory"]), (&json!(false), &json!(16384)));
}

#[test]
fn a_restart_brings_what_was_pending_into_effect() {
    let site = built();
    site.done(&only(json!({"memory": 16384})));
    let restart = only(json!({"memory": 16384, "cores": 8, "restart": true, "state": "started"}));
    let result = site.done(&restart);
    assert_eq!(
        (&result["vm"]["restart_needed"], &result["vm"]["status"]),
        (&json!(false), &json!("running"))
    );
    assert_eq!((&site.config()["memory"], &site.config()["cores"]), (&json!("16384"), &json!(8)));
    assert_eq!(site.done(&restart)["changed"], false);
}

#[test]
fn a_device_is_removed_only_when_told() {
    let site = built();
    site.done(&only(json!({"state": "stopped"})));
    site.done(&only(json!({"net": [{"slot": "net1", "bridge": "vmbr2"}]})));
    let remove = only(json!({"delete": ["net1"]}));
    site.done(&remove);
    assert!(site.config().get("net1").is_none());
    assert_eq!(site.done(&remove)["changed"], false);
}

#[test]
fn cloud_init_of_a_running_vm_gets_a_new_drive_and_waits_for_a_reboot() {
    let site = built();
    let more = only(json!({"cloud_init": {"nameserver": ["10.0.0.1"]}}));
    let result = site.done(&more);
    assert!(result["warnings"][0].as_str().unwrap().contains("must reboot to see them"), "{result}");
    assert_eq!(result["vm"]["guest_reboot_needed"], true);
    let why = &result["read_back"]["pending"]["cloud_init.drive"];
    assert_eq!(why, "the drive is written anew; the guest must reboot to see it");
    let stale = site.pve.get("/nodes/pve1/qemu/1101/cloudinit");
    assert!(stale.as_array().unwrap().iter().all(|row| row.get("pending").is_none()), "{stale}");

    site.proxy.forget();
    let again = site.done(&more);
    assert_eq!((&again["changed"], &again["vm"]["guest_reboot_needed"]), (&json!(false), &json!(false)));
    assert_eq!(site.proxy.log().len(), 3);
}

#[test]
fn a_server_that_cannot_write_the_drive_anew_is_told_of() {
    let site = built();
    let words = "Method 'PUT /nodes/pve1/qemu/1101/cloudinit' not implemented";
    site.proxy.on("PUT", "/cloudinit").always().answer(501, words, "");
    let result = site.done(&only(json!({"cloud_init": {"nameserver": ["10.0.0.1"]}})));
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("cannot write cloud-init's drive anew"), "{warnings}");
    assert_eq!(result["vm"]["guest_reboot_needed"], false);
}

#[test]
fn a_drive_that_keeps_the_old_settings_is_a_failure() {
    let site = built();
    site.proxy.on("PUT", "/cloudinit").always().answer(200, "OK", r#"{"data":null}"#);
    let result = site.failed(&only(json!({"cloud_init": {"nameserver": ["10.0.0.1"]}})));
    assert_eq!((&result["field"], &result["found"]), (&json!("cloud_init.drive"), &json!(["nameserver"])));
}

#[test]
fn a_random_number_generator_keeps_what_is_not_named() {
    let site = built();
    site.done(&only(json!({"state": "stopped"})));
    site.done(&only(json!({"rng": "/dev/urandom,max_bytes=2048"})));
    assert_eq!(site.config()["rng0"], "source=/dev/urandom,max_bytes=2048");
    let result = site.done(&only(json!({"rng": "period=500"})));
    assert_eq!(site.config()["rng0"], "source=/dev/urandom,max_bytes=2048,period=500");
    assert_eq!(result["read_back"]["held"], json!(["rng0"]));
    assert_eq!(site.done(&only(json!({"rng": "source=/dev/urandom"})))["changed"], false);
    site.done(&only(json!({"delete": ["rng0"]})));
    assert!(site.config().get("rng0").is_none());
}

#[test]
fn a_password_is_set_on_create_and_then_only_when_always() {
    let site = built();
    let password = |when: &str| only(json!({"cloud_init": {"password": PASSWORD, "update_password": when}}));
    assert_eq!(site.done(&password("on_create"))["changed"], false);
    let result = site.done(&password("always"));
    assert_eq!(result["changed"], true);
    assert_eq!(result["read_back"]["unreadable"]["cipassword"], "Proxmox VE shows it masked");
}

#[test]
fn a_static_address_gives_way_to_dhcp_with_its_gateway() {
    let site = built();
    site.done(&only(json!({"state": "stopped"})));
    let address = |config: Value| only(json!({"cloud_init": {"ip_config": [config]}}));
    site.done(&address(json!({"ip": "10.0.0.5/24", "gateway": "10.0.0.1"})));
    assert_eq!(site.config()["ipconfig0"], "gw=10.0.0.1,ip=10.0.0.5/24");
    site.done(&address(json!({"ip": "dhcp"})));
    assert_eq!(site.config()["ipconfig0"], "ip=dhcp");
}

#[test]
fn a_setting_can_be_taken_away_where_emptiness_says_so() {
    let site = built();
    site.done(&only(json!({"state": "stopped"})));
    let result = site.done(&only(json!({"tags": [], "description": "", "net": [{"vlan": 0}]})));
    let config = site.config();
    assert_eq!((config.get("tags"), config.get("description")), (None, None));
    assert_eq!(config["net0"], "virtio=02:A5:00:00:04:4D,bridge=vmbr1");
    assert_eq!(result["vm"]["tags"], json!([]));
}

#[test]
fn a_second_card_is_added_and_gets_an_address() {
    let site = built();
    site.done(&only(json!({"state": "stopped"})));
    let card = only(json!({"net": [{"slot": "net1", "bridge": "vmbr2"}]}));
    let result = site.done(&card);
    let mac = result["vm"]["net"]["net1"]["macaddr"].as_str().unwrap().to_owned();
    let again = site.done(&card);
    assert_eq!((&again["changed"], &again["vm"]["net"]["net1"]["macaddr"]), (&json!(false), &json!(mac)));
}

#[test]
fn a_vm_on_another_node_is_a_warning() {
    let site = built();
    let result = site.done(&only(json!({"node": "pve7"})));
    assert!(result["warnings"][0].as_str().unwrap().contains("lives on node pve1, not on pve7"), "{result}");
}

#[test]
fn stopped_shuts_down_and_says_when_the_guest_does_not() {
    let site = built();
    let stop = only(json!({"state": "stopped"}));
    assert_eq!(site.done(&stop)["vm"]["status"], "stopped");
    assert_eq!(site.done(&stop)["changed"], false);

    site.done(&web01());
    site.proxy.on("POST", "/shutdown").always().answer(500, "VM quit/powerdown failed - got timeout", "");
    let msg = site.failed(&stop)["msg"].as_str().unwrap().to_owned();
    assert!(msg.contains("powerdown failed") && msg.contains("stop: true"), "{msg}");
}

#[test]
fn a_changed_field_is_shown_before_and_after() {
    let site = built();
    let result = site.check(&web01_with(json!({"cores": 8}))).done();
    assert_eq!(
        (&result["diff"]["before"], &result["diff"]["after"]),
        (&json!("cores: 4\n"), &json!("cores: 8\n"))
    );
    assert!(site.proxy.writes().is_empty());
}
