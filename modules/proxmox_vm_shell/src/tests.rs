//! Plans as tables: this state, these arguments, then these writes or this refusal.

use ansible_module::{Arguments, Item};
use proxmox_api::{PendingConfig, VmConfig, VmStatus};
use proxmox_vm::{Holder, Vm};
use serde_json::{Map, Value, json};

use super::*;

const MAC: &str = "02:a5:00:00:04:4d";

fn arguments(more: Value) -> Result<Args, Failure> {
    let mut options = json!({
        "api_host": "pve1.test", "api_user": "a@pve", "api_token_id": "t", "api_token_secret": "s3cret-token",
        "vmid": 1101, "name": "web01", "node": "pve1", "memory": 4096, "cores": 2,
        "net": [{"slot": "net0", "mac": MAC, "bridge": "vmbr0", "vlan": 20}],
        "disks": [{"slot": "scsi0", "storage": "local", "size": 40}],
    });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Args::parse(&Arguments::for_tests(&ProxmoxVmShell::spec(), options)?)
}

fn args(more: Value) -> Args {
    arguments(more).unwrap()
}

/// web01 as this module makes it, with these settings on top; an empty text takes one away.
fn shell(status: &str, more: &[(&str, &str)]) -> State {
    let mark = AWAITS_INSTALL.put_on(None);
    let mut config: VmConfig = [
        ("name", "web01"),
        ("description", mark.as_str()),
        ("machine", "q35"),
        ("bios", "ovmf"),
        ("ostype", "l26"),
        ("efidisk0", "local:vm-1101-disk-0,efitype=4m,size=4M"),
        ("scsi0", "local:vm-1101-disk-1,size=40G"),
        ("scsihw", "virtio-scsi-single"),
        ("net0", "virtio=02:A5:00:00:04:4D,bridge=vmbr0,tag=20"),
        ("rng0", "source=/dev/urandom"),
        ("memory", "4096"),
        ("cores", "2"),
        ("agent", "1"),
        ("boot", "order=net0"),
    ]
    .into_iter()
    .collect();
    for (key, text) in more {
        if text.is_empty() { config.remove(key) } else { config.set(*key, *text) }
    }
    let config = PendingConfig { current: config.clone(), stored: config, ..PendingConfig::default() };
    let status = VmStatus { status: status.into(), ha_managed: false, uptime: 0 };
    let vm = Vm { node: "pve1".into(), config, status };
    State { vm: Some(vm), holder: Holder::Vm { node: "pve1".into() }, ..State::default() }
}

fn installed(status: &str, more: &[(&str, &str)]) -> State {
    shell(status, &[&[("description", ""), ("boot", "order=scsi0;net0")], more].concat())
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

fn started() -> Args {
    args(json!({"state": "started"}))
}

#[test]
fn from_nothing_it_is_whole_before_it_starts() {
    insta::assert_snapshot!(told(&started(), &State::default()), @r#"
    Create: vm: null -> {"name":"web01","node":"pve1"}, machine: null -> "q35", bios: null -> "ovmf", rng0.source: null -> "/dev/urandom", efidisk0.storage: null -> "local", efidisk0.efitype: null -> "4m", ostype: null -> "l26", cores: null -> 2, memory: null -> 4096, agent: null -> "1", scsihw: null -> "virtio-scsi-single", description: null -> "[homelab.anvil: empty, to be installed over the network; its disk may be written over]", net0.macaddr: null -> "02:a5:00:00:04:4d", net0.bridge: null -> "vmbr0", net0.tag: null -> 20, scsi0.storage: null -> "local", scsi0.size: null -> "40G", boot: null -> ["net0"]
    -- gate
    Start: status: "stopped" -> "running"
    "#);
}

#[test]
fn what_is_as_declared_is_left_alone() {
    assert_eq!(told(&started(), &shell("running", &[])), "");
    assert_eq!(told(&args(json!({})), &shell("stopped", &[])), "");
    assert_eq!(told(&started(), &installed("running", &[])), "");
    assert_eq!(told(&args(json!({"state": "absent"})), &State::default()), "");
    // A pinned machine version, the generator's short form, and limits of it that nobody asked about.
    let spelt = [("machine", "pc-q35-9.0"), ("rng0", "/dev/urandom,max_bytes=1024,period=1000")];
    assert_eq!(told(&started(), &shell("running", &spelt)), "");
}

#[test]
fn a_shell_is_shaped_and_started() {
    insta::assert_snapshot!(told(&started(), &shell("stopped", &[("rng0", ""), ("memory", "2048")])), @r#"
    Configure: rng0.source: null -> "/dev/urandom", memory: 2048 -> 4096
    -- gate
    Start: status: "stopped" -> "running"
    "#);
    insta::assert_snapshot!(told(&started(), &shell("stopped", &[("rng0", "source=/dev/hwrng,period=1000")])), @r#"
    Configure: rng0.source: "/dev/hwrng" -> "/dev/urandom"
    -- gate
    Start: status: "stopped" -> "running"
    "#);
}

#[test]
fn a_disk_with_data_is_not_touched() {
    insta::assert_snapshot!(told(&started(), &installed("running", &[("memory", "2048")])), @"VM 1101 (web01) has a disk with data in its boot slot (scsi0: local:vm-1101-disk-1,size=40G), so it is not touched. It differs in memory (is 2048, asked 4096). Change it with homelab.anvil.proxmox_vm_clone, or give its data up with `overwrite_disk: true` (refused)");
    insta::assert_snapshot!(told(&started(), &installed("running", &[("boot", "order=net0;scsi0")])), @"VM 1101 (web01) has a disk with data in its boot slot (scsi0: local:vm-1101-disk-1,size=40G), and does not boot from it first: boot is order=net0;scsi0. Its next start may install over it. Pin the boot order with homelab.anvil.proxmox_boot_order, or give its data up with `overwrite_disk: true` (refused)");
    insta::assert_snapshot!(told(&started(), &installed("stopped", &[("boot", "cdn")])), @"VM 1101 (web01) has a disk with data in its boot slot (scsi0: local:vm-1101-disk-1,size=40G), and does not boot from it first: boot is cdn. Its next start may install over it. Pin the boot order with homelab.anvil.proxmox_boot_order, or give its data up with `overwrite_disk: true` (refused)");
    insta::assert_snapshot!(told(&args(json!({"state": "absent"})), &installed("stopped", &[])), @"VM 1101 (web01) is not destroyed: it has a disk with data in its boot slot (scsi0: local:vm-1101-disk-1,size=40G); say `overwrite_disk: true` to give it up (refused)");
}

#[test]
fn an_installed_one_is_at_most_started() {
    insta::assert_snapshot!(told(&started(), &installed("stopped", &[])), @r#"Start: status: "stopped" -> "running""#);
}

#[test]
fn its_data_is_given_up_when_the_task_says_so() {
    let anew = args(json!({"state": "started", "overwrite_disk": true}));
    insta::assert_snapshot!(told(&anew, &installed("running", &[])), @r#"
    Stop: status: "running" -> "stopped"
    -- gate
    Configure: description: null -> "[homelab.anvil: empty, to be installed over the network; its disk may be written over]", boot: ["scsi0","net0"] -> ["net0"]
    -- gate
    Start: status: "stopped" -> "running"
    "#);
    insta::assert_snapshot!(told(&anew, &installed("stopped", &[])), @r#"
    Configure: description: null -> "[homelab.anvil: empty, to be installed over the network; its disk may be written over]", boot: ["scsi0","net0"] -> ["net0"]
    -- gate
    Start: status: "stopped" -> "running"
    "#);
    // Shaped in an earlier task, and still running what was given up.
    let mut shaped = shell("running", &[]);
    if let Some(vm) = &mut shaped.vm {
        vm.config.current.set("boot", "order=scsi0;net0");
        vm.config.pending.insert("boot".to_owned());
    }
    insta::assert_snapshot!(told(&started(), &shaped), @r#"
    Stop: status: "running" -> "stopped"
    -- gate
    -- gate
    Start: status: "stopped" -> "running"
    "#);
    // Once it awaits its installation, saying so again changes nothing.
    assert_eq!(told(&anew, &shell("running", &[])), "");
    let gone = args(json!({"state": "absent", "overwrite_disk": true, "force_stop": true}));
    insta::assert_snapshot!(told(&gone, &installed("running", &[])), @r#"
    Stop: status: "running" -> "stopped"
    -- gate
    Destroy: vm: {"name":"web01","node":"pve1"} -> null
    "#);
}

#[test]
fn a_removal_that_is_not_allowed_says_what_is_missing() {
    let gone = args(json!({"state": "absent"}));
    insta::assert_snapshot!(told(&gone, &shell("running", &[])), @"VM 1101 (web01) is not destroyed: it runs; say `force_stop: true`, or stop it first (refused)");
    insta::assert_snapshot!(told(&gone, &shell("stopped", &[("protection", "1")])), @"VM 1101 (web01) is not destroyed: it is protected; set `protection: false` first (refused)");
    insta::assert_snapshot!(told(&gone, &shell("stopped", &[])), @r#"Destroy: vm: {"name":"web01","node":"pve1"} -> null"#);
}

#[test]
fn the_wrong_vm_is_refused() {
    insta::assert_snapshot!(told(&started(), &shell("stopped", &[("name", "db01")])), @"VMID 1101 on pve1 belongs to another virtual machine: expected the name `web01`, found `db01` (refused)");
    insta::assert_snapshot!(told(&started(), &shell("stopped", &[("template", "1")])), @"VMID 1101 on pve1 is a template (web01); this module never changes one (refused)");
    let hidden = State { holder: Holder::Hidden, ..State::default() };
    insta::assert_snapshot!(told(&started(), &hidden), @"VMID 1101 is taken by a guest that this user may not see. Choose another vmid, or grant the user VM.Audit on /vms/1101 (refused)");
    let smaller = shell("stopped", &[("scsi0", "local:vm-1101-disk-1,size=32G")]);
    insta::assert_snapshot!(told(&started(), &smaller), @"scsi0: expected a data disk of 40G there, found one of 32G; data disks are never resized, grow it by hand (refused)");
    let order = args(json!({"boot_order": ["net0", "scsi3"]}));
    insta::assert_snapshot!(told(&order, &State::default()), @"boot_order: the virtual machine has no device `scsi3`; it has net0, scsi0 (refused)");
}

#[test]
fn arguments_are_judged_before_anything_is_asked() {
    for (more, said) in [
        (
            json!({"net": [{"slot": "net0", "bridge": "vmbr0"}]}),
            "option `net[0].mac`: expected the MAC address: reservation and boot file are found by it",
        ),
        (
            json!({"net": [{"slot": "net0", "mac": MAC}]}),
            "option `net[0].bridge`: expected the bridge: without one the firmware has no network",
        ),
        (
            json!({"boot_order": ["scsi0"]}),
            "option `boot_order`: expected a network device to boot from that `net` declares, such as net0",
        ),
        (
            json!({"disks": []}),
            "option `disks`: expected the disk that the system is installed on, such as slot scsi0 with storage and size",
        ),
    ] {
        assert_eq!(arguments(more.clone()).unwrap_err().msg, said, "{more}");
    }
    let removal = json!({"state": "absent", "node": null, "net": null, "disks": null});
    assert!(arguments(removal).is_ok());
}

#[test]
fn one_request_holds_everything() {
    let changes = wanted::shell_changes(&args(json!({"secure_boot": true})), &VmConfig::default()).unwrap();
    let form: Map<String, Value> = wanted::form(&VmConfig::default(), &changes)
        .unwrap()
        .into_iter()
        .map(|(key, text)| (key, text.into()))
        .collect();
    insta::assert_json_snapshot!(form, @r#"
    {
      "agent": "1",
      "bios": "ovmf",
      "boot": "order=net0",
      "cores": "2",
      "description": "[homelab.anvil: empty, to be installed over the network; its disk may be written over]",
      "efidisk0": "local:1,efitype=4m,pre-enrolled-keys=1",
      "machine": "q35",
      "memory": "4096",
      "net0": "virtio=02:A5:00:00:04:4D,bridge=vmbr0,tag=20",
      "ostype": "l26",
      "scsi0": "local:40",
      "scsihw": "virtio-scsi-single",
      "rng0": "source=/dev/urandom"
    }
    "#);
}
