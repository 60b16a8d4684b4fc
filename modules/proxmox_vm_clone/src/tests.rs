//! Plans as tables: this state, these arguments, then these writes or this refusal.

use ansible_module::{Arguments, Item, Proof};
use net_types::Vmid;
use proxmox_api::{Guest, GuestKind, PendingConfig, VmConfig, VmStatus};
use serde_json::{Map, Value, json};

use super::*;
use crate::observe::Source;
use proxmox_vm::Vm;

const MAC: &str = "02:a5:00:00:00:65";

fn args(more: Value) -> Args {
    let mut options = json!({
        "api_host": "pve1.test", "api_user": "a@pve", "api_token_id": "t", "api_token_secret": "s3cret-token",
        "vmid": 101, "name": "web01",
    });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Args::parse(&Arguments::for_tests(&ProxmoxVmClone::spec(), options).unwrap()).unwrap()
}

const TEMPLATE: [(&str, &str); 8] = [
    ("name", "fedora-42"),
    ("template", "1"),
    ("memory", "2048"),
    ("cores", "2"),
    ("boot", "order=scsi0"),
    ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"),
    ("scsi0", "local:base-8000-disk-0,discard=on,size=10G"),
    ("ide2", "local:vm-8000-cloudinit,media=cdrom"),
];

fn guest(vmid: u32, name: &str) -> Guest {
    Guest {
        vmid: Vmid::new(vmid).unwrap(),
        kind: GuestKind::Qemu,
        node: "pve1".into(),
        name: Some(name.into()),
        template: true,
        lock: None,
        status: None,
        tags: Vec::new(),
    }
}

fn nothing_yet() -> State {
    let source = Source { guest: guest(8000, "fedora-42"), config: TEMPLATE.into_iter().collect() };
    State { source: Some(source), ..State::default() }
}

/// web01 as the template made it, with these settings on top.
fn existing(status: &str, more: &[(&str, &str)]) -> State {
    let mut config: VmConfig = TEMPLATE.into_iter().collect();
    config.remove("template");
    config.set("name", "web01");
    config.set("scsi0", "local:vm-101-disk-0,discard=on,size=10G");
    for (key, text) in more {
        config.set(*key, *text);
    }
    let config = PendingConfig { current: config.clone(), stored: config, ..PendingConfig::default() };
    let status = VmStatus { status: status.into(), ha_managed: false, uptime: 0 };
    State { vm: Some(Vm { node: "pve1".into(), config, status }), ..State::default() }
}

/// A plan, one line a step, or the refusal.
fn told(args: &Args, state: &State) -> String {
    let plan = match plan::plan(args, state) {
        Ok(plan) => plan,
        Err(failure) => return failure.to_string(),
    };
    let mut lines: Vec<String> = plan.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    for item in &plan.items {
        match item {
            Item::Gate => lines.push("-- gate".into()),
            Item::Step(step) => {
                let changes =
                    step.changes.iter().map(|one| format!("{}: {} -> {}", one.field, one.before, one.after));
                lines.push(format!("{:?}: {}", step.action, changes.collect::<Vec<_>>().join(", ")));
            }
        }
    }
    lines.join("\n")
}

fn form(args: &Args, state: &State) -> Vec<String> {
    let base = &state.vm.as_ref().unwrap().config.stored;
    let changes = fields::changes(args, base).unwrap();
    let form = fields::form(args, base, &changes).unwrap();
    form.into_iter().map(|(key, text)| format!("{key}={text}")).collect()
}

#[test]
fn from_nothing_each_stage_stands_behind_a_gate() {
    let args = args(json!({
        "template": "fedora-42", "memory": 4096, "net": [{"mac": MAC, "vlan": 20}], "os_disk": {"size": 32},
        "disks": [{"slot": "scsi1", "storage": "local", "size": 8, "serial": "data"}], "state": "started",
    }));
    insta::assert_snapshot!(told(&args, &nothing_yet()), @r#"
    Clone: vm: null -> {"vmid":101,"name":"web01","node":"pve1","template":"fedora-42 (VMID 8000 on pve1)"}
    -- gate
    Configure: memory: 2048 -> 4096, description: "[homelab.anvil: cloned and not yet configured; run the task again to finish]" -> null, net0.macaddr: null -> "02:a5:00:00:00:65", net0.tag: null -> 20, scsi1.storage: null -> "local", scsi1.size: null -> "8G", scsi1.serial: null -> "data"
    -- gate
    Grow { slot: Slot { bus: "scsi", index: 0 }, size: Size(34359738368) }: scsi0.size: "10G" -> "32G"
    -- gate
    Start: status: "stopped" -> "running"
    "#);
}

#[test]
fn nothing_named_nothing_done() {
    assert_eq!(told(&args(json!({})), &existing("running", &[])), "");
    assert_eq!(told(&args(json!({"state": "absent"})), &State::default()), "");
    assert_eq!(told(&args(json!({"state": "started"})), &existing("running", &[])), "");
    assert_eq!(told(&args(json!({"state": "stopped"})), &existing("stopped", &[])), "");
}

#[test]
fn a_name_differs_by_more_than_case() {
    assert_eq!(told(&args(json!({})), &existing("stopped", &[("name", "WEB01")])), "");
    insta::assert_snapshot!(told(&args(json!({})), &existing("stopped", &[("name", "db01")])), @"VMID 101 on pve1 belongs to another virtual machine: expected the name `web01`, found `db01` (refused)");
}

#[test]
fn a_stop_comes_before_the_settings_and_a_start_after() {
    let stopping = args(json!({"memory": 4096, "state": "stopped"}));
    insta::assert_snapshot!(told(&stopping, &existing("running", &[])), @r#"
    Stop: status: "running" -> "stopped"
    -- gate
    Configure: memory: 2048 -> 4096
    "#);
    let starting = args(json!({"memory": 4096, "os_disk": {"size": 20}, "state": "started"}));
    insta::assert_snapshot!(told(&starting, &existing("stopped", &[])), @r#"
    Configure: memory: 2048 -> 4096
    -- gate
    Grow { slot: Slot { bus: "scsi", index: 0 }, size: Size(21474836480) }: scsi0.size: "10G" -> "20G"
    -- gate
    Start: status: "stopped" -> "running"
    "#);
}

#[test]
fn a_restart_is_made_only_when_asked_and_needed() {
    let running = existing("running", &[]);
    let asked = args(json!({"memory": 4096, "restart": true, "state": "started"}));
    insta::assert_snapshot!(told(&asked, &running), @r#"
    Stop: status: "running" -> "stopped"
    -- gate
    Configure: memory: 2048 -> 4096
    -- gate
    Start: status: "stopped" -> "running"
    "#);
    assert_eq!(
        told(&args(json!({"restart": true, "state": "started"})), &running),
        "",
        "nothing waits for it"
    );
    let live = args(json!({"tags": ["web"], "restart": true, "state": "started"}));
    assert_eq!(told(&live, &running), "Configure: tags: null -> [\"web\"]");
    let mut waiting = existing("running", &[]);
    waiting.vm.as_mut().unwrap().config.pending.insert("cores".into());
    assert!(
        told(&args(json!({"restart": true, "state": "started"})), &waiting).starts_with("Stop"),
        "what an earlier run left"
    );
    assert_eq!(told(&args(json!({})), &waiting), "");
}

#[test]
fn a_mark_left_by_a_cut_off_run_is_taken_away_and_the_password_set() {
    let description = fields::MARK.put_on(Some("From the template\n"));
    let state = existing("stopped", &[("description", &description)]);
    let args = args(json!({"cloud_init": {"password": "guest-secret"}}));
    assert_eq!(form(&args, &state), ["cipassword=guest-secret", "description=From the template"]);
    let without = existing("stopped", &[("description", &fields::MARK.put_on(None))]);
    assert_eq!(form(&args, &without), ["cipassword=guest-secret", "delete=description"]);
    assert!(!told(&args, &state).contains("guest-secret"));
}

#[test]
fn what_is_written_keeps_what_is_not_named() {
    let state = existing(
        "stopped",
        &[
            ("agent", "1,fstrim_cloned_disks=1"),
            ("ipconfig0", "ip=10.0.0.5/24,gw=10.0.0.1"),
            ("scsi1", "local:vm-101-disk-1,backup=0,iothread=1,size=8G"),
        ],
    );
    for (options, expected) in [
        (
            json!({"net": [{"vlan": 20}]}),
            vec!["net0=virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=20"],
        ),
        (json!({"net": [{"mac": MAC}]}), vec!["net0=virtio=02:A5:00:00:00:65,bridge=vmbr0,firewall=1"]),
        (json!({"net": [{"model": "e1000"}]}), vec!["net0=e1000=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"]),
        (json!({"net": [{"slot": "net3", "bridge": "vmbr1"}]}), vec!["net3=virtio,bridge=vmbr1"]),
        (
            json!({"disks": [{"slot": "scsi1", "storage": "local", "size": 8, "serial": "data"}]}),
            vec!["scsi1=local:vm-101-disk-1,backup=0,iothread=1,serial=data,size=8G"],
        ),
        (
            json!({"disks": [{"slot": "scsi2", "storage": "local", "size": "1T", "discard": false, "ssd": true}]}),
            vec!["scsi2=local:1024,discard=ignore,ssd=1"],
        ),
        (json!({"agent": "0"}), vec!["agent=0,fstrim_cloned_disks=1"]),
        (
            json!({"cloud_init": {"ip_config": [{"ip6": "auto"}]}}),
            vec!["ipconfig0=gw=10.0.0.1,ip=10.0.0.5/24,ip6=auto"],
        ),
        (json!({"cloud_init": {"ip_config": [{"ip": "dhcp"}]}}), vec!["ipconfig0=ip=dhcp"]),
        (
            json!({"cloud_init": {"nameserver": ["10.0.0.1", "10.0.0.2"], "searchdomain": ["a.test"]}}),
            vec!["nameserver=10.0.0.1 10.0.0.2", "searchdomain=a.test"],
        ),
        (json!({"cloud_init": {"user": "", "nameserver": []}, "description": ""}), vec![]),
        (json!({"tags": ["web", "prod"], "onboot": true}), vec!["onboot=1", "tags=prod;web"]),
        (json!({"boot_order": ["scsi0", "net0"]}), vec!["boot=order=scsi0;net0"]),
        (json!({"delete": ["net0", "balloon"]}), vec!["delete=net0"]),
        (json!({"delete": ["agent"], "tags": [], "memory": 4096}), vec!["memory=4096", "delete=agent"]),
        (json!({"startup": "2,up=30", "cpu": "host"}), vec!["cpu=host", "startup=order=2,up=30"]),
        (json!({"memory": 2048, "cores": 2, "protection": false, "tags": []}), vec![]),
    ] {
        assert_eq!(form(&args(options.clone()), &state), expected, "{options}");
    }
}

#[test]
fn a_disk_is_allocated_only_in_an_empty_slot() {
    let declared =
        args(json!({"disks": [{"slot": "scsi1", "storage": "local", "size": 8, "serial": "data"}]}));
    assert_eq!(form(&declared, &existing("stopped", &[])), ["scsi1=local:8,serial=data"]);
    let there = existing("stopped", &[("scsi1", "other:vm-101-disk-1,serial=data,size=16G")]);
    assert!(form(&declared, &there).iter().all(|pair| !pair.contains("local:8")));
    insta::assert_snapshot!(told(&declared, &there), @r#"
    warning: scsi1 is on other:vm-101-disk-1, not on local; it is not moved
    warning: scsi1 is larger than declared: 16G instead of 8G
    "#);
}

#[test]
fn the_os_disk_is_found_by_the_boot_order_the_task_asks_for() {
    let more = [("boot", "order=net0"), ("virtio0", "local:vm-101-disk-1,size=20G")];
    let state = existing("stopped", &more);
    let ask = |more: Value| told(&args(more), &state);
    insta::assert_snapshot!(ask(json!({"os_disk": {"size": 40}})), @"os_disk: the boot order names no disk, and there is not exactly one; give os_disk.slot. Devices: ide2, net0, scsi0, virtio0 (refused)");
    insta::assert_snapshot!(ask(json!({"os_disk": {"size": 40}, "boot_order": ["virtio0"]})), @r#"
    Configure: boot: ["net0"] -> ["virtio0"]
    -- gate
    Grow { slot: Slot { bus: "virtio", index: 0 }, size: Size(42949672960) }: virtio0.size: "20G" -> "40G"
    "#);
    insta::assert_snapshot!(ask(json!({"os_disk": {"size": 40, "slot": "scsi0"}})), @r#"
    -- gate
    Grow { slot: Slot { bus: "scsi", index: 0 }, size: Size(42949672960) }: scsi0.size: "10G" -> "40G"
    "#);
    insta::assert_snapshot!(ask(json!({"os_disk": {"size": 5, "slot": "scsi0"}})), @"os_disk: scsi0 has 10G, the task asks for 5G; a disk is never shrunk (refused)");
}

#[test]
fn a_change_is_held_pending_or_told() {
    let mut state = existing("running", &[]);
    let vm = state.vm.as_mut().unwrap();
    vm.config.stored.set("memory", "4096");
    vm.config.pending.insert("memory".into());
    vm.config.stored.set("cores", "4");
    let judge = |field: &str, after: Value| proof(&Change::new(field, Value::Null, after), &state);
    assert!(matches!(judge("memory", json!(4096)), Proof::Pending(why) if why.contains("keeps 2048")));
    assert_eq!(judge("cores", json!(4)), Proof::Held);
    assert_eq!(judge("cores", json!(8)), Proof::Mismatch { found: json!(4) });
    assert_eq!(judge("net0.macaddr", json!(MAC)), Proof::Mismatch { found: json!("bc:24:11:00:00:01") });
    assert_eq!(judge("scsi1.serial", json!("data")), Proof::Mismatch { found: Value::Null });
    assert_eq!(judge("cipassword", json!("x")), Proof::Mismatch { found: Value::Null });
    assert_eq!(judge("status", json!("running")), Proof::Held);
    assert_eq!(judge("vm", json!({"name": "web01", "node": "pve1"})), Proof::Held);
    assert!(matches!(judge("vm", json!({"name": "db01", "node": "pve1"})), Proof::Mismatch { .. }));
    assert!(matches!(judge("vm", json!({"name": "web01", "node": "pve2"})), Proof::Mismatch { .. }));
}

#[test]
fn a_setting_this_module_cannot_read_is_no_panic() {
    let state = existing("stopped", &[("net0", "mystery=1,bridge=vmbr0")]);
    let refusal = told(&args(json!({"net": [{"vlan": 2}]})), &state);
    assert!(refusal.contains("a setting that this module cannot read"), "{refusal}");
    assert_eq!(told(&args(json!({"memory": 2048})), &state), "", "what is not named is not read");
}

#[test]
fn check_mode_and_the_form_agree() {
    let args = args(json!({"net": [{"mac": MAC}], "memory": 4096, "tags": ["b", "a"]}));
    let before = nothing_yet().source.unwrap().clone_config(&args).unwrap();
    let after = fields::predicted(&args, &before).unwrap();
    assert_eq!(fields::changes(&args, &after).unwrap(), []);
    let object: Map<String, Value> = report(&args, &nothing_yet(), true, false);
    assert_eq!((&object["vm"]["mac"], &object["vm"]["memory"]), (&json!(MAC), &json!(4096)));
}

/// The temporary VM of a rebuild of web01, with its disk or without.
fn temporary(disk: Option<&str>) -> observe::Temporary {
    let mark = rebuild::Mark {
        vmid: "101".into(),
        slot: "scsi0".parse().unwrap(),
        old: "local:vm-101-disk-0".into(),
    };
    let mut config: VmConfig = [("name", "anvil-rebuild-101"), ("boot", "order=scsi0")].into_iter().collect();
    config.set("description", mark.text());
    disk.into_iter().for_each(|text| config.set("scsi0", text));
    let config = PendingConfig { current: config.clone(), stored: config, ..PendingConfig::default() };
    let status = VmStatus { status: "stopped".into(), ha_managed: false, uptime: 0 };
    observe::Temporary::Read(Vm { node: "pve1".into(), config, status })
}

#[test]
fn a_rebuild_that_was_cut_off_goes_on_where_it_is() {
    let args = args(json!({"rebuild_os_disk": true, "os_disk": {"size": 8}, "state": "stopped"}));
    let waiting = ("unused255", "local:vm-101-disk-2");
    let fresh = ("scsi0", "local:vm-101-disk-2,size=8G");
    let old = ("unused0", "local:vm-101-disk-0");
    for (vm, disk, steps) in [
        (vec![], Some("local:vm-900000101-disk-0,size=5G"), "Grow Give Swap Discard CleanUp"),
        (vec![], Some("local:vm-900000101-disk-0,size=8G"), "Give Swap Discard CleanUp"),
        (vec![waiting], None, "Swap Discard CleanUp"),
        (vec![fresh, old], None, "Discard CleanUp"),
        (vec![fresh], None, "CleanUp"),
    ] {
        let state = State { temporary: Some(temporary(disk)), ..existing("stopped", &vm) };
        let plan = plan::plan(&args, &state).unwrap();
        let told: Vec<String> = plan.steps().map(|step| format!("{:?}", step.action)).collect();
        let told: Vec<&str> =
            told.iter().filter_map(|step| step.strip_prefix("Rebuild")?.split(' ').next()).collect();
        assert_eq!(told.join(" "), steps, "{vm:?}");
    }
    for vm in [vec![fresh, waiting], vec![("scsi0", "local:vm-101-disk-9,size=8G"), waiting]] {
        let state = State { temporary: Some(temporary(None)), ..existing("stopped", &vm) };
        let refusal = told(&args, &state);
        assert!(refusal.contains("does not look as any step leaves it"), "{refusal}");
    }
}
