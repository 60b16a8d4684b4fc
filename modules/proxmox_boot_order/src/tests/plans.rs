//! Plans as tables: this state, these arguments, then these writes or this refusal.

use ansible_module::{Arguments, Item, Module};
use proxmox_api::{PendingConfig, VmConfig, VmStatus};
use proxmox_vm::{AWAITS_INSTALL, Holder, Vm};
use serde_json::{Value, json};

use crate::args::Args;
use crate::observe::State;
use crate::plan;
use crate::window::{Sight, Verdict};
use crate::{ProxmoxBootOrder, proof};

fn arguments(more: Value) -> Result<Args, ansible_module::Failure> {
    let mut options = json!({
        "api_host": "pve1.test", "api_user": "a@pve", "api_token_id": "t", "api_token_secret": "s3cret-token",
        "vmid": 1101, "name": "web01",
    });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Args::parse(&Arguments::for_tests(&ProxmoxBootOrder::spec(), options)?)
}

fn watched() -> Args {
    arguments(json!({"log": "/var/log/nginx/a.log", "client": "10.20.30.21"})).unwrap()
}

fn vm(status: &str, uptime: u64, current: &str, stored: &str) -> Vm {
    let config = |boot: &str| {
        [
            ("name", "web01"),
            ("scsi0", "a:vm-1101-disk-0,size=40G"),
            ("net0", "virtio,bridge=vmbr0"),
            ("boot", boot),
        ]
        .into_iter()
        .collect::<VmConfig>()
    };
    let pending = if current == stored { None } else { Some("boot".to_owned()) };
    Vm {
        node: "pve1".into(),
        config: PendingConfig {
            current: config(current),
            stored: config(stored),
            pending: pending.into_iter().collect(),
            digest: None,
        },
        status: VmStatus { status: status.into(), ha_managed: false, uptime },
    }
}

fn marked(mut vm: Vm) -> Vm {
    vm.config.stored.set("description", AWAITS_INSTALL.put_on(Some("Serves the web")));
    vm
}

fn state(vm: Vm, verdict: Option<Verdict>) -> State {
    let sight = verdict.map(|verdict| Sight { verdict, ..Sight::default() });
    State { vm: Some(vm), holder: Holder::Vm { node: "pve1".into() }, sight, running: None }
}

fn told(args: &Args, state: &State) -> String {
    let plan = match plan::plan(args, state) {
        Ok(plan) => plan,
        Err(failure) => return failure.to_string(),
    };
    let mut lines = Vec::new();
    for item in &plan.items {
        match item {
            Item::Gate => lines.push("-- gate".to_owned()),
            Item::Step(step) => {
                let changes =
                    step.changes.iter().map(|one| format!("{}: {} -> {}", one.field, one.before, one.after));
                lines.push(format!("{:?}: {}", step.action, changes.collect::<Vec<_>>().join(", ")));
            }
        }
    }
    lines.join("\n")
}

const NET: &str = "order=net0";
const DISK: &str = "order=scsi0;net0";

#[test]
fn a_running_one_is_pinned_stopped_and_started_each_behind_a_gate() {
    let state = state(marked(vm("running", 900, NET, NET)), Some(Verdict::Open));
    insta::assert_snapshot!(told(&watched(), &state), @r#"
    Pin: boot: ["net0"] -> ["scsi0","net0"], description: "Serves the web\n\n[homelab.anvil: empty, to be installed over the network; its disk may be written over]" -> "Serves the web"
    -- gate
    Stop: status: "running" -> "stopped"
    -- gate
    Start: status: "stopped" -> "running", current.boot: ["net0"] -> ["scsi0","net0"]
    "#);
}

#[test]
fn what_an_earlier_run_left_is_finished() {
    let pinned_only = state(vm("running", 900, NET, DISK), Some(Verdict::Silent));
    insta::assert_snapshot!(told(&watched(), &pinned_only), @r#"
    Stop: status: "running" -> "stopped"
    -- gate
    Start: status: "stopped" -> "running", current.boot: ["net0"] -> ["scsi0","net0"]
    "#);
    let stopped = state(vm("stopped", 0, NET, DISK), None);
    insta::assert_snapshot!(told(&watched(), &stopped), @r#"Start: status: "stopped" -> "running", current.boot: ["net0"] -> ["scsi0","net0"]"#);
    assert_eq!(told(&watched(), &state(vm("running", 9, DISK, DISK), None)), "");
}

#[test]
fn a_stopped_one_that_nobody_saw_installed_is_refused() {
    let unseen = state(marked(vm("stopped", 0, NET, NET)), Some(Verdict::Silent));
    insta::assert_snapshot!(told(&watched(), &unseen), @"VM 1101 (web01) is not power-cycled: it is stopped, and was not seen to be installed. The log shows no request of the guest since it was started. Stopped in the middle, it would be left with a half-written disk. If you know it to be idle, say `now: true` (no_window)");
    let seen = state(marked(vm("stopped", 0, NET, NET)), Some(Verdict::Open));
    assert!(told(&watched(), &seen).starts_with("Pin: boot"));
}

#[test]
fn refusals() {
    let missing = arguments(json!({"now": true, "boot_order": ["scsi1", "net0"]})).unwrap();
    insta::assert_snapshot!(told(&missing, &state(vm("running", 9, NET, NET), None)), @"boot_order: the virtual machine has no device `scsi1`; it has net0, scsi0 (refused)");
    insta::assert_snapshot!(told(&watched(), &State::default()), @"there is no VM 1101 (web01) (not_found)");
    let mut other = vm("running", 9, NET, NET);
    other.config.stored.set("name", "db01");
    insta::assert_snapshot!(told(&watched(), &state(other, None)), @"VMID 1101 on pve1 belongs to another virtual machine: expected the name `web01`, found `db01` (refused)");
}

#[test]
fn arguments_are_judged_before_anything_is_asked() {
    for (more, said) in [
        (
            json!({}),
            "option `log`: needed, to see when the guest may be stopped; or say `now: true` of a virtual machine that is known to be idle",
        ),
        (
            json!({"log": "/l"}),
            "option `client`: needed, to know the guest's requests by; or say `now: true` of a virtual machine that is known to be idle",
        ),
        (
            json!({"now": true, "boot_order": []}),
            "option `boot_order`: expected the devices to boot from, found none",
        ),
        (
            json!({"now": true, "boot_order": ["net0", "net0"]}),
            "option `boot_order[1]`: `net0` is given twice",
        ),
        (
            json!({"log": "/l", "client": "10.0.0.1", "completion": "keys/ssh/*.pub"}),
            "option `completion`: expected patterns of paths that begin with `/` or `*`, such as `/keys/ssh/*.pub`",
        ),
        (
            json!({"log": "/l", "client": "10.0.0.1", "packages": []}),
            "option `packages`: expected patterns of paths that begin with `/` or `*`, such as `/keys/ssh/*.pub`",
        ),
    ] {
        assert_eq!(arguments(more.clone()).unwrap_err().msg, said, "{more}");
    }
    assert!(arguments(json!({"now": true})).is_ok());
}

#[test]
fn the_proof_names_what_did_not_take() {
    let told = |field: &str, after: Value, vm: Vm, running: Option<&str>, since_stop: Option<u64>| {
        let change = ansible_module::Change::new(field, Value::Null, after);
        let running = running.map(|boot| [("boot", boot)].into_iter().collect::<VmConfig>());
        let state = State { running, ..state(vm, None) };
        format!("{:?}", proof(&change, &state, since_stop))
    };
    let order = || json!(["scsi0", "net0"]);
    assert_eq!(told("boot", order(), vm("running", 9, NET, DISK), None, None), "Held");
    assert_eq!(told("current.boot", order(), vm("running", 1, DISK, DISK), Some(DISK), Some(2)), "Held");
    assert_eq!(told("status", json!("running"), vm("running", 2, DISK, DISK), Some(DISK), Some(2)), "Held");
    insta::assert_snapshot!(told("status", json!("running"), vm("running", 900, DISK, DISK), Some(DISK), Some(2)), @r#"Mismatch { found: String("running for 900 seconds: it was not stopped") }"#);
    insta::assert_snapshot!(told("current.boot", order(), vm("running", 1, NET, DISK), Some(NET), Some(2)), @r#"Mismatch { found: String("still pending") }"#);
    insta::assert_snapshot!(told("current.boot", order(), vm("running", 1, DISK, DISK), Some(NET), Some(2)), @r#"Mismatch { found: Array [String("net0")] }"#);
}
