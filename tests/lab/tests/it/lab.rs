//! The lab as a whole: what boots, where, and that nothing stays behind.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use deadline::{Deadline, Expired};
use lab::lab::{Lab, SUBNET};
use serde_json::Value;
use tempfile::TempDir;

const MAC: &str = "02:A5:00:00:03:E8";
const RESERVED: Ipv4Addr = Ipv4Addr::new(127, 20, 30, 21);

fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let found = Deadline::after(Duration::from_secs(20)).poll(|| Ok::<_, Expired>(probe()));
    found.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Clones and starts a VM past every module.
fn build(lab: &Lab) {
    let call = |method: &str, path: &str, form: &[(&str, &str)]| {
        lab.pve().call(method, path, form).unwrap();
    };
    call("POST", "/nodes/pve1/qemu/8001/clone", &[("newid", "1000"), ("name", "web01"), ("full", "1")]);
    let keys = lab.key().public.replace(' ', "%20").replace('+', "%2B").replace('/', "%2F");
    let net0 = format!("virtio={MAC},bridge=vmbr0");
    call("PUT", "/nodes/pve1/qemu/1000/config", &[("net0", &net0), ("sshkeys", &keys)]);
    call("PUT", "/nodes/pve1/qemu/1000/resize", &[("disk", "scsi0"), ("size", "64G")]);
    call("POST", "/nodes/pve1/qemu/1000/status/start", &[]);
}

fn ask_guest(lab: &Lab, address: Ipv4Addr, question: &str) -> String {
    let answer = Command::new("ssh")
        .args(["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
        .args(["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR", "-i"])
        .arg(&lab.key().private)
        .args(["-p", &lab.guest_port().to_string(), &address.to_string(), question])
        .output()
        .unwrap();
    String::from_utf8(answer.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_started_vm_comes_up_on_its_reserved_address_and_goes_down_with_it() {
    let lab = Lab::start();
    let reservation = [("hw_address", "02:a5:00:00:03:e8"), ("ip_address", "127.20.30.21")];
    lab.firewall().store_reservation(SUBNET, &reservation);
    lab::http::request(
        &lab.firewall().url(),
        "POST",
        "/api/kea/service/reconfigure",
        &[basic_auth(), "Content-Type: application/json".into()],
        "{}",
    )
    .unwrap();
    build(&lab);
    assert_eq!(eventually("the guest", || lab.guest_address(1000)), RESERVED, "{:?}", lab.events());
    assert_eq!(ask_guest(&lab, RESERVED, "hostname; df -P -k / | awk 'NR==2 {print $2}'"), "web01\n67108864");
    lab.pve().call("POST", "/nodes/pve1/qemu/1000/status/stop", &[]).unwrap();
    eventually("the guest's end", || lab.guest_address(1000).is_none().then_some(()));
    assert!(TcpStream::connect((RESERVED, lab.guest_port())).is_err());
}

#[test]
fn a_vm_without_a_reservation_gets_an_address_of_the_pool() {
    let lab = Lab::start();
    build(&lab);
    let address = eventually("the guest", || lab.guest_address(1000));
    assert!((200..=250).contains(&address.octets()[3]), "{address}");
}

#[test]
fn up_and_down_by_hand_leave_nothing_behind() {
    let state = TempDir::new().unwrap();
    let (mut lab, description) = up(state.path(), &[]);
    let url = description["proxmox"]["url"].as_str().unwrap().to_owned();
    assert!(lab::pve::call(&url, "GET", "/version", &[]).is_ok());
    let down = Command::new(env!("CARGO_BIN_EXE_lab")).args(["down", "--state"]).arg(state.path()).status();
    assert!(down.unwrap().success());
    assert!(lab.wait().unwrap().success());
    assert!(!state.path().join("lab.json").exists());
    assert!(lab::pve::call(&url, "GET", "/version", &[]).is_err());
}

#[test]
fn a_lab_ends_with_the_program_that_started_it() {
    let state = TempDir::new().unwrap();
    let (mut lab, _) = up(state.path(), &["--until-eof"]);
    drop(lab.stdin.take());
    assert!(lab.wait().unwrap().success());
    assert!(!state.path().join("lab.json").exists());
}

#[test]
fn an_interrupted_demo_ends_at_once_and_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_anvil-demo"))
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(demo.stdout.take().unwrap()).lines();
    assert!(said.by_ref().any(|line| line.unwrap().contains("ansible-playbook")), "the first run began");
    let servers = eventually("the play", || Some(children(demo.id())).filter(|all| all.len() >= 2));
    assert!(Command::new("kill").arg(demo.id().to_string()).status().unwrap().success());
    let mut last_words = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut last_words).unwrap();
    assert!(!demo.wait().unwrap().success());
    assert!(last_words.contains("interrupted"), "{last_words}");
    let gone = |pid: &String| !Path::new("/proc").join(pid).join("exe").exists();
    eventually("the end of its servers", || servers.iter().all(gone).then_some(()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_lab_takes_its_servers_along() {
    let state = TempDir::new().unwrap();
    let (mut lab, description) = up(state.path(), &[]);
    let fakepve = children(lab.id());
    assert_eq!(fakepve.len(), 1, "{description}");
    lab.kill().unwrap();
    lab.wait().unwrap();
    let gone = |pid: &String| !Path::new("/proc").join(pid).join("exe").exists();
    eventually("fakepve's end", || fakepve.iter().all(gone).then_some(()));
}

fn up(state: &Path, more: &[&str]) -> (std::process::Child, Value) {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["up", "--state"])
        .arg(state)
        .args(more)
        // A killed lab cannot clear up; so it goes with the test's directory.
        .env("TMPDIR", state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(lab.stdout.as_mut().unwrap().by_ref()).read_line(&mut line).unwrap();
    assert!(line.starts_with("the lab is up"), "{line}");
    let description = std::fs::read_to_string(state.join("lab.json")).unwrap();
    (lab, serde_json::from_str(&description).unwrap())
}

fn children(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// lab-key:lab-secret
fn basic_auth() -> String {
    "Authorization: Basic bGFiLWtleTpsYWItc2VjcmV0".into()
}
