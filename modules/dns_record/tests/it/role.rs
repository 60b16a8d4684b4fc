//! The role under the real ansible-playbook, on both backends, with the modules as binaries in a collection of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::dns::{Bind, TsigKey, Unbound, Zone};
use lab::opnsense::{KEY, SECRET};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Site, firewall, record};

const TSIG_SECRET: &str = "cm9sZS10c2lnLXNlY3JldC1vZi10aGUtem9uZQ==";

const PLAY: &str = "
- hosts: all
  gather_facts: false
  roles:
    - homelab.anvil.dns_host
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: homelab.anvil.dns_host
        tasks_from: verify
      when: not ansible_check_mode
";

/// A directory with the collection and the playbook.
struct Controller {
    directory: TempDir,
    ansible_playbook: PathBuf,
}

impl Controller {
    /// `None`, said so, where something is missing.
    fn new() -> Option<Self> {
        let ansible_playbook = lab::checkout().join(".venv/bin/ansible-playbook");
        let built = ["dns_record", "opnsense_reconfigure"]
            .map(|name| Path::new(env!("CARGO_BIN_EXE_dns_record")).with_file_name(name));
        let complete = ansible_playbook.exists() && built.iter().all(|path| path.exists());
        if !lab::present(complete, "what this test needs (.venv of make setup, the binaries of cargo build)")
        {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("lab-role-").tempdir().unwrap();
        let collection = directory.path().join("ansible_collections/homelab/anvil");
        let modules = collection.join("plugins/modules");
        fs::create_dir_all(&modules).unwrap();
        for name in ["roles", "galaxy.yml"] {
            symlink(lab::checkout().join(name), collection.join(name)).unwrap();
        }
        for path in &built {
            // Ansible copies a module for every task: without symbols that is quick.
            let to = modules.join(path.file_name().unwrap());
            assert!(Command::new("strip").arg("-o").args([&to, path]).status().unwrap().success());
        }
        fs::write(directory.path().join("play.yml"), PLAY).unwrap();
        fs::write(directory.path().join("ansible.cfg"), "[defaults]\n").unwrap();
        Some(Self { directory, ansible_playbook })
    }

    /// Plays the role for two hosts with these addresses, and returns what was printed and whether it went well.
    fn play(&self, variables: &Value, addresses: [&str; 2], arguments: &[&str]) -> (String, bool) {
        let host = |number: usize| {
            json!({
                "ansible_connection": "local",
                "infrastructure": {"interfaces": {"eth0": {
                    "ip": addresses[number], "dns_name": format!("web0{}.example.net", number + 1),
                }}},
            })
        };
        let inventory = json!({"all": {"hosts": {"web01": host(0), "web02": host(1)}, "vars": variables}});
        let directory = self.directory.path();
        fs::write(directory.join("inventory.json"), inventory.to_string()).unwrap();
        let output = Command::new(&self.ansible_playbook)
            .args(["-i", "inventory.json", "play.yml"])
            .args(arguments)
            .current_dir(directory)
            .env("ANSIBLE_COLLECTIONS_PATH", directory)
            .env("ANSIBLE_HOME", directory.join("home"))
            .env("ANSIBLE_CONFIG", "ansible.cfg")
            .env("ANSIBLE_LOCAL_TEMP", directory.join("tmp"))
            .env("ANSIBLE_REMOTE_TMP", directory.join("tmp"))
            .env("ANSIBLE_NOCOLOR", "1")
            .env("XDG_STATE_HOME", directory)
            .env("OPNSENSE_API_SECRET", SECRET)
            .env("RFC2136_TSIG_SECRET", TSIG_SECRET)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!text.contains(SECRET) && !text.contains(TSIG_SECRET), "{text}");
        (text, output.status.success())
    }

    fn done(&self, variables: &Value, addresses: [&str; 2], arguments: &[&str]) -> String {
        let (text, success) = self.play(variables, addresses, arguments);
        assert!(success, "{text}");
        text
    }
}

fn changed_hosts(output: &str) -> usize {
    output.lines().filter(|line| line.contains("changed=") && !line.contains("changed=0")).count()
}

#[test]
fn hosts_get_their_names_by_signed_updates() {
    if !lab::present(lab::dns::installed(), "BIND, Knot and Unbound (bind9, bind9-dnsutils, knot, unbound)") {
        return;
    }
    let Some(controller) = Controller::new() else { return };
    let key = TsigKey { name: "anvil", algorithm: "hmac-sha512", secret: TSIG_SECRET };
    let zone = |name| Zone { name, records: "", options: "allow-update { key anvil; };" };
    let names = ["example.net", "20.10.in-addr.arpa"];
    let bind = Bind::start(&[key], &names.map(zone)).unwrap();
    let unbound = Unbound::in_front_of(bind.port(), &names).unwrap();
    let variables = json!({
        "anvil_dns_backend": "rfc2136", "dns_host_ttl": 1,
        "anvil_dns_server": {
            "dns_server": "127.0.0.1", "dns_port": bind.port(), "key_name": "anvil", "key_algorithm": "hmac-sha512",
        },
        "anvil_resolver": "127.0.0.1", "dns_host_resolver_port": unbound.port(),
    });
    let addresses = ["10.20.0.21", "10.20.0.22"];
    let output = controller.done(&variables, addresses, &["--check", "--diff"]);
    assert_eq!(changed_hosts(&output), 2, "{output}");
    assert!(output.contains("+ptr.10.20.0.22: web02.example.net"), "{output}");
    assert!(bind.ask("web01.example.net", "A").unwrap().is_empty(), "check mode changes nothing");

    let output = controller.done(&variables, addresses, &[]);
    assert_eq!(changed_hosts(&output), 2, "{output}");
    assert_eq!(unbound.ask("web02.example.net", "A").unwrap(), ["10.20.0.22"]);
    assert_eq!(unbound.ask("21.0.20.10.in-addr.arpa", "PTR").unwrap(), ["web01.example.net."]);
    assert_eq!(changed_hosts(&controller.done(&variables, addresses, &[])), 0);

    let output = controller.done(&variables, ["10.20.0.31", "10.20.0.22"], &[]);
    assert_eq!(changed_hosts(&output), 1, "{output}");
    assert_eq!(bind.ask("web01.example.net", "A").unwrap(), ["10.20.0.31"]);

    let (output, success) = controller.play(&variables, ["10.20.0.22", "10.20.0.22"], &["--limit", "web01"]);
    assert!(!success && output.contains("10.20.0.22 belongs to web02.example.net"), "{output}");
}

#[test]
fn hosts_get_their_names_on_opnsense_and_the_resolver_has_to_answer_them() {
    if !lab::present(lab::dns::installed(), "BIND, Knot and Unbound (bind9, bind9-dnsutils, knot, unbound)") {
        return;
    }
    let Some(controller) = Controller::new() else { return };
    let site = Site::new(firewall());
    let data = ["web01 21", "web02 22"].map(|host| {
        let (name, last) = host.split_once(' ').unwrap();
        format!("local-data: \"{name}.example.net A 10.20.0.{last}\"\nlocal-data-ptr: \"10.20.0.{last} {name}.example.net\"")
    });
    let unbound = Unbound::with_data(lab::dns::free_port().unwrap(), &data).unwrap();
    let variables = json!({
        "anvil_opnsense_api": {
            "api_host": site.proxy.host(), "api_port": site.proxy.port(), "ca_path": site.proxy.ca_path(), "api_key": KEY,
        },
        "anvil_resolver": "127.0.0.1", "dns_host_resolver_port": unbound.port(),
    });
    let addresses = ["10.20.0.21", "10.20.0.22"];
    let output = controller.done(&variables, addresses, &["--check"]);
    assert!(changed_hosts(&output) > 0 && site.proxy.writes().is_empty(), "{output}");
    let output = controller.done(&variables, addresses, &[]);
    assert_eq!(changed_hosts(&output), 2, "{output}");
    let named =
        [record("web01.example.net", "A", "10.20.0.21"), record("web02.example.net", "A", "10.20.0.22")];
    assert!(named.iter().all(|one| site.live("A").contains(one)), "{:?}", site.live("A"));
    let reconfigures = site.proxy.writes().iter().filter(|one| one.path.contains("reconfigure")).count();
    assert_eq!(reconfigures, 1, "once for the batch");
    site.proxy.forget();
    assert_eq!(changed_hosts(&controller.done(&variables, addresses, &[])), 0);
    assert!(site.proxy.writes().is_empty());
}
