//! Answers that real servers gave, where they are at hand.

use std::fs;
use std::io::Write;

use serde_json::Value;

use lab::proxy::Proxy;
use proxmox_api::ApiError;

use crate::{Lab, house, minute};

/// The recorded answer, or `None`, said aloud, where the recordings are absent.
fn recorded(name: &str) -> Option<Value> {
    let path = lab::checkout().join("../shared/data/pve").join(name);
    let Ok(text) = fs::read_to_string(&path) else {
        let _ = writeln!(std::io::stderr(), "skipped: no {}", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

fn replay(proxy: &Proxy, answer: &Value) {
    let status = u16::try_from(answer["status"].as_u64().unwrap()).unwrap();
    proxy.on("*", "/version").first().answer(
        status,
        answer["reason"].as_str().unwrap(),
        &answer["body"].to_string(),
    );
}

#[test]
fn old_and_new_error_bodies_say_the_same() {
    let lab = Lab::start(house());
    for (name, part) in [
        ("err_403_clone_without_pool.json", "403 Permission check failed"),
        ("err_500_local_storage.json", "can't clone VM to node 'host2' (VM uses local storage)"),
        ("err_newid_invalid.json", "newid: invalid format - value does not look like a valid VM ID"),
        ("err_param_new_style.json", "tokenid: Token already exists."),
        ("err_param_sshkeys_old_style.json", "sshkeys: invalid format - invalid urlencoded string"),
    ] {
        let Some(answer) = recorded(name) else { return };
        replay(&lab.proxy, &answer);
        let error = lab.api.get("/version", &minute()).unwrap_err();
        assert!(matches!(error, ApiError::Refused(_)), "{error}");
        assert!(error.to_string().contains(part), "{name}: {error}");
    }
    let Some(answer) = recorded("err_nextid_taken.json") else { return };
    replay(&lab.proxy, &answer);
    assert!(lab.api.get("/version", &minute()).unwrap_err().refusal().unwrap().is_taken());
}

#[test]
fn a_recorded_lock_timeout_is_one() {
    let lab = Lab::start(house());
    let Some(answer) = recorded("err_500_lock_timeout.json") else { return };
    replay(&lab.proxy, &answer);
    assert!(lab.api.get("/version", &minute()).unwrap_err().is_locked());
}
