//! A fresh OS in a VM that keeps its identity and its data.

use lab::program::with;
use lab::pve::{FakePveBuilder, template_config};
use serde_json::{Value, json};

use crate::{Site, house};

/// web01, web02 ... as they were before the rebuild: 40 GiB with a serial, a data disk of 100 GiB, a second one that
/// somebody detached, and no sign of us.
pub(crate) fn grown_up(pve: FakePveBuilder, number: u32) -> FakePveBuilder {
    let vmid = 1100 + number;
    let mut config = template_config(vmid);
    config.as_object_mut().unwrap().remove("template");
    let more = json!({
        "scsi0": format!("local-lvm:vm-{vmid}-disk-0,discard=on,serial=os,size=40G,ssd=1"),
        "scsi1": format!("local-lvm:vm-{vmid}-disk-1,backup=0,serial=data,size=100G"),
        "unused0": format!("local-lvm:vm-{vmid}-disk-7"),
        "net0": format!("virtio=02:A5:00:00:04:{:02X},bridge=vmbr1,tag=20", 0x4c + number),
        "smbios1": format!("uuid=11111111-0000-4000-8000-{vmid:012}"),
        "boot": "order=scsi0;net0",
    });
    pve.vm(vmid, &format!("web{number:02}"), "pve1", with(&config, more))
}

pub(crate) fn rebuilding(number: u32) -> Value {
    json!({
        "vmid": 1100 + number, "name": format!("web{number:02}"), "template_prefix": "fedora-server-",
        "rebuild_os_disk": true, "stop": true, "state": "started",
    })
}

fn rebuilding_with(others: Value) -> Value {
    with(&rebuilding(1), others)
}

pub(crate) fn switch_on(pve: &lab::pve::FakePve, number: u32) {
    pve.call("POST", &format!("/nodes/pve1/qemu/{}/status/start", 1100 + number), &[]).unwrap();
}

fn running() -> Site {
    let site = Site::new(grown_up(house(), 1));
    switch_on(&site.pve, 1);
    site
}

/// The volumes of a VM, each with the time it was made; those that a test began with are of 1970.
pub(crate) fn volumes(pve: &lab::pve::FakePve, vmid: u32) -> Vec<(String, bool)> {
    let content = pve.get("/nodes/pve1/storage/local-lvm/content");
    let own = content
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["vmid"].to_string().trim_matches('"') == vmid.to_string());
    let mut own: Vec<(String, bool)> = own
        .map(|row| (row["volid"].as_str().unwrap().to_owned(), row["ctime"].as_u64().unwrap_or_default() > 0))
        .collect();
    own.sort();
    own
}

/// The OS disk is a fresh one of 40 GiB, and nothing else is different; nothing of ours is left.
pub(crate) fn assert_rebuilt(pve: &lab::pve::FakePve, number: u32) {
    let vmid = 1100 + number;
    let config = pve.vm_config(vmid);
    let text = |key: &str| config[key].as_str().unwrap_or_else(|| panic!("no {key}: {config}"));
    let (volume, options) = text("scsi0").split_once(',').unwrap();
    assert_eq!(options, "discard=on,serial=os,size=40G,ssd=1");
    assert_eq!(text("scsi1"), format!("local-lvm:vm-{vmid}-disk-1,backup=0,serial=data,size=100G"));
    assert_eq!(text("unused0"), format!("local-lvm:vm-{vmid}-disk-7"), "what somebody detached is not ours");
    assert_eq!(text("net0"), format!("virtio=02:A5:00:00:04:{:02X},bridge=vmbr1,tag=20", 0x4c + number));
    assert_eq!(text("smbios1"), format!("uuid=11111111-0000-4000-8000-{vmid:012}"));
    assert_eq!(text("boot"), "order=scsi0;net0");
    let unused = config.as_object().unwrap().keys().filter(|key| key.starts_with("unused")).count();
    assert_eq!(unused, 1, "an orphaned disk: {config}");
    let disks: Vec<_> =
        volumes(pve, vmid).into_iter().filter(|(volume, _)| !volume.contains("cloudinit")).collect();
    let mut expected = vec![
        (volume.to_owned(), true),
        (format!("local-lvm:vm-{vmid}-disk-1"), false),
        (format!("local-lvm:vm-{vmid}-disk-7"), false),
    ];
    expected.sort();
    assert_eq!(disks, expected);
    let temporary = 900_000_000 + vmid;
    assert_eq!(pve.node_of(temporary), None, "the temporary VM is left");
    assert_eq!(volumes(pve, temporary), [], "the temporary VM's volumes are left");
    assert_eq!(pve.vm_status(vmid), "running");
}

#[test]
fn the_os_disk_is_replaced_and_all_else_stays() {
    let site = running();
    let check = site.check(&rebuilding(1)).done();
    assert!(site.proxy.writes().is_empty());
    assert_eq!((&check["changed"], &check["vm"]["rebuilt"]), (&json!(true), &json!(true)));
    assert_eq!(check["vm"]["disks"]["scsi0"]["size"], "40G");

    let result = site.done(&rebuilding(1));
    assert_rebuilt(&site.pve, 1);
    assert_eq!((&result["vm"]["rebuilt"], &result["template"]["vmid"]), (&json!(true), &json!(8042)));
    let held = [
        "rebuild.temporary_vm",
        "rebuild.fresh_disk.size",
        "status",
        "unused255",
        "scsi0.volume",
        "rebuild.old_disk",
        "rebuild.temporary_vm",
        "status",
    ];
    assert_eq!(result["read_back"]["held"], json!(held));
    let writes: Vec<String> =
        site.proxy.writes().iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    insta::assert_snapshot!(writes.join("\n").replace("/api2/json/nodes/pve1/qemu", ""), @r"
    POST /8042/clone
    PUT /900001101/resize
    POST /1101/status/shutdown
    POST /900001101/move_disk
    PUT /1101/config
    PUT /1101/config
    DELETE /900001101
    POST /1101/status/start
    ");

    let plain = with(&rebuilding(1), json!({"rebuild_os_disk": false}));
    let again = site.done(&plain);
    assert_eq!((&again["changed"], &again["vm"]["rebuilt"]), (&json!(false), &json!(false)));
}

#[test]
fn a_task_that_says_so_again_rebuilds_again() {
    let site = running();
    site.done(&rebuilding(1));
    assert_eq!(site.done(&rebuilding(1))["changed"], true);
    assert_rebuilt(&site.pve, 1);
}

#[test]
fn settings_and_size_of_the_task_hold_for_the_rebuilt_vm() {
    let site = running();
    let options = rebuilding_with(json!({"os_disk": {"size": 20}, "memory": 4096, "state": "stopped"}));
    let result = site.done(&options);
    assert_eq!(
        result["vm"]["disks"]["scsi0"]["size"], "20G",
        "smaller than the old one, larger than the template's"
    );
    assert_eq!(site.pve.vm_config(1101)["memory"], "4096");
    assert_eq!(site.pve.vm_status(1101), "stopped");
}

#[test]
fn what_stands_in_the_way_is_told_before_anything_is_written() {
    let change = |key: &str, value: &str| {
        let site = running();
        let path = "/nodes/pve1/qemu/1101/config";
        site.pve.call("PUT", path, &[(key, value)]).unwrap();
        site
    };
    let refused = |site: &Site, options: Value| {
        let result = site.failed(&options);
        assert!(site.proxy.writes().is_empty(), "{result}");
        result["msg"].as_str().unwrap().to_owned()
    };
    let site = running();
    for (options, part) in [
        (json!({"stop": false}), "say `stop: true`"),
        (json!({"state": "present"}), "state: started"),
        (json!({"template_prefix": null}), "names no template"),
        (json!({"os_disk": {"size": 5}}), "has 10G, the task asks for 5G"),
        (json!({"rebuild_vmid": 8042}), "belongs to another guest: fedora-server-42"),
        (json!({"rebuild_vmid": 1101}), "that of the VM itself"),
        (json!({"disks": [{"slot": "scsi0", "storage": "a", "size": 1}]}), "declared as a data disk"),
        (json!({"os_disk": {"slot": "ide2", "size": 40}}), "there is no disk in ide2"),
    ] {
        let msg = refused(&site, rebuilding_with(options.clone()));
        assert!(msg.contains(part), "{options}: {msg}");
    }
    let msg = refused(&change("protection", "1"), rebuilding(1));
    assert!(msg.contains("protection: false"), "{msg}");

    let site = Site::new(grown_up(house(), 1));
    site.pve.call("POST", "/nodes/pve1/qemu/1101/snapshot", &[("snapname", "before")]).unwrap();
    let msg = refused(&site, rebuilding(1));
    assert!(msg.contains("snapshots hold the old disk (the newest is before)"), "{msg}");
}

#[test]
fn killed_at_any_request_the_next_run_finishes() {
    let count = running();
    count.done(&rebuilding(1));
    let requests = u32::try_from(count.proxy.log().len()).unwrap();
    let site = Site::new((1..=requests).fold(house(), grown_up));
    for request in 1..=requests {
        switch_on(&site.pve, request);
        let options = site.with(&rebuilding(request));
        let killed = site.module.run_killed_at(&site.proxy, usize::try_from(request).unwrap(), &options);
        assert!(killed, "request {request} of {requests} was never sent");
        site.done(&rebuilding(request));
        assert_rebuilt(&site.pve, request);
    }
}

#[test]
fn a_rebuild_that_was_cut_off_is_told_and_goes_with_the_vm() {
    let site = running();
    site.proxy.on("POST", "/move_disk").always().answer(500, "storage 'local-lvm' is not online", "");
    site.failed(&rebuilding(1));
    site.proxy.clear_faults();
    assert_eq!(site.pve.node_of(900_001_101).as_deref(), Some("pve1"));

    let plain = with(&rebuilding(1), json!({"rebuild_os_disk": false}));
    let warning = site.done(&plain)["warnings"][0].as_str().unwrap().to_owned();
    assert!(
        warning.contains("begun and not finished") && warning.contains("anvil-rebuild-1101"),
        "{warning}"
    );

    let removal = with(&plain, json!({"state": "absent", "destroy_data_disks": true}));
    site.done(&removal);
    assert_eq!((site.pve.node_of(1101), site.pve.node_of(900_001_101)), (None, None));
}

#[test]
fn a_storage_that_cannot_give_a_disk_away_leaves_nothing_behind() {
    let site = running();
    let words = "Storage does not support moving of this disk to another VM";
    site.proxy.on("POST", "/move_disk").always().answer(500, words, r#"{"data":null}"#);
    let result = site.failed(&rebuilding(1));
    assert_eq!(result["error_code"], "refused", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("cannot be rebuilt on this storage"), "{result}");
    assert_eq!(site.pve.node_of(900_001_101), None);
    assert!(site.pve.vm_config(1101)["scsi0"].as_str().unwrap().starts_with("local-lvm:vm-1101-disk-0,"));
}

#[test]
fn a_protected_template_does_not_leave_a_protected_clone() {
    let mut template = template_config(8500);
    template["protection"] = json!(1);
    let site = Site::new(grown_up(house(), 1).template_with(8500, "guarded", "pve1", template));
    site.done(&rebuilding_with(json!({"template_prefix": null, "template": "guarded"})));
    assert_rebuilt(&site.pve, 1);
}

#[test]
fn a_disk_that_somebody_put_back_is_not_removed() {
    let site = running();
    // The old disk, still unused, is what the next run must remove, and only that.
    site.proxy.on("PUT", "/config").nth(2).answer(500, "storage 'local-lvm' is not online", "");
    site.failed(&rebuilding(1));
    site.proxy.clear_faults();
    let old = "local-lvm:vm-1101-disk-0,size=40G";
    site.pve.call("PUT", "/nodes/pve1/qemu/1101/config", &[("scsi5", old)]).unwrap();
    site.done(&rebuilding(1));
    assert_eq!(site.pve.vm_config(1101)["scsi5"], old);
    assert_eq!(site.pve.node_of(900_001_101), None);
}
