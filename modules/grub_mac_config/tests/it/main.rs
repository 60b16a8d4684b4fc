//! The program from outside, on a directory of its own, with the real grub-script-check.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

mod role;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use lab::program::{Program, with};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_grub_mac_config");
const MAC: &str = "02:a5:00:00:03:e9";
const OTHER_MAC: &str = "02:A5:00:00:03:EA";

/// A directory with a `grub.cfg`, as a TFTP server has it.
struct Server {
    directory: TempDir,
    program: Program,
}

impl Server {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("lab-tftp-").tempdir().unwrap();
        fs::write(directory.path().join("grub.cfg"), "set timeout=30\n").unwrap();
        Self { directory, program: Program::new(PROGRAM) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self, further: Value) -> Value {
        with(&json!({"prefix_dir": self.directory.path()}), further)
    }

    fn install(&self, host: &str, mac: &str) -> Value {
        self.options(json!({
            "host": host, "mac": mac, "mode": "install", "single_shot": true, "kernel": "http://10.0.0.2/f/vmlinuz",
            "initrd": "/f/initrd.img", "arguments": ["ip=dhcp", "inst.ks=http://10.0.0.2/ks?h=web01&x=1"],
        }))
    }

    fn local_disk(&self, host: &str, mac: &str) -> Value {
        self.options(json!({"host": host, "mac": mac, "mode": "local_disk"}))
    }

    fn run(&self, options: &Value) -> Value {
        self.program.run(options).done()
    }

    /// Name, content, mode and owner of everything that is there.
    fn everything(&self) -> Vec<(String, Vec<u8>, u32, u32)> {
        everything(self.directory.path())
    }

    fn names(&self) -> Vec<String> {
        self.everything().into_iter().map(|(name, ..)| name).collect()
    }
}

fn everything(directory: &Path) -> Vec<(String, Vec<u8>, u32, u32)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries
        .map(|path| {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(&path).unwrap_or_default(), metadata.mode() & 0o7777, metadata.uid())
        })
        .collect();
    all.sort();
    all
}

fn has_checker() -> bool {
    lab::present(Path::new("/usr/bin/grub-script-check").exists(), "grub-script-check (grub-common)")
}

#[test]
fn check_run_again_switch_and_undo() {
    if !has_checker() {
        return;
    }
    let server = Server::new();
    let untouched = server.everything();
    let asked = server.install("web01", MAC);

    let checked = server.program.check(&asked).done();
    assert_eq!(
        (&checked["changed"], &checked["grub_mac"]["script_checked"]),
        (&json!(true), &json!(true)),
        "{checked}"
    );
    assert!(
        checked["diff"][0]["after"].as_str().unwrap().contains("linux (http,10.0.0.2)/f/vmlinuz"),
        "{checked}"
    );
    assert_eq!(server.everything(), untouched, "check mode only reads");

    let first = server.run(&asked);
    assert_eq!(first["read_back"]["held"].as_array().unwrap().len(), 6, "{first}");
    assert_eq!(first["grub_mac"], checked["grub_mac"]);
    let contents: Vec<Vec<u8>> = first["grub_mac"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| fs::read(server.path(name.as_str().unwrap())).unwrap())
        .collect();
    assert!(contents.len() == 6 && contents.iter().all(|content| *content == contents[0]));
    assert!(
        server
            .everything()
            .iter()
            .filter(|(name, ..)| name != "grub.cfg")
            .all(|(_, _, mode, _)| *mode == 0o644)
    );

    let installed = server.everything();
    assert_eq!(server.run(&asked)["changed"], false);
    assert_eq!(server.everything(), installed);

    let switched = server.run(&with(&asked, json!({"mode": "local_disk"})));
    assert_eq!((&switched["changed"], &switched["grub_mac"]["mode"]), (&json!(true), &json!("local_disk")));
    assert!(fs::read_to_string(server.path("grub.cfg-02:a5:00:00:03:e9")).unwrap().contains("chainloader"));

    let moved = server.run(&server.local_disk("web01", OTHER_MAC));
    assert_eq!(moved["grub_mac"]["macs"], json!(["02:a5:00:00:03:ea"]));
    assert!(server.names().len() == 7 && !server.names().contains(&"grub.cfg-02:a5:00:00:03:e9".to_owned()));

    let gone = server.options(json!({"host": "web01", "state": "absent"}));
    assert_eq!(server.program.check(&gone).done()["changed"], true);
    assert_eq!(server.run(&gone)["changed"], true);
    assert_eq!(server.everything(), untouched);
    assert_eq!(server.run(&gone)["changed"], false);
}

#[test]
fn a_script_that_grub_cannot_read_is_refused_with_its_words() {
    if !has_checker() {
        return;
    }
    let server = Server::new();
    let asked = server.options(json!({
        "host": "web01", "mac": MAC, "mode": "install", "single_shot": true, "template": "if true; then\n  linux /vmlinuz\n",
    }));
    let refused = server.program.run(&asked).failed();
    assert_eq!((&refused["error_code"], &refused["changed"]), (&json!("refused"), &json!(false)));
    assert!(refused["msg"].as_str().unwrap().contains("syntax error"), "{refused}");
    assert_eq!(server.names(), ["grub.cfg"]);
    assert_eq!(
        server.run(&with(&asked, json!({"template": "linux /vmlinuz\ninitrd /i\nboot"})))["changed"],
        true
    );
}

#[test]
fn files_of_somebody_else_stay_whatever_is_asked() {
    let server = Server::new();
    server.run(&server.install("web01", MAC));
    fs::write(server.path("grub.cfg-0A4D006F"), "set timeout=1\n").unwrap();
    fs::write(server.path("grub.cfg-01-02-a5-00-00-03-ea"), "# by hand\n").unwrap();
    symlink("grub.cfg", server.path("grub.cfg-link")).unwrap();
    let foreign = ["grub.cfg", "grub.cfg-01-02-a5-00-00-03-ea", "grub.cfg-0A4D006F", "grub.cfg-link"];

    let refused = server.program.run(&server.local_disk("db01", OTHER_MAC)).failed();
    assert_eq!(refused["error_code"], "conflict", "{refused}");
    assert!(
        refused["msg"]
            .as_str()
            .unwrap()
            .contains("grub.cfg-01-02-a5-00-00-03-ea was written by somebody else"),
        "{refused}"
    );
    assert_eq!(server.names().len(), 10, "nothing was written");

    let pruned = server.run(&server.options(json!({"prune": true, "hosts": ["db01"]})));
    assert_eq!(pruned["changed"], true);
    assert_eq!(server.names(), foreign);
    assert_eq!(fs::read_to_string(server.path("grub.cfg-01-02-a5-00-00-03-ea")).unwrap(), "# by hand\n");
}

#[test]
fn files_belong_to_whom_grub_cfg_does() {
    let server = Server::new();
    if !lab::present(
        chown(server.path("grub.cfg"), Some(65534), Some(65534)).is_ok(),
        "a user who may give files away (root)",
    ) {
        return;
    }
    server.run(&server.local_disk("web01", MAC));
    assert!(server.everything().iter().all(|(.., uid)| *uid == 65534));
    let name = "grub.cfg-02:a5:00:00:03:e9";
    chown(server.path(name), Some(0), Some(0)).unwrap();
    fs::set_permissions(server.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    let repaired = server.run(&server.local_disk("web01", MAC));
    assert_eq!(repaired["read_back"]["held"], json!([format!("{name} mode"), format!("{name} owner")]));
    assert_eq!(server.run(&server.local_disk("web01", MAC))["changed"], false);
}

/// The program under strace, which makes the system call number `when` of a kind go wrong.
fn run_with_fault(server: &Server, inject: &str, options: &Value) -> std::process::Output {
    let arguments = server.directory.path().with_extension("json");
    fs::write(&arguments, options.to_string()).unwrap();
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", inject, PROGRAM])
        .arg(&arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    fs::remove_file(arguments).unwrap();
    output
}

#[test]
fn a_run_that_is_killed_between_two_files_is_repaired_by_the_next() {
    if !lab::present(Path::new("/usr/bin/strace").exists(), "strace") {
        return;
    }
    let server = Server::new();
    server.run(&server.install("web01", MAC));
    let asked = server.local_disk("web01", OTHER_MAC);
    for syscall in ["/^unlink", "/^rename"] {
        let killed = run_with_fault(&server, &format!("inject={syscall}:signal=KILL:when=3"), &asked);
        assert!(killed.stdout.is_empty() && !killed.status.success(), "{killed:?}");
    }
    // What a killed run was writing at that moment stays behind, and no loader asks for it.
    let names = server.names();
    assert!(names.iter().filter(|name| name.starts_with("grub.cfg-")).count() < 6, "{names:?}");
    assert_eq!(server.run(&asked)["changed"], true);
    assert_eq!(server.names().iter().filter(|name| name.starts_with("grub.cfg-")).count(), 6);
    assert_eq!(server.run(&asked)["changed"], false);
}

#[test]
fn a_disk_that_is_full_leaves_each_file_whole() {
    if !lab::present(Path::new("/usr/bin/strace").exists(), "strace") {
        return;
    }
    let server = Server::new();
    server.run(&server.install("web01", MAC));
    // Each file is synced, and then its directory: the third file's.
    let output =
        run_with_fault(&server, "inject=fsync:error=ENOSPC:when=5", &server.local_disk("web01", MAC));
    let failed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&failed["error_code"], &failed["changed"]),
        (&json!("command_failed"), &json!(true)),
        "{failed}"
    );
    assert_eq!(failed["written"].as_array().unwrap().len(), 2, "{failed}");
    assert!(failed["msg"].as_str().unwrap().contains("syncing the temporary file failed"), "{failed}");
    assert_eq!(server.names().len(), 7, "no temporary file stays");
    assert_eq!(
        server.run(&server.local_disk("web01", MAC))["read_back"]["held"].as_array().unwrap().len(),
        4
    );
}

#[test]
fn two_controllers_at_once_leave_what_one_of_them_asked_for() {
    let server = Server::new();
    let asked = [server.install("web01", MAC), server.local_disk("web01", OTHER_MAC)];
    thread::scope(|scope| {
        for options in &asked {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..10 {
                    server.run(options);
                }
            });
        }
        for number in 0..4 {
            let (server, host) = (&server, format!("db{number}"));
            scope.spawn(move || server.run(&server.local_disk(&host, &format!("02:a5:00:00:0a:0{number}"))));
        }
    });
    let of_web01: Vec<_> = server
        .everything()
        .into_iter()
        .filter(|(_, content, ..)| String::from_utf8_lossy(content).contains("host web01,"))
        .collect();
    assert_eq!(of_web01.len(), 6);
    assert!(
        of_web01.iter().all(|(_, content, ..)| *content == of_web01[0].1),
        "six times the same, of one of the two"
    );
    assert_eq!(server.names().len(), 1 + 6 + 4 * 6);
}

#[test]
fn a_controller_that_waits_says_for_what() {
    let server = Server::new();
    let held = fs::File::open(server.directory.path()).unwrap();
    held.lock().unwrap();
    let refused = server.program.run(&with(&server.local_disk("web01", MAC), json!({"timeout": 1}))).failed();
    assert_eq!(refused["error_code"], "timeout", "{refused}");
    assert_eq!(
        server.program.check(&server.local_disk("web01", MAC)).done()["changed"],
        true,
        "who only looks does not wait"
    );
    drop(held);
    assert_eq!(server.run(&server.local_disk("web01", MAC))["changed"], true);
}
