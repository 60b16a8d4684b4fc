//! What makes an empty virtual machine boot from the network under UEFI, as fields. Pure.

use ansible_module::{Change, Plan};
use proxmox_api::VmConfig;
use proxmox_api::values::{PropertyString, ValueError};
use proxmox_vm::{AWAITS_INSTALL, Wanted};
use serde_json::{Value, json};

use crate::args::Args;
use crate::plan::Action;

const RNG: &str = "rng0.source";

/// A field's value in a configuration; besides those that every module knows, the random number generator's.
pub(crate) fn read(config: &VmConfig, field: &str) -> Result<Value, ValueError> {
    match field {
        RNG => Ok(json!(rng_source(config)?)),
        "machine" if is_q35(config) => Ok(json!("q35")),
        _ => proxmox_vm::read(config, field),
    }
}

/// `rng0: source=/dev/urandom` or `/dev/urandom` (qemu-server `PVE/QemuServer/RNG.pm`: `source` is the default key).
fn rng_source(config: &VmConfig) -> Result<Option<String>, ValueError> {
    let rng = config.parsed::<PropertyString>("rng0")?;
    Ok(rng.and_then(|rng| rng.bare.or_else(|| rng.keys.get("source").cloned())))
}

/// A version may be pinned: `pc-q35-9.0`.
fn is_q35(config: &VmConfig) -> bool {
    config.get("machine").is_some_and(|machine| machine.contains("q35"))
}

/// Everything about the machine but what it boots from.
fn machine(args: &Args, base: &VmConfig) -> Result<Wanted, ValueError> {
    let mut wanted = Wanted::default();
    wanted.add("machine", Some(json!("q35")));
    wanted.add("bios", Some(json!("ovmf")));
    wanted.add(RNG, Some(json!(args.rng)));
    if base.get("efidisk0").is_none() {
        wanted.parts(
            "efidisk0",
            vec![
                ("storage", args.efi_storage().map(Value::from)),
                ("efitype", Some(json!("4m"))),
                ("pre-enrolled-keys", args.secure_boot.then(|| json!("1"))),
            ],
        );
    }
    if base.get("ostype").is_none() {
        wanted.add("ostype", Some(json!(args.ostype)));
    }
    wanted.machine(&args.hardware, base)?;
    Ok(wanted)
}

/// What differs from a virtual machine that awaits its installation.
pub(crate) fn shell_changes(args: &Args, base: &VmConfig) -> Result<Vec<Change>, ValueError> {
    let mut wanted = machine(args, base)?;
    let described = args.hardware.description.as_deref().or(base.get("description"));
    wanted.add("description", Some(json!(AWAITS_INSTALL.put_on(described))));
    wanted.devices(&args.hardware, base);
    changes(wanted, base)
}

/// What differs from an installed virtual machine; what it boots from is no longer this module's.
pub(crate) fn installed_changes(args: &Args, base: &VmConfig) -> Result<Vec<Change>, ValueError> {
    let mut wanted = machine(args, base)?;
    wanted.add("description", args.hardware.description.as_deref().map(Value::from));
    wanted.devices(&args.hardware, base);
    wanted.0.retain(|(field, _)| field != "boot");
    changes(wanted, base)
}

fn changes(wanted: Wanted, base: &VmConfig) -> Result<Vec<Change>, ValueError> {
    let mut changes = Vec::new();
    for (field, after) in wanted.0 {
        let before = read(base, &field)?;
        if before != after {
            changes.push(Change { field, before, after });
        }
    }
    Ok(changes)
}

/// The parameters of a request that makes the changes.
pub(crate) fn form(base: &VmConfig, changes: &[Change]) -> Result<Vec<(String, String)>, ValueError> {
    let (rng, others): (Vec<Change>, Vec<Change>) =
        changes.iter().cloned().partition(|change| change.field == RNG);
    let mut form = proxmox_vm::form(base, &others)?;
    if let Some(source) = rng.first().and_then(|change| change.after.as_str()) {
        let mut property = base.parsed::<PropertyString>("rng0")?.unwrap_or_default();
        property.bare = None;
        property.keys.insert("source".to_owned(), source.to_owned());
        form.push(("rng0".to_owned(), property.to_string()));
    }
    Ok(form)
}

/// The configuration that a plan leads to, for what check mode shows.
pub(crate) fn foretold(args: &Args, base: &VmConfig, plan: &Plan<Action>) -> Result<VmConfig, ValueError> {
    let settings = |change: &&Change| !matches!(change.field.as_str(), "vm" | "status" | RNG);
    let changes: Vec<Change> = plan.changes().filter(settings).cloned().collect();
    let mut config = proxmox_vm::predicted(base, &changes)?;
    config.set("name", args.name.to_string());
    if plan.changes().any(|change| change.field == RNG) {
        config.set("rng0", format!("source={}", args.rng));
    }
    Ok(config)
}

/// The devices of `boot` in order; empty for the old letters and for none.
pub(crate) fn boot_devices(config: &VmConfig) -> Result<Vec<String>, ValueError> {
    let boot = read(config, "boot")?;
    Ok(serde_json::from_value(boot).unwrap_or_default())
}
