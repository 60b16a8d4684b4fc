//! Where the bundle is kept on a target, and what is never run from there.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::core::Core;
use crate::site::{DEPLOY, Outcome, Site, digest, isolated};

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
    let mut site = isolated!(Site::with_script(WHERE));
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
    let site = isolated!(Site::with_script(WHERE));

    let outcome = site.run(Core::newest(), &site.local(), NOBODY);

    let program = outcome.ok("ping")["program"].as_str().unwrap();
    assert!(program.starts_with("/var/tmp/homelab-anvil-65534/anvil-modules-"), "{program}");
}

#[test]
fn a_home_that_belongs_to_another_user_is_left_alone() {
    let mut site = isolated!(Site::with_script(WHERE));
    site.environment = vec![("ANSIBLE_BECOME_FLAGS", "--preserve-env=HOME".into())];

    let outcome = site.run(Core::newest(), &site.local(), NOBODY);

    assert!(outcome.ok("ping")["program"].as_str().unwrap().starts_with("/var/tmp/"), "{}", outcome.output);
    assert!(!site.path("home/root/.cache/homelab-anvil-65534").exists());
}

#[test]
fn directories_that_cannot_keep_it_are_passed_over() {
    let mut site = isolated!(Site::with_script(WHERE));
    let noexec = site.mount("noexec", "noexec");
    let read_only = site.mount("read-only", "ro");
    let good = site.base("good");
    let closed = site.base("closed");
    chmod(Path::new(&closed), 0o755);

    let outcome = run(&site, &[&noexec, &read_only, &closed, "/nowhere", &good], NOBODY);

    let program = outcome.ok("ping")["program"].as_str().unwrap();
    assert!(program.starts_with(&format!("{good}/homelab-anvil-65534/")), "{program}");
}

#[test]
fn a_full_directory_is_passed_over_and_left_as_it_was() {
    // A page for the check whether programs run, but not for the megabytes of the bundle.
    let mut site = isolated!(Site::new());
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
    let mut site = isolated!(Site::new());
    let noexec = site.mount("noexec", "noexec");
    let read_only = site.mount("read-only", "ro");
    let full = site.mount("full", "size=64k");
    let closed = site.base("closed");
    chmod(Path::new(&closed), 0o755);

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

/// A program in the cache that must not run, under the name of the bundle.
struct Planted {
    folder: PathBuf,
    entry: PathBuf,
}

impl Planted {
    fn in_base(site: &Site, base: &str, program: &str) -> Self {
        let folder = Path::new(base).join("homelab-anvil-0");
        let entry = folder.join(format!("anvil-modules-{}", digest(&site.path("script"))));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        fs::write(&entry, program).unwrap();
        fs::set_permissions(&entry, Permissions::from_mode(0o700)).unwrap();
        Self { folder, entry }
    }
}

type Change = fn(&Planted);

/// Plants a program, does to it what the case says, and runs a task; one host a case. Each must have run
/// the bundle out of `runs_from`, where `first` is the base with the planted program.
fn never_run(runs_from: &str, cases: &[(&str, Change)]) {
    let site = isolated!(Site::with_script(WHERE));
    let mut targets = Map::new();
    for (name, change) in cases {
        let (first, second) = (site.base(&format!("{name}-first")), site.base(&format!("{name}-second")));
        change(&Planted::in_base(
            &site,
            &first,
            "#!/bin/sh\ntouch /var/tmp/evil\necho '{\"program\": \"evil\"}'\n",
        ));
        targets.insert((*name).to_owned(), with_bases(site.local(), &[&first, &second]));
    }

    let outcome = site.run_on(Core::newest(), &targets.into(), PING);

    assert!(!site.path("var-tmp/evil").exists(), "it was run");
    for (name, _) in cases {
        let program = outcome.on(name, "ping")["program"].as_str();
        let expected = site.text(&format!("{name}-{runs_from}/homelab-anvil-0/"));
        assert!(program.is_some_and(|program| program.starts_with(&expected)), "{name}: {}", outcome.output);
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Moves it away and leaves a link in its place.
fn link(path: &Path) {
    let elsewhere = path.with_extension("moved");
    fs::rename(path, &elsewhere).unwrap();
    symlink(elsewhere.file_name().unwrap(), path).unwrap();
}

#[test]
fn an_entry_that_somebody_else_could_have_written_is_replaced_and_not_run() {
    never_run(
        "first",
        &[
            ("owner", |planted| chown(&planted.entry, Some(DEPLOY), None).unwrap()),
            ("group", |planted| chmod(&planted.entry, 0o720)),
            ("others", |planted| chmod(&planted.entry, 0o702)),
            ("link", |planted| link(&planted.entry)),
        ],
    );
}

#[test]
fn nothing_runs_from_a_directory_that_somebody_else_could_have_filled() {
    never_run(
        "second",
        &[
            ("owner", |planted| chown(&planted.folder, Some(DEPLOY), None).unwrap()),
            ("group", |planted| chmod(&planted.folder, 0o770)),
            ("others", |planted| chmod(&planted.folder, 0o707)),
            ("link", |planted| link(&planted.folder)),
            // Whoever may rename the directory may put another in its place.
            ("base", |planted| chmod(planted.folder.parent().unwrap(), 0o777)),
            ("base-owner", |planted| chown(planted.folder.parent().unwrap(), Some(DEPLOY), None).unwrap()),
        ],
    );
}

#[test]
fn a_directory_that_is_refused_is_named_with_what_it_must_be() {
    let site = isolated!(Site::with_script(WHERE));
    let base = site.base("base");
    fs::create_dir(Path::new(&base).join("homelab-anvil-0")).unwrap();
    chmod(&Path::new(&base).join("homelab-anvil-0"), 0o777);

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
    let site = isolated!(Site::with_script(WHERE));
    let mut targets = Map::new();
    for (name, program) in [("no-interpreter", "#!/nonexistent/interpreter\n"), ("empty", "")] {
        let base = site.base(name);
        Planted::in_base(&site, &base, program);
        targets.insert(name.to_owned(), with_bases(site.local(), &[&base]));
    }

    let outcome = site.run_on(Core::newest(), &targets.into(), PING);

    for name in ["no-interpreter", "empty"] {
        let program = outcome.on(name, "ping")["program"].as_str();
        assert!(
            program.is_some_and(|program| program.starts_with(&site.text(name))),
            "{name}: {}",
            outcome.output
        );
    }
}

#[test]
fn entries_expire_by_age() {
    let site = isolated!(Site::with_script(WHERE));
    let base = site.base("base");
    let folder = Path::new(&base).join("homelab-anvil-0");
    fs::create_dir(&folder).unwrap();
    chmod(&folder, 0o700);
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
    let mut site = isolated!(Site::new());
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
    let site = isolated!(Site::with_script(WHERE));
    let cases = [
        ("blank", json!(["/with blank"])),
        ("relative", json!(["relative"])),
        ("command", json!(["/x;reboot"])),
        ("number", json!([5])),
        ("empty", json!([])),
    ];
    let mut targets = Map::new();
    for (name, bases) in &cases {
        let mut target = site.local();
        target["anvil_cache_dirs"] = bases.clone();
        targets.insert((*name).to_owned(), target);
    }

    let outcome = site.run_on(Core::newest(), &targets.into(), PING);

    for (name, _) in cases {
        let result = outcome.on(name, "ping");
        assert_eq!(result["error_code"], "bad_argument", "{name}: {result}");
        assert!(result["msg"].as_str().unwrap().starts_with("anvil_cache_dirs: expected"), "{result}");
    }
}
