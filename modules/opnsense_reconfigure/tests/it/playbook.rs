//! The three modules of the network step under real ansible-playbook, as binaries in `library/`: six hosts, forks,
//! one reconfigure a batch; check mode → run → again → another address → undo.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::kea::RealKea;
use lab::opnsense::{KEY, SECRET};
use lab::proxy::Proxy;
use serde_json::json;
use tempfile::TempDir;

use crate::{Site, firewall};

const HOSTS: usize = 6;

const PLAY: &str = r#"
- hosts: all
  gather_facts: false
  module_defaults:
    kea_reservation: &firewall
      api_host: "{{ fw_host }}"
      api_port: "{{ fw_port }}"
      api_key: "{{ fw_key }}"
      ca_path: "{{ fw_ca }}"
    dns_record: *firewall
    opnsense_reconfigure: *firewall
  tasks:
    - kea_reservation:
        mac: "02:A5:00:00:01:{{ '%02x' % (number | int) }}"
        ip: "10.20.0.{{ offset | int + number | int }}"
        hostname: "{{ inventory_hostname }}"
        state: "{{ state }}"
        apply: false
      register: stored
    - dns_record:
        hostname: "{{ inventory_hostname }}"
        domain: example.net
        value: "10.20.0.{{ offset | int + number | int }}"
        state: "{{ state }}"
        apply: false
      register: named
    - opnsense_reconfigure:
        services: [kea, unbound]
        reservations: "{{ ansible_play_batch | map('extract', hostvars, 'stored') | map(attribute='reservation') | select }}"
        records: "{{ ansible_play_batch | map('extract', hostvars, 'named') | map(attribute='record') | select }}"
      run_once: true
"#;

/// On each backend at once, by as many forks as there are hosts.
const FORTY: &str = r#"
- hosts: all
  gather_facts: false
  tasks:
    - kea_reservation: &reservation
        api_host: "{{ fw_host }}"
        api_port: "{{ fw_port }}"
        api_key: "{{ fw_key }}"
        ca_path: "{{ fw_ca }}"
        mac: "02:A5:00:00:01:{{ '%02x' % (number | int) }}"
        ip: "10.20.0.{{ 20 + number | int }}"
        hostname: "{{ inventory_hostname }}"
        apply: false
        timeout: 300
      register: stored
    - kea_reservation:
        <<: *reservation
        backend: kea
        kea_url: "{{ kea_url }}"
        apply: true
    - opnsense_reconfigure:
        api_host: "{{ fw_host }}"
        api_port: "{{ fw_port }}"
        api_key: "{{ fw_key }}"
        ca_path: "{{ fw_ca }}"
        reservations: "{{ ansible_play_batch | map('extract', hostvars, 'stored') | map(attribute='reservation') }}"
      run_once: true
"#;

/// A directory with the playbook, its inventory and the modules.
struct Project {
    directory: TempDir,
    site: Site,
}

impl Project {
    /// `None`, having said why, where something is missing.
    fn new(play: &str, hosts: usize) -> Option<Self> {
        let ansible = lab::checkout().join(".venv/bin/ansible-playbook");
        let built = ["kea_reservation", "dns_record", "opnsense_reconfigure"].map(binary);
        let complete = ansible.exists() && built.iter().all(|path| path.exists());
        if !lab::present(complete, "what this test needs (.venv of make setup, the binaries of cargo build)")
        {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("lab-play-").tempdir().unwrap();
        let library = directory.path().join("library");
        fs::create_dir(&library).unwrap();
        for path in built {
            // Ansible copies a module for every task: without symbols that is quick.
            let to = library.join(path.file_name().unwrap());
            let stripped = Command::new("strip").arg("-o").args([&to, &path]).status();
            if !stripped.is_ok_and(|status| status.success()) {
                fs::copy(&path, &to).unwrap();
            }
        }
        let hosts =
            (1..=hosts).map(|number| format!("host{number} number={number} ansible_connection=local\n"));
        fs::write(directory.path().join("hosts"), hosts.collect::<String>()).unwrap();
        fs::write(directory.path().join("play.yml"), play).unwrap();
        fs::write(directory.path().join("ansible.cfg"), "[defaults]\n").unwrap();
        Some(Self { directory, site: Site::new(firewall()) })
    }

    /// Runs the play and returns what it printed, having checked that it ended well.
    fn play(&self, variables: &str, arguments: &[&str]) -> String {
        let directory = self.directory.path();
        let reach = format!(
            "fw_host={} fw_port={} fw_key={KEY} fw_ca={}",
            self.site.proxy.host(),
            self.site.proxy.port(),
            self.site.proxy.ca_path().display()
        );
        let output = Command::new(lab::checkout().join(".venv/bin/ansible-playbook"))
            .args(["-i", "hosts", "-f", "40", "-e", &reach, "-e", variables, "play.yml"])
            .args(arguments)
            .current_dir(directory)
            .env("XDG_STATE_HOME", directory)
            .env("OPNSENSE_API_SECRET", SECRET)
            .env("ANSIBLE_CONFIG", "ansible.cfg")
            .env("ANSIBLE_LOCAL_TEMP", directory.join("tmp"))
            .env("ANSIBLE_REMOTE_TMP", directory.join("tmp"))
            .env("ANSIBLE_NOCOLOR", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
        assert!(!text.contains(SECRET), "the secret is not shown");
        text
    }

    fn reconfigures(&self) -> usize {
        let count = self.site.reconfigures().iter().filter(|path| path.ends_with("reconfigure")).count();
        self.site.proxy.forget();
        count
    }

    /// The live reservations and address records.
    fn live(&self) -> (usize, usize) {
        let records = self.site.firewall.live_records();
        let addresses = records.iter().filter(|record| record.rr == "A").count();
        (self.site.firewall.live_reservations().len(), addresses)
    }
}

/// Another module's binary, built beside this one.
fn binary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_opnsense_reconfigure")).with_file_name(name)
}

fn changed_hosts(output: &str) -> usize {
    output.lines().filter(|line| line.contains("changed=") && !line.contains("changed=0")).count()
}

#[test]
fn a_batch_of_hosts_under_ansible() {
    let Some(project) = Project::new(PLAY, HOSTS) else { return };
    let present = "state=present offset=20";

    let output = project.play(present, &["--check", "--diff"]);
    assert_eq!(changed_hosts(&output), HOSTS, "{output}");
    assert!(output.contains("+reservation.hw_address: 02:a5:00:00:01:06"), "{output}");
    assert!(project.site.proxy.writes().is_empty(), "check mode only reads");

    project.play(present, &[]);
    assert_eq!(project.live(), (HOSTS, HOSTS));
    assert_eq!(project.reconfigures(), 2, "one a service");

    let output = project.play(present, &["-vvvv"]);
    assert_eq!(changed_hosts(&output), 0, "{output}");
    assert!(project.site.proxy.writes().is_empty());

    project.play("state=present offset=60", &[]);
    assert_eq!(project.live(), (HOSTS, HOSTS), "changed, none added");
    let reservations = project.site.firewall.live_reservations();
    assert!(reservations.iter().any(|one| one.ip_address == "10.20.0.61"), "in whichever order they came");
    assert!(reservations.iter().all(|one| one.ip_address != "10.20.0.21"));

    project.play("state=absent offset=60", &[]);
    assert_eq!(project.live(), (0, 0));
}

#[test]
fn forty_hosts_at_once_on_each_backend_lose_none() {
    const HOSTS: usize = 40;
    if !lab::present(lab::kea::installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)") {
        return;
    }
    let Some(project) = Project::new(FORTY, HOSTS) else { return };
    let kea = RealKea::start(&json!({"Dhcp4": {"subnet4": [{"id": 1, "subnet": "10.20.0.0/24"}]}})).unwrap();
    let behind = Proxy::to(&kea.url()).start();
    project.play(&format!("kea_url={}", behind.url()), &[]);
    let turns = |proxy: &Proxy| {
        let log = proxy.log();
        let turns = 1 + log.windows(2).filter(|two| two[0].connection != two[1].connection).count();
        let _ = writeln!(
            std::io::stderr(),
            "{HOSTS} hosts, {HOSTS} forks: {} requests in {turns} turns",
            log.len()
        );
        turns
    };
    assert_eq!(turns(&behind), HOSTS, "no two runs at once on plain Kea");
    assert_eq!(
        turns(&project.site.proxy),
        HOSTS + 1,
        "no two runs at once on OPNsense, then the reconfigure"
    );
    assert_eq!((project.live().0, project.reconfigures()), (HOSTS, 1), "one reconfigure a batch");
    let running = kea.command("config-get", None).unwrap();
    let held = &running["arguments"]["Dhcp4"]["subnet4"][0]["reservations"];
    assert_eq!(held.as_array().unwrap().len(), HOSTS);
}
