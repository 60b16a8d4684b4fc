//! What is refused; of no refused disk a byte may change.

use serde_json::json;

use crate::Case;
use crate::bench::{Bench, by_id, mirror, path, wiping};

pub(crate) const CASES: [Case; 12] = [
    ("a disk with anything on it is refused", anything_on_it),
    ("a disk in use is refused, also to be wiped", in_use),
    ("a member of an exported or destroyed pool is refused with the way back", given_up_pools),
    ("a pool that another host used last is never wiped", of_another_host),
    ("a label that wipefs left is found", left_by_wipefs),
    ("what a disk is can be reason enough", kinds_of_disk),
    ("two paths to one disk are no two disks", two_paths),
    ("one disk under two names is refused before anything is written", two_names),
    ("a larger disk is refused", larger),
    ("a missing disk and a directory with content are refused", surroundings),
    ("a pool with other disks is shown beside the declaration", other_disks),
    ("a bad disk of one pool stops the other one", other_pool),
];

/// What `zpool create` refuses, and what it would overwrite without a word.
fn anything_on_it(bench: &mut Bench) {
    let disk = path("B");
    for (what, made, parts) in [
        ("ext4", format!("mkfs.ext4 -q -F {disk}"), &["ext4 at 0x438"][..]),
        ("LVM", format!("pvcreate -qq {disk}"), &["LVM2_member"]),
        ("swap", format!("mkswap {disk}"), &["swap at 0xff6"]),
        (
            "RAID member",
            format!(
                "mdadm --quiet --create /dev/md7 --run --force --level=1 --raid-devices=1 {disk}; mdadm --quiet --stop /dev/md7"
            ),
            &["linux_raid_member"],
        ),
        (
            "a file system in a partition",
            format!("sgdisk -n 1:2048:0 {disk} && udevadm settle && mkfs.ext4 -q -F {disk}-part1"),
            &["1: ext4 at 0x438", "a partition of", "gpt at"],
        ),
        (
            "empty partitions",
            format!("sgdisk -n 1:2048:+20M -n 2:0:+20M {disk}"),
            &["1: a partition of 20971520 bytes", "2: a partition of", "gpt at"],
        ),
        ("an empty GPT", format!("sgdisk -o {disk}"), &["gpt at 0x200", "PMBR"]),
        ("a PMBR only", format!("sgdisk -o {disk} && wipefs -q -a -t gpt {disk}"), &["PMBR at 0x1fe"]),
        (
            "the end of a GPT only",
            format!("sgdisk -o {disk} && dd if=/dev/zero of={disk} bs=512 count=34 conv=fsync 2>/dev/null"),
            &["gpt at 0x7fffe00"],
        ),
    ] {
        bench.reset();
        bench.prepare(&made);
        let message = bench.refuses(&mirror(["A", "B"]), &["A", "B"]);
        assert!(
            message.contains(&format!("{disk} (/dev/sd")) && message.contains("serial B"),
            "{what}: {message}"
        );
        assert!(parts.iter().all(|part| message.contains(part)), "{what}: {message}");
        assert!(message.contains("`wipe: [tank]` erases it"), "{what}: {message}");
    }
}

fn in_use(bench: &mut Bench) {
    let disk = path("B");
    for (what, made, part) in [
        ("mounted", format!("mkfs.ext4 -q -F {disk} && mount {disk} /mnt"), "mounted on /mnt"),
        ("swap", format!("mkswap {disk} && swapon {disk}"), "in use as swap"),
        (
            "LVM",
            format!("pvcreate -qq {disk} && vgcreate -qq vg {disk} && lvcreate -qq -n lv -L 8M vg"),
            "(lvm)",
        ),
        (
            "RAID",
            format!("mdadm --quiet --create /dev/md7 --run --force --level=1 --raid-devices=1 {disk}"),
            "(raid1)",
        ),
        ("imported", format!("zpool create old {disk}"), "it is in the imported pool old"),
        (
            "part of it mounted",
            format!(
                "sgdisk -n 1:2048:0 {disk} && udevadm settle && mkfs.ext4 -q -F {disk}-part1 && mount {disk}-part1 /mnt"
            ),
            "mounted on /mnt",
        ),
    ] {
        bench.reset();
        bench.prepare(&made);
        // What ZFS and LVM themselves write to a disk in use is no doing of the program's: here the calls count.
        bench.stand_in("zpool", "[ \"$1\" != create ] || touch /run/reached\nexec $REAL \"$@\"");
        let unused = ["A"];
        let message = bench
            .refuses(&wiping(mirror(["A", "B"])), if what == "imported" { &unused } else { &["A", "B"] });
        assert!(message.contains(part) && !message.contains("erases it"), "{what}: {message}");
        assert_eq!(bench.sh("ls /run/reached 2>/dev/null || true"), "", "{what}");
    }
}

fn given_up_pools(bench: &mut Bench) {
    for (made, word, way) in [
        (
            "zpool export tank",
            "exported, last used by this host",
            "`zpool import -d /dev/disk/by-id tank` imports it",
        ),
        (
            "zpool destroy tank",
            "destroyed, last used by this host",
            "`zpool import -D -d /dev/disk/by-id tank` brings it back",
        ),
    ] {
        bench.reset();
        bench.prepare(&format!("zpool create tank mirror {} {}", path("A"), path("B")));
        bench.prepare(made);
        let message = bench.refuses(&mirror(["A", "B"]), &["A", "B"]);
        assert!(message.contains(word) && message.contains(way), "{message}");
    }
    // On disks that nobody declares.
    bench.reset();
    bench.prepare(&format!("zpool create tank {} && zpool export tank", path("E")));
    let message = bench.refuses(&wiping(mirror(["A", "B"])), &["A", "B", "E"]);
    assert!(
        message.contains("a pool of this name is on /dev/sd") && message.contains("zpool import -d"),
        "{message}"
    );
}

fn of_another_host(bench: &mut Bench) {
    for end in ["export", "destroy"] {
        bench.reset();
        bench.prepare(&format!("zgenhostid -f 0xdeadbeef && zpool create tank {} && zpool {end} tank && zgenhostid -f 0x00a1b2c3", path("B")));
        let message = bench.refuses(&wiping(mirror(["A", "B"])), &["A", "B"]);
        assert!(message.contains("last used by pve1)") && !message.contains("erases it"), "{message}");
    }
}

/// wipefs takes the signatures that it knows, and zpool still reads the label.
fn left_by_wipefs(bench: &mut Bench) {
    let disk = path("B");
    bench.prepare(&format!(
        "zpool create old {disk} && zpool export old && udevadm settle && wipefs -q -a {disk}-part1"
    ));
    assert!(!bench.sh(&format!("wipefs -n {disk}-part1")).contains("zfs_member"));
    let message = bench.refuses(&mirror(["A", "B"]), &["A", "B"]);
    assert!(message.contains("ZFS label of the pool old"), "{message}");
}

fn kinds_of_disk(bench: &mut Bench) {
    for (serial, part) in [
        ("ROOT", "the machine boots from this disk (/ is there)"),
        ("READONLY", "it is read-only"),
        ("REMOVABLE", "it is removable"),
        ("USB", "it is a USB device"),
        ("RAID", "virtual disk of a RAID controller (channel 2 of megaraid_sas)"),
    ] {
        let checked: &[&str] = if serial == "ROOT" { &["A"] } else { &["A", serial] };
        let message = bench.refuses(&wiping(mirror(["A", serial])), checked);
        assert!(message.contains(part), "{serial}: {message}");
    }
}

fn two_paths(bench: &mut Bench) {
    let lun = path("LUN");
    let message = bench.refuses(&wiping(mirror(["A", "LUN"])), &["A", "LUN"]);
    assert!(message.contains("two paths to one disk, and no multipath map"), "{message}");
    // Under a map, what stands for one path is a member of it.
    bench.prepare(&format!(
        "multipath -q -v0 -a $(readlink -f {lun}) && multipath -v0 || true\nudevadm settle\ndmsetup ls"
    ));
    let members = bench.sh("ls /dev/disk/by-id | grep -v part | while read -r l; do d=$(readlink -f /dev/disk/by-id/$l); ls /sys/class/block/${d##*/}/holders | grep -q dm- && echo $l; done; true");
    for member in members.lines() {
        let arguments = json!({"pools": [{"name": "tank", "layout": "mirror", "disks": [by_id("A"), member]}], "wipe": ["tank"]});
        let message = bench.refuses(&arguments, &["A", "LUN"]);
        assert!(message.contains("(mpath)"), "{member}: {message}");
    }
}

fn two_names(bench: &mut Bench) {
    let alias = bench.sh("udevadm info -q property -n /dev/sda | sed -n 's/^ID_WWN_WITH_EXTENSION=/wwn-/p'");
    let arguments =
        json!({"pools": [{"name": "tank", "layout": "mirror", "disks": [by_id("A"), alias.trim()]}]});
    let message = bench.refuses(&arguments, &["A"]);
    assert!(message.contains("it is declared twice"), "{message}");
}

fn larger(bench: &mut Bench) {
    let message = bench.refuses(&mirror(["A", "LARGER"]), &["A", "LARGER"]);
    assert!(message.contains("more than 16777216 apart"), "{message}");
}

fn surroundings(bench: &mut Bench) {
    let message = bench.refuses(&mirror(["A", "NOSUCH"]), &["A"]);
    assert!(message.contains("there is no such name") && message.contains(&path("C")), "{message}");
    bench.prepare("mkdir -p /tank && touch /tank/file");
    let message = bench.refuses(&mirror(["A", "B"]), &["A", "B"]);
    assert!(message.contains("the mount point /tank is a directory with content"), "{message}");
}

fn other_disks(bench: &mut Bench) {
    bench.prepare(&format!("zpool create tank mirror {} {}", path("A"), path("C")));
    let result = bench.run(&wiping(mirror(["A", "B"])));
    let found = json!({"layout": "mirror", "disks": [path("A"), path("C")]});
    assert_eq!(
        (&result["error_code"], &result["differing_pools"][0]["found"]),
        (&json!("refused"), &found),
        "{result:#}"
    );
    let layout = json!({"pools": [{"name": "tank", "layout": "stripe", "allow_no_redundancy": true, "disks": [by_id("A"), by_id("C")]}]});
    let message = bench.refuses(&layout, &["B"]);
    assert!(message.contains("declared: stripe of") && message.contains("found:    mirror of"), "{message}");
}

fn other_pool(bench: &mut Bench) {
    bench.prepare(&format!("mkfs.ext4 -q -F {}", path("D")));
    let arguments = json!({"pools": [
        {"name": "tank", "layout": "mirror", "disks": [by_id("A"), by_id("B")]},
        {"name": "data", "layout": "mirror", "disks": [by_id("C"), by_id("D")]},
    ]});
    let message = bench.refuses(&arguments, &["A", "B", "C", "D"]);
    assert!(message.contains("data: /dev/disk/by-id") && !message.contains("tank: "), "{message}");
    assert_eq!(bench.sh("zpool list -H"), "");
}
