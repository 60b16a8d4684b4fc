//! Where the bundle is kept on a target, and what is never run from there.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::core::Core;
use crate::site::{DEPLOY, Outcome, Site, digest};

const PING: &str = "- name: ping\n  homelab.anvil.anvil_ping:\n";
const NOBODY: &str = "- name: ping\n  homelab.anvil.anvil_ping:\n  become: true\n  become_user: nobody\n";

/// A stand-in for the bundle that tells where it ran.
const WHERE: &str = "#!/bin/sh\ncat >/dev/null\necho '{\"program\": \"'$0'\"}'\n";

fn with_bases(mut target: Value, bases: &[&str]) -> Value {
    target["anvil_cache_dirs"] = json!(bases);
    target
}

fn run(site: &Site, bases: &[&str], tasks: &str) -> Outcome {
    site.run(Core::newest(), &with_bases(site.local(), bases), tasks)
}

fn entries(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn it_is_kept_in_the_home_of_the_user_that_runs_it_and_sent_once() {
    let mut site = Site::with_script(WHERE);
    let target = site.ssh("deploy");
    site.environment = vec![("ANSIBLE_VERBOSITY", "4".into())];
    let name = format!("anvil-modules-{}", digest(&site.path("script")));

    let first = site.run(Core::newest(), &target, PING);
    let second = site.run(Core::newest(), &target, PING);

    let folder = site.text(&format!("home/deploy/.cache/homelab-anvil-{DEPLOY}"));
    assert_eq!(first.ok("ping")["program"], format!("{folder}/{name}"));
    assert_eq!(entries(&folder), [name]);
    // A look, the upload, the run; then the run alone.
    let remote_commands = |outcome: &Outcome| outcome.output.matches("SSH: EXEC").count();
    assert_eq!((remote_commands(&first), remote_commands(&second)), (3, 1), "{}", second.output);
}

#[test]
fn a_user_without_a_home_keeps_it_in_var_tmp() {
    let site = Site::with_script(WHERE);

    let outcome = site.run(Core::newest(), &site.local(), NOBODY);

    let program = outcome.ok("ping")["program"].as_str().unwrap();
    assert!(program.starts_with("/var/tmp/homelab-anvil-65534/anvil-modules-"), "{program}");
}

#[test]
fn a_home_that_belongs_to_another_user_is_left_alone() {
    let mut site = Site::with_script(WHERE);
    site.environment = vec![("ANSIBLE_BECOME_FLAGS", "--preserve-env=HOME".into())];

    let outcome = site.run(Core::newest(), &site.local(), NOBODY);

    assert!(outcome.ok("ping")["program"].as_str().unwrap().starts_with("/var/tmp/"), "{}", outcome.output);
    assert!(!site.path("home/root/.cache/homelab-anvil-65534").exists());
}

#[test]
fn directories_that_cannot_keep_it_are_passed_over() {
    let mut site = Site::with_script(WHERE);
    let noexec = site.mount("noexec", "noexec");
    let read_only = site.mount("read-only", "ro");
    let good = site.base("good");
    let closed = site.base("closed");
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();

    let outcome = run(&site, &[&noexec, &read_only, &closed, "/nowhere", &good], NOBODY);

    let program = outcome.ok("ping")["program"].as_str().unwrap();
    assert!(program.starts_with(&format!("{good}/homelab-anvil-65534/")), "{program}");
}

#[test]
fn a_full_directory_is_passed_over_and_left_as_it_was() {
    // A page for the check whether programs run, but not for the megabytes of the bundle.
    let mut site = Site::new();
    let full = site.mount("full", "size=64k");
    let good = site.base("good");

    let outcome = run(
        &site,
        &[&full, &good],
        &format!("{PING}- name: left over\n  ansible.builtin.raw: find {full} -type f\n"),
    );

    assert!(outcome.ping("ping")["program"].as_str().unwrap().starts_with(&good), "{}", outcome.output);
    assert_eq!(outcome.ok("left over")["stdout"], "");
}

#[test]
fn when_no_directory_can_keep_it_each_is_named_with_its_mount_and_reason() {
    let mut site = Site::new();
    let noexec = site.mount("noexec", "noexec");
    let read_only = site.mount("read-only", "ro");
    let full = site.mount("full", "size=64k");
    let closed = site.base("closed");
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();

    let outcome = run(&site, &[&noexec, &full, &read_only, &closed, "/nowhere"], NOBODY);

    let (code, msg) = outcome.failure("ping");
    assert_eq!(code, "cache");
    for (base, mount, reason) in [
        (noexec.as_str(), noexec.as_str(), "noexec"),
        (&read_only, &read_only, "Read-only file system"),
        (&full, &full, "No space left on device"),
        (&closed, "/", "Permission denied"),
        ("/nowhere", "/", "No such file or directory"),
    ] {
        let found = msg.split("; ").find(|part| part.contains(&format!("{base}/homelab-anvil-65534")));
        let found = found.unwrap_or_else(|| panic!("{base} is not in: {msg}"));
        assert!(found.contains(&format!("(mounted on {mount})")), "{found}");
        assert!(found.contains(reason), "{found}");
    }
    assert!(msg.contains("anvil_cache_dirs"), "{msg}");
}

/// Puts a program in the cache that must not run, changes something about it, and runs a task.
fn tampered(change: impl FnOnce(&Path, &Path)) -> Outcome {
    let site = Site::with_script(WHERE);
    let (first, second) = (site.base("first"), site.base("second"));
    let folder = Path::new(&first).join("homelab-anvil-0");
    let entry = folder.join(format!("anvil-modules-{}", digest(&site.path("script"))));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    fs::write(&entry, "#!/bin/sh\ntouch /var/tmp/evil\necho '{\"program\": \"evil\"}'\n").unwrap();
    fs::set_permissions(&entry, Permissions::from_mode(0o700)).unwrap();
    change(&folder, &entry);

    let outcome = run(&site, &[&first, &second], PING);

    assert!(!site.path("var-tmp/evil").exists(), "it was run");
    outcome
}

#[test]
fn an_entry_of_another_owner_is_replaced_and_not_run() {
    let outcome = tampered(|_, entry| chown(entry, Some(DEPLOY), None).unwrap());
    assert!(outcome.ok("ping")["program"].as_str().unwrap().contains("/first/"), "{}", outcome.output);
}

#[test]
fn an_entry_that_others_may_write_to_is_replaced_and_not_run() {
    for mode in [0o720, 0o702, 0o777] {
        let outcome = tampered(|_, entry| fs::set_permissions(entry, Permissions::from_mode(mode)).unwrap());
        assert!(outcome.ok("ping")["program"].as_str().unwrap().contains("/first/"), "{}", outcome.output);
    }
}

#[test]
fn a_symlink_as_entry_is_replaced_and_not_run() {
    let outcome = tampered(|folder, entry| {
        fs::rename(entry, folder.join("evil")).unwrap();
        std::os::unix::fs::symlink("evil", entry).unwrap();
    });
    assert!(outcome.ok("ping")["program"].as_str().unwrap().contains("/first/"), "{}", outcome.output);
}

#[test]
fn nothing_runs_from_a_directory_of_another_owner_or_that_others_may_write_to() {
    let changes: [fn(&Path, &Path); 5] = [
        |folder, _| chown(folder, Some(DEPLOY), None).unwrap(),
        |folder, _| fs::set_permissions(folder, Permissions::from_mode(0o770)).unwrap(),
        |folder, _| fs::set_permissions(folder, Permissions::from_mode(0o707)).unwrap(),
        |folder, _| {
            fs::rename(folder, folder.with_file_name("elsewhere")).unwrap();
            std::os::unix::fs::symlink("elsewhere", folder).unwrap();
        },
        // Whoever may rename the directory may put another in its place.
        |folder, _| fs::set_permissions(folder.parent().unwrap(), Permissions::from_mode(0o777)).unwrap(),
    ];
    for change in changes {
        let outcome = tampered(change);
        assert!(outcome.ok("ping")["program"].as_str().unwrap().contains("/second/"), "{}", outcome.output);
    }
}

#[test]
fn a_directory_that_is_refused_is_named_with_what_it_must_be() {
    let site = Site::with_script(WHERE);
    let base = site.base("base");
    fs::create_dir(Path::new(&base).join("homelab-anvil-0")).unwrap();
    fs::set_permissions(Path::new(&base).join("homelab-anvil-0"), Permissions::from_mode(0o777)).unwrap();

    let outcome = run(&site, &[&base], PING);

    let (code, msg) = outcome.failure("ping");
    assert_eq!(code, "cache");
    assert!(
        msg.contains(&format!("{base}/homelab-anvil-0")) && msg.contains("nobody else may write to"),
        "{msg}"
    );
}

#[test]
fn an_entry_that_cannot_be_started_is_replaced() {
    for broken in ["#!/nonexistent/interpreter\n", ""] {
        let site = Site::with_script(WHERE);
        let base = site.base("base");
        let folder = Path::new(&base).join("homelab-anvil-0");
        let entry = folder.join(format!("anvil-modules-{}", digest(&site.path("script"))));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        fs::write(&entry, broken).unwrap();
        fs::set_permissions(&entry, Permissions::from_mode(0o700)).unwrap();

        let outcome = run(&site, &[&base], PING);

        assert_eq!(outcome.ok("ping")["program"], entry.to_str().unwrap(), "{broken:?}");
    }
}

#[test]
fn entries_expire_by_age() {
    let site = Site::with_script(WHERE);
    let base = site.base("base");
    let folder = Path::new(&base).join("homelab-anvil-0");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    for (name, age) in [
        ("anvil-modules-old", "40 days ago"),
        ("anvil-modules-recent", "20 days ago"),
        ("anvil-modules-broken-off.XYZ", "2 days ago"),
        ("anvil-modules-under-way.XYZ", "1 hour ago"),
        ("something-else", "40 days ago"),
    ] {
        let touched = Command::new("touch").args(["-d", age]).arg(folder.join(name)).status();
        assert!(touched.unwrap().success());
    }

    run(&site, &[&base], PING).ok("ping");

    let current = format!("anvil-modules-{}", digest(&site.path("script")));
    let mut expected =
        [current.as_str(), "anvil-modules-recent", "anvil-modules-under-way.XYZ", "something-else"];
    expected.sort_unstable();
    assert_eq!(entries(folder.to_str().unwrap()), expected);
}

#[test]
fn forks_that_upload_at_once_do_not_disturb_each_other() {
    let mut site = Site::new();
    site.environment = vec![("ANSIBLE_FORKS", "8".into())];
    let target = site.ssh("deploy");
    let targets: Value = (0..8).map(|number| (format!("host{number}"), target.clone())).collect();

    let outcome = site.run_on(Core::newest(), &targets, PING);

    let results = outcome.all("ping");
    assert_eq!(results.len(), 8, "{}", outcome.output);
    for result in results {
        assert_eq!(result["result"]["ping"]["user"], "deploy", "{result}");
    }
    assert_eq!(entries(&site.text(&format!("home/deploy/.cache/homelab-anvil-{DEPLOY}"))).len(), 1);
}

#[test]
fn directories_that_would_confuse_the_shell_are_refused() {
    let site = Site::with_script(WHERE);
    for bases in [json!(["/with blank"]), json!(["relative"]), json!(["/x;reboot"]), json!([5]), json!([])] {
        let mut target = site.local();
        target["anvil_cache_dirs"] = bases.clone();
        let outcome = site.run(Core::newest(), &target, PING);
        let (code, msg) = outcome.failure("ping");
        assert_eq!(code, "bad_argument", "{bases}");
        assert!(msg.starts_with("anvil_cache_dirs: expected"), "{msg}");
    }
}
