//! The role and its playbook under the real ansible-playbook, with the module as a binary in a collection of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use lab::program::with;
use lab::redfish::{Builder, PASSWORD, Quirk, RedfishDouble, Tree};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{ON, PATCH};

/// A BMC, and a directory with the collection and a copy of the playbook.
struct Controller {
    bmc: RedfishDouble,
    directory: TempDir,
    ansible_playbook: PathBuf,
}

impl Controller {
    /// `None`, said so, where ansible-core is missing.
    fn new(quirks: &[Quirk]) -> Option<Self> {
        let ansible_playbook = lab::pve::python().map(|python| python.with_file_name("ansible-playbook"));
        let is_there = ansible_playbook.as_ref().is_ok_and(|program| program.exists());
        if !lab::present(is_there, "ansible-core (make setup)") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let collection = directory.path().join("ansible_collections/homelab/anvil");
        fs::create_dir_all(collection.join("plugins/modules")).unwrap();
        let checkout = lab::checkout();
        symlink(checkout.join("roles"), collection.join("roles")).unwrap();
        symlink(checkout.join("galaxy.yml"), collection.join("galaxy.yml")).unwrap();
        let module = env!("CARGO_BIN_EXE_redfish_boot_once");
        fs::copy(module, collection.join("plugins/modules/redfish_boot_once")).unwrap();
        fs::copy(checkout.join("playbooks/boot_once.yml"), directory.path().join("boot_once.yml")).unwrap();
        // That the loaded collection is the checkout's is not what is tried here.
        fs::create_dir(directory.path().join("tasks")).unwrap();
        fs::write(directory.path().join("tasks/check_collection.yml"), "[]\n").unwrap();
        fs::write(directory.path().join("ansible.cfg"), "[defaults]\n").unwrap();
        let bmc = quirks.iter().cloned().fold(RedfishDouble::builder(Tree::idrac8()), Builder::quirk).start();
        Some(Self { bmc, directory, ansible_playbook: ansible_playbook.unwrap() })
    }

    fn variables(&self, others: Value) -> Value {
        let api = json!({
            "api_host": self.bmc.host(), "api_port": self.bmc.port(), "ca_path": self.bmc.ca_path(),
            "api_user": lab::redfish::USER, "api_password": PASSWORD,
        });
        let usual = json!({
            "bmc_boot_once_api": api, "bmc_boot_once_serial": "TAG1234",
            "bmc_boot_once_refuse_serials": ["PROD001"], "bmc_boot_once_refuse_macs": ["00:11:22:33:44:55"],
        });
        with(&usual, others)
    }

    /// Plays `boot_once.yml` for server1; the lines of its steps when it went well, else everything it printed.
    fn play(&self, others: Value) -> Result<Vec<String>, String> {
        let inventory = json!({"all": {"hosts": {"server1": self.variables(others)}}});
        let path = self.directory.path().join("inventory.json");
        fs::write(&path, inventory.to_string()).unwrap();
        let output = Command::new(&self.ansible_playbook)
            .arg("-i")
            .arg(&path)
            .arg(self.directory.path().join("boot_once.yml"))
            .current_dir(&self.directory)
            .env("ANSIBLE_COLLECTIONS_PATH", self.directory.path())
            .env("ANSIBLE_HOME", self.directory.path().join("home"))
            .env("ANSIBLE_CONFIG", self.directory.path().join("ansible.cfg"))
            .env("ANSIBLE_NOCOLOR", "1")
            .env_remove("REDFISH_PASSWORD")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!text.contains(PASSWORD), "{text}");
        if !output.status.success() {
            return Err(text);
        }
        let message = |line: &str| {
            let said = line.trim().strip_prefix(r#""msg": ""#)?.trim_end_matches('"');
            Some(said.replace(r#"\""#, r#"""#))
        };
        Ok(text.lines().filter_map(message).collect())
    }
}

const GUARD: &str = "guard: server1 must report the serial TAG1234; refused are 1 serials, 1 MAC addresses, 0 addresses, and this machine";
const NOTHING: &str = "plan: nothing was done; -e confirm=server1 does it";

#[test]
fn a_dry_run_says_each_step_and_the_confirmed_one_does_it() {
    let Some(controller) = Controller::new(&[]) else { return };
    let read = "read: system System.Embedded.1 (PowerEdge R630, CN7475158B0123, TAG1234) is Off; boot override Disabled, None";
    let system = "/redfish/v1/Systems/System.Embedded.1";
    let calls = [
        format!(
            r#"PATCH {system} {{"Boot": {{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}}}"#
        ),
        format!(r#"POST {system}/Actions/ComputerSystem.Reset {{"ResetType": "On"}}"#),
    ];
    let said = |word: &str| calls.iter().map(|call| format!("{word}: {call}")).collect::<Vec<_>>();

    let steps = controller.play(json!({})).unwrap();
    assert_eq!(
        steps,
        [&[GUARD.to_owned(), read.to_owned()], said("plan").as_slice(), &[NOTHING.to_owned()]].concat()
    );
    let other = controller.play(json!({"confirm": "server2"})).unwrap();
    assert_eq!(other, steps, "another name does nothing");
    assert!(controller.bmc.was_only_read());

    let steps = controller.play(json!({"confirm": "server1"})).unwrap();
    assert_eq!(steps, [&[GUARD.to_owned(), read.to_owned()], said("do").as_slice()].concat());
    assert_eq!(controller.bmc.boots(), ["Pxe"]);
    assert_eq!(controller.bmc.writes(), [PATCH.replace("PATCH 1", "PATCH System.Embedded.1").as_str(), ON]);

    let refused = controller.play(json!({"confirm": "server1"})).unwrap_err();
    assert!(refused.contains("the server is already on"), "{refused}");
    assert_eq!(controller.bmc.writes().len(), 2);
}

#[test]
fn without_a_bmc_or_a_login_there_is_still_a_plan_and_nothing_is_done() {
    let Some(controller) = Controller::new(&[]) else { return };
    let plan = [
        r#"plan: PATCH (the system) {"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}"#,
        r#"plan: POST (the system)/Actions/ComputerSystem.Reset {"ResetType": "On"}"#,
        NOTHING,
    ];
    for (api, reason) in [
        (
            json!({"api_host": "127.0.0.1", "api_port": 1, "api_user": "u", "api_password": PASSWORD}),
            "no connection",
        ),
        (json!({"api_host": "127.0.0.1", "api_port": 1, "api_user": "u"}), "has no login"),
    ] {
        let steps = controller.play(json!({"bmc_boot_once_api": api})).unwrap();
        assert_eq!(steps[0], GUARD);
        assert!(steps[1].starts_with("read: skipped: ") && steps[1].contains(reason), "{steps:?}");
        assert_eq!(steps[2..], plan);
        let failed = controller.play(json!({"bmc_boot_once_api": api, "confirm": "server1"})).unwrap_err();
        assert!(failed.contains("nothing was done: "), "{failed}");
    }
    assert_eq!(controller.bmc.log(), []);
}

#[test]
fn the_guard_is_on_and_refuses() {
    let Some(controller) = Controller::new(&[]) else { return };
    for (others, reason) in [
        (json!({"bmc_boot_once_refuse_macs": []}), "guard: server1 is refused"),
        (json!({"bmc_boot_once_serial": "TAG9999"}), "expected the serial TAG9999"),
        (
            json!({"bmc_boot_once_refuse_macs": ["24:6e:96:00:00:11"]}),
            "its network card 24:6e:96:00:00:11 is in",
        ),
        (json!({"bmc_boot_once_refuse_addresses": ["127.0.0.1"]}), "127.0.0.1 is in `refuse_addresses`"),
    ] {
        let refused = controller.play(with(&others, json!({"confirm": "server1"}))).unwrap_err();
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    assert!(controller.bmc.was_only_read());
}
