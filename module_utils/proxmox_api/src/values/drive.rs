use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::property::{PropertyString, parse_bool};
use super::{Size, ValueError};

const FLAGS: [&str; 8] = ["backup", "iothread", "replicate", "ro", "scsiblock", "shared", "snapshot", "ssd"];

/// The place of a drive: `scsi0`, `ide2`, `efidisk0` (qemu-server `PVE/QemuServer/Drive.pm`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    bus: &'static str,
    index: u8,
}

/// Buses in alphabetical order with their highest index.
const BUSES: [(&str, u8); 6] =
    [("efidisk", 0), ("ide", 3), ("sata", 5), ("scsi", 30), ("tpmstate", 0), ("virtio", 15)];

impl Slot {
    #[must_use]
    pub fn bus(&self) -> &'static str {
        self.bus
    }

    /// Whether a guest can boot from it: not the firmware's and the TPM's own little disks.
    #[must_use]
    pub fn holds_a_disk(&self) -> bool {
        !matches!(self.bus, "efidisk" | "tpmstate")
    }
}

impl FromStr for Slot {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError::new(
                "a drive slot",
                text,
                "expected ide0-3, sata0-5, scsi0-30, virtio0-15, efidisk0 or tpmstate0",
            )
        };
        let digits = text.trim_start_matches(|c: char| c.is_ascii_lowercase());
        let (bus, most) =
            BUSES.iter().find(|(bus, _)| text.strip_suffix(digits) == Some(bus)).ok_or_else(wrong)?;
        let index: u8 = digits.parse().map_err(|_| wrong())?;
        if index > *most || index.to_string() != digits {
            return Err(wrong());
        }
        Ok(Self { bus, index })
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.bus, self.index)
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.bus, self.index).cmp(&(other.bus, other.index))
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What a drive holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// An empty CD-ROM drive.
    Empty,
    /// The CD-ROM drive of the node.
    HostCdrom,
    /// A file or device of the node.
    Path(String),
    /// Not there yet: writing this allocates that many GiB, each time.
    New { storage: String, gib: String },
    /// A volume of a storage.
    Stored { storage: String, name: String },
}

impl Volume {
    /// The storage it lives on.
    #[must_use]
    pub fn storage(&self) -> Option<&str> {
        match self {
            Self::New { storage, .. } | Self::Stored { storage, .. } => Some(storage),
            Self::Empty | Self::HostCdrom | Self::Path(_) => None,
        }
    }
}

impl From<&str> for Volume {
    fn from(text: &str) -> Self {
        match text.split_once(':') {
            _ if text == "none" => Self::Empty,
            _ if text == "cdrom" => Self::HostCdrom,
            Some((storage, rest)) if !text.starts_with('/') => {
                let (storage, rest) = (storage.to_owned(), rest.to_owned());
                if is_number(&rest) {
                    Self::New { storage, gib: rest }
                } else {
                    Self::Stored { storage, name: rest }
                }
            }
            _ => Self::Path(text.to_owned()),
        }
    }
}

/// What `NEW_DISK_RE` of qemu-server `PVE/API2/Qemu.pm` takes for a size to allocate.
fn is_number(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    [whole, fraction].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("none"),
            Self::HostCdrom => f.write_str("cdrom"),
            Self::Path(path) => f.write_str(path),
            Self::New { storage, gib } => write!(f, "{storage}:{gib}"),
            Self::Stored { storage, name } => write!(f, "{storage}:{name}"),
        }
    }
}

/// One drive: `VOLUME,option=value,...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    pub volume: Volume,
    /// Options as Proxmox VE names them; booleans as `1` and `0`, sizes in their normal form.
    pub options: BTreeMap<String, String>,
}

impl Drive {
    /// The size the configuration states; it is a note of the real one.
    #[must_use]
    pub fn size(&self) -> Option<Size> {
        self.options.get("size").and_then(|text| text.parse().ok())
    }

    /// The drive that cloud-init's settings are written to: `vm-101-cloudinit`, or `cloudinit` before it is made
    /// (qemu-server `PVE/QemuServer/Drive.pm`, `drive_is_cloudinit`).
    #[must_use]
    pub fn is_cloud_init(&self) -> bool {
        let Volume::Stored { name, .. } = &self.volume else { return false };
        let name = name.rsplit('/').next().unwrap_or_default();
        let name = name.split_once('.').map_or(name, |(name, _)| name);
        let made = name.strip_prefix("vm-").and_then(|rest| rest.strip_suffix("-cloudinit"));
        name == "cloudinit"
            || made.is_some_and(|vmid| !vmid.is_empty() && vmid.bytes().all(|b| b.is_ascii_digit()))
    }

    #[must_use]
    pub fn is_cdrom(&self) -> bool {
        self.volume == Volume::HostCdrom || self.options.get("media").is_some_and(|media| media == "cdrom")
    }
}

impl FromStr for Drive {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut parsed: PropertyString = text.parse()?;
        let volume = parsed
            .take_default("file")
            .or_else(|| parsed.keys.remove("volume"))
            .ok_or_else(|| ValueError::new("a drive", text, "it names no volume"))?;
        for (key, value) in &mut parsed.keys {
            if FLAGS.contains(&key.as_str()) {
                *value = u8::from(parse_bool(value)?).to_string();
            } else if key == "size" {
                *value = value.parse::<Size>()?.to_string();
            }
        }
        Ok(Self { volume: volume.as_str().into(), options: parsed.keys })
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PropertyString { bare: Some(self.volume.to_string()), keys: self.options.clone() }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn normal_forms() {
        for (text, normal) in [
            ("local-lvm:vm-101-disk-0,size=32G,discard=on", "local-lvm:vm-101-disk-0,discard=on,size=32G"),
            ("file=local-lvm:vm-101-disk-0,ssd=on,size=8192M", "local-lvm:vm-101-disk-0,size=8G,ssd=1"),
            ("none,media=cdrom", "none,media=cdrom"),
            ("local:iso/x.iso,media=cdrom,size=528K", "local:iso/x.iso,media=cdrom,size=528K"),
            ("/dev/sdb,backup=no", "/dev/sdb,backup=0"),
            ("local-lvm:8,serial=data", "local-lvm:8,serial=data"),
        ] {
            assert_eq!(text.parse::<Drive>().unwrap().to_string(), normal);
        }
    }

    #[test]
    fn only_a_bare_number_allocates() {
        let volume = |text: &str| Volume::from(text);
        assert_eq!(volume("nfs:8"), Volume::New { storage: "nfs".into(), gib: "8".into() });
        assert_eq!(volume("nfs:0.5"), Volume::New { storage: "nfs".into(), gib: "0.5".into() });
        assert_eq!(volume("nfs:101/vm-101-disk-0.qcow2").storage(), Some("nfs"));
        assert!(matches!(volume("nfs:cloudinit"), Volume::Stored { .. }));
        assert_eq!(volume("/mnt/8"), Volume::Path("/mnt/8".into()));
    }

    #[test]
    fn a_cloud_init_drive_is_known_by_its_volume() {
        let is = |text: &str| text.parse::<Drive>().unwrap().is_cloud_init();
        for text in
            ["local-lvm:cloudinit", "local:101/vm-101-cloudinit.qcow2,media=cdrom", "zfs:vm-7-cloudinit"]
        {
            assert!(is(text), "{text}");
        }
        for text in ["none,media=cdrom", "local:iso/cloudinit-x.iso", "zfs:vm-7-disk-0", "zfs:vm-x-cloudinit"]
        {
            assert!(!is(text), "{text}");
        }
    }

    #[test]
    fn slots_are_those_of_proxmox() {
        for text in ["ide3", "sata5", "scsi30", "virtio15", "efidisk0", "tpmstate0"] {
            assert_eq!(text.parse::<Slot>().unwrap().to_string(), text);
        }
        for text in ["", "ide4", "scsi31", "scsi", "scsi01", "SCSI0", "net0", "unused0", "scsi-1"] {
            assert!(text.parse::<Slot>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn slots_sort_by_number() {
        let mut slots: Vec<Slot> =
            ["virtio1", "scsi10", "scsi2"].iter().map(|text| text.parse().unwrap()).collect();
        slots.sort();
        assert_eq!(slots.iter().map(Slot::to_string).collect::<Vec<_>>(), ["scsi2", "scsi10", "virtio1"]);
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(
            volume in "(none|cdrom|/dev/[a-z]{3}|[a-z]{2,8}:(vm-[0-9]{3}-disk-[0-9]|[0-9]{1,4}|iso/[a-z]{1,8}\\.iso))",
            discard in proptest::option::of("(on|ignore)"),
            ssd: Option<bool>,
            bytes: Option<u64>,
            serial in proptest::option::of("[A-Za-z0-9_%-]{1,20}"),
        ) {
            let mut options = BTreeMap::new();
            options.extend(discard.map(|value| ("discard".to_owned(), value)));
            options.extend(ssd.map(|value| ("ssd".to_owned(), u8::from(value).to_string())));
            options.extend(bytes.map(|value| ("size".to_owned(), Size::from_bytes(value).to_string())));
            options.extend(serial.map(|value| ("serial".to_owned(), value)));
            let drive = Drive { volume: volume.as_str().into(), options };
            prop_assert_eq!(drive.to_string().parse::<Drive>(), Ok(drive));
        }
    }
}
