//! Runs that end early: killed while a command blocks, or by a command that fails.

use serde_json::json;

use crate::Case;
use crate::bench::{Bench, mirror, path, wiping};
use crate::creates::PVESM;

pub(crate) const CASES: [Case; 3] = [
    ("a run that is killed at any step is finished by the next one", killed),
    ("a create that fails half way says what it left, and wipe goes on", half_way),
    ("a late name of a partition is waited for when nothing was written", late_link),
];

/// Blocks before the real command, or after it, when the arguments begin with this word.
fn blocking(bench: &mut Bench, program: &str, word: &str, after: bool) {
    let block = "touch /run/reached; exec sleep 1000";
    let script = if after {
        format!("[ \"$1\" = {word} ] || exec $REAL \"$@\"\n$REAL \"$@\"; {block}")
    } else {
        format!("[ \"$1\" != {word} ] || {{ {block}; }}\nexec $REAL \"$@\"")
    };
    bench.stand_in(program, &script);
}

fn killed(bench: &mut Bench) {
    let mut arguments = wiping(mirror(["A", "B"]));
    arguments["pools"][0]["proxmox_storage"] = json!(true);
    for (program, word, after) in [
        ("blockdev", "--rereadpt", false),
        ("blockdev", "--rereadpt", true),
        ("udevadm", "settle", false),
        ("zpool", "create", false),
        ("zpool", "create", true),
        ("systemctl", "enable", false),
        ("pvesm", "add", false),
    ] {
        let step = format!("{program} {word}, {}", if after { "after it" } else { "before it" });
        bench.reset();
        bench.prepare(&format!(
            "mkdir -p /etc/pve; sgdisk -n 1:2048:0 {} && mkswap {}",
            path("A"),
            path("B")
        ));
        bench.stand_in("pvesm", PVESM);
        if program == "pvesm" {
            bench.sh("touch /run/hold");
        } else {
            blocking(bench, program, word, after);
        }
        if program == "systemctl" {
            bench.sh("rm -f /etc/systemd/system/zfs-import.target.wants/*");
        }
        bench.killed_when_reached(&arguments);
        bench.sh("rm -f /run/hold; pkill -f '^sleep 1000$'; true");
        bench.without_stand_ins();
        bench.stand_in("pvesm", PVESM);
        let result = bench.run(&arguments);
        assert!(
            result.get("failed").is_none() && result["pools"][0]["state"] == "ONLINE",
            "{step}: {result:#}"
        );
        assert!(bench.sh("cat /etc/pve/storage.cfg").contains("nodes pve1"), "{step}");
        assert_eq!(
            bench.sh("ls /etc/systemd/system/zfs-import.target.wants"),
            "zfs-import-cache.service\n",
            "{step}"
        );
        bench.leaves(&arguments);
    }
}

fn half_way(bench: &mut Bench) {
    let fails = format!(
        "[ \"$1\" != create ] || {{ sgdisk -n 1:2048:0 {} >/dev/null; udevadm settle; echo 'cannot create: I/O error' >&2; exit 1; }}\nexec $REAL \"$@\"",
        path("A")
    );
    bench.stand_in("zpool", &fails);
    let result = bench.run(&mirror(["A", "B"]));
    assert_eq!(
        (&result["error_code"], &result["changed"]),
        (&json!("command_failed"), &json!(true)),
        "{result:#}"
    );
    let message = result["msg"].as_str().unwrap();
    assert!(
        message.contains("cannot create: I/O error")
            && message.contains("gpt at")
            && message.contains("`wipe: [tank]`"),
        "{message}"
    );
    bench.without_stand_ins();
    let message = bench.refuses(&mirror(["A", "B"]), &["A", "B"]);
    assert!(message.contains("a partition of"), "{message}");
    bench.makes(&wiping(mirror(["A", "B"])));
}

fn late_link(bench: &mut Bench) {
    bench.stand_in("zpool", "if [ \"$1\" = create ] && [ ! -e /run/reached ]; then touch /run/reached; echo \"cannot resolve path '/dev/disk/by-id/x-part1'\" >&2; exit 1; fi\nexec $REAL \"$@\"");
    bench.makes(&mirror(["A", "B"]));
}
