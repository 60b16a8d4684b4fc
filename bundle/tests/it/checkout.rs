//! The first task of every play: is the loaded collection this checkout's, built and current?

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const COLLECTION: &str = "ansible_collections/homelab/anvil";
const PLAY: &str = "
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.import_tasks: tasks/check_collection.yml
";

/// A checkout with one source file, and what stands in its `.ansible/collections`.
struct Checkout {
    folder: TempDir,
}

impl Checkout {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in ["ansible.cfg", "playbooks/tasks/check_collection.yml", LOOKUP] {
            copy(&lab::checkout().join(file), &folder.path().join(file));
        }
        let this = Self { folder };
        this.write("playbooks/play.yml", PLAY);
        this.write("Cargo.toml", "[workspace]");
        this
    }

    fn rebuilt(self) -> Self {
        let collection = self.collection();
        self.install(&collection);
        self
    }

    /// What `make rebuild` leaves, as far as the check looks.
    fn install(&self, collection: &Path) {
        let hash = Command::new(venv("python")).arg(self.path().join(LOOKUP)).output().unwrap();
        let hash = String::from_utf8(hash.stdout).unwrap();
        let machine = std::env::consts::ARCH;
        write(&collection.join(format!("libexec/{machine}-linux/anvil-modules")), "");
        write(&collection.join("libexec/build.json"), &format!("{{\"sources\": \"{}\"}}", hash.trim()));
        write(&collection.join("MANIFEST.json"), "{\"collection_info\": {\"version\": \"0.1.0\"}}");
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn collection(&self) -> PathBuf {
        self.path().join(".ansible/collections").join(COLLECTION)
    }

    fn write(&self, file: &str, text: &str) {
        write(&self.path().join(file), text);
    }

    /// Plays the check; what it says when it stops the play.
    fn complaint(&self) -> Option<String> {
        self.play(&self.path().join("playbooks/play.yml").display().to_string(), None)
    }

    fn play(&self, playbook: &str, collections_path: Option<&Path>) -> Option<String> {
        let mut ansible = Command::new(venv("ansible-playbook"));
        ansible
            .current_dir(self.path())
            .args(["--inventory", "localhost,", playbook])
            .env("ANSIBLE_CONFIG", self.path().join("ansible.cfg"))
            .env("ANSIBLE_STDOUT_CALLBACK", "ansible.builtin.default")
            .env("ANSIBLE_CALLBACK_RESULT_FORMAT", "json")
            .env("ANSIBLE_HOME", self.path().join("home"))
            .env_remove("ANSIBLE_COLLECTIONS_PATH");
        if let Some(path) = collections_path {
            ansible.env("ANSIBLE_COLLECTIONS_PATH", path);
        }
        let output = ansible.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            assert!(text.contains("ok=1"), "{text}");
            return None;
        }
        let message = text.split_once("\"msg\": \"").and_then(|(_, rest)| rest.split_once("\"}"));
        Some(message.unwrap_or_else(|| panic!("{text}")).0.to_owned())
    }
}

const LOOKUP: &str = "playbooks/lookup_plugins/anvil_collection.py";

fn venv(program: &str) -> PathBuf {
    lab::checkout().join(".venv/bin").join(program)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn copy(from: &Path, to: &Path) {
    write(to, &fs::read_to_string(from).unwrap());
}

fn ready() -> bool {
    lab::present(venv("ansible-playbook").exists(), ".venv with ansible-core (make setup)")
}

#[test]
fn a_current_build_passes() {
    if !ready() {
        return;
    }
    assert_eq!(Checkout::new().rebuilt().complaint(), None);
}

#[test]
fn a_missing_build_is_not_built() {
    if !ready() {
        return;
    }
    let checkout = Checkout::new();
    let complaint = checkout.complaint().unwrap();
    assert_eq!(
        complaint,
        format!("homelab.anvil is not built: run `make rebuild` in {}", checkout.path().display())
    );
}

#[test]
fn sources_newer_than_the_build_are_stale() {
    if !ready() {
        return;
    }
    let checkout = Checkout::new().rebuilt();
    checkout.write("Cargo.toml", "[workspace]\nmembers = []");
    let complaint = checkout.complaint().unwrap();
    assert!(complaint.starts_with("stale: the sources in "), "{complaint}");
    assert!(complaint.contains("run `make rebuild`"), "{complaint}");
}

#[test]
fn a_changed_test_or_editor_file_makes_nothing_stale() {
    if !ready() {
        return;
    }
    let checkout = Checkout::new().rebuilt();
    checkout.write("modules/anvil_ping/tests/it/main.rs", "");
    checkout.write("modules/anvil_ping/src/.lib.rs.swp", "");
    checkout.write("playbooks/other.yml", "");
    assert_eq!(checkout.complaint(), None);
}

#[test]
fn another_copy_that_wins_is_shown_beside_the_expected_one() {
    if !ready() {
        return;
    }
    let checkout = Checkout::new().rebuilt();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join(COLLECTION);
    checkout.install(&other);

    let playbook = checkout.path().join("playbooks/play.yml").display().to_string();
    let complaint = checkout.play(&playbook, Some(elsewhere.path())).unwrap();

    assert!(complaint.starts_with("another copy of homelab.anvil wins. "), "{complaint}");
    assert!(complaint.contains(&format!("Loaded: {}. ", other.display())), "{complaint}");
    assert!(
        complaint.contains(&format!("this checkout's: {}. ", checkout.collection().display())),
        "{complaint}"
    );
    assert!(complaint.contains("ANSIBLE_COLLECTIONS_PATH="), "{complaint}");
}

#[test]
fn an_installed_release_checks_only_that_its_modules_are_there() {
    if !ready() {
        return;
    }
    let checkout = Checkout::new().rebuilt();
    let release = checkout.collection();
    for file in ["playbooks/play.yml", "playbooks/tasks/check_collection.yml", LOOKUP] {
        copy(&checkout.path().join(file), &release.join(file));
    }
    assert_eq!(checkout.play("homelab.anvil.play", None), None);

    fs::remove_dir_all(release.join("libexec")).unwrap();
    let complaint = checkout.play("homelab.anvil.play", None).unwrap();
    assert!(complaint.contains("holds no modules for"), "{complaint}");
}
