//! A machine's disks and pools: what is there, and which names stand for the same disk.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use deadline::Deadline;
use host::{BlockError, ByIdLink, Command, CommandError, Host, Mount, Output};
use serde::Deserialize;

use crate::findings::{Contents, Part};
use crate::json_status::parse_json_status;
use crate::label::parse_label;
use crate::text_status::parse_status;
use crate::vdev::{Pool, Vdev};

const BY_ID: &str = "/dev/disk/by-id";
/// The first with `zpool status -j`.
const FIRST_WITH_JSON: (u32, u32) = (2, 3);
/// Partitions that proxmox-boot-tool keeps kernels on, one UUID a line.
const BOOT_UUIDS: &str = "/etc/kernel/proxmox-boot-uuids";

/// Why a machine could not be read.
#[derive(Debug)]
pub enum ReadError {
    Command(CommandError),
    Block(BlockError),
    /// A tool answered in a form that this program does not know.
    Answer {
        command: String,
        why: String,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(CommandError::NotFound { program, .. }) if program.starts_with('z') => {
                write!(f, "the program `{program}` is not installed: install zfsutils-linux")
            }
            Self::Command(error) => error.fmt(f),
            Self::Block(error) => error.fmt(f),
            Self::Answer { command, why } => {
                write!(f, "`{command}` gave an answer that cannot be read: {why}")
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<CommandError> for ReadError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<BlockError> for ReadError {
    fn from(error: BlockError) -> Self {
        Self::Block(error)
    }
}

/// A device as lsblk(8) shows it, with what stands on top of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Device {
    /// The kernel's name, `/dev/sda`, `/dev/dm-0`.
    #[serde(rename = "kname")]
    pub path: PathBuf,
    /// `disk`, `part`, `mpath`, `lvm`, `crypt`, `raid1`, `rom`, `loop` ...
    #[serde(rename = "type")]
    pub kind: String,
    /// In bytes.
    pub size: u64,
    #[serde(rename = "ro", default)]
    pub read_only: bool,
    #[serde(rename = "rm", default)]
    pub removable: bool,
    /// `sata`, `sas`, `nvme`, `usb` ...
    #[serde(rename = "tran")]
    pub transport: Option<String>,
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub wwn: Option<String>,
    #[serde(rename = "fstype")]
    pub fs_type: Option<String>,
    pub label: Option<String>,
    pub uuid: Option<String>,
    /// Major and minor number, `8:0`.
    #[serde(rename = "maj:min", default)]
    pub device_number: String,
    /// First sector (of 512 bytes) on the disk; only of a partition.
    #[serde(skip)]
    pub start: Option<u64>,
    /// What makes this a volume of a RAID controller.
    #[serde(skip)]
    pub raid_volume: Option<String>,
    #[serde(default)]
    pub children: Vec<Device>,
}

impl Device {
    /// lsblk nests its answer only with NAME among the columns.
    const COLUMNS: &str = "NAME,KNAME,TYPE,SIZE,RO,RM,TRAN,VENDOR,MODEL,SERIAL,WWN,FSTYPE,LABEL,UUID,MAJ:MIN";

    /// This device and everything above it.
    pub fn tree(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        Box::new(std::iter::once(self).chain(self.children.iter().flat_map(Self::tree)))
    }

    fn tree_mut(&mut self, visit: &mut impl FnMut(&mut Self)) {
        visit(self);
        self.children.iter_mut().for_each(|child| child.tree_mut(visit));
    }

    /// `sda`.
    #[must_use]
    pub fn kernel_name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Which disk a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The kernel's name of the whole disk, or of the multipath map over its paths.
    Disk(PathBuf),
    /// A name that leads nowhere at the moment, without its partition.
    Missing(String),
}

/// What a run knows of the machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The devices that stand on no other one.
    pub devices: Vec<Device>,
    pub links: Vec<ByIdLink>,
    pub pools: Vec<Pool>,
    pub mounts: Vec<Mount>,
    pub swaps: Vec<PathBuf>,
    /// UUIDs of partitions that the machine boots from.
    pub boot_uuids: Vec<String>,
    /// As ZFS writes it into labels; none where there is no `/etc/hostid`.
    pub hostid: Option<u64>,
    pub hostname: String,
}

impl Machine {
    /// Two commands: lsblk and `zpool status` (three where the kernel does not say which version of ZFS it has).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(host: &Host, deadline: &Deadline) -> Result<Self, ReadError> {
        let fail = |path: &str| {
            let path = PathBuf::from(path);
            move |error| ReadError::Io { path, error }
        };
        Ok(Self {
            devices: read_devices(host, deadline)?,
            links: host.by_id_links()?,
            pools: read_pools(host, deadline)?,
            mounts: host.mounts().map_err(fail("/proc/self/mountinfo"))?,
            swaps: host.swaps().map_err(fail("/proc/swaps"))?,
            boot_uuids: host
                .read(BOOT_UUIDS)
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            hostid: read_hostid(host),
            hostname: host
                .read("/proc/sys/kernel/hostname")
                .map_err(fail("/proc/sys/kernel/hostname"))?
                .trim()
                .to_owned(),
        })
    }

    /// Every device, those that stand on others too.
    pub fn all(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().flat_map(Device::tree)
    }

    #[must_use]
    pub fn device(&self, path: &Path) -> Option<&Device> {
        self.all().find(|device| device.path == path)
    }

    /// Whole disks: multipath maps, and disks that are no path of one.
    pub fn disks(&self) -> impl Iterator<Item = &Device> {
        let mut seen = BTreeSet::new();
        self.devices
            .iter()
            .filter(|device| device.kind == "disk")
            .map(|disk| multipath_map(disk).unwrap_or(disk))
            .filter(move |disk| seen.insert(disk.path.clone()))
    }

    /// The disks that are paths to a multipath map; none for any other device.
    #[must_use]
    pub fn paths_of(&self, map: &Device) -> Vec<&Device> {
        self.devices
            .iter()
            .filter(|disk| multipath_map(disk).is_some_and(|found| found.path == map.path))
            .collect()
    }

    /// Names below `/dev/disk/by-id` that lead to a device; without the directory.
    #[must_use]
    pub fn names_of(&self, path: &Path) -> Vec<&str> {
        self.links.iter().filter(|link| link.device == path).map(|link| link.name.as_str()).collect()
    }

    /// The device a path stands for at this moment.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> Option<&Device> {
        match path.strip_prefix(BY_ID) {
            Ok(name) => {
                let link = self.links.iter().find(|link| Path::new(&link.name) == name)?;
                self.device(&link.device)
            }
            Err(_) => self.device(path),
        }
    }

    /// Which disk a path stands for, whichever of its names it is, and whether it is the disk or a partition of it.
    #[must_use]
    pub fn identity(&self, path: &Path) -> Identity {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = strip_partition(&name);
        // A partition's own link may be late, or gone with what was on it.
        let device = self.resolve(path).or_else(|| self.resolve(&path.with_file_name(name)));
        let disk = device.and_then(|device| self.whole(device));
        disk.map_or_else(|| Identity::Missing(name.to_owned()), |disk| Identity::Disk(disk.path.clone()))
    }

    /// The lasting name of the disk behind a path, one that says model and serial number before a bare number;
    /// the path itself for a disk that has none.
    #[must_use]
    pub fn best_name(&self, path: &Path) -> String {
        let Identity::Disk(disk) = self.identity(path) else { return path.display().to_string() };
        let mut names = self.names_of(&disk);
        let bare = |name: &str| {
            ["wwn-", "nvme-eui.", "nvme-nvme.", "dm-"].iter().any(|start| name.starts_with(start))
        };
        names.sort_by_key(|name| (bare(name), name.len()));
        names.first().map_or_else(|| disk.display().to_string(), |name| format!("{BY_ID}/{name}"))
    }

    /// The disk under a partition, the map over a path.
    fn whole(&self, device: &Device) -> Option<&Device> {
        let disk = self.disks_and_others().find(|disk| {
            disk.path == device.path
                || disk.children.iter().any(|part| part.kind == "part" && part.path == device.path)
        })?;
        Some(multipath_map(disk).unwrap_or(disk))
    }

    fn disks_and_others(&self) -> impl Iterator<Item = &Device> {
        self.all().filter(|device| device.kind != "part")
    }

    /// The pool that has this disk, and the vdev that it is there.
    #[must_use]
    pub fn pool_of(&self, disk: &Path) -> Option<(&Pool, &Vdev)> {
        let wanted = Identity::Disk(disk.to_owned());
        self.pools.iter().find_map(|pool| {
            let mut leaves = pool.leaves();
            let leaf =
                leaves.find(|leaf| leaf.path.as_deref().is_some_and(|path| self.identity(path) == wanted))?;
            Some((pool, leaf))
        })
    }

    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// Everything that can be found on a disk and its partitions: three commands for each of them.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn examine(&self, disk: &Device, host: &Host, deadline: &Deadline) -> Result<Contents, ReadError> {
        let mut parts = Vec::new();
        for device in std::iter::once(disk).chain(disk.children.iter().filter(|child| child.kind == "part")) {
            parts.push(Part {
                device: device.path.clone(),
                signatures: host.signatures(&device.path, deadline)?,
                probe: host.probe(&device.path, deadline)?,
                label: read_label(&device.path, host, deadline)?,
            });
        }
        Ok(Contents { parts })
    }
}

/// What ZFS wrote on a device. wipefs sees only what it did not erase before: after it, labels can still be read.
fn read_label(
    device: &Path,
    host: &Host,
    deadline: &Deadline,
) -> Result<Option<crate::label::Label>, ReadError> {
    let output = host.run(&Command::new("zdb").arg("-l").arg(device), deadline)?;
    // zdb ends with an error where there is no label, or where a copy of it is broken.
    Ok(parse_label(&output.stdout_text()))
}

fn multipath_map(disk: &Device) -> Option<&Device> {
    disk.children.iter().find(|child| child.kind == "mpath")
}

/// `scsi-X-part1` is on `scsi-X`; what comes without a partition stays as it is.
#[must_use]
pub fn strip_partition(name: &str) -> &str {
    match name.rsplit_once("-part") {
        Some((disk, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => disk,
        _ => name,
    }
}

fn read_devices(host: &Host, deadline: &Deadline) -> Result<Vec<Device>, ReadError> {
    let command = Command::new("lsblk").args(["--json", "--bytes", "--paths", "--output", Device::COLUMNS]);
    let output = host.run(&command, deadline)?.ok()?;
    let mut devices = parse_devices(&output)?;
    for device in &mut devices {
        device.tree_mut(&mut |device| {
            let below_sys = PathBuf::from("/sys/class/block").join(device.kernel_name());
            if device.kind == "part" {
                device.start =
                    host.read(below_sys.join("start")).ok().and_then(|text| text.trim().parse().ok());
            } else if device.kind == "disk" {
                device.raid_volume = raid_volume(device, &below_sys.join("device"), host);
            }
        });
    }
    Ok(devices)
}

fn parse_devices(output: &Output) -> Result<Vec<Device>, ReadError> {
    #[derive(Deserialize)]
    struct Answer {
        blockdevices: Vec<Device>,
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .map_err(|error| ReadError::Answer { command: output.command.clone(), why: error.to_string() })?;
    let mut devices = answer.blockdevices;
    // What stands on a disk shows that it is in use: a list without the tree would make every disk look free.
    if let Some(part) = devices.iter().find(|device| device.kind == "part") {
        let why = format!("partition {} stands on no disk in the answer", part.path.display());
        return Err(ReadError::Answer { command: output.command.clone(), why });
    }
    for device in &mut devices {
        device.tree_mut(&mut |device| {
            let values = [&mut device.vendor, &mut device.model, &mut device.serial, &mut device.wwn];
            for value in values {
                *value = value.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
            }
            device.device_number = device.device_number.trim().to_owned();
        });
    }
    Ok(devices)
}

/// How controllers name what they make of several disks, by vendor and model.
const RAID_MODELS: [(&str, &str); 18] = [
    ("", "LOGICAL VOLUME"),
    ("", "Logical Volume"),
    ("", "LogicalDrv"),
    ("", "Virtual Disk"),
    ("", "MegaRAID"),
    ("", "ServeRAID"),
    ("", "PERC"),
    ("", "MR9"),
    ("", "RAID "),
    ("", "ROMB"),
    ("AVAGO", "MR"),
    ("BROADCOM", "MR"),
    ("LSI", "MR"),
    ("HPE", "MR"),
    ("Areca", ""),
    ("AMCC", ""),
    ("3ware", ""),
    ("ASR", ""),
];
/// Hyper-V's own disks have the same words, and are no controller's.
const NO_RAID_VENDORS: [&str; 1] = ["Msft"];
/// Channels from here on are volumes, below it are disks that are passed through
/// (`MEGASAS_MAX_PD_CHANNELS` of Linux' drivers/scsi/megaraid/megaraid_sas.h).
const MEGARAID_VOLUME_CHANNEL: u32 = 2;

/// What makes a disk a volume of a RAID controller: its model, what the driver says of it, where it hangs.
fn raid_volume(disk: &Device, below_sys: &Path, host: &Host) -> Option<String> {
    let vendor = disk.vendor.as_deref().unwrap_or_default();
    let model = disk.model.as_deref().unwrap_or_default();
    let is_raid = |(maker, name): &&(&str, &str)| {
        vendor.to_ascii_lowercase().starts_with(&maker.to_ascii_lowercase())
            && if maker.is_empty() { model.contains(name) } else { model.starts_with(name) }
    };
    if !NO_RAID_VENDORS.contains(&vendor) && RAID_MODELS.iter().any(|entry| is_raid(&entry)) {
        return Some(format!("model {vendor} {model}").replace("  ", " "));
    }
    // hpsa and smartpqi: "N/A" for a disk.
    if let Ok(level) = host.read(below_sys.join("raid_level"))
        && !matches!(level.trim(), "" | "N/A")
    {
        return Some(format!("raid_level {}", level.trim()));
    }
    let address = fs::canonicalize(host.path(below_sys)).ok()?;
    let address = address.file_name()?.to_string_lossy().into_owned();
    let mut numbers = address.split(':').map(|number| number.parse::<u32>().ok());
    let (controller, channel) = (numbers.next()??, numbers.next()??);
    let driver = host.read(format!("/sys/class/scsi_host/host{controller}/proc_name")).ok()?;
    (driver.trim() == "megaraid_sas" && channel >= MEGARAID_VOLUME_CHANNEL)
        .then(|| format!("channel {channel} of {}", driver.trim()))
}

fn read_pools(host: &Host, deadline: &Deadline) -> Result<Vec<Pool>, ReadError> {
    if version(host).is_none_or(|version| version >= FIRST_WITH_JSON) {
        let output = host.run(&Command::new("zpool").args(["status", "-j", "--json-int"]), deadline)?;
        let text = output.stdout_text();
        if output.status.success() && text.trim_start().starts_with('{') {
            return parse_json_status(&text)
                .map_err(|why| ReadError::Answer { command: output.command, why });
        }
        // Programs older than the kernel's module know no -j, and say so.
        if !output.stderr_text().contains("invalid option") && !output.status.success() {
            return Err(output.into_failure().into());
        }
    }
    let output = host.run(&Command::new("zpool").args(["status", "-P"]), deadline)?.ok()?;
    parse_status(&output.stdout_text()).map_err(|why| ReadError::Answer { command: output.command, why })
}

/// Of the kernel's module: `2.2.7-pve2` is (2, 2).
fn version(host: &Host) -> Option<(u32, u32)> {
    let text = host.read("/sys/module/zfs/version").ok()?;
    let mut numbers = text.trim().split(['.', '-']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// What the kernel's module takes: its parameter, else the file (`zone_get_hostid` of OpenZFS'
/// module/os/linux/spl/spl-generic.c).
fn read_hostid(host: &Host) -> Option<u64> {
    let parameter = host.read("/sys/module/spl/parameters/spl_hostid").ok();
    if let Some(number) =
        parameter.and_then(|text| text.trim().parse::<u64>().ok()).filter(|number| *number != 0)
    {
        return Some(number);
    }
    let bytes = fs::read(host.path("/etc/hostid")).ok()?;
    let bytes: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    Some(u64::from(u32::from_ne_bytes(bytes))).filter(|number| *number != 0)
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    fn answer(devices: &str) -> Output {
        Output {
            command: "lsblk".to_owned(),
            status: ExitStatus::default(),
            stdout: format!(r#"{{"blockdevices": [{devices}]}}"#).into_bytes(),
            stderr: Vec::new(),
        }
    }

    #[test]
    fn a_list_of_devices_without_their_tree_is_refused() {
        let disk = r#"{"kname": "/dev/sda", "type": "disk", "size": 8}"#;
        let part = r#"{"kname": "/dev/sda1", "type": "part", "size": 4}"#;
        assert!(parse_devices(&answer(disk)).is_ok());
        let nested = format!(r#"{{"kname": "/dev/sda", "type": "disk", "size": 8, "children": [{part}]}}"#);
        assert_eq!(parse_devices(&answer(&nested)).unwrap()[0].children.len(), 1);
        let flat = parse_devices(&answer(&format!("{disk}, {part}"))).unwrap_err();
        assert!(flat.to_string().contains("/dev/sda1"), "{flat}");
    }

    /// lsblk(8) nests its answer only where NAME is among the columns.
    #[test]
    fn the_tree_is_asked_for() {
        assert_eq!(Device::COLUMNS.split(',').next(), Some("NAME"));
    }
}
