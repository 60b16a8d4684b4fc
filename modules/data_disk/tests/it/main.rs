//! The program from outside: on a loop device with the real tools, in a mount namespace with an `/etc` and a
//! `/dev` of its own, so that it reaches nothing else of the machine that the test runs on.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

mod namespace;

use assert_cmd::Command;
use serde_json::{Value, json};

use crate::namespace::Namespace;

const PROGRAM: &str = env!("CARGO_BIN_EXE_data_disk");

/// A run that must end before it looks at any disk.
fn refused_at_once(arguments: &Value) -> Value {
    let output = Command::new(PROGRAM).env_clear().write_stdin(arguments.to_string()).output().unwrap();
    assert!(output.stderr.is_empty());
    serde_json::from_slice(&output.stdout).expect("one JSON object on standard output")
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_read() {
    for (wrong, option) in [
        (json!({"serial": ""}), "serial"),
        (json!({"serial": "a/../b"}), "serial"),
        (json!({"serial": 12}), "serial"),
        (json!({"path": "srv"}), "path"),
        (json!({"path": "/"}), "path"),
        (json!({"path": "/srv/../etc"}), "path"),
        (json!({"fstype": "btrfs"}), "fstype"),
        (json!({"opts": ["defaults 0 0"]}), "opts"),
        (json!({"mode": 755}), "mode"),
        (json!({"mode": "rwx"}), "mode"),
        (json!({"disk": "/dev/sdb"}), "disk"),
    ] {
        let mut arguments = json!({"serial": "web01-data", "path": "/srv"});
        arguments.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let result = refused_at_once(&arguments);
        assert_eq!(result["error_code"], "bad_argument", "{wrong}: {result}");
        assert!(result["msg"].as_str().unwrap().contains(option), "{wrong}: {result}");
    }
    assert_eq!(refused_at_once(&json!({"path": "/srv"}))["error_code"], "bad_argument", "serial is required");
}

#[test]
fn a_blank_disk_is_put_in_use_and_the_second_run_changes_nothing() {
    let Some(namespace) = Namespace::with_disk("web01-data") else { return };
    let asked = json!({"serial": "web01-data", "path": namespace.mount_point(), "opts": ["defaults", "nofail", "noatime"],
                       "mode": "0750"});
    let mut checking = asked.clone();
    checking["_ansible_check_mode"] = json!(true);
    checking["_ansible_diff"] = json!(true);
    let checked = namespace.run(PROGRAM, &checking);
    assert_eq!((&checked["changed"], &checked["disk"]["uuid"]), (&json!(true), &Value::Null), "{checked}");
    assert!(checked["diff"].is_object(), "{checked}");
    assert_eq!(namespace.sh("wipefs --no-act $LOOP"), "", "check mode made no file system");

    let first = namespace.run(PROGRAM, &asked);
    assert_eq!(first["changed"], true, "{first}");
    let uuid = first["disk"]["uuid"].as_str().unwrap();
    assert_eq!(namespace.sh("blkid -p -o value -s TYPE -s UUID $LOOP"), format!("{uuid}\next4\n"));
    let mount_point = namespace.mount_point();
    assert_eq!(namespace.sh(&format!("findmnt -n -o UUID,FSTYPE {mount_point}")), format!("{uuid} ext4\n"));
    assert!(namespace.sh(&format!("findmnt -n -o OPTIONS {mount_point}")).contains("noatime"));
    assert_eq!(namespace.sh(&format!("stat -c %a {mount_point}")), "750\n");
    let fstab = namespace.sh("cat /etc/fstab");
    let line = format!("UUID={uuid} {mount_point} ext4 defaults,nofail,noatime 0 2");
    assert!(fstab.starts_with(namespace::FSTAB) && fstab.contains(&line), "{fstab}");
    assert_eq!(first["disk"]["fstab"], json!(line));

    let second = namespace.run(PROGRAM, &asked);
    assert_eq!(second["changed"], false, "{second}");
    assert_eq!(second["disk"], first["disk"]);
    assert_eq!(namespace.sh("cat /etc/fstab"), fstab);
}

#[test]
fn xfs_goes_the_same_way() {
    // It takes no disk below 300 MiB.
    let Some(namespace) = Namespace::with_disk_of("db01-data", 8 * namespace::SECTORS) else { return };
    let asked = json!({"serial": "db01-data", "path": namespace.mount_point(), "fstype": "xfs"});
    if !namespace.has("mkfs.xfs") {
        let result = namespace.run(PROGRAM, &asked);
        assert_eq!(result["error_code"], "refused", "{result}");
        assert!(result["msg"].as_str().unwrap().contains("install xfsprogs"), "{result}");
        return;
    }
    let first = namespace.run(PROGRAM, &asked);
    assert_eq!((&first["changed"], &first["disk"]["fstype"]), (&json!(true), &json!("xfs")), "{first}");
    let uuid = first["disk"]["uuid"].as_str().unwrap();
    let mount_point = namespace.mount_point();
    assert_eq!(namespace.sh(&format!("findmnt -n -o UUID,FSTYPE {mount_point}")), format!("{uuid} xfs\n"));
    let changed = namespace.run(PROGRAM, &with_opts(&asked, &["noatime", "nofail"]));
    assert_eq!(changed["read_back"]["held"], json!(["mount.options", "fstab"]), "{changed}");
    assert_eq!(namespace.run(PROGRAM, &with_opts(&asked, &["noatime", "nofail"]))["changed"], false);
}

fn with_opts(asked: &Value, opts: &[&str]) -> Value {
    let mut asked = asked.clone();
    asked["opts"] = json!(opts);
    asked
}

#[test]
fn the_data_of_an_earlier_guest_survives_a_rebuild() {
    let Some(namespace) = Namespace::with_disk("db01-data") else { return };
    let mount_point = namespace.mount_point();
    let asked = json!({"serial": "db01-data", "path": mount_point});
    let first = namespace.run(PROGRAM, &asked);
    assert_eq!(first["changed"], true, "{first}");
    // A fresh system: nothing mounted, nothing in fstab, no directory.
    namespace
        .sh(&format!("echo precious > {mount_point}/data && umount {mount_point} && rmdir {mount_point}"));
    namespace.sh(&format!("printf '%s' '{}' > /etc/fstab", namespace::FSTAB));
    let again = namespace.run(PROGRAM, &asked);
    assert_eq!(again["changed"], true, "{again}");
    assert_eq!(again["disk"]["uuid"], first["disk"]["uuid"]);
    assert_eq!(namespace.sh(&format!("cat {mount_point}/data")), "precious\n");
}

#[test]
fn whatever_is_on_a_disk_stays_there() {
    let Some(namespace) = Namespace::with_disk("old-data") else { return };
    let mount_point = namespace.mount_point();
    let asked = json!({"serial": "old-data", "path": mount_point});
    // One entry of a DOS partition table: Linux, from sector 2048 on.
    namespace.put(
        "dos",
        &[
            vec![0; 446],
            vec![0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0],
            vec![0; 48],
            vec![0x55, 0xaa],
        ]
        .concat(),
    );
    namespace.put("gpt", &end_of_gpt(namespace::SECTORS));
    for (what, made) in [
        ("swap", "mkswap $LOOP"),
        ("ext4, asked for xfs", "mkfs.ext4 -q $LOOP"),
        ("a partition table", "dd if=$T/dos of=$LOOP conv=fsync,notrunc"),
        // What blkid does not see.
        (
            "the end of a GPT",
            &format!("dd if=$T/gpt of=$LOOP seek={} conv=fsync,notrunc", namespace::SECTORS - 33),
        ),
    ] {
        namespace.sh("wipefs --quiet --all $LOOP");
        namespace.sh(made);
        assert_ne!(namespace.sh("wipefs --no-act $LOOP"), "", "{what}");
        let before = namespace.sh("sha256sum $LOOP");
        let mut asked = asked.clone();
        if what.contains("xfs") {
            asked["fstype"] = json!("xfs");
        }
        let result = namespace.run(PROGRAM, &asked);
        assert_eq!(result["error_code"], "refused", "{what}: {result}");
        assert!(result["msg"].as_str().unwrap().contains("Nothing was touched"), "{what}: {result}");
        assert_eq!(namespace.sh("sha256sum $LOOP"), before, "{what}");
        assert_eq!(namespace.sh("cat /etc/fstab"), namespace::FSTAB);
    }
}

#[test]
fn a_disk_or_a_mount_point_in_use_is_refused() {
    let Some(namespace) = Namespace::with_disk("busy-data") else { return };
    let mount_point = namespace.mount_point();
    let asked = json!({"serial": "busy-data", "path": mount_point});
    let refusal = |part: &str| {
        let result = namespace.run(PROGRAM, &asked);
        assert_eq!(result["error_code"], "refused", "{result}");
        assert!(result["msg"].as_str().unwrap().contains(part), "{part}: {result}");
    };
    namespace.sh(&format!("mkdir {mount_point} && touch {mount_point}/file"));
    refusal("is a directory with content");
    namespace.sh(&format!("rm {mount_point}/file && mount -t tmpfs none {mount_point}"));
    refusal("none (tmpfs) is mounted there");
    namespace.sh(&format!(
        "umount {mount_point} && mkfs.ext4 -q $LOOP && mkdir {mount_point}2 && mount $LOOP {mount_point}2"
    ));
    refusal(&format!("is already mounted on {mount_point}2"));
}

#[test]
fn a_mount_that_fails_leaves_no_line_in_fstab() {
    let Some(namespace) = Namespace::with_disk("web01-data") else { return };
    let asked = json!({"serial": "web01-data", "path": namespace.mount_point(), "opts": ["no-such-option"]});
    let result = namespace.run(PROGRAM, &asked);
    assert_eq!(result["error_code"], "command_failed", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("no-such-option"), "{result}");
    assert_eq!(namespace.sh("cat /etc/fstab"), namespace::FSTAB);
    let repaired = namespace.run(PROGRAM, &json!({"serial": "web01-data", "path": namespace.mount_point()}));
    assert_eq!(repaired["changed"], true, "{repaired}");
}

#[test]
fn a_missing_disk_is_not_found_within_the_timeout() {
    let Some(namespace) = Namespace::with_disk("web01-data") else { return };
    let asked = json!({"serial": "web02-data", "path": namespace.mount_point(), "timeout": 1});
    let result = namespace.run(PROGRAM, &asked);
    assert_eq!(result["error_code"], "not_found", "{result}");
    assert_eq!(result["present"], json!(["virtio-web01-data"]));
}

/// The last 33 sectors of a disk with an empty GPT: its entries and its backup header (UEFI specification, 5.3).
fn end_of_gpt(sectors: u64) -> Vec<u8> {
    let entries = vec![0; 32 * 512];
    let mut header = b"EFI PART\0\0\x01\0\x5c\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    for lba in [sectors - 1, 1, 34, sectors - 34] {
        header.extend(lba.to_le_bytes());
    }
    header.extend([7; 16]);
    header.extend((sectors - 33).to_le_bytes());
    header.extend([128_u32, 128, crc32(&entries)].map(u32::to_le_bytes).concat());
    let checksum = crc32(&header);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
    header.resize(512, 0);
    [entries, header].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}
