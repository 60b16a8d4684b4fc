use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde_json::Value;

use crate::values::{BootOrder, Drive, NetDevice, Slot, ValueError};

/// A VM's configuration: key and stored text, with the typed views that more than one caller needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmConfig {
    keys: BTreeMap<String, String>,
}

impl VmConfig {
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.keys.insert(key.into(), value.into());
    }

    pub fn remove(&mut self, key: &str) {
        self.keys.remove(key);
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// The value as a type; `None` when it is not set.
    ///
    /// # Errors
    /// [`ValueError`] when the stored text does not follow the type's grammar.
    pub fn parsed<T: FromStr<Err = ValueError>>(&self, key: &str) -> Result<Option<T>, ValueError> {
        self.get(key).map(str::parse).transpose()
    }

    /// A flag such as `protection`, which is off when it is not set.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|text| crate::values::parse_bool(text).unwrap_or(false))
    }

    /// The network devices by key (`net0`).
    ///
    /// # Errors
    /// [`ValueError`] when one cannot be read.
    pub fn nets(&self) -> Result<BTreeMap<String, NetDevice>, ValueError> {
        let is_net = |key: &str| {
            key.strip_prefix("net").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let nets = self.keys.iter().filter(|(key, _)| is_net(key));
        nets.map(|(key, text)| Ok((key.clone(), text.parse()?))).collect()
    }

    /// The drives by slot, CD-ROMs included.
    ///
    /// # Errors
    /// [`ValueError`] when one cannot be read.
    pub fn drives(&self) -> Result<BTreeMap<Slot, Drive>, ValueError> {
        let slots = self.keys.iter().filter_map(|(key, text)| Some((key.parse::<Slot>().ok()?, text)));
        slots.map(|(slot, text)| Ok((slot, text.parse()?))).collect()
    }

    /// Volumes that the VM owns and no slot holds, by key (`unused0`).
    pub fn unused(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_unused = |key: &str| {
            key.strip_prefix("unused").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let unused = self.keys.iter().filter(move |(key, _)| is_unused(key));
        unused.map(|(key, volume)| (key.as_str(), volume.as_str()))
    }

    /// Whether it has a drive that cloud-init's settings are written to.
    ///
    /// # Errors
    /// [`ValueError`] when a drive cannot be read.
    pub fn has_cloud_init_drive(&self) -> Result<bool, ValueError> {
        Ok(self.drives()?.values().any(Drive::is_cloud_init))
    }

    /// The slot the VM boots from: the first disk of `boot`, or, where `boot` says nothing about disks,
    /// the only disk there is.
    ///
    /// # Errors
    /// [`ValueError`] when `boot` or a drive cannot be read.
    pub fn os_disk_slot(&self) -> Result<Option<Slot>, ValueError> {
        let drives = self.drives()?;
        let disks: Vec<&Slot> = drives
            .iter()
            .filter(|(slot, drive)| slot.holds_a_disk() && !drive.is_cdrom())
            .map(|(slot, _)| slot)
            .collect();
        let boots_from =
            |name: &str| disks.iter().find(|slot| slot.to_string() == name).map(|slot| (*slot).clone());
        let from_order = match self.parsed::<BootOrder>("boot")? {
            Some(BootOrder::Devices(devices)) => devices.iter().find_map(|name| boots_from(name)),
            _ => self.get("bootdisk").and_then(boots_from),
        };
        Ok(from_order.or_else(|| if let [only] = disks[..] { Some(only.clone()) } else { None }))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for VmConfig {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self { keys: pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect() }
    }
}

/// A configuration as `GET .../pending` tells it: what is in effect, and what will be after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingConfig {
    /// What the VM has now.
    pub current: VmConfig,
    /// What is stored, with everything pending applied.
    pub stored: VmConfig,
    /// Keys where the two differ.
    pub pending: BTreeSet<String>,
    /// For writes that must not overwrite somebody else's.
    pub digest: Option<String>,
}

/// A password is shown masked; where it is not, it must not get into messages.
const MASKED: &str = "**********";

impl PendingConfig {
    /// Whether nobody changed a setting between the two readings; a lock is no setting.
    #[must_use]
    pub fn same_settings(&self, other: &Self) -> bool {
        let settings = |config: &VmConfig| {
            let mut config = config.clone();
            config.remove("lock");
            config
        };
        settings(&self.stored) == settings(&other.stored) && self.pending == other.pending
    }

    /// Reads an object of keys and values, as `GET .../config` gives; `None` when it is none.
    pub(crate) fn from_object(object: &Value) -> Option<VmConfig> {
        let pairs = object.as_object()?.iter();
        Some(pairs.filter_map(|(key, value)| Some((key.clone(), scalar(value)?))).collect())
    }

    /// Reads the rows `{key, value?, pending?, delete?}`; `None` when they have another shape.
    pub(crate) fn from_rows(rows: &Value) -> Option<Self> {
        let mut config = Self::default();
        for row in rows.as_array()? {
            let key = row["key"].as_str()?;
            if key == "digest" {
                config.digest = scalar(&row["value"]);
                continue;
            }
            let hide = |text: String| if key == "cipassword" { MASKED.to_owned() } else { text };
            let value = scalar(&row["value"]).map(hide);
            let new = scalar(&row["pending"]).map(hide);
            let deleted = scalar(&row["delete"]).is_some_and(|word| word != "0");
            if deleted || new.is_some() {
                config.pending.insert(key.to_owned());
            }
            if let Some(value) = &value {
                config.current.set(key, value);
            }
            if let Some(stored) = new.or(value).filter(|_| !deleted) {
                config.stored.set(key, stored);
            }
        }
        Some(config)
    }
}

/// Proxmox VE sends numbers as numbers or as text; booleans as 0 and 1.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(u8::from(*on).to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(pairs: &[(&str, &str)]) -> VmConfig {
        pairs.iter().copied().collect()
    }

    #[test]
    fn pending_rows_tell_now_from_later() {
        let rows = json!([
            {"key": "memory", "value": "2048", "pending": "4096"},
            {"key": "cores", "value": 2},
            {"key": "net1", "value": "virtio,bridge=vmbr0", "delete": 1},
            {"key": "tags", "pending": "web"},
            {"key": "cipassword", "value": "visible by mistake"},
            {"key": "digest", "value": "abc"},
        ]);
        let read = PendingConfig::from_rows(&rows).unwrap();
        assert_eq!(read.current.get("memory"), Some("2048"));
        assert_eq!(read.stored.get("memory"), Some("4096"));
        assert_eq!(read.stored.get("cores"), Some("2"));
        assert_eq!((read.current.get("net1").is_some(), read.stored.get("net1")), (true, None));
        assert_eq!(read.stored.get("tags"), Some("web"));
        assert_eq!(read.stored.get("cipassword"), Some(MASKED));
        assert_eq!(read.pending.iter().collect::<Vec<_>>(), ["memory", "net1", "tags"]);
        assert_eq!(read.digest.as_deref(), Some("abc"));
        assert_eq!(PendingConfig::from_rows(&json!({})), None);
    }

    #[test]
    fn the_os_disk_is_the_first_disk_of_the_boot_order() {
        let disks =
            [("scsi0", "a:vm-1-disk-0"), ("virtio0", "a:vm-1-disk-1"), ("ide2", "a:cloudinit,media=cdrom")];
        let slot = |boot: &str| {
            let mut config = config(&disks);
            config.set("boot", boot);
            config.os_disk_slot().unwrap().map(|slot| slot.to_string())
        };
        assert_eq!(slot("order=ide2;net0;virtio0;scsi0").as_deref(), Some("virtio0"));
        assert_eq!(slot("order=net0"), None);
        assert_eq!(slot("cdn"), None);
    }

    #[test]
    fn without_a_boot_order_the_only_disk_is_meant() {
        let one = config(&[
            ("sata0", "a:vm-1-disk-0"),
            ("efidisk0", "a:vm-1-disk-1"),
            ("ide2", "none,media=cdrom"),
        ]);
        assert_eq!(one.os_disk_slot().unwrap().unwrap().to_string(), "sata0");
        let old = config(&[("boot", "c"), ("bootdisk", "scsi1"), ("scsi0", "a:x"), ("scsi1", "a:y")]);
        assert_eq!(old.os_disk_slot().unwrap().unwrap().to_string(), "scsi1");
    }
}
