//! The program from outside, against real OpenSSH servers on loopback and a double of OPNsense.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

mod setting;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use lab::opnsense::{OpnsenseDouble, Release};
use serde_json::{Value, json};

use crate::setting::{Agent, Setting, free_port};

const MAC: &str = "02:a5:00:00:00:8c";

#[test]
fn a_new_guest_is_proved_and_pinned_and_the_second_run_changes_nothing() {
    let setting = Setting::new();
    let guest = setting.guest("web01").root_size_gib(62).start();
    let asked = setting.asks(&json!({"expected_hostname": "web01", "root_size_gib": 64}));

    let checked = setting.run(&with(&asked, &json!({"_ansible_check_mode": true, "_ansible_diff": true})));
    assert_eq!(
        (&checked["changed"], &checked["guest"]["root_size_gib"]),
        (&json!(true), &json!(62.0)),
        "{checked}"
    );
    assert!(checked["diff"].is_object(), "{checked}");
    assert_eq!(setting.known_hosts(), "", "check mode writes nothing");

    let first = setting.run(&asked);
    assert_eq!(first["changed"], true, "{first}");
    assert_eq!(first["guest"]["hostname"], "web01");
    assert_eq!(first["guest"]["address"], setting.address.to_string());
    assert_eq!(first["guest"]["host_keys"][0]["type"], "ssh-ed25519");
    assert_eq!(first["read_back"]["held"], json!(["known_hosts.ssh-ed25519"]));
    let key: Vec<&str> = guest.host_key().split(' ').take(2).collect();
    assert_eq!(setting.known_hosts(), format!("[{}]:{} {}\n", setting.address, setting.port, key.join(" ")));
    assert!(setting.openssh_logs_in(), "ssh(1) trusts the file");

    let second = setting.run(&asked);
    assert_eq!(second["changed"], false, "{second}");
    assert_eq!(second["guest"], first["guest"]);
}

#[test]
fn a_guest_that_comes_up_later_is_waited_for() {
    let setting = Setting::new();
    let result = thread::scope(|scope| {
        let running = scope.spawn(|| setting.run(&setting.asks(&json!({}))));
        let _guest = setting.guest("web01").start();
        running.join().unwrap()
    });
    assert_eq!(result["guest"]["hostname"], "web01", "{result}");
}

#[test]
fn nothing_that_listens_is_a_timeout_with_the_last_reason() {
    let setting = Setting::new();
    let result = setting.run(&setting.asks(&json!({"timeout": 1})));
    assert_eq!(result["error_code"], "timeout", "{result}");
    let reason = result["last_reason"].as_str().unwrap();
    assert!(reason.contains("refuses connections"), "{reason}");
    assert!(result["msg"].as_str().unwrap().contains(reason), "{result}");
    assert_eq!(setting.known_hosts(), "");
}

#[test]
fn something_else_than_ssh_on_the_port_is_a_timeout_that_says_so() {
    let setting = Setting::new();
    let listener = TcpListener::bind((setting.address, setting.port)).unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(drop));
    let result = setting.run(&setting.asks(&json!({"timeout": 1})));
    assert_eq!(result["error_code"], "timeout", "{result}");
    assert!(
        result["last_reason"].as_str().unwrap().contains("does not complete an SSH handshake"),
        "{result}"
    );
}

#[test]
fn a_refused_key_is_its_own_failure() {
    let setting = Setting::new();
    let _guest = setting.guest("web01").authorized_keys("").start();
    let result = setting.run(&setting.asks(&json!({"settle": 0})));
    assert_eq!(result["error_code"], "auth", "{result}");
    let msg = result["msg"].as_str().unwrap();
    assert!(msg.contains("is up and speaks SSH, but the server refused the key"), "{msg}");
    assert_eq!(setting.known_hosts(), "", "a guest that was not proved is not pinned");

    let result = setting.run(&setting.asks(&json!({"settle": 600, "timeout": 1})));
    assert_eq!(result["error_code"], "auth", "also when the time runs out before it settled: {result}");
}

#[test]
fn a_changed_host_key_stops_before_the_login_and_is_replaced_only_when_told() {
    let setting = Setting::new();
    let old = {
        let _guest = setting.guest("web01").start();
        setting.run(&setting.asks(&json!({})))
    };
    let others =
        "# mine\ndb01 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPOOoDQIL+fxfhF70nD41UPP0gFjEyB1hDTgrjtMVMlz\n";
    fs::write(setting.known_hosts_file(), others.to_owned() + &setting.known_hosts()).unwrap();
    let before = setting.known_hosts();

    let guest = setting.guest("web01").start();
    let result = setting.run(&setting.asks(&json!({})));
    assert_eq!(result["error_code"], "host_key_mismatch", "{result}");
    let old_key = &old["guest"]["host_keys"][0]["sha256"];
    assert_eq!(result["known_host"], json!({"type": "ssh-ed25519", "sha256": old_key, "line": 3}));
    assert_ne!(result["offered"]["sha256"], *old_key);
    let msg = result["msg"].as_str().unwrap();
    for part in
        [old_key.as_str().unwrap(), result["offered"]["sha256"].as_str().unwrap(), "replace_host_key: true"]
    {
        assert!(msg.contains(part), "{part} in {msg}");
    }
    assert_eq!(setting.known_hosts(), before);
    assert!(!guest.log().contains("Accepted"), "no login: {}", guest.log());

    let result = setting.run(&setting.asks(&json!({"replace_host_key": true})));
    assert_eq!(result["changed"], true, "{result}");
    assert!(setting.known_hosts().starts_with(others));
    assert!(!setting.known_hosts().contains(old["guest"]["host_keys"][0]["key"].as_str().unwrap()));
    assert!(setting.openssh_logs_in());
    let again = setting.run(&setting.asks(&json!({"replace_host_key": true})));
    assert_eq!(again["changed"], false, "{again}");
}

#[test]
fn another_guest_and_a_root_that_did_not_grow_are_named() {
    let setting = Setting::new();
    let _guest = setting.guest("db01").root_size_gib(31).start();
    let asked = json!({"expected_hostname": "web01", "root_size_gib": 64, "settle": 0});
    let result = setting.run(&setting.asks(&asked));
    assert_eq!(result["error_code"], "read_back_mismatch", "{result}");
    assert_eq!(
        result["mismatches"],
        json!([
            {"field": "hostname", "expected": "web01", "found": "db01"},
            {"field": "root_size_gib", "expected": "64 (at least 59.30)", "found": "31"},
        ])
    );
    assert!(result["msg"].as_str().unwrap().contains("growpart"), "{result}");
    assert_eq!(setting.known_hosts(), "", "a wrong guest is not pinned");

    let late = json!({"root_size_gib": 64, "settle": 600, "timeout": 2});
    let result = setting.run(&setting.asks(&late));
    assert_eq!(
        (&result["error_code"], &result["field"]),
        (&json!("read_back_mismatch"), &json!("root_size_gib"))
    );
}

#[test]
fn a_name_that_leads_elsewhere_is_named() {
    let setting = Setting::new();
    let _guest = setting.guest("web01").start();
    let result = setting.run(&setting.asks(&json!({"expected_address": "10.20.0.40"})));
    assert_eq!((&result["error_code"], &result["field"]), (&json!("read_back_mismatch"), &json!("address")));
    assert_eq!(result["found"], setting.address.to_string());
}

#[test]
fn a_guest_on_a_pool_lease_is_its_own_failure() {
    let setting = Setting::new();
    let pool = Ipv4Addr::new(127, 77, 0, 200);
    let firewall = OpnsenseDouble::builder()
        .release(Release::V26_7_2)
        .subnet("127.77.0.0/24", "127.77.0.200-127.77.0.210")
        .lease(&pool.to_string(), MAC)
        .start();
    let asked = setting.asks(&setting.with_firewall(&firewall, MAC));

    let guest = setting.guest_at("web01", pool).start();
    let result = setting.run(&asked);
    assert_eq!(result["error_code"], "wrong_address", "{result}");
    assert_eq!(
        (&result["lease_address"], &result["expected"]),
        (&json!(pool.to_string()), &json!(setting.address.to_string()))
    );
    let msg = result["msg"].as_str().unwrap();
    assert!(
        msg.contains(&pool.to_string()) && msg.contains(&setting.address.to_string()) && msg.contains(MAC),
        "{msg}"
    );

    drop(guest);
    let result = setting.run(&with(&asked, &json!({"timeout": 1})));
    assert_eq!(result["error_code"], "wrong_address", "also while it does not answer there: {result}");
    assert!(firewall.writes().is_empty());
}

#[test]
fn a_lease_of_the_right_address_is_no_reason_to_give_up() {
    let setting = Setting::new();
    let firewall = OpnsenseDouble::builder()
        .release(Release::V26_7_2)
        .subnet("127.77.0.0/24", "127.77.0.200-127.77.0.210")
        .lease(&setting.address.to_string(), MAC)
        .start();
    let result =
        setting.run(&with(&setting.asks(&setting.with_firewall(&firewall, MAC)), &json!({"timeout": 1})));
    assert_eq!(result["error_code"], "timeout", "{result}");
    assert!(!firewall.reads().is_empty());
}

#[test]
fn a_firewall_that_is_down_does_not_stop_the_wait() {
    let setting = Setting::new();
    let mut asked = with(
        &setting.asks(&json!({})),
        &json!({"mac": MAC, "api_host": "127.0.0.1", "api_port": free_port(Ipv4Addr::LOCALHOST)}),
    );
    asked = with(&asked, &json!({"api_key": "key", "api_secret": "Geheim-4711", "timeout": 1}));
    let result = setting.run(&asked);
    assert_eq!(result["error_code"], "timeout", "{result}");
    assert!(
        result["warnings"][0].as_str().unwrap().contains("leases of 02:a5:00:00:00:8c could not be read"),
        "{result}"
    );
    assert!(!result.to_string().contains("Geheim-4711"));
}

#[test]
fn many_guests_are_pinned_into_one_file_at_once() {
    let setting = Setting::new();
    let addresses: Vec<Ipv4Addr> = (1..=8).map(|n| Ipv4Addr::new(127, 77, 2, n)).collect();
    let _guests: Vec<_> = addresses.iter().map(|address| setting.guest_at("web", *address).start()).collect();
    thread::scope(|scope| {
        for address in &addresses {
            let asked = setting.asks(&json!({"host": address.to_string()}));
            scope.spawn(|| {
                let asked = asked;
                let result = setting.run(&asked);
                assert_eq!(result["changed"], true, "{result}");
            });
        }
    });
    let pinned = setting.known_hosts();
    assert_eq!(pinned.lines().count(), addresses.len(), "{pinned}");
    for address in addresses {
        assert!(pinned.contains(&format!("[{address}]:")), "{pinned}");
    }
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_asked() {
    let setting = Setting::new();
    for (wrong, option) in [
        (json!({"host": "web01/x"}), "host"),
        (json!({"host": "root@web01"}), "host"),
        (json!({"host": ""}), "host"),
        (json!({"host": "[::1]"}), "host"),
        (json!({"host": "10.20.0.40:22"}), "host"),
        (json!({"host": "web*"}), "host"),
        (json!({"host": "web01\nweb02"}), "host"),
        (json!({"user": ""}), "user"),
        (json!({"port": 0}), "port"),
        (json!({"port": 70000}), "port"),
        (json!({"expected_address": "10.20.0.400"}), "expected_address"),
        (json!({"expected_hostname": "web_01"}), "expected_hostname"),
        (json!({"root_size_gib": -1}), "root_size_gib"),
        (json!({"root_size_gib": 1, "root_size_tolerance_gib": -1}), "root_size_tolerance_gib"),
        (json!({"private_key_file": "/no/such/key"}), "private_key_file"),
        (json!({"private_key_file": "/tmp"}), "private_key_file"),
        (json!({"private_key_file": "/etc/passwd"}), "private_key_file"),
        (json!({"private_key_file": "/dev/zero"}), "private_key_file"),
        (json!({"known_hosts": ""}), "known_hosts"),
        (json!({"known_hosts": "/dev/null"}), "known_hosts"),
        (json!({"known_hosts": "/tmp"}), "known_hosts"),
        (json!({"known_hosts": "/no/such/directory/known_hosts"}), "known_hosts"),
        (json!({"mac": "02:a5:00:00:00"}), "mac"),
        (json!({"mac": 11_259_375}), "mac"),
        (json!({"mac": MAC, "api_host": "opnsense"}), "api_key"),
        (json!({"settle": -1}), "settle"),
    ] {
        let result = setting.run(&with(&setting.asks(&json!({})), &wrong));
        assert_eq!(result["error_code"], "bad_argument", "{wrong}: {result}");
        assert!(result["msg"].as_str().unwrap().contains(option), "{wrong}: {result}");
    }
}

#[test]
fn a_key_that_cannot_be_used_is_a_bad_argument_and_the_passphrase_is_never_shown() {
    let setting = Setting::new();
    let _guest = setting.guest("web01").start();
    let nonsense = setting.path("nonsense");
    fs::write(&nonsense, "-----BEGIN OPENSSH PRIVATE KEY-----\nno key\n").unwrap();
    let asked = json!({"private_key_file": nonsense, "private_key_passphrase": "Geheim-4711", "_ansible_verbosity": 4});
    let result = setting.run(&with(&setting.asks(&json!({})), &asked));
    assert_eq!(result["error_code"], "bad_argument", "{result}");
    assert!(!result.to_string().contains("Geheim-4711"), "{result}");
}

#[test]
fn without_a_file_the_agent_has_the_keys() {
    let setting = Setting::new();
    let _guest = setting.guest("web01").start();
    let asked = with(&setting.asks(&json!({})), &json!({"private_key_file": null}));
    assert_eq!(setting.run(&asked)["error_code"], "bad_argument", "no agent");
    let agent = Agent::start(&setting);
    let result = setting.run_with(&asked, Some(&agent));
    assert_eq!(result["error_code"], "bad_argument", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("the SSH agent holds no key"), "{result}");
    agent.add(&setting);
    let result = setting.run_with(&asked, Some(&agent));
    assert_eq!(result["guest"]["hostname"], "web01", "{result}");
}

/// The first object with the second one's members over it.
fn with(first: &Value, second: &Value) -> Value {
    let mut merged = first.as_object().unwrap().clone();
    merged.extend(second.as_object().unwrap().clone());
    merged.into()
}
