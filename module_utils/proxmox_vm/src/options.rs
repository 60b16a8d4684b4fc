//! What a task says about a virtual machine's hardware: the options, and the checked values made from them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;

use ansible_module::{Arguments, Failure, Kind, Opt, Table};
use net_types::MacAddress;
use proxmox_api::values::{Agent, NetDevice, Size, Slot, Startup, Tags, Trunks};
use serde::{Deserialize, Deserializer};

/// What a task declares of a virtual machine, however the machine comes to be. Only what is given is managed.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Hardware {
    pub description: Option<String>,
    #[serde(default, deserialize_with = "tags")]
    pub tags: Option<Tags>,
    pub cores: Option<u32>,
    pub sockets: Option<u32>,
    pub cpu: Option<String>,
    /// MiB.
    pub memory: Option<u64>,
    /// MiB.
    pub balloon: Option<u64>,
    #[serde(default, deserialize_with = "text")]
    pub agent: Option<Agent>,
    pub scsihw: Option<String>,
    pub onboot: Option<bool>,
    #[serde(default, deserialize_with = "text")]
    pub startup: Option<Startup>,
    pub protection: Option<bool>,
    #[serde(default)]
    pub net: Vec<Net>,
    #[serde(default)]
    pub disks: Vec<Disk>,
    pub boot_order: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Net {
    pub slot: String,
    pub model: Option<String>,
    pub mac: Option<MacAddress>,
    pub bridge: Option<String>,
    pub vlan: Option<u16>,
    #[serde(default, deserialize_with = "text")]
    pub trunks: Option<Trunks>,
    pub firewall: Option<bool>,
    pub mtu: Option<u32>,
    pub rate: Option<f64>,
    pub queues: Option<u32>,
    pub link_down: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Disk {
    #[serde(deserialize_with = "required_text")]
    pub slot: Slot,
    pub storage: String,
    #[serde(deserialize_with = "size")]
    pub size: Size,
    pub serial: Option<String>,
    pub discard: Option<bool>,
    pub iothread: Option<bool>,
    pub ssd: Option<bool>,
    pub backup: Option<bool>,
    pub cache: Option<String>,
    pub aio: Option<String>,
}

/// An option whose type reads itself.
///
/// # Errors
/// The type's own.
pub fn required_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// [`required_text`] for an option that may be missing.
///
/// # Errors
/// The type's own.
pub fn text<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    required_text(deserializer).map(Some)
}

fn tags<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Tags>, D::Error> {
    Vec::<String>::deserialize(deserializer)?.join(";").parse().map(Some).map_err(serde::de::Error::custom)
}

/// A bare number is GiB; otherwise `64G`, `1T`.
///
/// # Errors
/// When it is neither, or nothing.
pub fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
    let text = String::deserialize(deserializer)?;
    let size = match text.parse::<u64>() {
        Ok(gib) => Size::from_gib(gib),
        Err(_) => Some(text.parse().map_err(serde::de::Error::custom)?),
    };
    size.filter(|size| size.whole_gib().is_some_and(|gib| gib > 0)).ok_or_else(|| {
        serde::de::Error::custom(format!("expected a whole number of GiB (32 or 32G), found {text:?}"))
    })
}

impl Hardware {
    /// # Errors
    /// `bad_argument`.
    pub fn parse(arguments: &Arguments) -> Result<Self, Failure> {
        let hardware: Self = arguments.parse()?;
        hardware.check_numbers()?;
        hardware.check_net()?;
        hardware.check_disks()?;
        Ok(hardware)
    }

    fn check_numbers(&self) -> Result<(), Failure> {
        let limits = [
            ("cores", self.cores.map(u64::from), 1, 1024),
            ("sockets", self.sockets.map(u64::from), 1, 128),
            ("memory", self.memory, 16, 4_178_944),
            ("balloon", self.balloon, 0, 4_178_944),
        ];
        for (option, value, least, most) in limits {
            within(option, value, least, most)?;
        }
        match (self.balloon, self.memory) {
            (Some(balloon), Some(memory)) if balloon > memory => Err(Failure::bad_argument(
                "balloon",
                format!("{balloon} MiB is more than memory ({memory} MiB)"),
            )),
            _ => Ok(()),
        }
    }

    fn check_net(&self) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        for (index, net) in self.net.iter().enumerate() {
            let at = |option: &str| format!("net[{index}].{option}");
            check_numbered(&at("slot"), &net.slot, "net", 31)?;
            refuse_twice(&mut seen, &at("slot"), &net.slot)?;
            if net.mac.is_some_and(MacAddress::is_multicast) {
                return Err(Failure::bad_argument(at("mac"), "a multicast address cannot be a card's own"));
            }
            if net.bridge.as_ref().is_some_and(|bridge| bridge.trim().is_empty()) {
                return Err(Failure::bad_argument(
                    at("bridge"),
                    "expected the name of a bridge, found nothing",
                ));
            }
            within(&at("vlan"), net.vlan.map(u64::from), 0, 4094)?;
            within(&at("mtu"), net.mtu.map(u64::from), 1, 65520)?;
            within(&at("queues"), net.queues.map(u64::from), 0, 64)?;
        }
        Ok(())
    }

    fn check_disks(&self) -> Result<(), Failure> {
        let mut slots = BTreeSet::new();
        let mut serials = BTreeSet::new();
        for (index, disk) in self.disks.iter().enumerate() {
            let at = |option: &str| format!("disks[{index}].{option}");
            if !disk.slot.holds_a_disk() {
                return Err(Failure::bad_argument(
                    at("slot"),
                    "expected a slot for a data disk, such as scsi1",
                ));
            }
            refuse_twice(&mut slots, &at("slot"), &disk.slot.to_string())?;
            if let Some(serial) = &disk.serial {
                check_serial(&at("serial"), serial)?;
                refuse_twice(&mut serials, &at("serial"), serial)?;
            }
            let bus = disk.slot.bus();
            if disk.iothread == Some(true) && !matches!(bus, "scsi" | "virtio") {
                return Err(Failure::bad_argument(at("iothread"), format!("{bus} has no I/O threads")));
            }
            if disk.ssd.is_some() && bus == "virtio" {
                return Err(Failure::bad_argument(at("ssd"), "virtio disks have no such property; use scsi"));
            }
        }
        Ok(())
    }
}

/// # Errors
/// `bad_argument` when a value is out of bounds.
pub fn within(option: &str, value: Option<u64>, least: u64, most: u64) -> Result<(), Failure> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(Failure::bad_argument(option, format!("expected {least} to {most}, found {value}")))
        }
        _ => Ok(()),
    }
}

/// `net0` and its like.
///
/// # Errors
/// `bad_argument`.
pub fn check_numbered(option: &str, text: &str, prefix: &str, most: u32) -> Result<(), Failure> {
    let number = text.strip_prefix(prefix).and_then(|digits| {
        digits.parse::<u32>().ok().filter(|number| *number <= most && number.to_string() == digits)
    });
    match number {
        Some(_) => Ok(()),
        None => Err(Failure::bad_argument(
            option,
            format!("expected {prefix}0 to {prefix}{most}, found `{text}`"),
        )),
    }
}

/// # Errors
/// `bad_argument` when `seen` has the value already.
pub fn refuse_twice(seen: &mut BTreeSet<String>, option: &str, value: &str) -> Result<(), Failure> {
    if seen.insert(value.to_owned()) {
        return Ok(());
    }
    Err(Failure::bad_argument(option, format!("`{value}` is given twice")))
}

/// What /dev/disk/by-id shows without changing it; Proxmox VE takes at most 20 bytes.
fn check_serial(option: &str, serial: &str) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=20).contains(&serial.len()) && serial.chars().all(plain) {
        return Ok(());
    }
    Err(Failure::bad_argument(option, format!("expected 1 to 20 of A-Z a-z 0-9 - _ . and found `{serial}`")))
}

/// The option `boot_order` of [`Hardware`].
#[must_use]
pub fn boot_order_option() -> Opt {
    Opt::list("boot_order", Kind::Str).doc("Devices to boot from in order, such as V(scsi0,net0).")
}

/// The options of [`Hardware`] besides `boot_order`, `description` and `tags`.
#[must_use]
pub fn hardware_options() -> Table {
    Table::new(vec![
        Opt::int("cores").doc("CPU cores per socket."),
        Opt::int("sockets").doc("CPU sockets."),
        Opt::str("cpu").doc("CPU type with its flags, such as V(host) or V(x86-64-v2-AES,flags=+aes)."),
        Opt::int("memory").doc("Memory in MiB."),
        Opt::int("balloon").doc("Least memory in MiB that ballooning leaves; V(0) turns ballooning off."),
        Opt::str("agent").doc("Guest agent: V(1), V(0), or more as in V(enabled=1,fstrim_cloned_disks=1)."),
        Opt::str("scsihw")
            .choices(&["lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"])
            .doc("Model of the SCSI controller."),
        Opt::bool("onboot").doc("Whether the virtual machine starts when its node boots."),
        Opt::str("startup").doc("Order and delays at boot, such as V(order=2,up=30,down=60)."),
        Opt::bool("protection").doc("Whether the virtual machine and its disks are protected from removal."),
        Opt::list_of("net", net_options()).doc(
            "Network devices. Only those named are managed; of one named, only the options given. A device that is \
             not there yet is added.",
        ),
        Opt::list_of("disks", disk_options()).doc(
            "Data disks. One is created when its slot is empty, once; it is never re-created, resized or moved. A \
             disk in the slot that is smaller than declared or has another serial is refused.",
        ),
    ])
}

fn net_options() -> Table {
    Table::new(vec![
        Opt::str("slot").default("net0").doc("Which device: V(net0) to V(net31)."),
        Opt::str("model").choices(NetDevice::models()).doc("Model of the card; a new one is V(virtio)."),
        Opt::str("mac")
            .quoted("a MAC address")
            .aliases(&["macaddr"])
            .doc("MAC address. When it is not given, the one the device has is kept."),
        Opt::str("bridge").doc("Bridge the device is connected to."),
        Opt::int("vlan").aliases(&["tag"]).doc("VLAN tag, V(1) to V(4094); V(0) removes the tag."),
        Opt::str("trunks").doc("VLANs passed through to the guest, such as V(2;10-20)."),
        Opt::bool("firewall").doc("Whether Proxmox VE's firewall filters the device."),
        Opt::int("mtu").doc("MTU; V(1) means the bridge's own."),
        Opt::float("rate").doc("Limit in megabytes per second."),
        Opt::int("queues").doc("Packet queues."),
        Opt::bool("link_down").doc("Whether the cable is pulled."),
    ])
}

fn disk_options() -> Table {
    Table::new(vec![
        Opt::str("slot").required().aliases(&["device"]).doc("Which slot, such as V(scsi1)."),
        Opt::str("storage").required().doc("Storage a new disk is created on."),
        Opt::str("size").required().doc("Size: a number of GiB, or V(64G), V(1T)."),
        Opt::str("serial").doc(
            "Serial number, up to 20 characters. The guest finds the disk by it under C(/dev/disk/by-id).",
        ),
        Opt::bool("discard").doc("Whether freed blocks are given back to the storage."),
        Opt::bool("iothread")
            .doc("Whether the disk has its own I/O thread; SCSI needs O(scsihw=virtio-scsi-single)."),
        Opt::bool("ssd").doc("Whether the disk is shown as a solid state drive."),
        Opt::bool("backup").doc("Whether backups include the disk."),
        Opt::str("cache")
            .choices(&["none", "writethrough", "writeback", "unsafe", "directsync"])
            .doc("Cache mode."),
        Opt::str("aio")
            .choices(&["native", "threads", "io_uring"])
            .doc("How the node does asynchronous I/O."),
    ])
}
