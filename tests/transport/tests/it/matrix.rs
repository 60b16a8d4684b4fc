//! Every supported end of the range of ansible-core, over every way to a target.

use serde_json::json;

use crate::core::Core;
use crate::site::{DEPLOY, Site, isolated};

const TASKS: &str = r#"
- name: plain
  homelab.anvil.anvil_ping: {data: hello}
- name: root
  homelab.anvil.anvil_ping:
  become: true
- name: nobody
  homelab.anvil.anvil_ping:
  become: true
  become_user: nobody
- name: check mode
  homelab.anvil.anvil_ping:
  check_mode: true
  diff: true
- name: environment
  homelab.anvil.anvil_ping:
  environment: {ANVIL_PING_DATA: "it's $HOME, \"quoted\"", OTHER: 5}
- name: delegated
  homelab.anvil.anvil_ping:
  delegate_to: localhost
- name: date
  homelab.anvil.anvil_ping: {data: 2026-01-31}
- name: vault
  homelab.anvil.anvil_ping:
    data: !vault |
      $ANSIBLE_VAULT;1.1;AES256
      33373836323966666262373862366132653861303135366337656561633636623538313135363533
      3761353439643664346138373563613637663933386536340a633538303766306565383039386365
      36363162323962353863663938393266663465656139343535303961633763313465646536616161
      3238346461363766320a393137313037653633383761363338383538663163336262643466383962
      3237
- name: template
  homelab.anvil.anvil_ping: {data: "{{ 'left ' ~ '{{ 1 + 1 }}' }}"}
- name: secret
  homelab.anvil.anvil_ping: {data: "{{ hidden }} is hidden", secret: "{{ hidden }}"}
- name: no_log
  homelab.anvil.anvil_ping: {data: "{{ hidden }}"}
  no_log: true
- name: crash
  homelab.anvil.anvil_ping: {data: crash}
  ignore_errors: true
- name: unknown option
  homelab.anvil.anvil_ping: {date: today}
  ignore_errors: true
- name: group defaults
  homelab.anvil.anvil_ping:
  module_defaults: {group/homelab.anvil.all: {data: from the group}}
- name: async
  homelab.anvil.anvil_ping: {data: later}
  async: 30
  poll: 1
  vars: {ansible_python_interpreter: /usr/bin/python3}
- name: async without Python
  homelab.anvil.anvil_ping:
  async: 30
  poll: 1
  ignore_errors: true
"#;

fn check(core: fn() -> &'static Core, connection: &str) {
    let mut site = isolated!(Site::new());
    site.environment = vec![("ANSIBLE_BECOME_ALLOW_SAME_USER", "true".into())];
    let (mut target, user) = match connection {
        "ssh" => (site.ssh("deploy"), json!(["deploy", DEPLOY])),
        _ => (site.local(), json!(["root", 0])),
    };
    target["hidden"] = json!("Geheim-7151");
    let outcome = site.run(core(), &target, TASKS);

    let who = |task: &str| json!([outcome.ping(task)["user"], outcome.ping(task)["uid"]]);
    assert_eq!(who("plain"), user);
    assert_eq!(who("root"), json!(["root", 0]));
    assert_eq!(who("nobody"), json!(["nobody", 65534]));
    assert_eq!(who("check mode"), user);
    assert_eq!(who("delegated"), json!(["root", 0]));
    for (task, data) in [
        ("plain", "hello"),
        ("check mode", "pong"),
        ("environment", r#"it's $HOME, "quoted""#),
        ("date", "2026-01-31"),
        ("vault", "from the vault"),
        ("template", "left {{ 1 + 1 }}"),
        ("group defaults", "from the group"),
        ("async", "later"),
    ] {
        assert_eq!(outcome.ping(task)["data"], data, "{task}");
        if task != "async" {
            assert_eq!(outcome.ok(task)["changed"], false, "{task}");
        }
    }
    assert_eq!(outcome.ping("secret")["secret_given"], true);
    assert!(!outcome.output.contains("Geheim"), "{}", outcome.output);
    assert!(outcome.ok("no_log")["censored"].is_string(), "{}", outcome.ok("no_log"));

    let (code, msg) = outcome.failure("crash");
    assert_eq!(code, "internal");
    assert!(msg.contains("boom"), "{msg}");
    let (code, msg) = outcome.failure("unknown option");
    assert_eq!(code, "bad_argument");
    assert!(msg.contains("`data`"), "{msg}");
    let (_, msg) = outcome.failure("async without Python");
    assert!(msg.contains("async needs Python on the target"), "{msg}");
}

#[test]
fn oldest_core_local() {
    check(Core::oldest, "local");
}

#[test]
fn oldest_core_ssh() {
    check(Core::oldest, "ssh");
}

#[test]
fn newest_core_local() {
    check(Core::newest, "local");
}

#[test]
fn newest_core_ssh() {
    check(Core::newest, "ssh");
}
