//! Somebody else's collection uses our roles and modules by their full names.

use std::fs;
use std::path::Path;

use lab::checkout;
use lab::lab::Lab;
use lab::play::Play;
use tempfile::TempDir;

const FILES: [(&str, &str); 5] = [
    (
        "ansible_collections/acme/site/galaxy.yml",
        "namespace: acme\nname: site\nversion: 1.0.0\nreadme: README.md\nauthors: [acme]\n",
    ),
    (
        "ansible_collections/acme/site/roles/host/meta/main.yml",
        "dependencies:\n  - role: homelab.anvil.vm_identity\n    vm_identity_vmid_range: 1500-1599\n",
    ),
    (
        "ansible_collections/acme/site/roles/host/tasks/main.yml",
        r#"
- name: The address is reserved, by the module alone
  homelab.anvil.kea_reservation:
    mac: "{{ anvil_assigned_mac }}"
    ip: 127.20.30.77
    hostname: consumer
    api_host: "{{ anvil_opnsense_api.api_host }}"
    api_port: "{{ anvil_opnsense_api.api_port }}"
    api_key: "{{ anvil_opnsense_api.api_key }}"
    ca_path: "{{ anvil_opnsense_api.ca_path }}"
  delegate_to: localhost
  register: reserved
- name: The name, by the role
  ansible.builtin.include_role:
    name: homelab.anvil.dns_host
  vars:
    dns_host_name: consumer.acme.example
    dns_host_ip: "{{ reserved.reservation.ip_address }}"
"#,
    ),
    ("ansible_collections/acme/site/meta/runtime.yml", "requires_ansible: '>=2.16'\n"),
    ("play.yml", "- hosts: web01\n  gather_facts: false\n  roles:\n    - acme.site.host\n"),
];

#[test]
fn another_collection_uses_roles_and_modules_by_name() {
    let lab = Lab::start();
    let consumer = TempDir::new().unwrap();
    for (path, text) in FILES {
        let path = consumer.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let play = || run(&lab, consumer.path());
    let first = play().run().expect_success();
    assert!(first.of("web01").changed >= 3, "{:?}", first.recap);
    let live = lab.firewall().live_reservations();
    assert_eq!(
        (live[0].hw_address.as_str(), live[0].ip_address.as_str()),
        ("02:a5:00:00:05:dc", "127.20.30.77")
    );
    assert!(lab.firewall().live_records().iter().any(|record| record.name == "consumer.acme.example"));
    assert_eq!(play().run().expect_success().of("web01").changed, 0);
}

fn run<'a>(lab: &'a Lab, consumer: &Path) -> Play<'a> {
    let installed = checkout().join(".ansible/collections");
    let paths = format!("{}:{}", consumer.display(), installed.display());
    Play::new(lab, consumer.join("play.yml").to_str().unwrap()).env("ANSIBLE_COLLECTIONS_PATH", paths)
}
