//! A VM's settings as fields with plain values: how one is read from a configuration, and how the
//! differing ones are written. Pure.
//!
//! A field is named as Proxmox VE names it: `cores`, `net0.bridge`, `scsi1.serial`. Values are parsed
//! ones, so that equal settings are equal however they are spelt; `Null` means "not set".

use std::collections::BTreeMap;

use ansible_module::{Change, Failure};
use proxmox_api::values::{
    Agent, BootOrder, Drive, IpConfig, NetDevice, PropertyString, RandomSource, Size, SshKeys, Startup, Tags,
    ValueError, Volume,
};
use proxmox_api::{PendingConfig, VmConfig};
use serde_json::{Value, json};

const FLAGS: [&str; 3] = ["onboot", "protection", "ciupgrade"];
const NUMBERS: [&str; 4] = ["cores", "sockets", "memory", "balloon"];
const LISTS: [&str; 2] = ["nameserver", "searchdomain"];

/// A field's value in a configuration.
///
/// # Errors
/// [`ValueError`] when the stored text cannot be read.
pub fn read(config: &VmConfig, field: &str) -> Result<Value, ValueError> {
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
        "rng0" => json!(text.parse::<RandomSource>()?.to_string()),
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

pub(crate) fn cpu(text: &str) -> Result<String, ValueError> {
    Ok(text.strip_prefix("cputype=").unwrap_or(text).parse::<PropertyString>()?.to_string())
}

fn words(text: &str) -> Value {
    strings(text.split([' ', ',', ';']).filter(|word| !word.is_empty()))
}

/// An empty list is the same as none.
pub fn strings<'a>(items: impl Iterator<Item = &'a str>) -> Value {
    let items: Vec<&str> = items.collect();
    if items.is_empty() { Value::Null } else { json!(items) }
}

fn read_part(config: &VmConfig, key: &str, part: &str) -> Result<Value, ValueError> {
    if key.starts_with("ipconfig") {
        return Ok(config.parsed::<IpConfig>(key)?.map_or(Value::Null, |config| read_ip(&config, part)));
    }
    if key.starts_with("net") {
        return Ok(config.parsed::<NetDevice>(key)?.map_or(Value::Null, |device| device.property(part)));
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

/// What differs from `base`, in the order of `wanted`.
///
/// # Errors
/// [`ValueError`] when a stored value cannot be read.
pub fn changes(wanted: Vec<(String, Value)>, base: &VmConfig) -> Result<Vec<Change>, ValueError> {
    let mut changes = Vec::new();
    for (field, after) in wanted {
        let before = read(base, &field)?;
        if before != after {
            changes.push(Change { field, before, after });
        }
    }
    Ok(changes)
}

/// The configuration as it will be after these changes, for what check mode shows.
///
/// # Errors
/// [`ValueError`] when a stored value cannot be read.
pub fn predicted(base: &VmConfig, changes: &[Change]) -> Result<VmConfig, ValueError> {
    let mut config = base.clone();
    for (key, text) in form(base, changes)? {
        if key == "delete" {
            text.split(',').for_each(|key| config.remove(key));
        } else {
            config.set(key, text);
        }
    }
    // A new disk has no size in its text; it will have the declared one.
    for change in changes {
        let Some(slot) = change.field.strip_suffix(".size") else { continue };
        if let (Some(mut drive), Some(size)) = (config.parsed::<Drive>(slot)?, change.after.as_str()) {
            drive.options.insert("size".to_owned(), size.to_owned());
            config.set(slot, drive.to_string());
        }
    }
    Ok(config)
}

/// The parameters of a request that makes the changes to `base`. A disk is allocated only in a slot that
/// is empty there.
///
/// # Errors
/// [`ValueError`] when a stored value that is to be changed in part cannot be read.
pub fn form(base: &VmConfig, changes: &[Change]) -> Result<Vec<(String, String)>, ValueError> {
    let mut by_key: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
    for change in changes {
        let (key, part) = change.field.split_once('.').unwrap_or((&change.field, ""));
        by_key.entry(key).or_default().insert(part, &change.after);
    }
    let mut form = Vec::new();
    let mut deleted = Vec::new();
    for (key, parts) in by_key {
        match write(base, key, &parts)? {
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
fn write(base: &VmConfig, key: &str, parts: &BTreeMap<&str, &Value>) -> Result<Option<String>, ValueError> {
    let Some(value) = parts.get("") else {
        return Ok(Some(match key {
            _ if key.starts_with("ipconfig") => write_ip(base.parsed(key)?.unwrap_or_default(), parts)?,
            _ if key.starts_with("net") => write_net(base.parsed(key)?.unwrap_or_default(), parts)?,
            _ => write_drive(base.parsed(key)?, parts)?,
        }));
    };
    let items = || value.as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(match (key, value) {
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
fn write_drive(there: Option<Drive>, parts: &BTreeMap<&str, &Value>) -> Result<String, ValueError> {
    let mut drive = match there {
        Some(drive) => drive,
        None => Drive { volume: new_volume(parts)?, options: BTreeMap::new() },
    };
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
    Ok(drive.to_string())
}

/// Whole GiB, as Proxmox VE allocates them. The firmware's disk gets its own size whatever the number is, but there
/// must be one.
fn new_volume(parts: &BTreeMap<&str, &Value>) -> Result<Volume, ValueError> {
    let storage = parts.get("storage").and_then(|value| value.as_str());
    let size = parts.get("size").copied().map(parsed::<Size>).transpose()?.flatten();
    let gib = size.and_then(Size::whole_gib).unwrap_or(1).to_string();
    Ok(storage.map_or(Volume::Empty, |storage| Volume::New { storage: storage.to_owned(), gib }))
}

/// The result's `vm` object.
///
/// # Errors
/// [`ValueError`] when a setting cannot be read.
pub fn object(config: &VmConfig) -> Result<Value, ValueError> {
    let nets = config.nets()?;
    let net: BTreeMap<&String, Value> = nets.iter().map(|(slot, device)| (slot, device.describe())).collect();
    let disks: BTreeMap<String, Value> = config
        .drives()?
        .iter()
        .filter(|(_, drive)| !drive.is_cdrom())
        .map(|(slot, drive)| (slot.to_string(), drive.describe()))
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

/// A stored value that this module cannot read.
#[must_use]
pub fn unreadable(error: ValueError) -> Failure {
    Failure::refused(format!("the virtual machine has a setting that this module cannot read: {error}"))
}

/// Whether a field waits for a restart.
#[must_use]
pub fn is_pending(config: &PendingConfig, field: &str) -> bool {
    config.pending.contains(field.split('.').next().unwrap_or_default())
}
