//! The module under the real `ansible-playbook`, from a `library` folder.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::{Site, house, through};

/// Plays the tasks of `tests/playbook.yml` that carry a tag.
fn play(site: &Site, folder: &Path, tag: &str) {
    let program = lab::pve::python().unwrap().with_file_name("ansible-playbook");
    let mut reach = through(&site.proxy, &json!({}));
    reach.as_object_mut().unwrap().retain(|key, _| !key.starts_with('_'));
    let variables = json!({"reach": reach, "ansible_connection": "local"});
    let output = Command::new(program)
        .args(["-i", "localhost,", "--tags", tag, "--extra-vars", &variables.to_string(), "playbook.yml"])
        .current_dir(folder)
        .env("ANSIBLE_LIBRARY", folder.join("library"))
        .env("ANSIBLE_HOME", folder.join("home"))
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("ANSIBLE_NOCOLOR", "1")
        .env_remove("ANSIBLE_CONFIG")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{told}");
    site.assert_nothing_leaks(&told);
}

#[test]
fn a_life_under_ansible_changes_only_what_it_must() {
    let folder = TempDir::with_prefix("anvil-play-").unwrap();
    std::fs::create_dir(folder.path().join("library")).unwrap();
    let module = env!("CARGO_BIN_EXE_proxmox_vm_clone");
    symlink(module, folder.path().join("library/proxmox_vm_clone")).unwrap();
    let playbook = lab::checkout().join("modules/proxmox_vm_clone/tests/playbook.yml");
    std::fs::copy(playbook, folder.path().join("playbook.yml")).unwrap();

    let site = Site::new(house());
    play(&site, folder.path(), "foretell");
    assert!(site.proxy.writes().is_empty());
    play(&site, folder.path(), "live");
    assert_eq!(site.pve.node_of(1101), None);
    crate::assert_no_orphans(&site.pve, 1101);
}
