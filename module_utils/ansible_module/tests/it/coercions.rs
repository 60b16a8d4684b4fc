//! Every type against every value, beside the real AnsibleModule of the project's venv.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ansible_module::{Arguments, Kind, Opt, Spec, Table};
use serde_json::{Value, json};

const KINDS: [Kind; 9] = [
    Kind::Str,
    Kind::Int,
    Kind::Float,
    Kind::Bool,
    Kind::Path,
    Kind::List,
    Kind::Dict,
    Kind::Raw,
    Kind::Json,
];

fn values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(2),
        json!(-5),
        json!(5),
        json!(5.0),
        json!(5.5),
        json!(0.0001),
        json!(1e16),
        json!(1.5e-7),
        json!(9_007_199_254_740_993_i64),
        json!(""),
        json!(" "),
        json!("5"),
        json!(" 5 "),
        json!("+5"),
        json!("5.0"),
        json!("5.5"),
        json!("1e3"),
        json!("5_000"),
        json!("0x10"),
        json!("0644"),
        json!("yes"),
        json!("No"),
        json!("ON"),
        json!(" true "),
        json!("y"),
        json!("f"),
        json!("maybe"),
        json!("1"),
        json!("1.0"),
        json!("a,b"),
        json!("a, b"),
        json!(","),
        json!("k=v"),
        json!("k=v, k2=v2"),
        json!("k=v k2=\"two words\""),
        json!("k='a=b'"),
        json!("k=a\\ b"),
        json!("k=v, novalue"),
        json!("{\"a\": [1, null, true]}"),
        json!("{\"a\": 1"),
        json!("[1]"),
        json!("$HOME/x"),
        json!("~/x"),
        json!("${NOT_SET_ANYWHERE}/x"),
        json!([]),
        json!(["a", 1]),
        json!({}),
        json!({"a": {"b": [1]}}),
        json!("inf"),
        json!("nan"),
        json!("{'a': 1}"),
        json!("99999999999999999999"),
        json!("1e400"),
    ]
}

/// Where ours is stricter on purpose, and why.
fn deliberate(kind: Kind, value: &Value) -> Option<&'static str> {
    match (kind, value) {
        (Kind::Str | Kind::Path, Value::Array(_) | Value::Object(_)) => {
            Some("a list or dictionary as a text is a slip, not Python's repr of it")
        }
        (Kind::Int | Kind::Float | Kind::List, Value::Bool(_)) => Some("a boolean is no number and no list"),
        (Kind::Float, Value::String(text)) if ["inf", "nan", "1e400"].contains(&text.as_str()) => {
            Some("JSON has no infinities")
        }
        (Kind::Int, Value::String(text)) if ["99999999999999999999", "1e400"].contains(&text.as_str()) => {
            Some("integers are 64 bits wide")
        }
        (Kind::Dict, Value::String(text)) if text.starts_with("{'") => Some("JSON, not Python literals"),
        (_, Value::Null) => Some("null is absent for every type"),
        _ => None,
    }
}

fn ours(kind: Kind, value: &Value) -> Result<Value, String> {
    let option = match kind {
        Kind::List => Opt::list("x", Kind::Raw),
        kind => Opt::new("x", kind),
    };
    let spec = Spec::new("probe", "").options(Table::new(vec![option]));
    let arguments = Arguments::for_tests(&spec, json!({ "x": value })).map_err(|failure| failure.msg)?;
    let parsed: Value = arguments.parse().map_err(|failure| failure.msg)?;
    Ok(parsed.get("x").cloned().unwrap_or(Value::Null))
}

/// Asked at run time: clones that share a target directory share the compiled test too.
fn manifest_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

fn python() -> Option<PathBuf> {
    let root = manifest_dir().join("../..");
    let venv = std::env::var_os("ANVIL_VENV").map_or_else(|| root.join(".venv"), PathBuf::from);
    let python = venv.join("bin/python3");
    let found = python.exists();
    assert!(found || std::env::var_os("CI").is_none(), "{} is missing: make setup", python.display());
    found.then_some(python)
}

fn theirs(python: &Path, cases: &[(Kind, Value)]) -> Vec<Value> {
    let input: Vec<Value> = cases.iter().map(|(kind, value)| json!([kind.name(), value])).collect();
    let script = manifest_dir().join("tests/it/coercions.py");
    let mut child =
        Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(json!(input).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Two texts of one JSON value are the same answer to `json`.
fn same(kind: Kind, ours: &Value, theirs: &Value) -> bool {
    let parsed = |value: &Value| value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    ours == theirs || (kind == Kind::Json && parsed(ours).is_some() && parsed(ours) == parsed(theirs))
}

#[test]
fn every_type_takes_every_value_as_ansible_module_does() {
    let Some(python) = python() else {
        println!("skipped: no .venv with ansible-core here (make setup)");
        return;
    };
    let cases: Vec<(Kind, Value)> =
        KINDS.iter().flat_map(|kind| values().into_iter().map(move |value| (*kind, value))).collect();
    let theirs = theirs(&python, &cases);
    let mut wrong = Vec::new();
    for ((kind, value), theirs) in cases.iter().zip(&theirs) {
        let ours = ours(*kind, value);
        let agree = match (&ours, theirs.get("value")) {
            (Ok(ours), Some(theirs)) => same(*kind, ours, theirs),
            (Err(_), None) => true,
            _ => false,
        };
        let expected = deliberate(*kind, value).is_none();
        if agree != expected && !value.is_null() {
            wrong.push(format!("{} from {value}: ours {ours:?}, theirs {theirs}", kind.name()));
        }
        if value.is_null() {
            assert_eq!(ours, Ok(Value::Null), "null is absent");
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_deliberate_difference_is_always_a_refusal() {
    for kind in KINDS {
        for value in values().iter().filter(|value| !value.is_null()) {
            if deliberate(kind, value).is_some() {
                assert!(ours(kind, value).is_err(), "{} from {value}", kind.name());
            }
        }
    }
}
