use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

use ansible_module::{Change, ErrorCode, Failure, Item, Module, Proof, Run};
use deadline::Deadline;
use serde_json::json;

use super::machine::Machine;
use super::*;

/// A run as the runner does it: stage by stage, each proved. The fields that changed.
fn live(machine: &Machine, args: Args) -> Result<Vec<String>, Failure> {
    let run = Run::for_tests();
    let mut disk = DataDisk::on(machine.host(), args)?;
    let mut state = disk.observe(&run)?;
    let plan = disk.plan(&state)?;
    let mut fields = Vec::new();
    let mut unproved: Vec<&Change> = Vec::new();
    for item in plan.items.iter().chain([&Item::Gate]) {
        match item {
            Item::Step(step) => {
                disk.apply(&step.action, &state, &run)?;
                unproved.extend(&step.changes);
            }
            Item::Gate => {
                state = disk.observe(&run)?;
                for change in unproved.drain(..) {
                    if let Proof::Mismatch { found } = disk.proof(change, &state) {
                        let msg = format!("{}: {} instead of {}", change.field, found, change.after);
                        return Err(Failure::new(ErrorCode::READ_BACK_MISMATCH, msg));
                    }
                    fields.push(change.field.clone());
                }
            }
        }
    }
    Ok(fields)
}

fn new_line() -> String {
    fstab_with(&format!("UUID={NEW_UUID} /srv ext4 defaults,nofail 0 2"))
}

#[test]
fn a_blank_disk_is_formatted_mounted_and_remembered_once() {
    let machine = Machine::new();
    let fields = live(&machine, args(json!({}))).unwrap();
    assert_eq!(fields, ["filesystem.type", "filesystem.uuid", "mount.path", "mount.options", "fstab"]);
    assert_eq!(
        machine.writes(),
        [
            format!("mkfs.ext4 -q -U {NEW_UUID} /dev/disk/by-id/virtio-web01-data"),
            format!("mount -t ext4 -o defaults UUID={NEW_UUID} /srv"),
        ]
    );
    assert_eq!(machine.get("etc/fstab"), new_line());

    assert_eq!(live(&machine, args(json!({}))).unwrap(), [""; 0]);
    assert_eq!(machine.writes(), [""; 0]);
}

#[test]
fn xfs_with_options_an_owner_and_a_directory_of_its_own() {
    let machine = Machine::new();
    let asked = json!({
        "fstype": "xfs", "path": "/srv/my data", "opts": ["noatime", "nofail"],
        "owner": "postgres", "mode": "0700",
    });
    let fields = live(&machine, args(asked.clone())).unwrap();
    assert!(fields.contains(&"path".into()) && fields.contains(&"mode".into()), "{fields:?}");
    assert_eq!(
        machine.writes(),
        [
            format!("mkfs.xfs -q -m uuid={NEW_UUID} /dev/disk/by-id/virtio-web01-data"),
            format!("mount -t xfs -o noatime UUID={NEW_UUID} /srv/my data"),
        ]
    );
    assert!(machine.get("etc/fstab").contains(r" /srv/my\040data xfs noatime,nofail 0 2"));
    assert_eq!(fs::metadata(machine.path("srv/my data")).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn a_rebuilt_guest_mounts_the_data_again() {
    let machine = Machine::new();
    machine.put("disk/type", "ext4\n");
    machine.put("disk/uuid", UUID);
    let fields = live(&machine, args(json!({}))).unwrap();
    assert_eq!(fields, ["mount.path", "mount.options", "fstab"]);
    assert_eq!(machine.writes(), [format!("mount -t ext4 -o defaults UUID={UUID} /srv")]);
}

#[test]
fn systemd_and_selinux_are_told_where_they_are() {
    let machine = Machine::new();
    fs::create_dir_all(machine.path("run/systemd/system")).unwrap();
    fs::create_dir_all(machine.path("sys/fs/selinux")).unwrap();
    machine.put("sys/fs/selinux/enforce", "1");
    live(&machine, args(json!({}))).unwrap();
    let writes = machine.writes();
    assert_eq!(writes[2..], ["restorecon /srv", "systemctl daemon-reload"]);
}

#[test]
fn changed_options_are_mounted_again_and_written() {
    let machine = Machine::new();
    live(&machine, args(json!({}))).unwrap();
    machine.writes();
    let fields = live(&machine, args(json!({"opts": ["noatime"]}))).unwrap();
    assert_eq!(fields, ["mount.options", "fstab"]);
    assert_eq!(machine.writes(), ["mount -o remount,noatime /srv"]);
}

#[test]
fn a_run_that_ends_at_any_step_is_repaired_by_the_next() {
    for fault in ["mkfs", "mount"] {
        let machine = Machine::new();
        machine.put(&format!("fault/{fault}"), "No space left on device\n");
        let failure = live(&machine, args(json!({}))).unwrap_err();
        assert_eq!(failure.code, ErrorCode::COMMAND_FAILED);
        assert!(failure.msg.contains("No space left on device"), "{}", failure.msg);
        assert_eq!(machine.get("etc/fstab"), OTHER_LINES, "nothing is remembered that does not hold");
        machine.remove(&format!("fault/{fault}"));
        live(&machine, args(json!({}))).unwrap();
        let uuid = machine.get("disk/uuid");
        assert_eq!(
            machine.get("etc/fstab"),
            fstab_with(&format!("UUID={} /srv ext4 defaults,nofail 0 2", uuid.trim()))
        );
        assert!(live(&machine, args(json!({}))).unwrap().is_empty());
    }
}

#[test]
fn a_line_that_findmnt_does_not_like_never_gets_into_fstab() {
    let machine = Machine::new();
    let failure = live(&machine, args(json!({"opts": ["unreadable"]}))).unwrap_err();
    assert_eq!(failure.code, ErrorCode::REFUSED);
    assert!(failure.msg.contains("[E] unreadable line"), "{}", failure.msg);
    assert_eq!(machine.get("etc/fstab"), OTHER_LINES);

    let machine = Machine::new();
    let faulty = format!("{OTHER_LINES}unreadable\n");
    machine.put("etc/fstab", &faulty);
    live(&machine, args(json!({}))).unwrap();
    assert!(machine.get("etc/fstab").starts_with(&faulty), "an older fault is no reason to stop");
}

#[test]
fn what_somebody_else_writes_into_fstab_meanwhile_survives() {
    let machine = Machine::new();
    let run = Run::for_tests();
    let mut disk = DataDisk::on(machine.host(), args(json!({}))).unwrap();
    let state = disk.observe(&run).unwrap();
    let plan = disk.plan(&state).unwrap();
    let other = format!("{OTHER_LINES}tmpfs /scratch tmpfs defaults 0 0\n");
    for step in plan.steps() {
        machine.put("etc/fstab", &other);
        disk.apply(&step.action, &state, &run).unwrap();
    }
    assert_eq!(machine.get("etc/fstab"), new_line().replace(OTHER_LINES, &other));
}

#[test]
fn an_fstab_that_is_no_utf_8_is_refused_before_the_disk_is_touched() {
    let machine = Machine::new();
    let latin1 = b"# /etc/fstab\n# K\xfcche\n";
    fs::write(machine.path("etc/fstab"), latin1).unwrap();
    let failure = live(&machine, args(json!({}))).unwrap_err();
    assert_eq!(failure.code, ErrorCode::REFUSED);
    assert!(failure.msg.starts_with("line 2 of /etc/fstab is no UTF-8 text"), "{}", failure.msg);
    assert_eq!(machine.writes(), [""; 0]);
    assert_eq!(fs::read(machine.path("etc/fstab")).unwrap(), latin1);
}

#[test]
fn a_write_that_does_not_take_is_named() {
    let machine = Machine::new();
    let bin = machine.path("bin");
    fs::rename(bin.join("systemctl"), bin.join("mkfs.ext4")).unwrap();
    let failure = live(&machine, args(json!({}))).unwrap_err();
    assert_eq!(failure.code, ErrorCode::READ_BACK_MISMATCH);
    assert!(failure.msg.starts_with("filesystem.type: null"), "{}", failure.msg);
    assert_eq!(machine.writes(), [format!("systemctl -q -U {NEW_UUID} /dev/disk/by-id/virtio-web01-data")]);

    let machine = Machine::new();
    let bin = machine.path("bin");
    fs::rename(bin.join("systemctl"), bin.join("mount")).unwrap();
    let failure = live(&machine, args(json!({}))).unwrap_err();
    assert!(failure.msg.starts_with("mount.path: null"), "{}", failure.msg);
    assert_eq!(machine.get("etc/fstab"), OTHER_LINES);
}

#[test]
fn a_disk_that_is_filled_between_look_and_format_is_left_alone() {
    let machine = Machine::new();
    let run = Run::for_tests();
    let mut disk = DataDisk::on(machine.host(), args(json!({}))).unwrap();
    let state = disk.observe(&run).unwrap();
    let plan = disk.plan(&state).unwrap();
    machine.put("disk/type", "xfs\n");
    machine.put("disk/uuid", UUID);
    let failure = disk.apply(&plan.steps().next().unwrap().action, &state, &run).unwrap_err();
    assert_eq!(failure.code, ErrorCode::CONFLICT);
    assert_eq!(machine.writes(), [""; 0]);
}

#[test]
fn a_refused_disk_sees_no_write() {
    let machine = Machine::new();
    let parts = r#"[{"name":"/dev/vdb1","type":"part","size":1,"ro":false,"maj:min":"253:17"}]"#;
    machine.put("disk/children", parts);
    assert_eq!(live(&machine, args(json!({}))).unwrap_err().code, ErrorCode::REFUSED);
    assert_eq!(machine.writes(), [""; 0]);
    assert_eq!(machine.get("etc/fstab"), OTHER_LINES);
}

#[test]
fn a_disk_that_udev_shows_late_is_waited_for() {
    let machine = Machine::new();
    let link = machine.path("dev/disk/by-id/virtio-web01-data");
    fs::remove_file(&link).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| live(&machine, args(json!({}))));
        symlink("../../vdb", &link).unwrap();
        assert!(running.join().unwrap().is_ok());
    });
}

#[test]
fn a_missing_disk_is_named_with_those_that_are_there() {
    let machine = Machine::new();
    let mut run = Run::for_tests();
    run.deadline = Deadline::after(Duration::from_millis(200));
    let mut disk = DataDisk::on(machine.host(), args(json!({"serial": "web02-data"}))).unwrap();
    let failure = disk.observe(&run).unwrap_err();
    assert_eq!(failure.code, ErrorCode::NOT_FOUND);
    assert!(failure.msg.contains("There is virtio-web01-data."), "{}", failure.msg);
    assert!(failure.msg.contains("`serial=web02-data`"), "{}", failure.msg);
}

#[test]
fn a_serial_number_of_two_disks_is_a_conflict() {
    let machine = Machine::new();
    symlink("../../sdc", machine.path("dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_web01-data")).unwrap();
    let failure = live(&machine, args(json!({}))).unwrap_err();
    assert_eq!(failure.code, ErrorCode::CONFLICT);
    for device in ["/dev/vdb", "/dev/sdc"] {
        assert!(failure.msg.contains(device), "{}", failure.msg);
    }
}

#[test]
fn an_unknown_owner_is_named() {
    let failure = live(&Machine::new(), args(json!({"owner": "nobody-here"}))).unwrap_err();
    assert_eq!(
        (failure.code, failure.msg.as_str()),
        (ErrorCode::NOT_FOUND, "there is no user `nobody-here` on this machine")
    );
}

#[test]
fn the_mount_point_is_seen_as_what_it_is() {
    let machine = Machine::new();
    let seen = |machine: &Machine, path: &str| {
        let mut disk = DataDisk::on(machine.host(), args(json!({"path": path}))).unwrap();
        disk.observe(&Run::for_tests()).unwrap().mount_point
    };
    symlink("/srv", machine.path("link")).unwrap();
    machine.put("file", "");
    assert!(matches!(seen(&machine, "/srv"), MountPoint::Directory { empty: true, .. }));
    machine.put("srv/data", "");
    assert!(matches!(seen(&machine, "/srv"), MountPoint::Directory { empty: false, .. }));
    assert_eq!(seen(&machine, "/nowhere"), MountPoint::Absent);
    assert_eq!(seen(&machine, "/file"), MountPoint::Other);
    assert_eq!(seen(&machine, "/link"), MountPoint::Link("/srv".into()));
    assert_eq!(seen(&machine, "/link/below"), MountPoint::Link("/srv".into()));
}

#[test]
fn the_report_shows_the_disk_as_it_is_or_would_be() {
    let machine = Machine::new();
    let run = Run::for_tests();
    let mut disk = DataDisk::on(machine.host(), args(json!({}))).unwrap();
    let state = disk.observe(&run).unwrap();
    let plan = disk.plan(&state).unwrap();
    let line = format!("UUID={NEW_UUID} /srv ext4 defaults,nofail 0 2");
    let mut expected = json!({
        "serial": "web01-data", "by_id": ["/dev/disk/by-id/virtio-web01-data"], "device": "/dev/vdb",
        "size_gib": 10.0, "fstype": "ext4", "uuid": null, "path": "/srv", "options": [], "fstab": line,
    });
    assert_eq!(disk.report(&state, Some(&plan))["disk"], expected);

    live(&machine, args(json!({}))).unwrap();
    let state = disk.observe(&run).unwrap();
    expected["uuid"] = json!(NEW_UUID);
    expected["options"] = json!(["rw", "defaults"]);
    assert_eq!(disk.report(&state, None)["disk"], expected);
}
