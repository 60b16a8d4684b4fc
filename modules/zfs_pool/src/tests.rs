//! The plan over made machines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ansible_module::{Arguments, Failure, Plan, Proof};
use host::{ByIdLink, Probe, Signature};
use serde_json::{Value, json};
use zfs::{Contents, Device, Machine, Part, parse_label, parse_status};

use crate::args::Args;
use crate::observe::{Import, MountPoint, Properties, State};
use crate::plan::{Action, plan};
use crate::storage::Config;

/// Blank disks sda to sde of 256 MiB with two names each, `scsi-A` and `wwn-0xA`; zfs-import-cache is enabled.
fn machine() -> State {
    let mut machine = Machine { hostid: Some(7), hostname: "pve1".into(), ..Machine::default() };
    for (number, letter) in "abcde".chars().enumerate() {
        let path = PathBuf::from(format!("/dev/sd{letter}"));
        let serial = letter.to_ascii_uppercase();
        for name in [format!("scsi-{serial}"), format!("wwn-0x{serial}")] {
            machine.links.push(ByIdLink { name, device: path.clone() });
        }
        machine.devices.push(Device {
            path,
            kind: "disk".into(),
            size: 256 << 20,
            model: Some("QEMU HARDDISK".into()),
            serial: Some(serial.into()),
            device_number: format!("8:{}", number * 16),
            ..Device::default()
        });
    }
    let enabled = BTreeSet::from(["zfs-import-cache.service".to_owned()]);
    State {
        machine,
        import: Import { has_template: false, enabled },
        node: "pve1".into(),
        ..State::default()
    }
}

fn holding(state: &mut State, disk: &str, part: Part) {
    state.contents.entry(disk.into()).or_default().parts.push(part);
}

fn signature(device: &str, kind: &str) -> Part {
    let signature = Signature { kind: kind.into(), offset: "0x438".into(), uuid: None, label: None };
    Part { device: device.into(), signatures: vec![signature], probe: Probe::Nothing, label: None }
}

fn label(device: &str, state: u64, hostid: u64) -> Part {
    let text = format!(
        "LABEL 0\n    name: 'tank'\n    state: {state}\n    txg: 4\n    pool_guid: 5\n    hostid: {hostid}\n    hostname: 'pve9'\n"
    );
    Part { device: device.into(), signatures: vec![], probe: Probe::Nothing, label: parse_label(&text) }
}

fn with_pool(state: &mut State, status: &str, rows: &[&str]) {
    let mut text = format!(
        "  pool: tank\n state: {status}\nconfig:\n\n\tNAME{}STATE     READ WRITE CKSUM\n\ttank{}{status}     0     0     0\n",
        " ".repeat(50),
        " ".repeat(50)
    );
    for row in rows {
        let state = if row.starts_with(' ') { "ONLINE     0     0     0" } else { "" };
        text += &format!("\t{row:54}{state}\n");
    }
    state.machine.pools = parse_status(&text).unwrap();
}

fn tank() -> Value {
    json!({"name": "tank", "layout": "mirror", "disks": ["scsi-A", "scsi-B"]})
}

fn args(pools: Value, wipe: Value) -> Args {
    let raw = json!({"pools": pools, "wipe": wipe});
    Args::check(&Arguments::for_tests(&crate::spec::spec(), raw).unwrap()).unwrap()
}

fn planned(state: &State, pools: Value, wipe: Value) -> Result<Plan<Action>, Failure> {
    plan(&args(pools, wipe), state)
}

fn lines(plan: &Plan<Action>) -> String {
    plan.changes()
        .map(|change| format!("{}: {} -> {}", change.field, change.before, change.after))
        .collect::<Vec<_>>()
        .join("\n")
}

fn refusal(state: &State, pools: Value, wipe: Value) -> String {
    let failure = planned(state, pools, wipe).expect_err("refused");
    assert_eq!(failure.code.as_str(), "refused");
    failure.msg
}

#[test]
fn blank_disks_become_the_declared_pool() {
    let mut state = machine();
    state.import = Import { has_template: true, ..state.import };
    state.storage = Some(Config::parse("zfspool: tank\n\tpool tank\n\tnodes pve2\n"));
    let mut pool = tank();
    pool["proxmox_storage"] = json!(true);
    insta::assert_snapshot!(lines(&planned(&state, json!([pool]), json!([])).unwrap()), @r#"
    pools.tank.state: null -> "ONLINE"
    pools.tank.layout: null -> "mirror"
    pools.tank.disks: null -> ["/dev/disk/by-id/scsi-A","/dev/disk/by-id/scsi-B"]
    pools.tank.properties.ashift: null -> "12"
    pools.tank.filesystem_properties.acltype: null -> "posixacl"
    pools.tank.filesystem_properties.atime: null -> "off"
    pools.tank.filesystem_properties.compression: null -> "lz4"
    pools.tank.filesystem_properties.xattr: null -> "sa"
    import.zfs-import@tank.service: null -> "enabled"
    storage.tank.nodes: "pve2" -> "pve1,pve2"
    storage.tank.status: null -> "active"
    "#);
}

#[test]
fn a_pool_that_is_there_is_left_as_it_is_whatever_its_disks_are_called() {
    for rows in [
        ["  mirror-0", "    /dev/disk/by-id/scsi-A-part1", "    /dev/disk/by-id/scsi-B-part1"],
        ["  mirror-0", "    /dev/disk/by-id/wwn-0xB", "    /dev/disk/by-id/wwn-0xA"],
        ["  mirror-0", "    /dev/sda", "    /dev/sdb"],
    ] {
        let mut state = machine();
        with_pool(&mut state, "ONLINE", &rows);
        assert!(planned(&state, json!([tank()]), json!(["tank"])).unwrap().is_empty(), "{rows:?}");
    }
    // A disk that is gone is known by the name that ZFS has for it.
    let mut state = machine();
    with_pool(
        &mut state,
        "DEGRADED",
        &[
            "  mirror-0",
            "    /dev/disk/by-id/scsi-A-part1",
            "    /dev/disk/by-id/scsi-B-part1",
            "logs",
            "  /dev/sde",
        ],
    );
    state.machine.links.retain(|link| !link.name.ends_with('B'));
    let plan = planned(&state, json!([tank()]), json!([])).unwrap();
    assert!(plan.is_empty());
    assert_eq!(plan.warnings, ["the pool tank is DEGRADED: see `zpool status tank`"]);
}

#[test]
fn a_pool_with_other_disks_or_another_layout_is_shown_beside_the_declaration() {
    let mut state = machine();
    with_pool(&mut state, "ONLINE", &["  mirror-0", "    /dev/sda", "    /dev/sdc"]);
    insta::assert_snapshot!(refusal(&state, json!([tank()]), json!(["tank"])), @r"
    refused, and nothing was touched
    the pool tank exists with other disks or another layout, and is left as it is
      declared: mirror of /dev/disk/by-id/scsi-A, /dev/disk/by-id/scsi-B
      found:    mirror of /dev/disk/by-id/scsi-A, /dev/disk/by-id/scsi-C
    ");
    for rows in [
        &["  /dev/sda", "  /dev/sdb"][..],
        &["  mirror-0", "    /dev/sda", "    /dev/sdb", "    /dev/sdc"],
        &["  mirror-0", "    /dev/sda"],
        &["  mirror-0", "    /dev/sda", "    /dev/sdb", "special", "  /dev/sdc"],
        &["  mirror-0", "    /dev/sda", "    /dev/sdb", "  mirror-1", "    /dev/sdc", "    /dev/sdd"],
        &["  raidz1-0", "    /dev/sda", "    /dev/sdb"],
    ] {
        with_pool(&mut state, "ONLINE", rows);
        assert!(refusal(&state, json!([tank()]), json!([])).contains("is left as it is"), "{rows:?}");
    }
}

#[test]
fn one_bad_disk_of_one_pool_stops_every_pool() {
    let mut state = machine();
    holding(&mut state, "/dev/sdc", signature("/dev/sdc", "ext4"));
    let other = json!({"name": "data", "layout": "mirror", "disks": ["scsi-C", "scsi-D"]});
    insta::assert_snapshot!(refusal(&state, json!([tank(), other]), json!(["tank"])), @r"
    refused, and nothing was touched
    data: /dev/disk/by-id/scsi-C (/dev/sdc, 268435456 bytes, model QEMU HARDDISK, serial C): /dev/sdc: ext4 at 0x438
    data: if nobody needs what is on these disks, `wipe: [data]` erases it before the pool is made
    ");
}

#[test]
fn wipe_lifts_for_its_own_pools_what_nobody_uses() {
    let mut state = machine();
    holding(&mut state, "/dev/sda", signature("/dev/sda", "swap"));
    holding(&mut state, "/dev/sdb", label("/dev/sdb", 1, 7));
    let plan = planned(&state, json!([tank()]), json!(["tank"])).unwrap();
    insta::assert_snapshot!(lines(&plan).lines().take(3).collect::<Vec<_>>().join("\n"), @r#"
    wipe.scsi-A: ["/dev/sda: swap at 0x438"] -> "nothing"
    wipe.scsi-B: ["/dev/sdb: ZFS label of the pool tank (GUID 5, exported, last used by this host)"] -> "nothing"
    pools.tank.state: null -> "ONLINE"
    "#);
    let text = refusal(&state, json!([tank()]), json!([]));
    assert!(text.contains("`zpool import -d /dev/disk/by-id tank` imports it"), "{text}");
    assert!(text.contains("`wipe: [tank]` erases it"), "{text}");
}

#[test]
fn wipe_never_lifts_what_may_be_needed() {
    for (what, part) in [
        ("a pool of another host", label("/dev/sdb", 1, 9)),
        ("a pool that was not exported", label("/dev/sdb", 0, 7)),
    ] {
        let mut state = machine();
        holding(&mut state, "/dev/sda", signature("/dev/sda", "swap"));
        holding(&mut state, "/dev/sdb", part);
        let text = refusal(&state, json!([tank()]), json!(["tank"]));
        assert!(
            text.contains("scsi-B") && !text.contains("scsi-A") && !text.contains("erases"),
            "{what}: {text}"
        );
    }
    let mut state = machine();
    state.machine.swaps.push("/dev/sda".into());
    holding(&mut state, "/dev/sda", signature("/dev/sda", "swap"));
    assert!(refusal(&state, json!([tank()]), json!(["tank"])).contains("in use as swap"));
}

#[test]
fn one_disk_under_two_names_is_seen() {
    let twice = json!({"name": "tank", "layout": "mirror", "disks": ["scsi-A", "wwn-0xA"]});
    let text = refusal(&machine(), json!([twice]), json!(["tank"]));
    assert!(
        text.contains("scsi-A") && text.contains("it is declared twice: wwn-0xA of tank is the same disk"),
        "{text}"
    );
    let other = json!({"name": "data", "layout": "mirror", "disks": ["wwn-0xB", "scsi-C"]});
    let text = refusal(&machine(), json!([tank(), other]), json!([]));
    assert!(
        text.contains("wwn-0xB of data is the same disk") && text.contains("scsi-B of tank is the same disk"),
        "{text}"
    );
}

#[test]
fn disks_of_a_pool_may_differ_by_16_mib() {
    let mut state = machine();
    state.machine.devices[1].size += 16 << 20;
    assert!(planned(&state, json!([tank()]), json!([])).is_ok());
    state.machine.devices[1].size += 1;
    let text = refusal(&state, json!([tank()]), json!(["tank"]));
    assert!(
        text.contains("scsi-B") && text.contains("285212673 bytes and another disk of the pool 268435456"),
        "{text}"
    );
    let stripe = json!({"name": "tank", "layout": "stripe", "disks": ["scsi-A", "scsi-B"], "allow_no_redundancy": true});
    assert!(planned(&state, json!([stripe]), json!([])).is_ok());
    state.machine.devices[0].size = (64 << 20) - 1;
    assert!(refusal(&state, json!([tank()]), json!([])).contains("ZFS takes no disk below"));
}

#[test]
fn a_name_that_leads_nowhere_comes_with_those_that_do() {
    let gone = json!({"name": "tank", "layout": "mirror", "disks": ["scsi-A", "scsi-X"]});
    insta::assert_snapshot!(refusal(&machine(), json!([gone]), json!(["tank"])), @r"
    refused, and nothing was touched
    tank: /dev/disk/by-id/scsi-X: there is no such name under /dev/disk/by-id
    disks of this host: /dev/disk/by-id/scsi-A, /dev/disk/by-id/scsi-B, /dev/disk/by-id/scsi-C, /dev/disk/by-id/scsi-D, /dev/disk/by-id/scsi-E
    ");
}

#[test]
fn the_surroundings_count_too() {
    let mut state = machine();
    state.mount_points.insert("/tank".into(), MountPoint::Taken("is a directory with content".into()));
    assert!(
        refusal(&state, json!([tank()]), json!([]))
            .contains("the mount point /tank is a directory with content")
    );

    let mut state = machine();
    state.strays = vec![("/dev/sde1".into(), label("/dev/sde1", 1, 7).label.unwrap())];
    let text = refusal(&state, json!([tank()]), json!(["tank"]));
    assert!(
        text.contains("is on /dev/sde1 (exported) and is not imported") && text.contains("zpool import -d"),
        "{text}"
    );
    state.strays = vec![("/dev/sde1".into(), label("/dev/sde1", 2, 7).label.unwrap())];
    assert!(planned(&state, json!([tank()]), json!([])).is_ok(), "a destroyed pool's name is free");

    let mut pool = tank();
    pool["proxmox_storage"] = json!(true);
    assert!(refusal(&machine(), json!([pool]), json!([])).contains("there is no pvesm on this host"));
}

#[test]
fn properties_of_a_pool_that_is_there_are_a_warning() {
    let mut state = machine();
    with_pool(&mut state, "ONLINE", &["  mirror-0", "    /dev/sda", "    /dev/sdb"]);
    let found = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
    };
    state.properties.insert(
        "tank".into(),
        Properties {
            pool: found(&[("ashift", "9")]),
            filesystem: found(&[
                ("compression", "off"),
                ("atime", "off"),
                ("xattr", "on"),
                ("acltype", "posix"),
            ]),
        },
    );
    let plan = planned(&state, json!([tank()]), json!([])).unwrap();
    assert!(plan.is_empty());
    insta::assert_snapshot!(plan.warnings.join("\n"), @r"
    tank: ashift is 9, declared is 12; an existing pool is left as it is, it cannot be changed
    tank: compression is off, declared is lz4; an existing pool is left as it is, `zfs set compression=lz4 tank` changes it
    ");
}

#[test]
fn the_proof_of_a_pool_is_what_zfs_says_of_it() {
    let args = args(json!([tank()]), json!([]));
    let plan = plan(&args, &machine()).unwrap();
    let mut state = machine();
    state.properties.insert(
        "tank".into(),
        Properties {
            pool: BTreeMap::from([("ashift".into(), "12".into())]),
            filesystem: BTreeMap::from([
                ("compression".into(), "lz4".into()),
                ("atime".into(), "off".into()),
                ("xattr".into(), "on".into()),
                ("acltype".into(), "posix".into()),
            ]),
        },
    );
    with_pool(
        &mut state,
        "ONLINE",
        &["  mirror-0", "    /dev/disk/by-id/wwn-0xA-part1", "    /dev/disk/by-id/scsi-B-part1"],
    );
    for change in plan.changes() {
        assert_eq!(crate::prove(&args, change, &state), Proof::Held, "{}", change.field);
    }
    with_pool(&mut state, "DEGRADED", &["  mirror-0", "    /dev/sda1", "    /dev/disk/by-id/scsi-B-part1"]);
    let bad: Vec<&str> = plan
        .changes()
        .filter(|change| crate::prove(&args, change, &state) != Proof::Held)
        .map(|change| change.field.as_str())
        .collect();
    assert_eq!(bad, ["pools.tank.state", "pools.tank.disks"], "degraded, and not opened by a lasting name");
    let contents = Contents { parts: vec![signature("/dev/sda", "gpt")] };
    state.contents.insert(Path::new("/dev/sda").into(), contents);
    assert_ne!(
        crate::prove(&args, &ansible_module::Change::new("wipe.scsi-A", Value::Null, "nothing"), &state),
        Proof::Held
    );
}
