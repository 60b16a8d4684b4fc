//! What is refused before anything is read, and the plan on made directories.

mod machine;

use std::collections::BTreeMap;

use ansible_module::{Arguments, ErrorCode, Failure, Module, Proof};
use netboot::Syntax;
use serde_json::{Value, json};

use crate::GrubMacConfig;
use crate::args::Args;
use crate::observe::{Found, State};
use crate::plan::{self, Action};

const MAC: &str = "02:a5:00:00:03:e9";
const OTHER_MAC: &str = "02:a5:00:00:03:ea";

fn checked(mut raw: Value, further: Value) -> Result<Args, Failure> {
    raw["prefix_dir"] = json!("/srv/tftp/grub");
    raw.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    raw.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    Args::check(&Arguments::for_tests(&GrubMacConfig::spec(), raw)?)
}

/// web01 is installed at its next boot.
fn install(further: Value) -> Result<Args, Failure> {
    let raw = json!({
        "host": "web01", "mac": MAC, "mode": "install", "single_shot": true,
        "kernel": "/fedora/vmlinuz", "initrd": "/fedora/initrd.img", "arguments": "ip=dhcp console=ttyS0,115200",
    });
    checked(raw, further)
}

fn local_disk(further: Value) -> Args {
    checked(json!({"host": "web01", "mac": MAC, "mode": "local_disk"}), further).unwrap()
}

fn state(files: &[(&str, Found)]) -> State {
    State {
        exists: true,
        files: files.iter().map(|(name, found)| ((*name).to_owned(), found.clone())).collect(),
        owner: (0, 0),
        ..State::default()
    }
}

fn file(content: &str) -> Found {
    Found::File { content: content.into(), mode: 0o644, owner: (0, 0) }
}

/// The directory after `args` were carried out.
fn as_asked(args: &Args) -> State {
    let files = args.wanted.iter().map(|wanted| (wanted.name.clone(), file(&wanted.content)));
    State { files: files.collect(), ..state(&[]) }
}

/// The plan in words.
fn steps(args: &Args, state: &State) -> Vec<String> {
    let plan = plan::plan(args, state).unwrap();
    let word = |action: &Action| match action {
        Action::Remove { name } => format!("remove {name}"),
        Action::Write { name, .. } => format!("write {name}"),
    };
    plan.steps().map(|step| word(&step.action)).collect()
}

fn refusal(args: &Args, state: &State) -> (ErrorCode, String) {
    let failure = plan::plan(args, state).unwrap_err();
    (failure.code, failure.msg)
}

#[test]
fn an_install_entry_is_what_was_asked_for() {
    let args = install(json!({})).unwrap();
    assert_eq!(args.wanted.len(), 6);
    assert!(args.wanted.iter().all(|file| file.content == args.wanted[0].content));
    insta::assert_snapshot!(args.wanted[0].content, @r"
    # Managed by homelab.anvil.grub_mac_config: host web01, MAC 02:a5:00:00:03:e9, mode install
    set default=0
    set timeout=0
    menuentry 'Install web01' {
      linux /fedora/vmlinuz ip=dhcp console=ttyS0,115200
      initrd /fedora/initrd.img
    }
    ");
}

#[test]
fn the_switch_to_the_disk_is_a_change_of_one_word() {
    let switched = install(json!({"mode": "local_disk"})).unwrap();
    let short = local_disk(json!({}));
    assert_eq!(switched.wanted, short.wanted, "kernel, initrd and the promise mean nothing to it");
    assert!(!short.wanted[0].content.contains("linux "), "{}", short.wanted[0].content);
    let own = install(
        json!({"template": "linux /vmlinuz", "kernel": null, "initrd": null, "arguments": null, "mode": "local_disk"}),
    );
    assert_eq!(own.unwrap().wanted, short.wanted, "an install script of the user's does not stay");
}

#[test]
fn a_script_of_the_users_own_stands_below_our_line() {
    let own = json!({"kernel": null, "initrd": null, "arguments": null, "template": "linux (http,10.0.0.2)/vmlinuz\nboot"});
    let content = &install(own).unwrap().wanted[0].content;
    assert!(content.ends_with("mode install\nlinux (http,10.0.0.2)/vmlinuz\nboot\n"), "{content}");
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    for (wrong, option, why) in [
        (json!({"host": null}), "host", "expected the host"),
        (json!({"host": "web 01"}), "host", "expected letters"),
        (json!({"host": "web01, MAC x"}), "host", "expected letters"),
        (json!({"mac": null}), "mac", "expected the MAC address of web01"),
        (json!({"mac": [2_000_000_064]}), "mac[0]", "quoted text"),
        (json!({"mac": "02:a5:00:00:03"}), "mac[0]", "5 bytes"),
        (json!({"mac": "ff:ff:ff:ff:ff:ff"}), "mac", "group address"),
        (json!({"mode": null}), "mode", "expected `install` or `local_disk`"),
        (json!({"mode": "rescue"}), "mode", "rescue"),
        (json!({"single_shot": false}), "single_shot", "installed again at every reboot"),
        (json!({"kernel": null}), "kernel", "needed by"),
        (json!({"kernel": "vmlinuz"}), "kernel", "over HTTP a relative one"),
        (json!({"kernel": "https://10.0.0.2/vmlinuz"}), "kernel", "http:// and tftp:// only"),
        (json!({"initrd": null}), "initrd", "needed by"),
        (json!({"initrd": []}), "initrd", "expected a text or a list"),
        (json!({"initrd": ["/a", 3]}), "initrd", "expected a text or a list"),
        (json!({"initrd": ["/a", "b"]}), "initrd", "expected an absolute path"),
        (json!({"arguments": "a=\"b c\""}), "arguments", "without quotes"),
        (json!({"arguments": {"ip": "dhcp"}}), "arguments", "expected a text or a list"),
        (json!({"template": "linux /x"}), "template", "stands alone"),
        (
            json!({"kernel": null, "initrd": null, "arguments": null, "template": " \n"}),
            "template",
            "expected a GRUB script",
        ),
        (
            json!({"kernel": null, "initrd": null, "arguments": null, "template": "linux vmlinuz"}),
            "template",
            "`(http,SERVER)/vmlinuz`",
        ),
        (json!({"menu_title": "it's"}), "arguments", "title"),
        (json!({"menu_timeout": -1}), "menu_timeout", "whole number"),
        (json!({"mode": "local_disk", "loaders": []}), "loaders", "at least one"),
        (json!({"mode": "local_disk", "loaders": ["EFI/x"]}), "loaders", "absolute"),
        (json!({"mode": "local_disk", "loaders": ["/EFI/$x; reboot"]}), "loaders", "absolute"),
        (json!({"prefix_dir": "grub"}), "prefix_dir", "absolute"),
        (json!({"prune": true}), "hosts", "expected every host"),
        (json!({"prune": true, "hosts": []}), "hosts", "expected every host"),
        (json!({"prune": true, "hosts": ["db01"]}), "hosts", "without `web01`"),
        (json!({"hosts": ["web01"]}), "hosts", "only for `prune: true`"),
    ] {
        let failure = install(wrong.clone()).unwrap_err();
        assert_eq!(failure.code, ErrorCode::BAD_ARGUMENT, "{wrong}: {failure}");
        assert!(
            failure.msg.contains(&format!("`{option}`")) && failure.msg.contains(why),
            "{wrong}: {failure}"
        );
    }
}

#[test]
fn every_address_of_a_host_gets_its_names() {
    let args = install(json!({"mac": [MAC, OTHER_MAC.to_uppercase(), MAC.replace(':', "-")]})).unwrap();
    assert_eq!(args.wanted.len(), 12);
    assert_eq!(args.macs().len(), 2);
    assert_eq!(steps(&args, &state(&[])).len(), 12);
}

#[test]
fn nothing_is_done_twice() {
    for args in [install(json!({})).unwrap(), local_disk(json!({}))] {
        assert_eq!(steps(&args, &state(&[]))[0], "write grub.cfg-01-02-a5-00-00-03-e9");
        assert_eq!(steps(&args, &as_asked(&args)), [""; 0]);
    }
}

#[test]
fn whatever_is_not_as_asked_is_written_again() {
    let args = local_disk(json!({}));
    let name = args.wanted[1].name.clone();
    let content = args.wanted[1].content.clone().into_bytes();
    for (spoilt, field) in [
        (file(&format!("{}# edited by hand\n", args.wanted[1].content)), ""),
        (Found::File { content: content.clone(), mode: 0o600, owner: (0, 0) }, " mode"),
        (Found::File { content, mode: 0o644, owner: (65534, 0) }, " owner"),
    ] {
        let mut state = as_asked(&args);
        state.files.insert(name.clone(), spoilt);
        let plan = plan::plan(&args, &state).unwrap();
        let fields: Vec<&str> = plan.changes().map(|change| change.field.as_str()).collect();
        assert_eq!(fields, [format!("{name}{field}")]);
        let change = plan.changes().next().unwrap();
        assert!(matches!(plan::proof(change, &state), Proof::Mismatch { .. }), "{change:?}");
        assert_eq!(plan::proof(change, &as_asked(&args)), Proof::Held);
    }
    let mut state = as_asked(&args);
    state.mislabelled.insert(name.clone());
    assert_eq!(steps(&args, &state), [format!("write {name}")]);
}

#[test]
fn what_the_host_left_under_another_address_goes_first() {
    let before = install(json!({"mac": OTHER_MAC})).unwrap();
    let steps = steps(&local_disk(json!({})), &as_asked(&before));
    assert_eq!(steps.len(), 12);
    assert!(
        steps[..6].iter().all(|step| step.starts_with("remove "))
            && steps[6..].iter().all(|step| step.starts_with("write "))
    );
}

#[test]
fn absent_takes_everything_of_the_host_and_nothing_else() {
    let mut found = as_asked(&install(json!({"mac": [MAC, OTHER_MAC]})).unwrap());
    let third = checked(json!({"host": "db01", "mac": "02:a5:00:00:03:eb", "mode": "local_disk"}), json!({}))
        .unwrap();
    found.files.extend(as_asked(&third).files);
    found.files.insert("grub.cfg-foreign".into(), file("menuentry x { true; }\n"));
    found.files.insert("grub.cfg-link".into(), Found::Other("a symbolic link"));
    let absent = checked(json!({"host": "web01", "state": "absent"}), json!({})).unwrap();
    let removals = steps(&absent, &found);
    assert_eq!(removals.len(), 12);
    assert!(removals.iter().all(|step| step.contains("e9")
        || step.contains("ea")
        || step.contains("E9")
        || step.contains("EA")));
    let nobody = checked(json!({"host": "new01", "state": "absent"}), json!({})).unwrap();
    assert_eq!(steps(&nobody, &found), [""; 0]);
    assert_eq!(steps(&absent, &State::default()), [""; 0], "no directory, no files");
}

#[test]
fn pruning_takes_the_hosts_that_are_not_listed() {
    let mut found = as_asked(&install(json!({})).unwrap());
    let other = checked(json!({"host": "db01", "mac": OTHER_MAC, "mode": "local_disk"}), json!({})).unwrap();
    found.files.extend(as_asked(&other).files);
    found.files.insert("grub.cfg-foreign".into(), file("true\n"));
    let prune = |hosts: Value| checked(json!({"prune": true, "hosts": hosts}), json!({})).unwrap();
    assert_eq!(steps(&prune(json!(["web01", "db01"])), &found), [""; 0]);
    assert_eq!(steps(&prune(json!(["db01"])), &found).len(), 6);
    assert_eq!(steps(&prune(json!(["x"])), &found).len(), 12);
}

#[test]
fn an_address_passes_from_a_host_that_is_not_listed_any_more() {
    let found = as_asked(&install(json!({})).unwrap());
    let heir =
        |further| checked(json!({"host": "web02", "mac": MAC, "mode": "local_disk"}), further).unwrap();
    let (code, msg) = refusal(&heir(json!({})), &found);
    assert_eq!(code, ErrorCode::CONFLICT);
    assert!(msg.contains("is a file of the host web01") && msg.contains("`state: absent`"), "{msg}");
    let steps = steps(&heir(json!({"prune": true, "hosts": ["web02"]})), &found);
    assert!(steps.len() == 6 && steps.iter().all(|step| step.starts_with("write ")), "{steps:?}");
}

#[test]
fn files_of_others_are_in_the_way_and_stay() {
    let name = "grub.cfg-02-A5-00-00-03-E9";
    for (found, why) in [
        (file("set timeout=0\n"), "was written by somebody else"),
        (Found::Other("a symbolic link"), "is a symbolic link"),
        (Found::Other("a directory"), "is a directory"),
    ] {
        let (code, msg) = refusal(&local_disk(json!({})), &state(&[(name, found)]));
        assert_eq!(code, ErrorCode::CONFLICT);
        assert!(msg.contains(why) && msg.contains(name), "{msg}");
    }
}

#[test]
fn a_fault_in_the_script_and_a_missing_directory_are_refused() {
    let args = local_disk(json!({}));
    let faulty = State { syntax: Syntax::Faulty("syntax error at line 3".into()), ..state(&[]) };
    assert!(refusal(&args, &faulty).1.contains("syntax error at line 3"));
    let (code, msg) = refusal(&args, &State::default());
    assert_eq!(code, ErrorCode::NOT_FOUND);
    assert!(msg.contains("/srv/tftp/grub"), "{msg}");
}

#[test]
fn the_diff_shows_six_files_once_and_the_report_is_what_would_be() {
    let before = as_asked(&install(json!({})).unwrap());
    let args = local_disk(json!({}));
    let plan = plan::plan(&args, &before).unwrap();
    let diff = plan::diff(&plan);
    assert_eq!(diff.as_array().unwrap().len(), 1);
    let text = |side: &str| diff[0][side].as_str().unwrap().to_owned();
    assert!(text("before").contains("linux /fedora/vmlinuz") && text("after").contains("chainloader"));
    assert_eq!(text("before_header").split(", ").count(), 6);

    let absent = checked(json!({"host": "web01", "state": "absent"}), json!({})).unwrap();
    let plan = plan::plan(&absent, &before).unwrap();
    let files =
        |report: serde_json::Map<String, Value>| report["grub_mac"]["files"].as_array().unwrap().len();
    assert_eq!(files(plan::report(&absent, &before, Some(&plan))), 0);
    assert_eq!(files(plan::report(&absent, &before, None)), 6);
    let db01 = checked(json!({"host": "db01", "state": "absent"}), json!({})).unwrap();
    assert_eq!(
        plan::report(&db01, &before, None)["grub_mac"]["other_hosts"],
        json!(BTreeMap::from([("web01", "install")]))
    );
}
