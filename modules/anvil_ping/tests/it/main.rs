//! The program from outside: both ways in, and what comes out.

use std::fs;
use std::process::Output;

use assert_cmd::Command;
use serde_json::{Value, json};

fn ping() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anvil_ping"));
    command.env_clear();
    command
}

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object on standard output")
}

#[test]
fn it_answers_from_standard_input_and_from_a_file() {
    let arguments = json!({"data": "hello", "_ansible_check_mode": true}).to_string();
    let file = std::env::temp_dir().join(format!("anvil_ping-{}.json", std::process::id()));
    fs::write(&file, &arguments).unwrap();

    let piped = ping().write_stdin(arguments).output().unwrap();
    let read = ping().arg(&file).output().unwrap();
    fs::remove_file(&file).unwrap();

    assert_eq!(answer(&piped), answer(&read));
    assert_eq!(answer(&piped)["changed"], false);
    let ping = &answer(&piped)["ping"];
    assert_eq!(ping["data"], "hello");
    assert_eq!(ping["arch"], std::env::consts::ARCH);
    // The kernel names the program without the links on the way to it.
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_anvil_ping")).unwrap();
    assert_eq!(ping["program"], program.to_str().unwrap());
    assert_eq!(ping["secret_given"], false);
}

#[test]
fn data_comes_from_the_argument_then_the_environment_then_the_default() {
    for (arguments, environment, data) in [
        (json!({}), None, "pong"),
        (json!({}), Some("environment"), "environment"),
        (json!({"data": 5}), Some("environment"), "5"),
    ] {
        let mut command = ping();
        command.envs(environment.map(|value| ("ANVIL_PING_DATA", value)));
        let output = command.write_stdin(arguments.to_string()).output().unwrap();
        assert_eq!(answer(&output)["ping"]["data"], data, "{arguments} {environment:?}");
    }
}

#[test]
fn the_secret_is_in_no_output_even_when_it_is_the_data() {
    let arguments = json!({"secret": "Geheim-7151", "data": "is Geheim-7151 here?", "_ansible_verbosity": 4});
    let output = ping().write_stdin(arguments.to_string()).output().unwrap();

    assert_eq!(answer(&output)["ping"]["secret_given"], true);
    let everything = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&everything).contains("Geheim-7151"));
}

#[test]
fn a_crash_is_a_failure_in_json() {
    let output = ping().write_stdin(r#"{"data": "crash"}"#).output().unwrap();

    assert_eq!(output.status.code(), Some(1));
    let answer = answer(&output);
    assert_eq!((&answer["failed"], &answer["error_code"]), (&json!(true), &json!("internal")));
    assert!(answer["msg"].as_str().unwrap().contains("boom"), "{answer}");
}

#[test]
fn a_misspelt_option_is_refused_with_the_nearest_one() {
    let output = ping().write_stdin(r#"{"date": "today"}"#).output().unwrap();

    let answer = answer(&output);
    assert_eq!(answer["error_code"], "bad_argument");
    assert!(answer["msg"].as_str().unwrap().contains("`data`"), "{answer}");
}
