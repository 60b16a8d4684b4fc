//! The program from outside: on the logs of real servers, and on files.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::program::{Program, with};
use netboot::chain::State;
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_netboot_watch");

fn options(further: Value) -> Value {
    with(&json!({"mac": "02:a5:00:00:03:e9", "ip": "10.77.0.1"}), further)
}

/// Where the chapters can be played: the program that is missing otherwise is named.
fn can_play() -> bool {
    let programs = [
        "/usr/lib/systemd/systemd-journald",
        "/usr/bin/journalctl",
        "/usr/sbin/in.tftpd",
        "/usr/sbin/nginx",
        "/usr/bin/busybox",
    ];
    let installed = programs.iter().all(|program| Path::new(program).exists());
    lab::present(
        installed && lab::netns::possible(),
        "what real logs need (root, systemd, tftpd-hpa, nginx, busybox)",
    )
}

fn furnish(home: &Path) {
    for (name, size) in [
        ("tftp/ready", 1),
        ("tftp/grubx64.efi", 700),
        ("tftp/grub/grub.cfg", 10),
        ("tftp/vmlinuz", 3000),
        ("tftp/initrd.img", 90_000),
        ("www/ready", 1),
        ("www/ks.cfg", 10),
        ("www/Packages/a.rpm", 10),
        ("www/Packages/b.rpm", 10),
        ("www/keys/ssh/admin.pub", 10),
    ] {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'#'; size]).unwrap();
    }
    let folder = home.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/nginx-{kind};\n"))
        .concat();
    let config = format!(
        "daemon off; user root; pid {folder}/nginx.pid; events {{}}\n\
         http {{\n{temporary}access_log {folder}/access.log;\nserver {{ listen 10.77.0.1:80; root {folder}/www; }}\n}}\n"
    );
    fs::write(home.join("nginx.conf"), config).unwrap();
    let log = json!({"logs": [home.join("access.log")], "timeout": 60});
    fs::write(home.join("now.json"), options(log.clone()).to_string()).unwrap();
    for wanted in State::ALL.map(State::name).into_iter().chain(["served"]) {
        let waiting = with(&options(log.clone()), json!({"wait_for": wanted}));
        fs::write(home.join(format!("{wanted}.json")), waiting.to_string()).unwrap();
    }
}

#[test]
fn a_boot_is_followed_through_the_logs_of_real_servers() {
    if !can_play() {
        return;
    }
    // in.tftpd gives its root to nobody: the way there must be open.
    let home = tempfile::Builder::new().prefix("lab-watch-").tempdir().unwrap();
    Command::new("chmod").arg("755").arg(home.path()).status().unwrap();
    furnish(home.path());
    let script = lab::checkout().join("modules/netboot_watch/tests/it/chapters.sh");
    let output = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
        ])
        .args([&script, home.path(), Path::new(PROGRAM)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<&str> =
        answers.iter().map(|answer| answer["netboot"]["state"].as_str().unwrap()).collect();
    assert_eq!(
        states,
        [
            "no_dhcp",
            "menu_instead_of_install",
            "installing",
            "installing",
            "done",
            "reinstalling",
            "reinstalling"
        ],
        "{text}"
    );
    let netboot = |chapter: usize| &answers[chapter]["netboot"];
    assert_eq!(netboot(1)["rounds"][0]["missing"], json!(["grub.cfg-02:a5:00:00:03:e9"]));
    assert!(netboot(2)["served"].is_string(), "{}", netboot(2));
    assert_eq!(netboot(3)["rounds"].as_array().unwrap().len(), 2);
    assert_eq!(netboot(4)["rounds"][1]["packages"], 2, "also those of the log that was rotated");
    assert!(
        answers[..6].iter().all(|answer| answer["failed"].is_null() && answer["changed"] == false),
        "{text}"
    );
    let in_vain = &answers[6];
    assert_eq!((&in_vain["failed"], &in_vain["error_code"]), (&json!(true), &json!("conflict")));
    assert!(
        in_vain["msg"].as_str().unwrap().contains("Its state is `reinstalling`: 1 installations"),
        "{in_vain}"
    );
}

#[test]
fn a_wait_that_comes_to_nothing_says_the_state_and_the_cure() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("tftp.log");
    fs::write(
        &log,
        "2026-11-30T16:00:00Z boot dnsmasq-dhcp[1]: DHCPACK(eth0) 10.77.0.1 02:a5:00:00:03:e9 web01\n",
    )
    .unwrap();
    let asked = options(json!({
        "logs": [log], "journal": false, "since": "2026-11-30T15:00:00Z", "wait_for": "served", "timeout": 1,
    }));
    let program = Program::new(PROGRAM);
    let failed = program.run(&asked).failed();
    assert_eq!(
        (&failed["error_code"], &failed["netboot"]["state"]),
        (&json!("timeout"), &json!("no_tftp")),
        "{failed}"
    );
    assert!(failed["msg"].as_str().unwrap().contains("set next_server of its reservation"), "{failed}");
    let checked = program.check(&asked).done();
    assert_eq!(
        (&checked["changed"], &checked["netboot"]["state"]),
        (&json!(false), &json!("no_tftp")),
        "check mode looks once"
    );
    let later =
        program.run(&with(&asked, json!({"since": "2026-11-30T16:30:00Z", "wait_for": "no_dhcp"}))).done();
    assert_eq!(later["netboot"]["state"], "no_dhcp", "what was before does not count");
}

#[test]
fn a_log_that_is_not_there_is_named() {
    let asked = options(json!({"logs": ["/no/such/access.log"], "journal": false}));
    let failed = Program::new(PROGRAM).run(&asked).failed();
    assert_eq!(
        (&failed["error_code"], &failed["log"]),
        (&json!("not_found"), &json!("/no/such/access.log")),
        "{failed}"
    );
}

#[test]
fn every_state_has_a_chapter_in_the_troubleshooting_page() {
    let page = fs::read_to_string(lab::checkout().join("docs/troubleshooting.md")).unwrap();
    let chapters: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`')).collect();
    assert_eq!(chapters, State::ALL.map(State::name));
}
