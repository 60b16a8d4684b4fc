//! Killed between the temporary file and the rename.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::json;

use crate::inventory::{Inventory, PROGRAM};

const TEXT: &str = "# mine\nlabel: web 1\n";

fn strace_is_here() -> bool {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    lab::present(works.is_ok_and(|output| output.status.success()), "strace")
}

/// A system call that is never carried out: the process is killed on its way into the `nth` of its kind.
fn killed_at(inventory: &Inventory, call: &str, nth: usize) {
    let arguments = inventory.arguments_file("web01", &json!({}));
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    let trace = format!("trace={call}");
    let before = ["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, PROGRAM];
    let output = inventory.command("strace", &before, arguments.path()).output().unwrap();
    assert_eq!(output.status.signal(), Some(9), "{call}: {output:?}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_kill_before_the_rename_breaks_nothing_and_the_next_run_leaves_nothing_of_it() {
    if !strace_is_here() {
        return;
    }
    for old in [None, Some(TEXT)] {
        let inventory = Inventory::of(&["web01"]);
        if let Some(text) = old {
            inventory.write("web01/identity.yml", text);
        }
        let before = inventory.files();
        killed_at(&inventory, "/^rename", 1);
        assert_eq!(
            inventory.identity("web01").as_deref(),
            old,
            "the old content or the new one, nothing else"
        );
        assert_eq!(inventory.files().len(), before.len() + 1, "the temporary file");

        let repaired = inventory.run("web01", &json!({}));
        assert_eq!(repaired["changed"], true, "{repaired}");
        assert_eq!(repaired["identity"]["vmid"], 1000);
        let names: Vec<_> = inventory.files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, [inventory.path("web01/identity.yml"), inventory.path("web01/vars.yml")]);
    }
}

#[test]
fn a_kill_after_the_rename_has_given_the_identity() {
    if !strace_is_here() {
        return;
    }
    let inventory = Inventory::of(&["web01"]);
    // The first one is of the temporary file, the second one of the directory after the rename.
    killed_at(&inventory, "fsync", 2);
    let written = inventory.identity("web01").expect("the whole file");
    let next = inventory.run("web01", &json!({}));
    assert_eq!((&next["identity"]["vmid"], &next["changed"]), (&json!(1000), &json!(false)), "{next}");
    assert_eq!(inventory.identity("web01"), Some(written));
}
