//! What this module's task wants of a VM's settings, and how the differing ones are written. Pure.

use ansible_module::Change;
use proxmox_api::VmConfig;
use proxmox_api::values::{Drive, Ip4, RandomSource, Size, Slot, SshKeys, ValueError};
use proxmox_vm::{Mark, Wanted, strings};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::args::{Args, CloudInit, GuestAddress, UpdatePassword};

/// What the description of a clone ends with until the clone is configured. A later run sees by it that
/// an earlier one was cut off here.
pub(crate) const MARK: Mark =
    Mark::new("[homelab.anvil: cloned and not yet configured; run the task again to finish]");

pub(crate) const PASSWORD: &str = "cipassword";

/// The fields the task names, with the value it wants of each. `base` is the configuration it starts
/// from: what one value does not name is taken from there.
pub(crate) fn wanted(args: &Args, base: &VmConfig) -> Result<Vec<(String, Value)>, ValueError> {
    let mut list = Wanted::default();
    list.machine(&args.hardware, base)?;
    list.add("rng0", rng(args, base)?);
    list.add("description", description(args, base));
    list.devices(&args.hardware, base);
    if let Some(cloud_init) = &args.cloud_init {
        add_cloud_init(&mut list, cloud_init);
    }
    args.delete.iter().filter(|key| base.get(key).is_some()).for_each(|key| list.add(key, Some(Value::Null)));
    Ok(list.0)
}

fn add_cloud_init(wanted: &mut Wanted, cloud_init: &CloudInit) {
    let list = |items: &Option<Vec<String>>| {
        items.as_ref().map(|items| strings(items.iter().map(|item| item.trim())))
    };
    wanted.add("ciuser", cloud_init.user.as_deref().map(Value::from));
    let keys = cloud_init.ssh_keys.as_ref();
    let keys = keys.map(|keys| SshKeys::from_lines(keys.iter().map(String::as_str)));
    wanted.add("sshkeys", keys.map(|keys| strings(keys.iter())));
    wanted.add("nameserver", list(&cloud_init.nameserver));
    wanted.add("searchdomain", list(&cloud_init.searchdomain));
    wanted.add("ciupgrade", cloud_init.upgrade.map(Value::from));
    wanted.add("cicustom", cloud_init.custom.as_deref().map(Value::from));
    cloud_init.ip_config.iter().for_each(|address| add_address(wanted, address));
}

fn add_address(wanted: &mut Wanted, address: &GuestAddress) {
    let dhcp = address.ip == Some(Ip4::Dhcp);
    let gateway = address.gateway.map(|gateway| json!(gateway.to_string()));
    wanted.parts(
        &address.slot.replacen("net", "ipconfig", 1),
        vec![
            ("ip", address.ip.map(|ip| json!(ip.to_string()))),
            // A gateway left over from a static address would only be warned about, at each start.
            ("gw", gateway.or(dhcp.then_some(Value::Null))),
            ("ip6", address.ip6.map(|ip| json!(ip.to_string()))),
            ("gw6", address.gateway6.map(|gateway| json!(gateway.to_string()))),
        ],
    );
}

/// What the task does not name is kept.
fn rng(args: &Args, base: &VmConfig) -> Result<Option<Value>, ValueError> {
    let Some(asked) = &args.rng else { return Ok(None) };
    let there = base.parsed::<RandomSource>("rng0")?.unwrap_or_default();
    let mut merged = asked.clone().over(there);
    merged.source.get_or_insert_with(|| "/dev/urandom".to_owned());
    Ok(Some(json!(merged.to_string())))
}

/// The task's description, or the one there is without our mark.
fn description(args: &Args, base: &VmConfig) -> Option<Value> {
    let text = args.hardware.description.clone().or_else(|| MARK.taken_off(base))?;
    Some(match text.trim_end() {
        "" => Value::Null,
        text => json!(text),
    })
}

/// What differs from `base`, in the order of the option table.
pub(crate) fn changes(args: &Args, base: &VmConfig) -> Result<Vec<Change>, ValueError> {
    let mut changes = proxmox_vm::changes(wanted(args, base)?, base)?;
    if sets_password(args, base) {
        changes.push(Change::secret(PASSWORD));
    }
    Ok(changes)
}

/// The password is masked, so there is nothing to compare it with.
fn sets_password(args: &Args, base: &VmConfig) -> bool {
    let Some(cloud_init) = &args.cloud_init else { return false };
    cloud_init.password.is_some()
        && (cloud_init.update_password == UpdatePassword::Always || MARK.is_on(base))
}

/// The parameters of `PUT .../config` that make the changes.
pub(crate) fn form(
    args: &Args,
    base: &VmConfig,
    changes: &[Change],
) -> Result<Vec<(String, String)>, ValueError> {
    let mut form = proxmox_vm::form(base, changes)?;
    let password = args.cloud_init.as_ref().and_then(|it| it.password.as_ref());
    for (_, value) in form.iter_mut().filter(|(key, _)| key == PASSWORD) {
        *value = password.map(|password| password.expose_secret().to_owned()).unwrap_or_default();
    }
    Ok(form)
}

/// The configuration as it will be after a write, for what check mode shows.
pub(crate) fn predicted(args: &Args, base: &VmConfig) -> Result<VmConfig, ValueError> {
    proxmox_vm::predicted(base, &changes(args, base)?)
}

/// The slot of the OS disk and its size, as the task names it or as the boot order tells.
pub(crate) fn os_disk(args: &Args, config: &VmConfig) -> Result<Option<(Slot, Option<Size>)>, ValueError> {
    let named = args.os_disk.as_ref().and_then(|disk| disk.slot.clone());
    let Some(slot) = named.map_or_else(|| config.os_disk_slot(), |slot| Ok(Some(slot)))? else {
        return Ok(None);
    };
    let drive = config.parsed::<Drive>(&slot.to_string())?;
    Ok(drive.filter(|drive| !drive.is_cdrom()).map(|drive| (slot, drive.size())))
}

/// Why there is no OS disk.
pub(crate) fn no_os_disk(args: &Args) -> String {
    match args.os_disk.as_ref().and_then(|disk| disk.slot.as_ref()) {
        Some(slot) => format!("there is no disk in {slot}"),
        None => "the boot order names no disk, and there is not exactly one; give os_disk.slot".to_owned(),
    }
}
