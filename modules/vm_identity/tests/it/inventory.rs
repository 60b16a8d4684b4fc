//! An inventory in a temporary directory, and the module run on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Inventory {
    root: TempDir,
}

impl Inventory {
    /// Each host a directory with `vars.yml`.
    pub(crate) fn of(hosts: &[&str]) -> Self {
        let inventory = Self { root: TempDir::with_prefix("anvil-inventory-").unwrap() };
        for host in hosts {
            inventory
                .write(&format!("{host}/vars.yml"), "vmid: \"{{ anvil_assigned_vmid | default(0) }}\"\n");
        }
        inventory
    }

    pub(crate) fn directory(&self) -> &Path {
        self.root.path()
    }

    /// A path below `host_vars`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory().join("host_vars").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn identity(&self, host: &str) -> Option<String> {
        fs::read_to_string(self.path(&format!("{host}/identity.yml"))).ok()
    }

    /// Every file below the inventory with its content.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(directory: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, files);
                } else {
                    files.push((path.clone(), fs::read(path).unwrap()));
                }
            }
        }
        let mut files = Vec::new();
        walk(self.directory(), &mut files);
        files.sort();
        files
    }

    /// Arguments for a host; `more` is added to them, and wins.
    pub(crate) fn arguments(&self, host: &str, more: &Value) -> Value {
        let mut arguments = json!({
            "host": host, "inventory_dir": self.directory(), "vmid_range": "1000-1099",
            "_ansible_inject_invocation": false, "_ansible_verbosity": 2,
        });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    }

    /// The command of one run; the home directory is the inventory's own.
    pub(crate) fn command(&self, program: &str, before: &[&str], arguments: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(before).arg(arguments).env_clear().env("HOME", self.root.path().join("home"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Writes the arguments to a file outside of the inventory.
    pub(crate) fn arguments_file(&self, host: &str, more: &Value) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, self.arguments(host, more).to_string()).unwrap();
        file
    }

    pub(crate) fn run(&self, host: &str, more: &Value) -> Value {
        let arguments = self.arguments_file(host, more);
        answer(&self.command(PROGRAM, &[], arguments.path()).output().unwrap())
    }

    /// All hosts at once, each a process of its own with the same further arguments; the answers in that order.
    pub(crate) fn run_all(&self, hosts: &[&str], more: &Value) -> Vec<Value> {
        let files: Vec<_> = hosts.iter().map(|host| self.arguments_file(host, more)).collect();
        let children: Vec<_> =
            files.iter().map(|file| self.command(PROGRAM, &[], file.path()).spawn().unwrap()).collect();
        children.into_iter().map(|child| answer(&child.wait_with_output().unwrap())).collect()
    }
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_vm_identity");

/// The one JSON object; the exit status must agree with it.
pub(crate) fn answer(output: &Output) -> Value {
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {output:?}");
    });
    assert_eq!(output.status.code(), Some(i32::from(result["failed"] == true)), "{result}");
    result
}

/// The VMIDs of answers that must all be successes.
pub(crate) fn vmids(answers: &[Value]) -> Vec<u64> {
    answers
        .iter()
        .map(|answer| answer["identity"]["vmid"].as_u64().unwrap_or_else(|| panic!("{answer}")))
        .collect()
}
