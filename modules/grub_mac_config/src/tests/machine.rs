//! A boot server with SELinux, as far as this module sees it: the flag of the kernel and restorecon's words.

use std::fs;

use ansible_module::{Module, Run};
use deadline::Deadline;
use host::{Command, Host};
use serde_json::json;
use tempfile::TempDir;

use super::*;

/// Says of every file that it would relabel it, until it was told to (policycoreutils, setfiles.c and restore.c).
const RESTORECON: &str = r#"#!/bin/sh
[ "$1" != -n ] || { shift 2; for f; do grep -qxF "$f" $R/right || echo "Would relabel $f from system_u:object_r:user_tmp_t:s0 to system_u:object_r:tftpdir_rw_t:s0"; done; exit; }
echo "$1" >>$R/right
"#;

#[test]
fn files_get_the_label_of_the_place() {
    let root = TempDir::new().unwrap();
    for directory in ["srv/tftp/grub", "sys/fs/selinux", "bin"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    for file in ["sys/fs/selinux/enforce", "right", "srv/tftp/grub/grub.cfg"] {
        fs::write(root.path().join(file), "").unwrap();
    }
    let script = RESTORECON.replace("$R", root.path().to_str().unwrap());
    let install =
        Command::new("install").args(["-m", "755", "/dev/stdin"]).arg(root.path().join("bin/restorecon"));
    Host::local()
        .run(&install.stdin(script), &Deadline::after(std::time::Duration::from_secs(30)))
        .unwrap()
        .ok()
        .unwrap();
    for program in ["grep", "sh"] {
        std::os::unix::fs::symlink(
            Host::local().find(program).unwrap(),
            root.path().join("bin").join(program),
        )
        .unwrap();
    }

    let run = Run::for_tests();
    let host = Host::rooted(root.path(), vec![root.path().join("bin")]);
    let mut module = GrubMacConfig::on(host, local_disk(json!({})));
    let before = module.observe(&run).unwrap();
    let plan = module.plan(&before).unwrap();
    for step in plan.steps() {
        module.apply(&step.action, &before, &run).unwrap();
    }
    let right = fs::read_to_string(root.path().join("right")).unwrap();
    assert!(
        right.lines().count() == 6 && right.contains("/srv/tftp/grub/grub.cfg-02:a5:00:00:03:e9"),
        "{right}"
    );
    let after = module.observe(&run).unwrap();
    assert!(module.plan(&after).unwrap().is_empty());

    let one = "/srv/tftp/grub/grub.cfg-02:a5:00:00:03:e9";
    fs::write(root.path().join("right"), right.replace(one, "")).unwrap();
    let spoilt = module.observe(&run).unwrap();
    let plan = module.plan(&spoilt).unwrap();
    let change = plan.changes().next().unwrap();
    assert_eq!(change.field, "grub.cfg-02:a5:00:00:03:e9 selinux");
    assert!(matches!(module.proof(change, &spoilt), Proof::Mismatch { .. }));
    assert_eq!(module.proof(change, &after), Proof::Held);
}
