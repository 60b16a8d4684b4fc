use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use net_types::MacAddress;

use super::ValueError;
use super::property::PropertyString;

const WHAT: &str = "a network device";
/// qemu-server `PVE/QemuServer/Network.pm`.
const MODELS: [&str; 14] = [
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];

/// `netN`. Without `mac`, Proxmox VE draws a new address on every write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetDevice {
    pub model: String,
    pub mac: Option<MacAddress>,
    pub bridge: Option<String>,
    pub firewall: Option<bool>,
    pub link_down: Option<bool>,
    /// 1 means the bridge's own.
    pub mtu: Option<u32>,
    pub queues: Option<u32>,
    /// Megabytes per second.
    pub rate: Option<f64>,
    /// The VLAN.
    pub tag: Option<u16>,
    pub trunks: Option<Trunks>,
    /// Keys this type does not know; kept as they are.
    pub other: BTreeMap<String, String>,
}

impl NetDevice {
    /// The models that Proxmox VE knows.
    #[must_use]
    pub const fn models() -> &'static [&'static str] {
        &MODELS
    }
}

impl FromStr for NetDevice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |why: String| ValueError::new(WHAT, text, why);
        let mut parsed: PropertyString = text.parse()?;
        let mut mac = parsed.take::<MacAddress>("macaddr")?;
        let by_name = MODELS.iter().find(|model| parsed.keys.contains_key(**model)).copied();
        let model = match by_name {
            Some(model) => {
                mac = parsed.take(model)?;
                model.to_owned()
            }
            None => parsed.take_default("model").ok_or_else(|| wrong("it names no model".into()))?,
        };
        if !MODELS.contains(&model.as_str()) {
            return Err(wrong(format!("{model:?} is not a model Proxmox VE knows")));
        }
        Ok(Self {
            model,
            mac,
            bridge: parsed.keys.remove("bridge"),
            firewall: parsed.take_bool("firewall")?,
            link_down: parsed.take_bool("link_down")?,
            mtu: parsed.take("mtu")?,
            queues: parsed.take("queues")?,
            rate: parsed.take("rate")?,
            tag: parsed.take("tag")?,
            trunks: parsed.take("trunks")?,
            other: parsed.keys,
        })
    }
}

impl fmt::Display for NetDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bit = |value: Option<bool>| value.map(|on| u8::from(on).to_string());
        let known = [
            ("bridge", self.bridge.clone()),
            ("firewall", bit(self.firewall)),
            ("link_down", bit(self.link_down)),
            ("mtu", self.mtu.map(|value| value.to_string())),
            ("queues", self.queues.map(|value| value.to_string())),
            ("rate", self.rate.map(|value| value.to_string())),
            ("tag", self.tag.map(|value| value.to_string())),
            ("trunks", self.trunks.as_ref().map(Trunks::to_string)),
        ];
        let mut keys = self.other.clone();
        keys.extend(known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let head = match self.mac {
            Some(mac) => format!("{}={}", self.model, mac.to_string().to_uppercase()),
            None => self.model.clone(),
        };
        PropertyString { bare: Some(head), keys }.fmt(f)
    }
}

/// The VLANs a trunk port carries: single ones and ranges, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trunks(Vec<(u16, u16)>);

impl FromStr for Trunks {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::new("a list of VLANs", text, "expected VLANs from 1 to 4094 like 2;10-20");
        let vlan = |part: &str| part.trim().parse().ok().filter(|vlan| (1..=4094).contains(vlan));
        let mut ranges = Vec::new();
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (vlan(first), vlan(last)) {
                (Some(first), Some(last)) if first <= last => ranges.push((first, last)),
                _ => return Err(wrong()),
            }
        }
        if ranges.is_empty() {
            return Err(wrong());
        }
        ranges.sort_unstable();
        ranges.dedup();
        Ok(Self(ranges))
    }
}

impl fmt::Display for Trunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self
            .0
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
        f.write_str(&parts.collect::<Vec<_>>().join(";"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(text: &str) -> String {
        text.parse::<NetDevice>().unwrap().to_string()
    }

    #[test]
    fn every_spelling_has_one_normal_form() {
        for text in [
            "virtio=bc:24:11:00:00:0a,bridge=vmbr0,firewall=1,tag=10",
            "virtio,macaddr=BC:24:11:00:00:0A,tag=10,firewall=on,bridge=vmbr0",
            "model=virtio,bridge=vmbr0,firewall=yes,macaddr=bc-24-11-00-00-0a,tag=10",
        ] {
            assert_eq!(normal(text), "virtio=BC:24:11:00:00:0A,bridge=vmbr0,firewall=1,tag=10");
        }
        assert_eq!(normal("e1000e,rate=10.0,host-tunnel=1"), "e1000e,host-tunnel=1,rate=10");
        assert_eq!(normal("virtio,trunks=20;1-3"), "virtio,trunks=1-3;20");
    }

    #[test]
    fn what_is_no_network_device_is_refused() {
        for text in
            ["", "bridge=vmbr0", "ne3000,bridge=vmbr0", "virtio=nonsense", "virtio,tag=x", "virtio,trunks=0"]
        {
            assert!(text.parse::<NetDevice>().is_err(), "{text:?}");
        }
    }

    prop_compose! {
        fn device()(
            model in proptest::sample::select(MODELS.to_vec()),
            mac in proptest::option::of(any::<[u8; 6]>()),
            bridge in proptest::option::of("vmbr[0-9]{1,3}"),
            (firewall, link_down) in any::<(Option<bool>, Option<bool>)>(),
            mtu in proptest::option::of(1_u32..=65520),
            queues in proptest::option::of(0_u32..=64),
            rate in proptest::option::of(0_u32..100_000),
            tag in proptest::option::of(1_u16..=4094),
            trunks in proptest::collection::vec((1_u16..=4094, 0_u16..10), 0..4),
        ) -> NetDevice {
            let list: Vec<String> =
                trunks.iter().map(|(first, more)| format!("{first}-{}", (first + more).min(4094))).collect();
            NetDevice {
                model: model.to_owned(),
                mac: mac.map(MacAddress::new),
                bridge, firewall, link_down, mtu, queues, tag,
                rate: rate.map(|hundredths| f64::from(hundredths) / 100.0),
                trunks: list.join(";").parse().ok(),
                other: BTreeMap::new(),
            }
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(device in device()) {
            prop_assert_eq!(device.to_string().parse::<NetDevice>(), Ok(device));
        }
    }
}
