//! Pools that are made, and left as they are.

use serde_json::{Value, json};

use crate::Case;
use crate::bench::{Bench, by_id, mirror, path, wiping};

pub(crate) const CASES: [Case; 6] = [
    ("blank disks of three kinds become a pool that survives export and import", three_kinds),
    ("a second and third run change nothing with few commands", again),
    ("wipe frees disks that held something, and check mode shows what would go", wiped),
    ("a multipath map becomes a pool", multipath),
    ("status as text leads to the same end", text_status),
    ("this node is added to the storage, and no other one dropped", storage),
];

fn three_kinds(bench: &mut Bench) {
    let arguments = json!({"pools": [{"name": "tank", "layout": "raidz1", "disks": [by_id("A"), by_id("NVME"), by_id("VIRTIO")]}]});
    let before = bench.checksums(&["A", "NVME", "VIRTIO"]);
    let checked = bench.check(&arguments);
    assert_eq!(
        (&checked["changed"], &checked["pools"][0]["state"]),
        (&json!(true), &Value::Null),
        "{checked:#}"
    );
    assert_eq!(bench.checksums(&["A", "NVME", "VIRTIO"]), before, "check mode wrote");

    let made = bench.makes(&arguments);
    let pool = &made["pools"][0];
    assert_eq!((&pool["state"], &pool["layout"]), (&json!("ONLINE"), &json!("raidz1")), "{made:#}");
    assert_eq!(pool["properties"], json!({"ashift": "12"}));
    assert_eq!(bench.sh("zfs get -H -o value atime,compression,xattr,acltype tank"), "off\nlz4\non\nposix\n");
    let status = bench.sh("zpool status -P tank");
    for serial in ["A", "NVME", "VIRTIO"] {
        assert!(status.contains(&format!("{}-part1", path(serial))), "{status}");
    }
    bench.sh("echo kept >/tank/file && zpool export tank && zpool import -d /dev/disk/by-id tank");
    assert_eq!(bench.sh("cat /tank/file"), "kept\n");
    bench.leaves(&arguments);
    // Under the kernel's names it is the same pool still.
    bench.sh("zpool export tank && zpool import -d /dev tank");
    assert!(bench.sh("zpool status -P -L tank").contains("/dev/nvme0n1p1"));
    bench.leaves(&arguments);
}

fn again(bench: &mut Bench) {
    bench.makes(&mirror(["A", "B"]));
    let commands = bench.counted(&mirror(["A", "B"]));
    println_commands(&commands);
    assert!(commands.len() <= 5, "{commands:#?}");
    let alias = |device: &str| {
        format!("udevadm info -q property -n {device} | sed -n 's/^ID_WWN_WITH_EXTENSION=/wwn-/p'")
    };
    let names: Vec<String> = [alias("/dev/sda"), alias("/dev/sdb")]
        .iter()
        .map(|script| bench.sh(script).trim().to_owned())
        .collect();
    bench.leaves(&json!({"pools": [{"name": "tank", "layout": "mirror", "disks": names}]}));
}

fn println_commands(commands: &[String]) {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr(),
        "       a run that finds nothing to do runs {}: {}",
        commands.len(),
        commands.join("; ")
    );
}

fn wiped(bench: &mut Bench) {
    let (a, b) = (path("A"), path("B"));
    for (what, made) in [
        ("file systems", format!("mkfs.ext4 -q -F {a} && mkswap {b}")),
        (
            "partitions",
            format!(
                "sgdisk -n 1:2048:+20M -n 2:0:+20M {a} && sgdisk -n 1:2048:0 {b} && udevadm settle && mkfs.ext4 -q -F {b}-part1"
            ),
        ),
        ("partition tables", format!("sgdisk -o {a} && sgdisk -o {b} && wipefs -q -a -t gpt {b}")),
        ("a destroyed pool", format!("zpool create tank mirror {a} {b} && zpool destroy tank")),
        ("an exported pool", format!("zpool create old mirror {a} {b} && zpool export old")),
        (
            "labels that wipefs left",
            format!(
                "zpool create old mirror {a} {b} && zpool export old && udevadm settle && wipefs -q -a {a}-part1 {b}-part1"
            ),
        ),
        (
            "LVM and RAID that nobody uses",
            format!(
                "pvcreate -qq {a} && mdadm --quiet --create /dev/md7 --run --force --level=1 --raid-devices=1 {b}; mdadm --quiet --stop /dev/md7"
            ),
        ),
    ] {
        bench.reset();
        bench.prepare(&made);
        let before = bench.checksums(&["A", "B", "C"]);
        let checked = bench.check(&wiping(mirror(["A", "B"])));
        let diff = checked["diff"]["before"].as_str().unwrap_or_default();
        assert!(
            checked["changed"] == true && diff.contains("wipe.") && diff.contains("/dev/sd"),
            "{what}: {checked:#}"
        );
        assert_eq!(bench.checksums(&["A", "B", "C"]), before, "{what}: check mode wrote");
        let result = bench.run(&wiping(mirror(["A", "B"])));
        assert!(result["changed"] == true && result["pools"][0]["state"] == "ONLINE", "{what}: {result:#}");
        assert_eq!(bench.checksums(&["C"]), before[2..], "{what}: a disk that nobody declared");
        bench.leaves(&wiping(mirror(["A", "B"])));
    }
}

fn multipath(bench: &mut Bench) {
    bench.prepare(&format!("multipath -q -v0 -a $(readlink -f {}) && multipath -v0 || true", path("LUN")));
    let names =
        bench.sh("for l in /dev/disk/by-id/*; do case $(readlink $l) in *dm-*) echo ${l##*/} ;; esac; done");
    let names: Vec<&str> = names.lines().collect();
    assert!(names.len() > 1, "{names:?}");
    let pool =
        |name: &str| json!({"pools": [{"name": "tank", "layout": "mirror", "disks": [by_id("A"), name]}]});
    bench.makes(&pool(names[0]));
    for name in &names[1..] {
        bench.leaves(&pool(name));
    }
    bench.sh("zpool destroy tank");
}

/// What a version before 2.3 answers to `-j`.
fn text_status(bench: &mut Bench) {
    bench.stand_in(
        "zpool",
        "[ \"$2\" != -j ] || { echo \"invalid option 'j'\" >&2; exit 2; }\nexec $REAL \"$@\"",
    );
    bench.makes(&mirror(["A", "B"]));
    bench.leaves(&mirror(["A", "B"]));
    bench.refuses(
        &json!({"pools": [{"name": "data", "layout": "mirror", "disks": [by_id("B"), by_id("C")]}]}),
        &["C"],
    );
}

/// Keeps the file and its digest as Proxmox VE does, one field of it.
pub(crate) const PVESM: &str = r#"
cfg=/etc/pve/storage.cfg; touch $cfg
[ ! -e /run/hold ] || { touch /run/reached; sleep 1000; }
command=$1 id=$2; shift 2
case $command in
  status) grep -q "zfspool: $2" $cfg && zpool list -H "$2" >/dev/null && printf 'Name Type Status Total Used Available %%\n%s zfspool active 1 0 1 0%%\n' "$2"; exit ;;
  add) id=$1; grep -q "zfspool: $id$" $cfg && { echo "create storage failed: storage ID '$id' already defined" >&2; exit 255; } ;;
esac
declare -A o; while [ $# -gt 0 ]; do case $1 in --*) o[${1#--}]=$2; shift ;; esac; shift; done
if [ $command = set ]; then
  [ "${o[digest]}" = "$(sha1sum <$cfg | cut -d' ' -f1)" ] || { echo 'detected modified configuration - file changed by other user? Try again.' >&2; exit 255; }
  sed -i "s/^\tnodes .*/\tnodes ${o[nodes]}/" $cfg
else
  printf 'zfspool: %s\n\tpool %s\n\tcontent %s\n\tnodes %s\n\n' $id ${o[pool]} ${o[content]} ${o[nodes]} >>$cfg
fi
"#;

fn storage(bench: &mut Bench) {
    bench.prepare("mkdir -p /etc/pve && printf 'dir: local\\n\\tpath /var/lib/vz\\n\\nzfspool: tank\\n\\tpool tank\\n\\tcontent images,rootdir\\n\\tnodes pve2\\n\\n' >/etc/pve/storage.cfg");
    bench.stand_in("pvesm", PVESM);
    let mut arguments = mirror(["A", "B"]);
    arguments["pools"][0]["proxmox_storage"] = json!(true);
    bench.makes(&arguments);
    assert!(bench.sh("cat /etc/pve/storage.cfg").contains("\tnodes pve1,pve2\n"));
    bench.leaves(&arguments);
    assert!(bench.counted(&arguments).len() <= 5);

    bench.reset();
    bench.prepare("mkdir -p /etc/pve && touch /etc/pve/storage.cfg");
    bench.stand_in("pvesm", PVESM);
    bench.makes(&arguments);
    assert!(
        bench
            .sh("cat /etc/pve/storage.cfg")
            .contains("zfspool: tank\n\tpool tank\n\tcontent images,rootdir\n\tnodes pve1\n")
    );
}
