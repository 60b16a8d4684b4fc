//! What the user is told when a module cannot be run, or does not answer.

use std::fs;
use std::path::Path;

use serde_json::{Map, json};

use crate::core::Core;
use crate::site::{PASSWORD, Site, isolated};

const PING: &str = "- name: ping\n  homelab.anvil.anvil_ping:\n";

#[test]
fn a_checkout_that_was_not_built_says_what_to_run() {
    let site = isolated!(Site::without_bundle());
    for tasks in [PING.to_owned(), format!("{PING}  async: 10\n")] {
        let outcome = site.run(Core::newest(), &site.local(), &tasks);
        let (code, msg) = outcome.failure("ping");
        assert_eq!(code, "not_built");
        assert!(msg.starts_with("not built: run make rebuild"), "{msg}");
    }
}

#[test]
fn an_architecture_is_chosen_on_the_target_and_a_missing_one_is_named() {
    let supported = "Linux x86_64, Linux aarch64";
    let cases = [
        ("root", "Linux riscv64", "unsupported_architecture", ["'Linux riscv64'", supported]),
        ("deploy", "FreeBSD amd64", "unsupported_architecture", ["'FreeBSD amd64'", supported]),
        ("guarded", other_architecture(), "not_built", [other_architecture(), "make dist"]),
    ];
    let mut site = isolated!(Site::new());
    site.fake("uname", "#!/bin/sh\ncat $HOME/machine\n");
    let mut targets = Map::from_iter([("native".to_owned(), site.local())]);
    for (user, machine, ..) in cases {
        fs::write(site.path("home").join(user).join("machine"), machine).unwrap();
        targets.insert(user.to_owned(), site.ssh(user));
    }
    let tasks = "
- name: ping
  homelab.anvil.anvil_ping:
  ignore_errors: true
- name: async
  homelab.anvil.anvil_ping:
  async: 10
  ignore_errors: true
";

    let outcome = site.run_on(Core::newest(), &targets.into(), tasks);

    for (user, _, code, words) in cases {
        for task in ["ping", "async"] {
            let result = outcome.on(user, task);
            assert_eq!(result["error_code"], code, "{task}: {result}");
            for word in words {
                assert!(result["msg"].as_str().unwrap().contains(word), "{task}: {result}");
            }
        }
    }
    assert_eq!(outcome.on("native", "ping")["ping"]["user"], "root");
}

fn other_architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") { "Linux aarch64" } else { "Linux x86_64" }
}

/// The other architecture is chosen when it is there: a script stands for its bundle.
#[test]
fn a_mixed_inventory_gets_each_host_its_own_bundle() {
    let mut site = isolated!(Site::new());
    let architecture = other_architecture().trim_start_matches("Linux ");
    let libexec =
        site.text(&format!("collections/ansible_collections/homelab/anvil/libexec/{architecture}-linux"));
    fs::create_dir(&libexec).unwrap();
    fs::write(
        format!("{libexec}/anvil-modules"),
        format!("#!/bin/sh\ncat >/dev/null\necho '{{\"ping\": {{\"arch\": \"{architecture}\"}}}}'\n"),
    )
    .unwrap();
    site.fake("uname", &format!("#!/bin/sh\necho '{}'\n", other_architecture()));
    let foreign = site.ssh("deploy");

    let outcome = site.run_on(Core::newest(), &json!({"foreign": foreign, "native": site.local()}), PING);

    for (host, arch) in [("foreign", architecture), ("native", std::env::consts::ARCH)] {
        assert_eq!(outcome.on(host, "ping")["ping"]["arch"], arch, "{host}");
    }
}

/// Both connections: over ssh a shell that dies of a signal would look like an unreachable host.
#[test]
fn a_module_that_dies_is_a_failure_that_names_the_signal() {
    let mut site = isolated!(Site::with_script("#!/bin/sh\ncat >/dev/null\necho half >&2\nkill -9 $$\n"));
    let ssh = site.ssh("deploy");
    for target in [ssh, site.local()] {
        let outcome = site.run(Core::newest(), &target, PING);
        let (code, msg) = outcome.failure("ping");
        assert_eq!(
            (code, msg),
            ("no_answer", "anvil_ping was killed by signal 9 (SIGKILL) and gave no result")
        );
        let result = outcome.failed("ping");
        assert!(result["module_stderr"].as_str().unwrap().contains("half"), "{result}");
    }
}

#[test]
fn output_that_is_no_result_is_shown() {
    let site = isolated!(Site::with_script("#!/bin/sh\nsed -n 's/.*<\\(.*\\)>.*/\\1/p'\nexit 3\n"));
    let prints = ["", "a note", "{broken", "[1, 2]"];
    let tasks: String = prints
        .iter()
        .map(|text| {
            format!("- name: 'prints {text}'\n  homelab.anvil.anvil_ping: {{data: '<{text}>'}}\n  ignore_errors: true\n")
        })
        .collect();

    let outcome = site.run(Core::newest(), &site.local(), &tasks);

    for text in prints {
        let result = outcome.failed(&format!("prints {text}"));
        assert_eq!(result["msg"], "anvil_ping ended with exit status 3 and gave no result");
        assert_eq!(result["module_stdout"].as_str().unwrap().trim_end(), text);
    }
}

#[test]
fn the_result_is_found_among_other_output_and_standard_error_stays_out() {
    let site = isolated!(Site::with_script(
        "#!/bin/sh\ncat >/dev/null\necho 'Welcome to the machine'\n\
         printf '%s\\n' '{\"changed\": true, \"stdout\": \"one\\ntwo\", \"_ansible_odd\": 1, \"text\": \"{{ 1 + 1 }}\"}'\n\
         echo noise >&2\n",
    ));
    for core in [Core::oldest(), Core::newest()] {
        let tasks = format!(
            "{PING}  register: answer\n- name: shown\n  ansible.builtin.debug: {{var: answer.text}}\n"
        );
        let outcome = site.run(core, &site.local(), &tasks);
        let result = outcome.ok("ping");
        assert_eq!(result["changed"], true);
        assert_eq!(result["stdout_lines"], json!(["one", "two"]));
        assert_eq!(outcome.ok("shown")["answer.text"], "{{ 1 + 1 }}", "a result is never a template");
        assert!(
            result.get("_ansible_odd").is_none() && !outcome.output.contains("noise"),
            "{}",
            outcome.output
        );
    }
}

/// More than a pipe and a TCP window hold, on a target that has no bundle yet.
#[test]
fn long_arguments_arrive_when_the_bundle_must_be_sent_first() {
    let mut site = isolated!(Site::with_script("#!/bin/sh\necho '{\"bytes\": '$(wc -c)'}'\n"));
    let mut target = site.ssh("deploy");
    let data = "x".repeat(6_000_000);
    target["long"] = json!(data);

    let tasks = "- name: ping\n  homelab.anvil.anvil_ping: {data: '{{ long }}'}\n";
    let outcome = site.run(Core::newest(), &target, tasks);

    assert!(outcome.ok("ping")["bytes"].as_u64().unwrap() > 6_000_000);
}

#[test]
fn a_become_password_shares_standard_input_with_the_arguments() {
    let mut site = isolated!(Site::new());
    let mut ssh = site.ssh("guarded");
    ssh["ansible_become_password"] = json!(PASSWORD);
    // sudo never asks root: a stand-in asks as sudo does.
    let mut local = site.local();
    local["ansible_become_password"] = json!(PASSWORD);
    local["ansible_become_exe"] = json!(site.text("bin/asking"));
    local["ansible_become_user"] = json!("nobody");
    site.fake(
        "asking",
        &format!(
            "#!/bin/sh\nprintf '%s' \"$4\" >&2\nIFS= read -r given\n[ \"$given\" = '{PASSWORD}' ] || exit 1\n\
             shift 4\nexec /usr/bin/sudo -n \"$@\"\n"
        ),
    );
    for core in [Core::oldest(), Core::newest()] {
        for (target, user) in [(&ssh, "root"), (&local, "nobody")] {
            let outcome = site.run(core, target, &format!("{PING}  become: true\n"));
            assert_eq!(outcome.ping("ping")["user"], user, "{}", core.version);
            assert!(!outcome.output.contains(PASSWORD));
        }
    }
}

/// su wants its password from a terminal, so the bundle goes Ansible's own way.
#[test]
fn su_works_without_a_pipe() {
    let site = isolated!(Site::new());
    for core in [Core::oldest(), Core::newest()] {
        let mut target = site.local();
        target["ansible_become_method"] = json!("su");
        target["ansible_become_user"] = json!("deploy");
        let outcome = site.run(core, &target, &format!("{PING}  become: true\n"));
        assert_eq!(outcome.ping("ping")["user"], "deploy", "{}", core.version);
        let program = outcome.ping("ping")["program"].as_str().unwrap();
        assert!(program.contains("AnsiballZ_anvil_modules"), "{program}");
    }
}

#[test]
fn other_shells_run_the_commands_too() {
    for shell in ["/bin/bash", "/bin/busybox sh"] {
        if !lab::present(Path::new(shell.split(' ').next().unwrap()).exists(), shell) {
            continue;
        }
        let site = isolated!(Site::new());
        let mut target = site.local();
        target["ansible_shell_executable"] = json!(shell);
        let outcome = site.run(Core::newest(), &target, PING);
        assert_eq!(outcome.ping("ping")["user"], "root", "{shell}");
    }
}
