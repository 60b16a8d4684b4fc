//! A VM's settings as fields with plain values: how one is read from a configuration, what the task
//! wants of it, and how the differing ones are written. Pure.
//!
//! A field is named as Proxmox VE names it: `cores`, `net0.bridge`, `scsi1.serial`. Values are parsed
//! ones, so that equal settings are equal however they are spelt; `Null` means "not set".

use std::collections::BTreeMap;

use ansible_module::{Change, Failure};
use proxmox_api::values::{
    Agent, BootOrder, Drive, IpConfig, NetDevice, PropertyString, Size, Slot, SshKeys, Startup, Tags,
    ValueError, Volume,
};
use proxmox_api::{PendingConfig, VmConfig};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::args::{Args, CloudInit, Disk, GuestAddress, Net, UpdatePassword};

/// What the description of a clone ends with until the clone is configured. A later run sees by it that
/// an earlier one was cut off here.
pub(crate) const MARK: &str = "[homelab.anvil: cloned and not yet configured; run the task again to finish]";

const FLAGS: [&str; 3] = ["onboot", "protection", "ciupgrade"];
const NUMBERS: [&str; 4] = ["cores", "sockets", "memory", "balloon"];
const LISTS: [&str; 2] = ["nameserver", "searchdomain"];
pub(crate) const PASSWORD: &str = "cipassword";

/// The description a clone gets until it is configured.
pub(crate) fn marked(description: Option<&str>) -> String {
    match description.map(str::trim_end).filter(|text| !text.is_empty()) {
        Some(text) => format!("{text}\n\n{MARK}"),
        None => MARK.to_owned(),
    }
}

/// Whether a configuration is that of a clone which nobody configured yet.
pub(crate) fn is_marked(config: &VmConfig) -> bool {
    config.get("description").is_some_and(|text| text.contains(MARK))
}

/// A field's value in a configuration.
pub(crate) fn read(config: &VmConfig, field: &str) -> Result<Value, ValueError> {
    if let Some((key, part)) = field.split_once('.') {
        return read_part(config, key, part);
    }
    let Some(text) = config.get(field).map(str::trim_end) else {
        return Ok(if matches!(field, "onboot" | "protection") { json!(false) } else { Value::Null });
    };
    let text = match field {
        "memory" => text.strip_prefix("current=").unwrap_or(text),
        _ => text,
    };
    Ok(match field {
        field if FLAGS.contains(&field) => json!(config.flag(field)),
        field if NUMBERS.contains(&field) => text.parse::<u64>().map_or_else(|_| json!(text), Value::from),
        field if LISTS.contains(&field) => words(text),
        "tags" => strings(text.parse::<Tags>()?.iter()),
        "sshkeys" => strings(text.parse::<SshKeys>()?.iter()),
        "agent" => json!(text.parse::<Agent>()?.to_string()),
        "startup" => json!(text.parse::<Startup>()?.to_string()),
        "cpu" => json!(cpu(text)?),
        "cicustom" => json!(text.parse::<PropertyString>()?.to_string()),
        "boot" => match text.parse()? {
            BootOrder::Devices(devices) => json!(devices),
            BootOrder::Legacy(letters) => json!(letters),
        },
        _ if text.is_empty() => Value::Null,
        _ => json!(text),
    })
}

fn cpu(text: &str) -> Result<String, ValueError> {
    Ok(text.strip_prefix("cputype=").unwrap_or(text).parse::<PropertyString>()?.to_string())
}

fn words(text: &str) -> Value {
    strings(text.split([' ', ',', ';']).filter(|word| !word.is_empty()))
}

/// An empty list is the same as none.
fn strings<'a>(items: impl Iterator<Item = &'a str>) -> Value {
    let items: Vec<&str> = items.collect();
    if items.is_empty() { Value::Null } else { json!(items) }
}

fn read_part(config: &VmConfig, key: &str, part: &str) -> Result<Value, ValueError> {
    if key.starts_with("ipconfig") {
        return Ok(config.parsed::<IpConfig>(key)?.map_or(Value::Null, |config| read_ip(&config, part)));
    }
    if key.starts_with("net") {
        return Ok(config.parsed::<NetDevice>(key)?.map_or(Value::Null, |device| read_net(&device, part)));
    }
    Ok(config.parsed::<Drive>(key)?.map_or(Value::Null, |drive| read_drive(&drive, part)))
}

fn read_ip(config: &IpConfig, part: &str) -> Value {
    let text = match part {
        "ip" => config.ip.map(|ip| ip.to_string()),
        "gw" => config.gw.map(|gw| gw.to_string()),
        "ip6" => config.ip6.map(|ip| ip.to_string()),
        _ => config.gw6.map(|gw| gw.to_string()),
    };
    json!(text)
}

fn read_net(device: &NetDevice, part: &str) -> Value {
    match part {
        "model" => json!(device.model),
        "macaddr" => json!(device.mac.map(|mac| mac.to_string())),
        "bridge" => json!(device.bridge),
        "firewall" => json!(device.firewall.unwrap_or(false)),
        "link_down" => json!(device.link_down.unwrap_or(false)),
        "mtu" => json!(device.mtu),
        "queues" => json!(device.queues),
        "rate" => json!(device.rate),
        "tag" => json!(device.tag),
        _ => json!(device.trunks.as_ref().map(ToString::to_string)),
    }
}

fn read_drive(drive: &Drive, part: &str) -> Value {
    match (part, drive.options.get(part)) {
        ("storage", _) => json!(drive.volume.storage()),
        ("size", _) => json!(drive.size().map(|size| size.to_string())),
        ("discard", option) => json!(option.is_some_and(|word| word == "on")),
        // Backed up unless it says otherwise.
        ("backup", option) => json!(option.is_none_or(|bit| bit == "1")),
        ("iothread" | "ssd", option) => json!(option.is_some_and(|bit| bit == "1")),
        (_, option) => json!(option),
    }
}

/// The fields the task names, with the value it wants of each. `base` is the configuration it starts
/// from: what one value does not name is taken from there.
pub(crate) fn wanted(args: &Args, base: &VmConfig) -> Result<Vec<(String, Value)>, ValueError> {
    let mut list = Wanted(Vec::new());
    list.add("cores", args.cores.map(Value::from));
    list.add("sockets", args.sockets.map(Value::from));
    list.add("cpu", args.cpu.as_deref().map(cpu).transpose()?.map(Value::from));
    list.add("memory", args.memory.map(Value::from));
    list.add("balloon", args.balloon.map(Value::from));
    list.add("agent", agent(args, base)?);
    list.add("scsihw", args.scsihw.as_deref().map(Value::from));
    list.add("onboot", args.onboot.map(Value::from));
    list.add("startup", args.startup.map(|startup| json!(startup.to_string())));
    list.add("protection", args.protection.map(Value::from));
    list.add("tags", args.tags.as_ref().map(|tags| strings(tags.iter())));
    list.add("description", description(args, base));
    args.net.iter().for_each(|net| list.net(net));
    args.disks.iter().for_each(|disk| list.disk(disk, base.get(&disk.slot.to_string()).is_none()));
    list.add("boot", args.boot_order.as_ref().map(|devices| strings(devices.iter().map(String::as_str))));
    if let Some(cloud_init) = &args.cloud_init {
        list.cloud_init(cloud_init);
    }
    args.delete.iter().filter(|key| base.get(key).is_some()).for_each(|key| list.add(key, Some(Value::Null)));
    Ok(list.0)
}

struct Wanted(Vec<(String, Value)>);

impl Wanted {
    /// Empty text is the same as none.
    fn add(&mut self, field: impl Into<String>, value: Option<Value>) {
        let value = value.map(|value| if value == "" { Value::Null } else { value });
        self.0.extend(value.map(|value| (field.into(), value)));
    }

    fn parts(&mut self, key: &str, parts: Vec<(&str, Option<Value>)>) {
        for (part, value) in parts {
            self.add(format!("{key}.{part}"), value);
        }
    }

    fn net(&mut self, net: &Net) {
        let tag = net.vlan.map(|vlan| if vlan == 0 { Value::Null } else { json!(vlan) });
        self.parts(
            &net.slot,
            vec![
                ("model", net.model.as_deref().map(Value::from)),
                ("macaddr", net.mac.map(|mac| json!(mac.to_string()))),
                ("bridge", net.bridge.as_deref().map(Value::from)),
                ("tag", tag),
                ("trunks", net.trunks.as_ref().map(|trunks| json!(trunks.to_string()))),
                ("firewall", net.firewall.map(Value::from)),
                ("mtu", net.mtu.map(Value::from)),
                ("rate", net.rate.map(Value::from)),
                ("queues", net.queues.map(Value::from)),
                ("link_down", net.link_down.map(Value::from)),
            ],
        );
    }

    /// Place and size are settled when a disk is made.
    fn disk(&mut self, disk: &Disk, is_new: bool) {
        self.parts(
            &disk.slot.to_string(),
            vec![
                ("storage", is_new.then(|| json!(disk.storage))),
                ("size", is_new.then(|| json!(disk.size.to_string()))),
                ("serial", disk.serial.as_deref().map(Value::from)),
                ("discard", disk.discard.map(Value::from)),
                ("iothread", disk.iothread.map(Value::from)),
                ("ssd", disk.ssd.map(Value::from)),
                ("backup", disk.backup.map(Value::from)),
                ("cache", disk.cache.as_deref().map(Value::from)),
                ("aio", disk.aio.as_deref().map(Value::from)),
            ],
        );
    }

    fn cloud_init(&mut self, cloud_init: &CloudInit) {
        let list = |items: &Option<Vec<String>>| {
            items.as_ref().map(|items| strings(items.iter().map(|item| item.trim())))
        };
        self.add("ciuser", cloud_init.user.as_deref().map(Value::from));
        let keys = cloud_init.ssh_keys.as_ref();
        let keys = keys.map(|keys| SshKeys::from_lines(keys.iter().map(String::as_str)));
        self.add("sshkeys", keys.map(|keys| strings(keys.iter())));
        self.add("nameserver", list(&cloud_init.nameserver));
        self.add("searchdomain", list(&cloud_init.searchdomain));
        self.add("ciupgrade", cloud_init.upgrade.map(Value::from));
        self.add("cicustom", cloud_init.custom.as_deref().map(Value::from));
        cloud_init.ip_config.iter().for_each(|address| self.address(address));
    }

    fn address(&mut self, address: &GuestAddress) {
        let dhcp = address.ip == Some(proxmox_api::values::Ip4::Dhcp);
        let gateway = address.gateway.map(|gateway| json!(gateway.to_string()));
        self.parts(
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
}

/// Options of the agent that the task does not name are kept.
fn agent(args: &Args, base: &VmConfig) -> Result<Option<Value>, ValueError> {
    let Some(asked) = &args.agent else { return Ok(None) };
    let mut merged = base.parsed::<Agent>("agent")?.unwrap_or_default();
    merged.enabled = asked.enabled;
    merged.options.extend(asked.options.clone());
    Ok(Some(json!(merged.to_string())))
}

/// The task's description, or the one there is without our mark.
fn description(args: &Args, base: &VmConfig) -> Option<Value> {
    let unmarked = || base.get("description").filter(|_| is_marked(base)).map(|text| text.replace(MARK, ""));
    let text = args.description.clone().or_else(unmarked)?;
    Some(match text.trim_end() {
        "" => Value::Null,
        text => json!(text),
    })
}

/// What differs from `base`, in the order of the option table.
pub(crate) fn changes(args: &Args, base: &VmConfig) -> Result<Vec<Change>, ValueError> {
    let mut changes = Vec::new();
    for (field, after) in wanted(args, base)? {
        let before = read(base, &field)?;
        if before != after {
            changes.push(Change { field, before, after });
        }
    }
    if sets_password(args, base) {
        changes.push(Change::secret(PASSWORD));
    }
    Ok(changes)
}

/// The password is masked, so there is nothing to compare it with.
fn sets_password(args: &Args, base: &VmConfig) -> bool {
    let Some(cloud_init) = &args.cloud_init else { return false };
    cloud_init.password.is_some() && (cloud_init.update_password == UpdatePassword::Always || is_marked(base))
}

/// The parameters of `PUT .../config` that make the changes. A disk is allocated only in a slot that is
/// empty in `base`.
pub(crate) fn form(
    args: &Args,
    base: &VmConfig,
    changes: &[Change],
) -> Result<Vec<(String, String)>, ValueError> {
    let mut by_key: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
    for change in changes {
        let (key, part) = change.field.split_once('.').unwrap_or((&change.field, ""));
        by_key.entry(key).or_default().insert(part, &change.after);
    }
    let mut form = Vec::new();
    let mut deleted = Vec::new();
    for (key, parts) in by_key {
        match write(args, base, key, &parts)? {
            Some(text) => form.push((key.to_owned(), text)),
            None => deleted.push(key),
        }
    }
    if !deleted.is_empty() {
        form.push(("delete".to_owned(), deleted.join(",")));
    }
    Ok(form)
}

/// The new text of a key; `None` when it is to be deleted.
fn write(
    args: &Args,
    base: &VmConfig,
    key: &str,
    parts: &BTreeMap<&str, &Value>,
) -> Result<Option<String>, ValueError> {
    let Some(value) = parts.get("") else {
        return Ok(Some(match key {
            _ if key.starts_with("ipconfig") => write_ip(base.parsed(key)?.unwrap_or_default(), parts)?,
            _ if key.starts_with("net") => write_net(base.parsed(key)?.unwrap_or_default(), parts)?,
            _ => write_drive(args, base.parsed(key)?, key, parts),
        }));
    };
    let items = || value.as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(match (key, value) {
        (PASSWORD, _) => {
            let cloud_init = args.cloud_init.as_ref();
            cloud_init.and_then(|it| it.password.as_ref()).map(|password| password.expose_secret().to_owned())
        }
        (_, Value::Null) => None,
        ("sshkeys", _) => Some(SshKeys::from_lines(items()).to_string()),
        ("boot", Value::Array(_)) => {
            Some(BootOrder::Devices(items().map(str::to_owned).collect()).to_string())
        }
        ("tags", _) => Some(items().collect::<Vec<_>>().join(";")),
        (_, Value::Array(_)) => Some(items().collect::<Vec<_>>().join(" ")),
        (_, Value::Bool(on)) => Some(u8::from(*on).to_string()),
        (_, Value::String(text)) => Some(text.clone()),
        (_, other) => Some(other.to_string()),
    })
}

/// A value's own type out of its plain form; what is not set stays not set.
fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<Option<T>, ValueError> {
    serde_json::from_value(value.clone())
        .map_err(|why| ValueError::new("a setting", value.to_string(), why.to_string()))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(value: &Value) -> Result<Option<T>, ValueError> {
    let wrong = |text: &str, why: T::Err| ValueError::new("a setting", text, why.to_string());
    value.as_str().map(|text| text.parse().map_err(|why| wrong(text, why))).transpose()
}

fn write_ip(mut config: IpConfig, parts: &BTreeMap<&str, &Value>) -> Result<String, ValueError> {
    for (part, value) in parts {
        match *part {
            "ip" => config.ip = parsed(value)?,
            "gw" => config.gw = parsed(value)?,
            "ip6" => config.ip6 = parsed(value)?,
            _ => config.gw6 = parsed(value)?,
        }
    }
    Ok(config.to_string())
}

fn write_net(mut device: NetDevice, parts: &BTreeMap<&str, &Value>) -> Result<String, ValueError> {
    if device.model.is_empty() {
        "virtio".clone_into(&mut device.model);
    }
    for (part, value) in parts {
        match *part {
            "model" => device.model = typed(value)?.unwrap_or(device.model),
            "macaddr" => device.mac = parsed(value)?,
            "bridge" => device.bridge = typed(value)?,
            "firewall" => device.firewall = typed(value)?,
            "link_down" => device.link_down = typed(value)?,
            "mtu" => device.mtu = typed(value)?,
            "queues" => device.queues = typed(value)?,
            "rate" => device.rate = typed(value)?,
            "tag" => device.tag = typed(value)?,
            _ => device.trunks = parsed(value)?,
        }
    }
    Ok(device.to_string())
}

/// The options of a disk that is there, or a new disk.
fn write_drive(args: &Args, there: Option<Drive>, key: &str, parts: &BTreeMap<&str, &Value>) -> String {
    let declared = args.disks.iter().find(|disk| disk.slot.to_string() == key);
    let mut drive = there.unwrap_or_else(|| Drive { volume: new_volume(declared), options: BTreeMap::new() });
    for (part, value) in parts {
        let text = match (*part, value) {
            ("storage" | "size", _) => continue,
            ("discard", Value::Bool(on)) => if *on { "on" } else { "ignore" }.to_owned(),
            (_, Value::Bool(on)) => u8::from(*on).to_string(),
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        };
        drive.options.insert((*part).to_owned(), text);
    }
    drive.to_string()
}

fn new_volume(declared: Option<&Disk>) -> Volume {
    declared.map_or(Volume::Empty, |disk| Volume::New {
        storage: disk.storage.clone(),
        gib: disk.size.whole_gib().unwrap_or_default().to_string(),
    })
}

/// The configuration as it will be after a write, for what check mode shows.
pub(crate) fn predicted(args: &Args, base: &VmConfig) -> Result<VmConfig, ValueError> {
    let mut config = base.clone();
    for (key, text) in form(args, base, &changes(args, base)?)? {
        if key == "delete" {
            text.split(',').for_each(|key| config.remove(key));
        } else {
            config.set(key, text);
        }
    }
    // A new disk has no size in its text; it will have the declared one.
    for disk in &args.disks {
        let slot = disk.slot.to_string();
        if let Some(mut drive) = config.parsed::<Drive>(&slot)?.filter(|drive| drive.size().is_none()) {
            drive.options.insert("size".to_owned(), disk.size.to_string());
            config.set(slot, drive.to_string());
        }
    }
    Ok(config)
}

/// The result's `vm` object.
pub(crate) fn object(config: &VmConfig) -> Result<Value, ValueError> {
    let nets = config.nets()?;
    let net: BTreeMap<&String, Value> =
        nets.iter().map(|(slot, device)| (slot, net_object(device))).collect();
    let disks: BTreeMap<String, Value> = config
        .drives()?
        .iter()
        .filter(|(_, drive)| !drive.is_cdrom())
        .map(|(slot, drive)| (slot.to_string(), drive_object(drive)))
        .collect();
    Ok(json!({
        "mac": nets.get("net0").and_then(|device| device.mac).map(|mac| mac.to_string()),
        "net": net,
        "disks": disks,
        "cores": read(config, "cores")?,
        "memory": read(config, "memory")?,
        "tags": read(config, "tags")?.as_array().cloned().unwrap_or_default(),
    }))
}

fn net_object(device: &NetDevice) -> Value {
    let parts =
        ["model", "macaddr", "bridge", "tag", "trunks", "firewall", "mtu", "rate", "queues", "link_down"];
    parts
        .iter()
        .map(|part| ((*part).to_owned(), read_net(device, part)))
        .filter(|(_, value)| !value.is_null())
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn drive_object(drive: &Drive) -> Value {
    let mut object: serde_json::Map<_, _> =
        drive.options.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
    object.insert("storage".into(), json!(drive.volume.storage()));
    object.insert(
        "volume".into(),
        match &drive.volume {
            Volume::New { .. } => Value::Null,
            volume => json!(volume.to_string()),
        },
    );
    object.into()
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

/// A stored value that this module cannot read.
pub(crate) fn unreadable(error: ValueError) -> Failure {
    Failure::refused(format!("the virtual machine has a setting that this module cannot read: {error}"))
}

/// Whether a field waits for a restart.
pub(crate) fn is_pending(config: &PendingConfig, field: &str) -> bool {
    config.pending.contains(field.split('.').next().unwrap_or_default())
}
