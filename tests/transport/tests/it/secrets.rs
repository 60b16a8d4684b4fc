//! Secrets are in no argument list, no file and no output.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::core::Core;
use crate::site::{Site, isolated};

const ARGUMENT: &str = "Geheim-7161";
const ENVIRONMENT: &str = "Geheim-7162";
const TASKS: &str = r#"
- name: plain
  homelab.anvil.anvil_ping: {secret: "{{ argument }}", data: "{{ argument }}"}
- name: environment
  homelab.anvil.anvil_ping: {data: "{{ surroundings }}"}
  environment: {ANVIL_PING_SECRET: "{{ surroundings }}"}
- name: become
  homelab.anvil.anvil_ping: {secret: "{{ argument }}"}
  environment: {ANVIL_PING_DATA: "{{ surroundings }}"}
  no_log: true
  become: true
  become_user: nobody
"#;

#[test]
fn secrets_leave_no_trace_on_the_way() {
    let mut site = isolated!(Site::new());
    let trace = |output: &str, more: &[&str]| -> Vec<String> {
        let start = ["strace", "-f", "-qq", "-s", "100000", "-e", "trace=execve", "-o", output];
        start.iter().chain(more).map(|&argument| argument.to_owned()).collect()
    };
    site.sshd_under(&trace(&site.text("server.strace"), &[]));
    // Quicker, but sudo is not allowed anything below it.
    site.wrapper = trace(&site.text("client.strace"), &["--seccomp-bpf"]);
    site.environment = vec![("ANSIBLE_VERBOSITY", "4".into()), ("ANSIBLE_KEEP_REMOTE_FILES", "1".into())];
    let mut target = site.ssh("deploy");
    target["argument"] = json!(ARGUMENT);
    target["surroundings"] = json!(ENVIRONMENT);

    let outcome = site.run(Core::newest(), &target, TASKS);

    for task in ["plain", "environment"] {
        assert_eq!(outcome.ping(task)["secret_given"], true);
    }
    outcome.ok("become");
    for (trace, program) in [("server.strace", "anvil-modules-"), ("client.strace", "BECOME-SUCCESS")] {
        assert!(fs::read_to_string(site.path(trace)).unwrap().contains(program), "{trace} shows what ran");
    }
    // Only the inventory of this test may hold them.
    fs::remove_file(site.path("inventory.json")).unwrap();
    for secret in [ARGUMENT, ENVIRONMENT] {
        assert!(!outcome.output.contains(secret), "{secret} is in the output:\n{}", outcome.output);
        assert_eq!(files_with(&site.path(""), secret), Vec::<String>::new(), "{secret}");
    }
}

#[test]
fn a_job_that_does_not_start_leaves_no_arguments_behind() {
    let mut site = isolated!(Site::new());
    let mut target = site.ssh("deploy");
    target["argument"] = json!(ARGUMENT);

    let outcome = site.run(
        Core::newest(),
        &target,
        "- name: job\n  homelab.anvil.anvil_ping: {secret: \"{{ argument }}\"}\n  async: 30\n  poll: 1\n  \
         ignore_errors: true\n  vars: {ansible_python_interpreter: /no/such/python}\n",
    );

    let (_, msg) = outcome.failure("job");
    assert!(msg.contains("async needs Python on the target"), "{msg}");
    assert_eq!(files_with(&site.path("home"), ARGUMENT), Vec::<String>::new());
}

/// Every file below the folder (traces of execve among them) that holds the text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.append(&mut files_with(&path, text));
        } else if kind.is_file() && String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text) {
            found.push(path.display().to_string());
        }
    }
    found
}
