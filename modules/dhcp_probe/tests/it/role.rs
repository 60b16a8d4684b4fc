//! The role's question to the segment, by real ansible-playbook in a namespace with a real Kea on its cable.

use std::fs;
use std::os::unix::fs::symlink;

use lab::netns::Cable;
use tempfile::TempDir;

use crate::{MAC, kea_on_a_cable, possible};

const PLAY: &str = r"
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - ansible.builtin.include_role:
        name: homelab.anvil.dhcp_reservation
        tasks_from: probe
";

/// A collection with the role of this checkout and this module's binary.
fn project() -> TempDir {
    let directory = TempDir::new().unwrap();
    let collection = directory.path().join("ansible_collections/homelab/anvil");
    fs::create_dir_all(collection.join("plugins/modules")).unwrap();
    symlink(env!("CARGO_BIN_EXE_dhcp_probe"), collection.join("plugins/modules/dhcp_probe")).unwrap();
    symlink(lab::checkout().join("roles"), collection.join("roles")).unwrap();
    fs::write(directory.path().join("play.yml"), PLAY).unwrap();
    fs::write(directory.path().join("ansible.cfg"), "[defaults]\n").unwrap();
    directory
}

fn play(cable: &Cable, project: &TempDir, ip: &str) -> (bool, String) {
    let here = project.path();
    let output = cable
        .inside(lab::checkout().join(".venv/bin/ansible-playbook"))
        .args(["-i", "localhost,", "-e", "ansible_python_interpreter=auto_silent", "play.yml"])
        .args(["-e", &format!("dhcp_reservation_mac={MAC} dhcp_reservation_ip={ip}")])
        .args(["-e", "dhcp_reservation_next_server=10.91.0.5 dhcp_reservation_boot_file=grubx64.efi"])
        .args(["-e", &format!("dhcp_reservation_probe_interface={}", Cable::INSIDE)])
        .current_dir(here)
        .env("ANSIBLE_COLLECTIONS_PATH", here)
        .env("ANSIBLE_CONFIG", "ansible.cfg")
        .env("ANSIBLE_LOCAL_TEMP", here.join("tmp"))
        .env("ANSIBLE_REMOTE_TMP", here.join("tmp"))
        .env("ANSIBLE_NOCOLOR", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}

#[test]
fn the_role_asks_the_segment_and_fails_on_another_offer() {
    let ansible = lab::checkout().join(".venv/bin/ansible-playbook").exists();
    if !possible() || !lab::present(ansible, ".venv of make setup") {
        return;
    }
    let (_kea, cable) = kea_on_a_cable("10.91.0");
    let project = project();
    let (holds, text) = play(&cable, &project, "10.91.0.30");
    assert!(holds, "{text}");
    let (holds, text) = play(&cable, &project, "10.91.0.31");
    assert!(!holds && text.contains("`yiaddr` is") && text.contains("10.91.0.30"), "{text}");
}
