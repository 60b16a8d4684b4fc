//! Identities and findings on a made machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use host::{ByIdLink, Mount, Probe, Signature};
use zfs::{Contents, Device, Finding, Identity, Machine, Part, parse_label, parse_status};

fn disk(path: &str, serial: &str, children: Vec<Device>) -> Device {
    Device {
        path: path.into(),
        kind: "disk".into(),
        size: 256 << 20,
        serial: Some(serial.into()),
        wwn: Some(format!("0x{serial}")),
        device_number: format!("8:{}", path.len() + usize::from(path.as_bytes()[path.len() - 1])),
        children,
        ..Device::default()
    }
}

fn child(path: &str, kind: &str) -> Device {
    Device {
        path: path.into(),
        kind: kind.into(),
        size: 1 << 20,
        device_number: format!("9:{path}"),
        ..Device::default()
    }
}

fn machine(devices: Vec<Device>, links: &[(&str, &str)]) -> Machine {
    let links =
        links.iter().map(|(name, device)| ByIdLink { name: (*name).into(), device: (*device).into() });
    Machine {
        devices,
        links: links.collect(),
        hostid: Some(7),
        hostname: "pve1".into(),
        ..Machine::default()
    }
}

fn clean(path: &str) -> Part {
    Part { device: path.into(), signatures: vec![], probe: Probe::Nothing, label: None }
}

fn signature(kind: &str, offset: &str) -> Signature {
    Signature { kind: kind.into(), offset: offset.into(), uuid: None, label: None }
}

fn label(state: u64, hostid: u64) -> zfs::Label {
    parse_label(&format!("LABEL 0\n    name: 'tank'\n    state: {state}\n    txg: 4\n    pool_guid: 5\n    hostid: {hostid}\n    hostname: 'pve9'\n")).unwrap()
}

/// What is found on the first disk, and whether a wipe may lift all of it.
fn found(machine: &Machine, parts: Vec<Part>) -> (Vec<String>, bool) {
    let findings = machine.findings(&machine.devices[0], &Contents { parts });
    (findings.iter().map(ToString::to_string).collect(), findings.iter().all(Finding::is_lifted_by_wipe))
}

#[test]
fn every_name_of_a_disk_stands_for_it() {
    let mapped = |path| disk(path, "MP", vec![child("/dev/dm-0", "mpath")]);
    let machine = machine(
        vec![disk("/dev/sda", "A", vec![child("/dev/sda1", "part")]), mapped("/dev/sdc"), mapped("/dev/sdd")],
        &[
            ("scsi-A", "/dev/sda"),
            ("wwn-0xA", "/dev/sda"),
            ("scsi-A-part1", "/dev/sda1"),
            ("wwn-0xMP", "/dev/dm-0"),
            ("dm-name-mp", "/dev/dm-0"),
        ],
    );
    let a = Identity::Disk(PathBuf::from("/dev/sda"));
    for path in [
        "/dev/disk/by-id/scsi-A",
        "/dev/disk/by-id/wwn-0xA",
        "/dev/disk/by-id/scsi-A-part1",
        "/dev/sda",
        "/dev/sda1",
    ] {
        assert_eq!(machine.identity(Path::new(path)), a, "{path}");
    }
    for path in
        ["/dev/disk/by-id/wwn-0xMP", "/dev/disk/by-id/dm-name-mp", "/dev/dm-0", "/dev/sdc", "/dev/sdd"]
    {
        assert_eq!(machine.identity(Path::new(path)), Identity::Disk("/dev/dm-0".into()), "{path}");
    }
    assert_eq!(
        machine.identity(Path::new("/dev/disk/by-id/scsi-B-part1")),
        Identity::Missing("scsi-B".into())
    );
    assert_eq!(
        machine.disks().map(|disk| disk.path.to_str().unwrap()).collect::<Vec<_>>(),
        ["/dev/sda", "/dev/dm-0"]
    );
    assert_eq!(machine.paths_of(machine.device(Path::new("/dev/dm-0")).unwrap()).len(), 2);
}

#[test]
fn a_blank_disk_is_free() {
    let machine = machine(vec![disk("/dev/sda", "A", vec![])], &[]);
    assert_eq!(found(&machine, vec![clean("/dev/sda")]), (vec![], true));
}

#[test]
fn signatures_and_partitions_are_found_wherever_they_are_and_a_wipe_lifts_them() {
    let machine = machine(vec![disk("/dev/sda", "A", vec![child("/dev/sda1", "part")])], &[]);
    let gpt = Part {
        signatures: vec![
            signature("gpt", "0x200"),
            signature("gpt", "0xffffe00"),
            signature("PMBR", "0x1fe"),
        ],
        probe: Probe::Found(BTreeMap::from([("PTTYPE".into(), "gpt".into())])),
        ..clean("/dev/sda")
    };
    let ext4 = Part { signatures: vec![signature("ext4", "0x438")], ..clean("/dev/sda1") };
    let (lines, lifted) = found(&machine, vec![gpt, ext4]);
    insta::assert_snapshot!(lines.join("\n"), @r"
    /dev/sda1: a partition of 1048576 bytes
    /dev/sda: PMBR at 0x1fe
    /dev/sda: gpt at 0x200, 0xffffe00
    /dev/sda1: ext4 at 0x438
    ");
    assert!(lifted);
}

#[test]
fn what_only_one_tool_sees_is_found_too() {
    let machine = machine(vec![disk("/dev/sda", "A", vec![])], &[]);
    let backup = Part { signatures: vec![signature("gpt", "0x3fffe00")], ..clean("/dev/sda") };
    assert_eq!(found(&machine, vec![backup]).0, ["/dev/sda: gpt at 0x3fffe00"]);
    let probed = |tags: &[(&str, &str)]| Part {
        probe: Probe::Found(tags.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
        ..clean("/dev/sda")
    };
    assert_eq!(
        found(&machine, vec![probed(&[("TYPE", "crypto_LUKS")])]).0,
        ["/dev/sda: blkid says crypto_LUKS"]
    );
    assert_eq!(found(&machine, vec![probed(&[("PART_ENTRY_NUMBER", "1")])]).0, Vec::<String>::new());
    let ambiguous = Part { probe: Probe::Ambiguous, ..clean("/dev/sda") };
    assert_eq!(found(&machine, vec![ambiguous]).0, ["/dev/sda: signatures that contradict each other"]);
}

#[test]
fn only_a_pool_that_this_host_gave_up_may_be_wiped() {
    let machine = machine(vec![disk("/dev/sda", "A", vec![])], &[]);
    for (state, hostid, lifted, part) in [
        (1, 7, true, "exported, last used by this host"),
        (2, 7, true, "destroyed, last used by this host"),
        (0, 7, false, "not exported, last used by this host"),
        (1, 9, false, "exported, last used by pve9"),
        (2, 9, false, "destroyed, last used by pve9"),
        (3, 7, false, "a hot spare of it"),
    ] {
        let part_with_label = Part { label: Some(label(state, hostid)), ..clean("/dev/sda") };
        let (lines, may_be_wiped) = found(&machine, vec![part_with_label]);
        assert!(lines[0].contains(part) && may_be_wiped == lifted, "{lines:?} {may_be_wiped}");
    }
}

#[test]
fn whatever_is_in_use_is_never_lifted() {
    let mut made = machine(
        vec![disk(
            "/dev/sda",
            "A",
            vec![child("/dev/sda1", "part"), child("/dev/dm-3", "lvm"), child("/dev/md0", "raid1")],
        )],
        &[("scsi-A-part1", "/dev/sda1")],
    );
    let uses = |machine: &Machine| found(machine, vec![clean("/dev/sda")]);
    assert_eq!(
        uses(&made).0,
        [
            "/dev/sda1: a partition of 1048576 bytes",
            "/dev/sda: in use by /dev/dm-3 (lvm)",
            "/dev/sda: in use by /dev/md0 (raid1)"
        ]
    );
    assert!(!uses(&made).1);
    made.devices[0].children.truncate(1);
    assert!(uses(&made).1, "a partition that nobody uses");

    let mount = |mount_point: &str| Mount {
        device_number: "9:/dev/sda1".into(),
        root: "/".into(),
        mount_point: mount_point.into(),
        fs_type: "ext4".into(),
        source: "/dev/sda1".into(),
        options: vec![],
    };
    let mut mounted = made.clone();
    mounted.mounts = vec![mount("/srv")];
    assert_eq!(
        uses(&mounted),
        (vec!["/dev/sda1: a partition of 1048576 bytes".into(), "/dev/sda1: mounted on /srv".into()], false)
    );
    mounted.mounts = vec![mount("/boot/efi")];
    assert!(uses(&mounted).0[1].contains("the machine boots from this disk (/boot/efi is there)"));

    let mut swap = made.clone();
    swap.swaps = vec!["/dev/sda1".into()];
    assert!(uses(&swap).0[1].contains("in use as swap") && !uses(&swap).1);

    let mut boots = made.clone();
    boots.devices[0].children[0].uuid = Some("4A3B-11AA".into());
    boots.boot_uuids = vec!["4A3B-11AA".into()];
    assert!(uses(&boots).0[1].contains("proxmox-boot-tool keeps kernels on 4A3B-11AA") && !uses(&boots).1);

    let mut imported = made.clone();
    imported.pools = parse_status(
        "  pool: old\n state: ONLINE\nconfig:\n\n\tNAME                            STATE     READ WRITE CKSUM\n\told                             ONLINE       0     0     0\n\t  /dev/disk/by-id/scsi-A-part1  ONLINE       0     0     0\n",
    )
    .unwrap();
    assert!(uses(&imported).0[0].starts_with("it is in the imported pool old") && !uses(&imported).1);
}

#[test]
fn what_a_disk_is_can_be_reason_enough() {
    let with = |change: fn(&mut Device)| {
        let mut made = machine(vec![disk("/dev/sda", "A", vec![])], &[]);
        change(&mut made.devices[0]);
        found(&made, vec![clean("/dev/sda")])
    };
    for (part, (lines, lifted)) in [
        ("read-only", with(|disk| disk.read_only = true)),
        ("removable", with(|disk| disk.removable = true)),
        ("USB", with(|disk| disk.transport = Some("usb".into()))),
        ("pass the disks through", with(|disk| disk.raid_volume = Some("model DELL PERC H730".into()))),
        ("no whole disk: lvm", with(|disk| disk.kind = "lvm".into())),
    ] {
        assert!(lines.len() == 1 && lines[0].contains(part) && !lifted, "{part}: {lines:?}");
    }
    let twins = machine(vec![disk("/dev/sdc", "MP", vec![]), disk("/dev/sdd", "MP", vec![])], &[]);
    let (lines, lifted) = found(&twins, vec![clean("/dev/sdc")]);
    assert!(lines[0].contains("/dev/sdd has the same serial number and WWN") && !lifted, "{lines:?}");
}
