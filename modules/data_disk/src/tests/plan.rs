use ansible_module::{ErrorCode, Item, Plan};
use serde_json::json;

use super::*;
use crate::plan::{Action, plan};

/// The plan as one line an item, with the fields each step changes.
fn shown(plan: &Plan<Action>) -> Vec<String> {
    let action = |action: &Action| match action {
        Action::MakeFilesystem { uuid } => format!("make filesystem {uuid}"),
        Action::MakeMountPoint => "make mount point".into(),
        Action::Mount { uuid } => format!("mount {uuid}"),
        Action::Remount => "remount".into(),
        Action::WriteFstab { .. } => "write fstab".into(),
        Action::SetOwnership { owner, group, mode } => format!("set {owner:?} {group:?} {mode:?}"),
    };
    let items = plan.items.iter().map(|item| match item {
        Item::Gate => "gate".into(),
        Item::Step(step) => {
            let fields: Vec<&str> = step.changes.iter().map(|change| change.field.as_str()).collect();
            format!("{}: {}", action(&step.action), fields.join(" "))
        }
    });
    items.collect()
}

fn refusal(args: &Args, state: &State) -> String {
    let failure = plan(args, state).unwrap_err();
    assert_eq!(failure.code, ErrorCode::REFUSED);
    failure.msg
}

fn new_fstab(plan: &Plan<Action>, state: &State) -> String {
    let line = plan.steps().find_map(|step| match &step.action {
        Action::WriteFstab { line } => Some(line.as_str()),
        _ => None,
    });
    crate::fstab::with_line(&state.fstab, "web01-data", line.unwrap()).unwrap()
}

#[test]
fn a_blank_disk_goes_the_whole_way_and_fstab_comes_after_the_proved_mount() {
    let plan = plan(&args(json!({})), &blank()).unwrap();
    assert_eq!(
        shown(&plan),
        [
            format!("make filesystem {NEW_UUID}: filesystem.type filesystem.uuid"),
            "gate".into(),
            "make mount point: path".into(),
            format!("mount {NEW_UUID}: mount.path mount.options"),
            "gate".into(),
            "write fstab: fstab".into(),
        ]
    );
    assert_eq!(
        new_fstab(&plan, &blank()),
        fstab_with(&format!("UUID={NEW_UUID} /srv ext4 defaults,nofail 0 2"))
    );
}

#[test]
fn the_data_of_an_earlier_guest_is_mounted_and_never_formatted() {
    for fstype in ["ext4", "xfs"] {
        let plan = plan(&args(json!({"fstype": fstype})), &filled(fstype)).unwrap();
        assert_eq!(
            shown(&plan),
            [
                "make mount point: path",
                &format!("mount {UUID}: mount.path mount.options"),
                "gate",
                "write fstab: fstab",
            ]
        );
        assert_eq!(
            new_fstab(&plan, &filled(fstype)),
            fstab_with(&format!("UUID={UUID} /srv {fstype} defaults,nofail 0 2"))
        );
    }
}

#[test]
fn a_disk_in_use_as_asked_needs_nothing() {
    assert!(plan(&args(json!({})), &in_use()).unwrap().is_empty());
}

#[test]
fn only_what_differs_is_done() {
    let mut unmounted = in_use();
    unmounted.mounts.pop();
    unmounted.mount_point = MountPoint::Directory { empty: true, uid: 0, gid: 0, mode: 0o755 };
    let mut no_line = in_use();
    no_line.fstab = OTHER_LINES.into();
    let mut missing_tool = in_use();
    missing_tool.mkfs_installed = false;
    let mut owned = in_use();
    (owned.owner, owned.group) = (Some(26), Some(0));
    for (state, options, expected) in [
        (&unmounted, json!({}), vec![format!("mount {UUID}: mount.path mount.options"), "gate".into()]),
        (&no_line, json!({}), vec!["gate".into(), "write fstab: fstab".into()]),
        (&missing_tool, json!({}), vec!["gate".into()]),
        (
            &in_use(),
            json!({"opts": "noatime,nofail"}),
            vec!["remount: mount.options".into(), "gate".into(), "write fstab: fstab".into()],
        ),
        (&in_use(), json!({"opts": "defaults"}), vec!["gate".into(), "write fstab: fstab".into()]),
        (&in_use(), json!({"mode": "0755"}), vec!["gate".into()]),
        (&in_use(), json!({"mode": "2750"}), vec!["gate".into(), "set None None Some(1512): mode".into()]),
        (
            &owned,
            json!({"owner": "26", "group": "0"}),
            vec!["gate".into(), "set Some(26) Some(0) None: owner".into()],
        ),
    ] {
        assert_eq!(shown(&plan(&args(options.clone()), state).unwrap()), expected, "{options}");
    }
}

#[test]
fn an_older_line_of_the_same_disk_is_replaced_in_its_place() {
    let mut state = in_use();
    state.fstab = fstab_with("UUID=old /srv xfs defaults 0 2") + "tmpfs /tmp tmpfs defaults 0 0\n";
    let plan = plan(&args(json!({})), &state).unwrap();
    let line = format!("UUID={UUID} /srv ext4 defaults,nofail 0 2");
    assert_eq!(new_fstab(&plan, &state), fstab_with(&line) + "tmpfs /tmp tmpfs defaults 0 0\n");
    let change = plan.changes().next().unwrap();
    assert_eq!((&change.before, &change.after), (&json!("UUID=old /srv xfs defaults 0 2"), &json!(line)));
}

#[test]
fn a_disk_with_anything_else_on_it_is_refused_by_name() {
    // (what wipefs sees, what blkid sees, what the refusal names)
    let none = Probe::Nothing;
    for (signatures, probe, named) in [
        (vec!["xfs"], found(&[("TYPE", "xfs"), ("UUID", UUID)]), "it has xfs"),
        (vec!["zfs_member"], found(&[("TYPE", "zfs_member")]), "it has zfs_member"),
        (vec!["LVM2_member"], found(&[("TYPE", "LVM2_member")]), "it has LVM2_member"),
        (vec!["linux_raid_member"], found(&[("TYPE", "linux_raid_member")]), "it has linux_raid_member"),
        (vec!["crypto_LUKS"], found(&[("TYPE", "crypto_LUKS")]), "it has crypto_LUKS"),
        (vec!["swap"], found(&[("TYPE", "swap"), ("UUID", UUID)]), "it has swap"),
        (vec!["PMBR", "gpt"], found(&[("PTTYPE", "gpt")]), "it has PMBR, gpt"),
        (vec!["dos"], found(&[("PTTYPE", "dos")]), "it has dos"),
        // A GPT whose beginning was zeroed: only wipefs sees it.
        (vec!["gpt"], none.clone(), "it has gpt"),
        // Each tool alone is enough to refuse.
        (vec!["ext4"], none.clone(), "it has ext4"),
        (vec![], found(&[("TYPE", "ext4"), ("UUID", UUID)]), "it has ext4"),
        (vec![], found(&[("PTTYPE", "PMBR")]), "it has PMBR"),
        (vec![], found(&[("UUID", UUID)]), &format!("it has UUID={UUID}")),
        // A file system over the remains of something else.
        (vec!["ext4", "zfs_member"], found(&[("TYPE", "ext4"), ("UUID", UUID)]), "it has ext4, zfs_member"),
        (vec!["ext4", "xfs"], Probe::Ambiguous, "it has ext4, signatures that contradict each other, xfs"),
        (vec![], Probe::Ambiguous, "it has signatures that contradict each other"),
        (vec!["ext4"], found(&[("TYPE", "ext4"), ("UUID", UUID), ("PTTYPE", "dos")]), "it has dos, ext4"),
        (vec!["ext4"], found(&[("TYPE", "ext4")]), "it has ext4"),
    ] {
        let mut state = blank();
        state.disk.signatures = signatures.iter().map(ToString::to_string).collect();
        state.disk.probe = probe;
        let msg = refusal(&args(json!({})), &state);
        assert!(msg.contains(&format!("{named}. Nothing was touched")), "{signatures:?}: {msg}");
    }
}

#[test]
fn a_disk_in_use_by_anything_else_is_refused() {
    let with = |change: fn(&mut State)| {
        let mut state = blank();
        change(&mut state);
        refusal(&args(json!({})), &state)
    };
    let name = "the disk web01-data (/dev/vdb)";
    assert_eq!(
        with(|s| s.disk.block.children = vec![device("/dev/vdb1", "part", "253:17")]),
        format!("{name} has partitions: /dev/vdb1 (part)")
    );
    assert_eq!(
        with(|s| {
            s.disk.block.children = vec![device("/dev/vdb1", "part", "253:17")];
            s.mounts = vec![mount("/", "253:17", "ext4", "/dev/vdb1", &["rw"])];
        }),
        format!("{name} has partitions: /dev/vdb1 (part): it is the disk of the system itself")
    );
    assert_eq!(
        with(|s| {
            let mut part = device("/dev/vdb1", "part", "253:17");
            part.children = vec![device("/dev/mapper/root", "lvm", "254:0")];
            s.disk.block.children = vec![part];
            // btrfs shows a number of its own: the name of the device has to do.
            s.mounts = vec![mount("/", "0:35", "btrfs", "/dev/mapper/root", &["rw"])];
        }),
        format!("{name} has partitions: /dev/vdb1 (part): it is the disk of the system itself")
    );
    assert_eq!(
        with(|s| s.disk.block.children = vec![device("/dev/mapper/vg-data", "lvm", "254:1")]),
        format!("{name} is in use by other devices: /dev/mapper/vg-data (lvm)")
    );
    assert_eq!(
        with(|s| s.disk.holders = vec!["md127".into()]),
        format!("{name} is in use by the kernel: md127")
    );
    assert_eq!(
        with(|s| s.mounts.push(mount("/mnt/old", "253:16", "ext4", "/dev/vdb", &["rw"]))),
        format!("{name} is already mounted on /mnt/old")
    );
    assert_eq!(with(|s| s.swaps = vec!["/dev/vdb".into()]), format!("{name} is in use as swap space"));
    assert_eq!(with(|s| s.disk.block.read_only = true), format!("{name} has nothing on it and is read-only"));
    assert_eq!(
        with(|s| s.mkfs_installed = false),
        format!("{name} needs a file system, and mkfs.ext4 is not installed: install e2fsprogs")
    );
}

#[test]
fn a_copied_disk_is_refused() {
    let mut state = filled("ext4");
    state.disk.doubles = vec!["/dev/vdc".into()];
    assert_eq!(
        refusal(&args(json!({})), &state),
        format!("the disk web01-data (/dev/vdb) has the same UUID {UUID} as /dev/vdc: a copied disk")
    );
}

#[test]
fn a_mount_point_that_is_taken_is_refused() {
    let with = |change: fn(&mut State)| {
        let mut state = filled("ext4");
        change(&mut state);
        refusal(&args(json!({})), &state)
    };
    assert_eq!(
        with(|s| s.mounts.push(mount("/srv", "253:32", "xfs", "/dev/vdc", &["rw"]))),
        "the mount point /srv is taken: /dev/vdc (xfs) is mounted there"
    );
    assert_eq!(
        with(|s| {
            s.mounts.push(mount("/srv", "253:16", "ext4", "/dev/vdb", &["rw"]));
            s.mounts.push(mount("/srv", "0:44", "tmpfs", "tmpfs", &["rw"]));
        }),
        "the mount point /srv is taken: tmpfs (tmpfs) is mounted there",
        "what was mounted last is what is seen"
    );
    assert_eq!(
        with(|s| {
            let bind = Mount { root: "/sub".into(), ..mount("/srv", "253:16", "ext4", "/dev/vdb", &["rw"]) };
            s.mounts.push(bind);
        }),
        "the mount point /srv is taken: /dev/vdb (ext4) is mounted there",
        "a part of the disk is not the disk"
    );
    assert_eq!(
        with(|s| s.mount_point = MountPoint::Directory { empty: false, uid: 0, gid: 0, mode: 0o755 }),
        "the mount point /srv is a directory with content, which the mount would hide: move it away first"
    );
    assert_eq!(with(|s| s.mount_point = MountPoint::Other), "the mount point /srv is no directory");
    assert_eq!(
        with(|s| s.mount_point = MountPoint::Link("/data".into())),
        "the mount point /srv leads over a symbolic link to /data: give the real path"
    );
}

#[test]
fn a_line_of_somebody_else_in_fstab_is_refused_before_the_disk_is_touched() {
    for (line, msg) in [
        (
            "/dev/sdc /srv xfs defaults 0 2",
            "line 3 of /etc/fstab mounts /dev/sdc on /srv already: remove it first",
        ),
        (
            &format!("UUID={UUID} /mnt ext4 defaults 0 2"),
            "line 3 of /etc/fstab mounts this disk on /mnt already: remove it first",
        ),
        (
            "# BEGIN homelab.anvil data_disk other\nUUID=x /srv ext4 defaults 0 2\n# END homelab.anvil data_disk other",
            "line 4 of /etc/fstab mounts UUID=x on /srv already, for the disk other: remove it first",
        ),
        (
            "# BEGIN homelab.anvil data_disk web01-data",
            "the mark in line 3 of /etc/fstab has no counterpart: repair or remove the block by hand",
        ),
    ] {
        let mut state = filled("ext4");
        state.fstab = format!("{OTHER_LINES}{line}\n");
        assert_eq!(refusal(&args(json!({})), &state), msg);
    }
}

#[test]
fn a_line_of_fstab_that_names_the_disk_in_another_way_is_refused() {
    let mut state = filled("ext4");
    state.disk.probe = found(&[("TYPE", "ext4"), ("UUID", UUID), ("LABEL", "data")]);
    for spec in [
        "/dev/vdb".into(),
        "/dev/disk/by-id/virtio-web01-data".into(),
        format!("/dev/disk/by-uuid/{UUID}"),
        format!("UUID=\"{}\"", UUID.to_uppercase()),
        "LABEL=data".into(),
        "/dev/disk/by-label/data".into(),
    ] {
        state.fstab = format!("{OTHER_LINES}{spec} /mnt ext4 defaults 0 2\n");
        let msg = refusal(&args(json!({})), &state);
        assert_eq!(msg, "line 3 of /etc/fstab mounts this disk on /mnt already: remove it first", "{spec}");
    }
    state.fstab = format!("{OTHER_LINES}LABEL=other /mnt ext4 defaults 0 2\n");
    assert!(plan(&args(json!({})), &state).is_ok());
}

#[test]
fn an_option_that_the_kernel_does_not_show_is_not_called_held() {
    let unseen = |opts: &[&str], shown: &[&str]| {
        let opts: Vec<String> = opts.iter().map(ToString::to_string).collect();
        let mount = mount("/srv", "253:16", "ext4", "/dev/vdb", shown);
        crate::plan::unseen_options(&opts, &mount).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(unseen(&["defaults", "nofail", "x-systemd.automount", "noatime"], &["rw", "noatime"]).is_empty());
    assert!(unseen(&["discard", "commit=30"], &["rw", "discard", "commit=30"]).is_empty());
    assert_eq!(unseen(&["nofail", "acl", "discard"], &["rw", "discard"]), ["acl"]);
}

#[test]
fn flags_that_the_kernel_shows_are_compared() {
    let missing = |opts: &[&str], shown: &[&str]| {
        let opts: Vec<String> = opts.iter().map(ToString::to_string).collect();
        let mount = mount("/srv", "253:16", "ext4", "/dev/vdb", shown);
        crate::plan::missing_flags(&opts, &mount).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(missing(&["defaults", "nofail", "x-systemd.automount"], &["rw", "relatime"]).is_empty());
    assert!(missing(&["noatime", "nodev"], &["rw", "noatime", "nodev"]).is_empty());
    assert_eq!(missing(&["noatime", "nodev"], &["rw", "relatime", "nodev"]), ["noatime"]);
    assert_eq!(missing(&["ro"], &["rw"]), ["ro"]);
    assert!(missing(&["ro"], &["ro", "rw"]).is_empty());
    assert_eq!(missing(&["rw"], &["ro", "relatime"]), ["rw"]);
}
