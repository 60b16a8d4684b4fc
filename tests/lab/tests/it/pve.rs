//! fakepve as the lab starts it, and what the lab adds to it.

use lab::pve::FakePve;
use serde_json::{Value, json};

fn cloned() -> FakePve {
    let pve = FakePve::builder().template(8000, "fedora-server-42", "pve1").start();
    let form = [("newid", "101"), ("name", "web01"), ("full", "1")];
    pve.call("POST", "/nodes/pve1/qemu/8000/clone", &form).unwrap();
    pve
}

fn configure(pve: &FakePve, form: &[(&str, &str)]) -> Result<Value, String> {
    pve.call("PUT", "/nodes/pve1/qemu/101/config", form).map_err(|error| format!("{error:#}"))
}

/// Resizes and returns how the task ended.
fn resize(pve: &FakePve, disk: &str, size: &str) -> String {
    let upid = pve.call("PUT", "/nodes/pve1/qemu/101/resize", &[("disk", disk), ("size", size)]).unwrap();
    let upid = upid.as_str().unwrap().replace(':', "%3A").replace('@', "%40").replace('!', "%21");
    let task = pve.get(&format!("/nodes/pve1/tasks/{upid}/status"));
    task["exitstatus"].as_str().unwrap().to_owned()
}

#[test]
fn a_clone_is_whole_and_its_own() {
    let pve = cloned();
    let config = pve.vm_config(101);
    assert_eq!(config["scsi0"], "local-lvm:vm-101-disk-0,discard=on,size=10G,ssd=1");
    assert_eq!(config["ide2"], "local-lvm:vm-101-cloudinit,media=cdrom");
    assert_ne!(config["net0"], pve.vm_config(8000)["net0"]);
    assert_eq!((pve.vm_status(101).as_str(), pve.vms().len()), ("stopped", 2));
}

#[test]
fn a_clone_in_the_making_has_no_name() {
    let pve = FakePve::builder()
        .template(8000, "fedora-server-42", "pve1")
        .time_scale(1.0)
        .task_seconds(60.0, 0.0)
        .start();
    pve.call("POST", "/nodes/pve1/qemu/8000/clone", &[("newid", "101"), ("name", "web01"), ("full", "1")])
        .unwrap();
    let row = pve.vms().into_iter().find(|vm| vm["vmid"] == 101).unwrap();
    assert_eq!(
        (&row["name"], &row["status"], &row["lock"]),
        (&Value::Null, &json!("unknown"), &json!("clone"))
    );
    assert_eq!(pve.vm_config(101)["lock"], "clone");
    assert_eq!(pve.vm_config(101)["name"], Value::Null);
    assert!(configure(&pve, &[("cores", "4")]).unwrap_err().contains("VM is locked (clone)"));
}

#[test]
fn config_is_stored_in_its_normal_form() {
    let pve = cloned();
    let form = [
        ("net0", "bridge=vmbr1,model=virtio,macaddr=02:A5:00:00:00:65,tag=10"),
        ("tags", "web,Anvil,web"),
        ("cipassword", "hush"),
        ("scsi1", "local-lvm:20,serial=web01-srv"),
        ("description", "two\nlines \n"),
    ];
    configure(&pve, &form).unwrap();
    let config = pve.vm_config(101);
    assert_eq!(config["net0"], "virtio=02:A5:00:00:00:65,bridge=vmbr1,tag=10");
    assert_eq!(config["tags"], "anvil;web");
    assert_eq!(config["cipassword"], "**********");
    assert_eq!(config["scsi1"], "local-lvm:vm-101-disk-1,serial=web01-srv,size=20G");
    assert_eq!(config["description"], "two\nlines");
}

#[test]
fn a_detached_disk_is_kept_as_unused() {
    let pve = cloned();
    configure(&pve, &[("scsi1", "local-lvm:20")]).unwrap();
    configure(&pve, &[("delete", "scsi1")]).unwrap();
    let config = pve.vm_config(101);
    assert_eq!((&config["scsi1"], &config["unused0"]), (&Value::Null, &json!("local-lvm:vm-101-disk-1")));
}

#[test]
fn disks_grow_and_never_shrink() {
    let pve = cloned();
    assert_eq!(resize(&pve, "scsi0", "64G"), "OK");
    assert_eq!(resize(&pve, "scsi0", "+1G"), "OK");
    assert!(pve.vm_config(101)["scsi0"].as_str().unwrap().contains("size=65G"));
    assert_eq!(resize(&pve, "scsi0", "10G"), "shrinking disks is not supported");
    assert_eq!(resize(&pve, "scsi9", "10G"), "disk 'scsi9' does not exist");
    assert_eq!(resize(&pve, "ide2", "10G"), "you can't resize a cdrom");
}

#[test]
fn refusals_come_in_proxmox_words() {
    let pve = cloned();
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[("sshkeys", "no%20key")], "SSH public key validation error"),
        (&[("digest", &"0".repeat(40)), ("cores", "4")], "checksum mismatch (file change by other user?)"),
        (&[("scsi1", "nowhere:20")], "storage 'nowhere' does not exist"),
        (&[("boot", "order=scsi9")], "invalid bootorder: device 'scsi9' does not exist'"),
        (&[], "no options specified"),
    ];
    for (form, words) in cases {
        let refusal = configure(&pve, form).unwrap_err();
        assert!(refusal.contains(words), "{form:?}: {refusal}");
    }
    assert_eq!(pve.vm_config(101)["cores"], 2);
}

#[test]
fn a_fake_ends_when_it_is_dropped() {
    let pve = FakePve::builder().start();
    let url = pve.url();
    assert!(lab::pve::call(&url, "GET", "/version", &[]).is_ok());
    drop(pve);
    assert!(lab::pve::call(&url, "GET", "/version", &[]).is_err());
}
