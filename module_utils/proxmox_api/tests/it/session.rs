use std::time::Duration;

use deadline::Deadline;
use http_client::Method;
use lab::pve::ROOT_PASSWORD;
use proxmox_api::{ApiError, Credentials, GuestKind};
use serde_json::json;

use crate::{Lab, house, minute, vmid};

fn root(password: &str) -> Credentials {
    Credentials::Password { user: "root@pam".into(), password: password.into() }
}

fn tags(value: &str) -> Vec<(String, String)> {
    vec![("tags".into(), value.into())]
}

#[test]
fn a_password_gives_one_ticket_for_all_requests() {
    let lab = Lab::signing_in(house(), root(ROOT_PASSWORD));
    let path = "/nodes/pve1/qemu/200/config";
    lab.api.get("/version", &minute()).unwrap();
    lab.api.write(Method::Put, path, &tags("a;b"), &minute()).unwrap();
    assert_eq!(lab.pve.vm_config(200)["tags"], "a;b");
    assert_eq!(lab.count("POST", "/access/ticket"), 1);
    assert_eq!(lab.proxy.connections(), 1);
    lab.assert_sound();
}

#[test]
fn wrong_credentials_are_told_in_the_servers_words() {
    let lab = Lab::signing_in(house(), root("wrong"));
    let error = lab.api.get("/version", &minute()).unwrap_err().to_string();
    let words = "POST /access/ticket: 401 authentication failure. The password of root@pam was refused: ";
    assert!(error.starts_with(words), "{error}");

    let token = Credentials::Token { user: "a@pve".into(), id: "b".into(), secret: "c".into() };
    let lab = Lab::signing_in(house(), token);
    let error = lab.api.get("/version", &minute()).unwrap_err();
    assert_eq!(error.refusal().unwrap().status, 401, "{error}");
    assert!(error.to_string().contains("The API token a@pve!b was refused: "), "{error}");
}

#[test]
fn a_second_factor_is_refused_clearly() {
    let lab = Lab::signing_in(house(), root(ROOT_PASSWORD));
    lab.proxy
        .on("POST", "/access/ticket")
        .always()
        .rewrite_answer(|body| body.replace("\"cap\"", "\"NeedTFA\": 1, \"cap\""));
    let error = lab.api.get("/version", &minute()).unwrap_err();
    assert!(error.to_string().contains("second factor"), "{error}");
    assert!(error.to_string().contains("API token"), "{error}");
}

#[test]
fn guests_are_listed_with_kind_node_and_lock() {
    let lab = Lab::start(house().container(300, "dns", "pve2", json!({})));
    let guests = lab.api.guests(&minute()).unwrap();
    let mut seen: Vec<_> =
        guests.iter().map(|g| (g.vmid.get(), g.kind, g.node.as_str(), g.template)).collect();
    seen.sort_by_key(|guest| guest.0);
    assert_eq!(
        seen,
        [
            (200, GuestKind::Qemu, "pve1", false),
            (300, GuestKind::Container, "pve2", false),
            (8000, GuestKind::Qemu, "pve1", true),
        ]
    );
    let on_node = lab.api.node_vms("pve1", &minute()).unwrap();
    assert_eq!(on_node.len(), 2);
    assert!(on_node.iter().any(|guest| guest.template && guest.name.as_deref() == Some("fedora-42")));
    lab.assert_sound();
}

#[test]
fn a_missing_vm_is_none_and_a_taken_vmid_is_not_free() {
    let lab = Lab::start(house());
    assert_eq!(lab.api.config("pve1", vmid(999), &minute()).unwrap(), None);
    assert!(lab.api.vmid_is_free(vmid(999), &minute()).unwrap());
    assert!(!lab.api.vmid_is_free(vmid(200), &minute()).unwrap());
    lab.assert_sound();
}

#[test]
fn locks_are_waited_out() {
    let lab = Lab::start(house());
    for words in
        ["can't lock file '/var/lock/qemu-server/lock-200.conf' - got timeout", "VM is locked (backup)"]
    {
        lab.proxy.on("PUT", "/config").first().answer(500, words, r#"{"data":null}"#);
        lab.api.write(Method::Put, "/nodes/pve1/qemu/200/config", &tags("x"), &minute()).unwrap();
    }
    assert_eq!(lab.count("PUT", "/config"), 4);
}

#[test]
fn a_lock_that_stays_is_named_at_the_deadline() {
    let lab = Lab::start(house());
    lab.proxy.on("PUT", "/config").always().answer(500, "VM is locked (backup)", r#"{"data":null}"#);
    let soon = Deadline::after(Duration::from_millis(600));
    let error = lab.api.write(Method::Put, "/nodes/pve1/qemu/200/config", &tags("x"), &soon).unwrap_err();
    assert!(matches!(error, ApiError::Expired { .. }), "{error}");
    assert!(error.to_string().contains("VM is locked (backup)"), "{error}");
}

#[test]
fn a_broken_proxy_between_nodes_is_asked_again_for_reads_only() {
    let lab = Lab::start(house());
    lab.proxy.on("GET", "/version").first().answer(596, "Broken pipe", "");
    lab.api.get("/version", &minute()).unwrap();
    lab.proxy.on("PUT", "/config").first().answer(596, "Broken pipe", "");
    let error = lab.api.write(Method::Put, "/nodes/pve1/qemu/200/config", &tags("x"), &minute()).unwrap_err();
    assert!(error.outcome_is_unknown(), "{error}");
    assert_eq!(lab.count("PUT", "/config"), 1);
}

#[test]
fn a_write_of_settings_with_a_lost_answer_is_looked_after() {
    let lab = Lab::start(house());
    let before = lab.api.config("pve1", vmid(200), &minute()).unwrap().unwrap();
    lab.proxy.on("PUT", "/config").first().lose_answer();
    lab.api.set_config("pve1", vmid(200), &tags("x"), &before, &minute()).unwrap();
    assert_eq!(lab.count("PUT", "/config"), 1, "it had arrived");

    let before = lab.api.config("pve1", vmid(200), &minute()).unwrap().unwrap();
    lab.proxy.on("PUT", "/config").first().drop_request();
    lab.api.set_config("pve1", vmid(200), &tags("y"), &before, &minute()).unwrap();
    assert_eq!(lab.count("PUT", "/config"), 3, "it had not");
    assert_eq!(lab.pve.vm_config(200)["tags"], "y");
    lab.assert_sound();
}

/// Adds a digest to what the fake says, as the real server does.
fn with_digest(lab: &Lab, digest: &'static str) {
    let row = format!(r#"{{"data": [{{"key": "digest", "value": "{digest}"}}, "#);
    lab.proxy.on("GET", "/pending").always().rewrite_answer(move |body| body.replace(r#"{"data": ["#, &row));
}

#[test]
fn a_released_lock_changes_the_digest_and_is_no_conflict() {
    let lab = Lab::start(house());
    let path = "/config";
    let before = lab.api.config("pve1", vmid(200), &minute()).unwrap().unwrap();
    let before = proxmox_api::PendingConfig { digest: Some("old".into()), ..before };
    lab.proxy.on("PUT", path).first().answer(500, "VM is locked (backup)", "");
    lab.proxy.on("PUT", path).nth(2).answer(500, "checksum mismatch (file change by other user?)", "");
    lab.proxy.on("PUT", path).nth(3).rewrite_request(|body| {
        assert!(body.ends_with("&digest=new"), "{body}");
        body.replace("&digest=new", "")
    });
    with_digest(&lab, "new");
    lab.api.set_config("pve1", vmid(200), &tags("x"), &before, &minute()).unwrap();
    assert_eq!(lab.pve.vm_config(200)["tags"], "x");
}

#[test]
fn settings_that_somebody_else_changed_are_not_overwritten() {
    let lab = Lab::start(house());
    let before = lab.api.config("pve1", vmid(200), &minute()).unwrap().unwrap();
    let before = proxmox_api::PendingConfig { digest: Some("old".into()), ..before };
    lab.pve.call("PUT", "/nodes/pve1/qemu/200/config", &[("memory", "1024")]).unwrap();
    with_digest(&lab, "new");
    let error = lab.api.set_config("pve1", vmid(200), &tags("x"), &before, &minute()).unwrap_err();
    assert!(error.refusal().unwrap().is_checksum_mismatch(), "{error}");
    assert_eq!(lab.count("PUT", "/config"), 1);
}

#[test]
fn a_vm_that_is_gone_is_gone_also_where_rights_come_from_a_pool() {
    let lab = Lab::start(house());
    let no = "Permission check failed (/vms/999, VM.Audit)";
    lab.proxy.on("GET", "/999/pending").always().answer(403, no, r#"{"data":null}"#);
    assert_eq!(lab.api.config("pve1", vmid(999), &minute()).unwrap(), None);
    lab.proxy.on("GET", "/200/pending").always().answer(403, no, r#"{"data":null}"#);
    assert_eq!(lab.api.config("pve1", vmid(200), &minute()).unwrap_err().refusal().unwrap().status, 403);
}

#[test]
fn a_write_cut_off_by_the_deadline_is_told_as_what_it_was() {
    let lab = Lab::start(house());
    let before = lab.api.config("pve1", vmid(200), &minute()).unwrap().unwrap();
    lab.proxy.on("PUT", "/config").always().delay(Duration::from_secs(5));
    let soon = Deadline::after(Duration::from_millis(500));
    let error = lab.api.set_config("pve1", vmid(200), &tags("x"), &before, &soon).unwrap_err();
    assert!(error.to_string().contains("PUT https://"), "{error}");
    assert!(error.to_string().contains("no complete answer in time"), "{error}");
}
