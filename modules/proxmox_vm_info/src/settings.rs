//! A configuration as objects. Pure.

use std::str::FromStr;

use proxmox_api::VmConfig;
use proxmox_api::values::{Agent, BootOrder, Drive, IpConfig, NetDevice, PropertyString, Slot, SshKeys};
use serde_json::{Map, Value, json};

/// Every setting. One that does not follow its grammar is told as its text: to read is not to judge.
pub(crate) fn told(config: &VmConfig) -> Value {
    let (mut net, mut disks, mut cdroms, mut unused, mut rest) =
        (Map::new(), Map::new(), Map::new(), Map::new(), Map::new());
    for (key, text) in config.keys().filter_map(|key| Some((key, config.get(key)?))) {
        let key = key.to_owned();
        if key.parse::<Slot>().is_ok() {
            match text.parse::<Drive>() {
                Ok(drive) if drive.is_cdrom() => cdroms.insert(key, drive.describe()),
                Ok(drive) => disks.insert(key, drive.describe()),
                Err(_) => rest.insert(key, json!(text)),
            };
        } else if is_numbered(&key, "net") {
            match text.parse::<NetDevice>() {
                Ok(device) => net.insert(key, device.describe()),
                Err(_) => rest.insert(key, json!(text)),
            };
        } else if is_numbered(&key, "unused") {
            unused.insert(key, json!(text));
        } else if !matches!(key.as_str(), "name" | "tags" | "template" | "lock" | "digest" | "cipassword") {
            let value = setting(&key, text).unwrap_or_else(|| json!(text));
            rest.insert(key, value);
        }
    }
    json!({"net": net, "disks": disks, "cdroms": cdroms, "unused": unused, "config": rest})
}

fn is_numbered(key: &str, prefix: &str) -> bool {
    key.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn setting(key: &str, text: &str) -> Option<Value> {
    if is_numbered(key, "ipconfig") {
        let config = parsed::<IpConfig>(text)?;
        return Some(json!({
            "ip": config.ip.map(|ip| ip.to_string()),
            "gw": config.gw,
            "ip6": config.ip6.map(|ip| ip.to_string()),
            "gw6": config.gw6,
        }));
    }
    Some(match key {
        "agent" => {
            let agent = parsed::<Agent>(text)?;
            let mut object = object(agent.options);
            object.insert("enabled".into(), json!(agent.enabled));
            object.into()
        }
        "boot" => match parsed::<BootOrder>(text)? {
            BootOrder::Devices(devices) => json!(devices),
            BootOrder::Legacy(letters) => json!(letters),
        },
        "sshkeys" => json!(parsed::<SshKeys>(text)?.iter().collect::<Vec<_>>()),
        "nameserver" | "searchdomain" => {
            json!(text.split([' ', ',', ';']).filter(|word| !word.is_empty()).collect::<Vec<_>>())
        }
        "onboot" | "protection" | "ciupgrade" | "numa" | "kvm" | "acpi" | "tablet" => {
            json!(proxmox_api::values::parse_bool(text).ok()?)
        }
        "startup" => properties(text, "order")?,
        "cpu" => properties(text, "cputype")?,
        "rng0" => properties(text, "source")?,
        "vga" => properties(text, "type")?,
        "smbios1" | "cicustom" | "meta" => properties(text, "")?,
        "memory" => number(text.strip_prefix("current=").unwrap_or(text)),
        "description" => json!(text.trim_end()),
        _ => number(text),
    })
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn object(keys: impl IntoIterator<Item = (String, String)>) -> Map<String, Value> {
    keys.into_iter().map(|(key, text)| (key, json!(text))).collect()
}

fn properties(text: &str, default_key: &str) -> Option<Value> {
    let PropertyString { bare, keys } = parsed(text)?;
    let mut object = object(keys);
    if let Some(bare) = bare {
        object.insert(default_key.to_owned(), json!(bare));
    }
    Some(object.into())
}

fn number(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| json!(text), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_objects_and_what_is_none_stays_text() {
        let config: VmConfig = [
            ("name", "web01"),
            ("cipassword", "**********"),
            ("agent", "1,fstrim_cloned_disks=1"),
            ("boot", "order=scsi0;net0"),
            ("cores", "4"),
            ("cpu", "host,flags=+aes"),
            ("memory", "current=2048"),
            ("description", "Serves the web\n"),
            ("ipconfig0", "ip=10.0.0.5/24,gw=10.0.0.1"),
            ("nameserver", "10.0.0.1 10.0.0.2"),
            ("sshkeys", "ssh-ed25519%20AAAA%20a%0Assh-rsa%20BBBB%0A"),
            ("onboot", "1"),
            ("startup", "order=2,up=30"),
            ("smbios1", "uuid=AB"),
            ("scsi0", "local-lvm:vm-1-disk-0,size=32G"),
            ("ide2", "local-lvm:vm-1-cloudinit,media=cdrom"),
            ("unused0", "local-lvm:vm-1-disk-9"),
            ("net0", "virtio=02:A5:00:00:00:65,bridge=vmbr0,tag=10"),
            ("net1", "mystery=1,bridge=vmbr0"),
            ("args", "-no-hpet"),
        ]
        .into_iter()
        .collect();
        insta::assert_json_snapshot!(told(&config), @r#"
        {
          "net": {
            "net0": {
              "model": "virtio",
              "macaddr": "02:a5:00:00:00:65",
              "bridge": "vmbr0",
              "tag": 10,
              "firewall": false,
              "link_down": false
            }
          },
          "disks": {
            "scsi0": {
              "size": "32G",
              "storage": "local-lvm",
              "volume": "local-lvm:vm-1-disk-0"
            }
          },
          "cdroms": {
            "ide2": {
              "media": "cdrom",
              "storage": "local-lvm",
              "volume": "local-lvm:vm-1-cloudinit"
            }
          },
          "unused": {
            "unused0": "local-lvm:vm-1-disk-9"
          },
          "config": {
            "agent": {
              "fstrim_cloned_disks": "1",
              "enabled": true
            },
            "args": "-no-hpet",
            "boot": [
              "scsi0",
              "net0"
            ],
            "cores": 4,
            "cpu": {
              "flags": "+aes",
              "cputype": "host"
            },
            "description": "Serves the web",
            "ipconfig0": {
              "ip": "10.0.0.5/24",
              "gw": "10.0.0.1",
              "ip6": null,
              "gw6": null
            },
            "memory": 2048,
            "nameserver": [
              "10.0.0.1",
              "10.0.0.2"
            ],
            "net1": "mystery=1,bridge=vmbr0",
            "onboot": true,
            "smbios1": {
              "uuid": "AB"
            },
            "sshkeys": [
              "ssh-ed25519 AAAA a",
              "ssh-rsa BBBB"
            ],
            "startup": {
              "order": "2",
              "up": "30"
            }
          }
        }
        "#);
    }
}
