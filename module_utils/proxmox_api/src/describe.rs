//! Devices as plain values, in Proxmox VE's words.

use serde_json::{Map, Value, json};

use crate::values::{Drive, NetDevice, Volume};

impl NetDevice {
    /// One option by its name; flags that are not set are off, other options `Null`.
    #[must_use]
    pub fn property(&self, name: &str) -> Value {
        match name {
            "model" => json!(self.model),
            "macaddr" => json!(self.mac.map(|mac| mac.to_string())),
            "bridge" => json!(self.bridge),
            "firewall" => json!(self.firewall.unwrap_or(false)),
            "link_down" => json!(self.link_down.unwrap_or(false)),
            "mtu" => json!(self.mtu),
            "queues" => json!(self.queues),
            "rate" => json!(self.rate),
            "tag" => json!(self.tag),
            "trunks" => json!(self.trunks.as_ref().map(ToString::to_string)),
            other => json!(self.other.get(other)),
        }
    }

    /// Every option that is set, and the flags.
    #[must_use]
    pub fn describe(&self) -> Value {
        let names =
            ["model", "macaddr", "bridge", "tag", "trunks", "firewall", "mtu", "rate", "queues", "link_down"];
        let names = names.into_iter().chain(self.other.keys().map(String::as_str));
        names
            .map(|name| (name.to_owned(), self.property(name)))
            .filter(|(_, value)| !value.is_null())
            .collect::<Map<_, _>>()
            .into()
    }
}

impl Drive {
    /// `storage`, `volume` (`Null` while it is not made) and every option as its text.
    #[must_use]
    pub fn describe(&self) -> Value {
        let mut object: Map<_, _> =
            self.options.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
        object.insert("storage".into(), json!(self.volume.storage()));
        let volume = match &self.volume {
            Volume::New { .. } => Value::Null,
            volume => json!(volume.to_string()),
        };
        object.insert("volume".into(), volume);
        object.into()
    }
}
