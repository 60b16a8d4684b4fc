//! The program from outside, with the real grub-script-check.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use lab::program::{Program, with};
use serde_json::{Value, json};
use tempfile::TempDir;

const MENU: &[u8] = b"set default=1\nset timeout=30\r\nmenuentry 'caf\xe9' {\n  linux /vmlinuz\n}\n";

struct Server {
    directory: TempDir,
    program: Program,
}

impl Server {
    /// `None`, said so, where the real checker is missing.
    fn new() -> Option<Self> {
        let checker = Path::new("/usr/bin/grub-script-check").exists();
        lab::present(checker, "grub-script-check (grub-common)").then(|| Self {
            directory: tempfile::Builder::new().prefix("lab-tftp-").tempdir().unwrap(),
            program: Program::new(env!("CARGO_BIN_EXE_grub_dispatcher")),
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("grub.cfg")
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    fn options(&self, further: Value) -> Value {
        with(&json!({"prefix_dir": self.directory.path()}), further)
    }

    fn run(&self, further: Value) -> Value {
        self.program.run(&self.options(further)).done()
    }
}

#[test]
fn check_run_again_and_undo_keep_every_other_byte() {
    let Some(server) = Server::new() else { return };
    fs::write(server.path(), MENU).unwrap();
    fs::set_permissions(server.path(), fs::Permissions::from_mode(0o664)).unwrap();

    let checked = server.program.check(&server.options(json!({}))).done();
    assert_eq!(checked["changed"], true, "{checked}");
    assert!(
        checked["diff"]["after"]
            .as_str()
            .unwrap()
            .contains("if [ -s \"$prefix/grub.cfg-$net_default_mac\" ]"),
        "{checked}"
    );
    assert_eq!(server.content(), MENU);

    let first = server.run(json!({}));
    assert_eq!(first["grub_dispatcher"], checked["grub_dispatcher"]);
    assert_eq!(
        first["grub_dispatcher"],
        json!({"path": server.path(), "state": "present", "menu_timeout": 30, "script_checked": true})
    );
    assert_eq!(first["warnings"], Value::Null);
    let content = server.content();
    assert!(content.starts_with(b"# BEGIN homelab.anvil grub_dispatcher\n") && content.ends_with(MENU));
    assert_eq!(fs::metadata(server.path()).unwrap().permissions().mode() & 0o7777, 0o664);

    assert_eq!(server.run(json!({}))["changed"], false);
    assert_eq!(server.run(json!({"menu_timeout": 5}))["changed"], true);
    assert_eq!(server.run(json!({"state": "absent"}))["grub_dispatcher"]["state"], "absent");
    assert_eq!(server.content(), MENU);
    assert_eq!(server.run(json!({"state": "absent"}))["changed"], false);
}

#[test]
fn without_a_grub_cfg_there_is_one_with_a_menu() {
    let Some(server) = Server::new() else { return };
    assert_eq!(server.run(json!({"state": "absent"}))["changed"], false);
    let made = server.run(json!({}));
    assert_eq!(
        (&made["grub_dispatcher"]["menu_timeout"], &made["warnings"]),
        (&json!(30), &Value::Null),
        "{made}"
    );
    assert_eq!(fs::metadata(server.path()).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(server.run(json!({}))["changed"], false);
}

#[test]
fn a_menu_that_asks_nobody_is_pointed_out() {
    let Some(server) = Server::new() else { return };
    fs::write(server.path(), "set timeout=0\nmenuentry 'x' { true; }\n").unwrap();
    assert!(server.run(json!({}))["warnings"][0].as_str().unwrap().contains("without asking"));
    fs::write(server.path(), "insmod all_video\n").unwrap();
    assert!(server.run(json!({}))["warnings"][0].as_str().unwrap().contains("stops at GRUB's prompt"));
}

#[test]
fn a_fault_that_was_there_before_is_a_warning() {
    let Some(server) = Server::new() else { return };
    fs::write(server.path(), "menuentry 'x' {\n").unwrap();
    let done = server.run(json!({}));
    assert!(done["warnings"][0].as_str().unwrap().contains("also without the block"), "{done}");
    assert_eq!(done["grub_dispatcher"]["script_checked"], false);
}

#[test]
fn broken_marks_and_a_missing_directory_are_refused() {
    let Some(server) = Server::new() else { return };
    fs::write(server.path(), "true\n# BEGIN homelab.anvil grub_dispatcher\n").unwrap();
    let refused = server.program.run(&server.options(json!({}))).failed();
    assert_eq!(refused["error_code"], "refused");
    assert!(refused["msg"].as_str().unwrap().contains("grub.cfg, line 2: "), "{refused}");
    let nowhere = json!({"prefix_dir": server.directory.path().join("grub")});
    assert_eq!(server.program.run(&nowhere).failed()["error_code"], "not_found");
    assert_eq!(server.program.run(&json!({"prefix_dir": "grub"})).failed()["error_code"], "bad_argument");
}

#[test]
fn two_controllers_at_once_make_one_block() {
    let Some(server) = Server::new() else { return };
    fs::write(server.path(), MENU).unwrap();
    thread::scope(|scope| {
        for timeout in [5, 30, 60] {
            let server = &server;
            scope.spawn(move || (0..5).for_each(|_| drop(server.run(json!({"menu_timeout": timeout})))));
        }
    });
    let text = String::from_utf8_lossy(&server.content()).into_owned();
    assert_eq!(text.matches("BEGIN homelab.anvil").count(), 1, "{text}");
    assert!(Command::new("grub-script-check").arg(server.path()).status().unwrap().success());
}
