//! What Ansible sees of a module: one JSON object, the exit status, nothing else.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io::Write, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn probe() -> Command {
    let deps = env::current_exe().unwrap();
    let examples: PathBuf = deps.parent().unwrap().parent().unwrap().join("examples/probe");
    let mut command = Command::new(examples);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(command: &mut Command, stdin: &[u8]) -> Child {
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child
}

fn result(output: &Output) -> Value {
    let stdout = String::from_utf8(output.stdout.clone()).expect("valid UTF-8");
    assert_eq!(stdout.matches('\n').count(), 1, "one line: {stdout}");
    serde_json::from_str(&stdout).expect("one JSON object")
}

fn run(arguments: Value) -> (Value, Output) {
    let output = start(&mut probe(), arguments.to_string().as_bytes()).wait_with_output().unwrap();
    (result(&output), output)
}

#[test]
fn arguments_come_from_a_file_from_stdin_and_from_a_dash() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("args");
    fs::write(&file, r#"{"say": "hello"}"#).unwrap();
    for argument in [Some(file.to_str().unwrap()), None, Some("-")] {
        let mut command = probe();
        command.args(argument);
        let output = start(&mut command, br#"{"say": "hello"}"#).wait_with_output().unwrap();
        assert_eq!(result(&output)["probe"]["say"], "hello", "{argument:?}");
        assert!(output.status.success() && output.stderr.is_empty());
    }
}

#[test]
fn what_is_no_object_is_refused_without_being_shown() {
    for text in ["", "{\"token\": \"hunter2-hunter2\", ", "[1]", "\"hunter2-hunter2\"", "\u{1}"] {
        let output = start(&mut probe(), text.as_bytes()).wait_with_output().unwrap();
        let result = result(&output);
        assert_eq!(result["error_code"], "bad_argument", "{result}");
        assert!(!result.to_string().contains("hunter2"), "{result}");
        assert_eq!(output.status.code(), Some(1));
    }
    let not_utf8 = start(&mut probe(), b"{\"say\": \"\xff\"}").wait_with_output().unwrap();
    assert_eq!(result(&not_utf8)["error_code"], "bad_argument");
}

#[test]
fn a_missing_arguments_file_is_named() {
    let mut command = probe();
    command.arg("/nonexistent/args");
    let output = start(&mut command, b"").wait_with_output().unwrap();
    assert!(result(&output)["msg"].as_str().unwrap().contains("/nonexistent/args"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_unknown_option_is_refused_with_the_nearest_name() {
    let (result, output) = run(json!({"tokn": "x", "_ansible_future_key": {"a": 1}}));
    assert_eq!(result["error_code"], "bad_argument");
    assert_eq!(
        result["msg"],
        "Unsupported parameters for (homelab.anvil.probe) module: tokn. Supported parameters include: \
         act, mac, say, timeout, token, undo_file. Did you mean `token`?"
    );
    assert_eq!(output.status.code(), Some(1));
    let (ignored, _) = run(json!({"tokn": "x", "_ansible_ignore_unknown_opts": true}));
    assert_eq!(ignored["changed"], false);
}

#[test]
fn every_fault_is_told_at_once() {
    let (result, _) = run(json!({"tokn": "x", "act": "dance", "mac": 145_000, "timeout": "soon"}));
    assert_eq!(result["errors"].as_array().unwrap().len(), 4, "{result}");
    let msg = result["msg"].as_str().unwrap();
    assert!(
        msg.contains(
            "option `mac`: expected a MAC address as text, found the number 145000; quote it in the YAML"
        ),
        "{msg}"
    );
    assert!(msg.contains("option `act`: expected one of panic, wait, leak, write, found `dance`"), "{msg}");
}

#[test]
fn internal_keys_of_any_type_are_taken_leniently() {
    let (result, _) = run(json!({
        "say": "x", "_ansible_check_mode": null, "_ansible_verbosity": "three",
        "_ansible_tmpdir": null, "_ansible_selinux_special_fs": ["fuse"], "_ansible_no_log": "odd",
    }));
    assert_eq!(result["changed"], false, "{result}");
}

#[test]
fn null_is_absent_and_both_names_of_an_option_are_a_warning() {
    let (result, _) = run(json!({"say": null, "speak": "alias", "act": null}));
    assert_eq!(result["probe"]["say"], "alias");
    let (result, _) = run(json!({"say": "name", "speak": "alias"}));
    assert_eq!(result["warnings"], json!(["Both option say and its alias speak are set."]));
}

#[test]
fn secrets_never_leave_from_an_argument_the_environment_or_the_way() {
    let mut command = probe();
    command.env("PROBE_TOKEN", "from/the environment");
    for (mut command, arguments, secret) in [
        (probe(), json!({"act": "leak", "token": "hunter2-hunter2"}), "hunter2-hunter2"),
        (probe(), json!({"act": "panic", "token": "hunter2-hunter2"}), "hunter2-hunter2"),
        (command, json!({"act": "leak"}), "from/the environment"),
    ] {
        let output = start(&mut command, arguments.to_string().as_bytes()).wait_with_output().unwrap();
        let everything = format!("{}{}", result(&output), String::from_utf8_lossy(&output.stderr));
        assert!(!everything.contains(secret), "{everything}");
        assert!(!everything.contains("a-ticket-learnt"), "{everything}");
        assert!(everything.contains("********"), "{everything}");
    }
}

#[test]
fn a_panic_is_a_failure_in_json() {
    let (result, output) = run(json!({"act": "panic"}));
    assert_eq!(result["error_code"], "internal");
    assert!(result["msg"].as_str().unwrap().contains("lost my way"), "{result}");
    assert!(result["exception"].as_str().unwrap().contains("probe.rs"), "{result}");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "stderr is merged into stdout over ssh -tt");
    assert_eq!(result["changed"], false);
}

#[test]
fn a_panic_after_the_first_write_does_not_say_that_nothing_changed() {
    let (result, _) = run(json!({"act": "write", "say": "panic"}));
    assert_eq!(result["error_code"], "internal");
    assert_eq!(result["changed"], true, "{result}");
}

#[test]
fn check_mode_as_a_word_writes_nothing() {
    let (result, _) = run(json!({"act": "write", "say": "panic", "_ansible_check_mode": "yes"}));
    assert!(result.get("failed").is_none(), "{result}");
    assert_eq!(result["changed"], true);
}

#[test]
fn the_deadline_ends_a_wait() {
    let (result, _) = run(json!({"act": "wait", "timeout": 1}));
    assert_eq!(result["error_code"], "timeout");
    assert_eq!(result["msg"], "not done within `timeout` (1 s)");
}

#[test]
fn a_timeout_must_make_sense() {
    for timeout in [json!(0), json!(-5), json!(10_000_000)] {
        let (result, _) = run(json!({"timeout": timeout}));
        assert_eq!(result["option"], "timeout", "{result}");
    }
}

#[test]
fn a_signal_undoes_what_must_not_stay_and_reports() {
    let directory = tempfile::tempdir().unwrap();
    for (signal, name) in [(Signal::TERM, "term"), (Signal::INT, "int")] {
        let undo_file = directory.path().join(name);
        let child =
            start(&mut probe(), json!({"act": "write", "undo_file": undo_file}).to_string().as_bytes());
        let pid = Pid::from_child(&child);
        wait_until_signals_are_caught(child.id());
        kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let result = result(&output);
        assert_eq!(result["error_code"], "interrupted", "{result}");
        assert_eq!(result["written"], json!(["line"]));
        assert_eq!(fs::read_to_string(undo_file).unwrap(), "interrupted");
        assert_eq!(output.status.code(), Some(1), "never 255, never killed");
    }
}

/// SigCgt in /proc/PID/status holds bit 14 for SIGTERM and bit 1 for SIGINT.
fn wait_until_signals_are_caught(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        if u64::from_str_radix(caught, 16).unwrap() & 0x4002 == 0x4002 {
            return;
        }
        assert!(Instant::now() < deadline, "the signal handlers never came");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_person_gets_help_version_and_the_option_table() {
    for (flag, expected) in
        [("--help", "Shows the contract"), ("--version", "probe 0.1.0"), ("--options", "\"PROBE_TOKEN\"")]
    {
        let mut command = probe();
        command.arg(flag);
        let output = start(&mut command, b"").wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        let expected = if flag == "--options" { "E(PROBE_TOKEN)" } else { expected };
        assert!(text.contains(expected), "{flag}: {text}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = probe().stdout(full).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{}").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
