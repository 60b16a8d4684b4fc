//! The role and its playbook under the real ansible-playbook, with the modules as binaries in a collection of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

const IDENTITIES: [(&str, &str); 2] = [("web01", "02:a5:00:00:03:e9"), ("db01", "02:a5:00:00:03:ea")];

/// A controller with the collection, an inventory with a boot server and two hosts, and what the boot server serves.
struct Controller {
    directory: TempDir,
    ansible_playbook: PathBuf,
}

impl Controller {
    /// `None`, said so, where something is missing.
    fn new() -> Option<Self> {
        let ansible_playbook =
            lab::pve::python().map(|python| python.with_file_name("ansible-playbook")).ok()?;
        let modules =
            ["grub_mac_config", "grub_dispatcher"].map(|name| Path::new(super::PROGRAM).with_file_name(name));
        let complete = ansible_playbook.exists() && modules.iter().all(|module| module.exists());
        if !lab::present(complete, "what this test needs (.venv of make setup, the binaries of cargo build)")
        {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("lab-grub-mac-").tempdir().unwrap();
        let collection = directory.path().join("ansible_collections/homelab/anvil");
        fs::create_dir_all(collection.join("plugins/modules")).unwrap();
        let checkout = lab::checkout();
        symlink(checkout.join("roles"), collection.join("roles")).unwrap();
        symlink(checkout.join("galaxy.yml"), collection.join("galaxy.yml")).unwrap();
        for module in modules {
            fs::copy(&module, collection.join("plugins/modules").join(module.file_name().unwrap())).unwrap();
        }
        fs::copy(checkout.join("playbooks/grub_mac.yml"), directory.path().join("grub_mac.yml")).unwrap();
        // That the loaded collection is the checkout's is not what is tried here.
        for folder in ["tasks", "grub"] {
            fs::create_dir(directory.path().join(folder)).unwrap();
        }
        fs::write(directory.path().join("tasks/check_collection.yml"), "[]\n").unwrap();
        fs::write(directory.path().join("ansible.cfg"), "[defaults]\n").unwrap();
        fs::write(directory.path().join("hosts"), "boot01 ansible_connection=local\nweb01\ndb01\n").unwrap();
        for (host, mac) in IDENTITIES {
            let folder = directory.path().join("host_vars").join(host);
            fs::create_dir_all(&folder).unwrap();
            fs::write(
                folder.join("identity.yml"),
                format!("anvil_assigned_vmid: 1001\nanvil_assigned_mac: \"{mac}\"\n"),
            )
            .unwrap();
        }
        Some(Self { directory, ansible_playbook })
    }

    /// Plays `grub_mac.yml` on boot01; what it printed, as `Err` when it failed.
    fn play(&self, variables: Value, arguments: &[&str]) -> Result<String, String> {
        let directory = self.directory.path();
        let variables = lab::program::with(
            &json!({"grub_mac_prefix_dir": directory.join("grub"), "grub_mac_become": false}),
            variables,
        );
        let output = Command::new(&self.ansible_playbook)
            .args([
                "-i",
                "hosts",
                "--limit",
                "boot01",
                "--tags",
                "grub-mac",
                "-e",
                &variables.to_string(),
                "grub_mac.yml",
            ])
            .args(arguments)
            .current_dir(directory)
            .env("ANSIBLE_COLLECTIONS_PATH", directory)
            .env("ANSIBLE_HOME", directory.join("home"))
            .env("ANSIBLE_CONFIG", directory.join("ansible.cfg"))
            .env("ANSIBLE_NOCOLOR", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(text) } else { Err(text) }
    }

    fn grub(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join("grub").join(name)).unwrap_or_default()
    }

    fn names(&self) -> usize {
        fs::read_dir(self.directory.path().join("grub")).unwrap().count()
    }
}

#[test]
fn the_role_writes_what_the_hosts_boot_and_takes_it_back() {
    let Some(controller) = Controller::new() else { return };
    let install = json!({
        "grub_mac_hosts": ["web01", "db01"], "grub_mac_mode": "install", "grub_mac_single_shot": true,
        "grub_mac_kernel": "/f/vmlinuz", "grub_mac_initrd": ["/f/initrd.img"],
        "grub_mac_arguments": "console=ttyS0,115200 inst.ks=http://10.0.0.2/{{ grub_mac_host }}.ks",
    });
    let checked = controller.play(install.clone(), &["--check", "--diff"]).unwrap();
    assert!(
        checked.contains("+  linux /f/vmlinuz console=ttyS0,115200 inst.ks=http://10.0.0.2/web01.ks"),
        "{checked}"
    );
    assert_eq!(controller.names(), 0);

    controller.play(install.clone(), &[]).unwrap();
    assert_eq!(controller.names(), 1 + 2 * 6);
    assert!(controller.grub("grub.cfg").contains("grub_dispatcher"));
    assert!(controller.grub("grub.cfg-02:a5:00:00:03:ea").contains("10.0.0.2/db01.ks"));
    let again = controller.play(install, &[]).unwrap();
    assert!(again.contains("changed=0"), "{again}");

    let disk = json!({"grub_mac_hosts": ["web01"], "grub_mac_prune": true});
    controller.play(disk, &[]).unwrap();
    assert_eq!(controller.names(), 1 + 6, "db01 is not listed any more");
    assert!(controller.grub("grub.cfg-02:a5:00:00:03:e9").contains("chainloader"));

    controller.play(json!({"grub_mac_hosts": ["web01"], "grub_mac_state": "absent"}), &[]).unwrap();
    assert_eq!(controller.names(), 1);
}

#[test]
fn an_address_that_is_not_the_identitys_is_refused() {
    let Some(controller) = Controller::new() else { return };
    let asked = json!({"grub_mac_hosts": ["db01", "web01"]});
    let vars = controller.directory.path().join("host_vars/web01/vars.yml");
    fs::write(&vars, "anvil_assigned_mac: \"02:a5:00:00:0b:ad\"\n").unwrap();
    let refused = controller.play(asked.clone(), &[]).unwrap_err();
    let flat = refused.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("expected the MAC address of web01") && flat.contains("02:a5:00:00:0b:ad"),
        "{refused}"
    );
    fs::write(&vars, "anvil_assigned_mac: \"02-A5-00-00-03-E9\"\n").unwrap();
    fs::rename(
        controller.directory.path().join("host_vars/db01/identity.yml"),
        controller.directory.path().join("kept"),
    )
    .unwrap();
    let refused = controller.play(asked, &[]).unwrap_err();
    assert!(refused.contains("expected the MAC address of db01"), "{refused}");
    let unknown = controller.play(json!({"grub_mac_hosts": ["web99"]}), &[]).unwrap_err();
    assert!(unknown.contains("unknown: web99"), "{unknown}");
    assert_eq!(controller.names(), 0, "nothing was written by any of them");
    controller.play(json!({"grub_mac_hosts": ["web01"]}), &[]).unwrap();
    assert_eq!(controller.names(), 1 + 6, "the same address in another form is the same");
}
