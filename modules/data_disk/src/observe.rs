//! Every read: the disk, what is on it, what is mounted, the mount point, fstab.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ansible_module::{ErrorCode, Failure, Run};
use host::{BlockDevice, BlockError, ByIdLink, Command, CommandError, Host, Mount, Probe};

use crate::args::Args;

/// How QEMU's disks are named by udev (60-persistent-storage.rules); the serial number follows.
const QEMU_PREFIXES: [&str; 6] = [
    "virtio-",
    "scsi-0QEMU_QEMU_HARDDISK_",
    "scsi-SQEMU_QEMU_HARDDISK_",
    "ata-QEMU_HARDDISK_",
    "nvme-QEMU_NVMe_Ctrl_",
    "usb-QEMU_QEMU_HARDDISK_",
];
/// udev gives NVMe namespaces a second name with this at its end, and USB disks one with a target and LUN.
const SUFFIXES: [&str; 3] = ["", "_1", "-0:0"];

/// The disk and the machine around it.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) disk: Disk,
    /// Everything that is mounted, in the order of mounting.
    pub(crate) mounts: Vec<Mount>,
    pub(crate) swaps: Vec<PathBuf>,
    pub(crate) mount_point: MountPoint,
    pub(crate) fstab: String,
    /// Whether the program that makes the file system is there.
    pub(crate) mkfs_installed: bool,
    /// What a new file system is going to be called.
    pub(crate) new_uuid: String,
    /// The numbers of the wanted owner and group.
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// Its names under `/dev/disk/by-id`, without the directory.
    pub(crate) names: Vec<String>,
    pub(crate) block: BlockDevice,
    /// Kernel devices that stand on it.
    pub(crate) holders: Vec<String>,
    /// The kinds of signature that wipefs sees.
    pub(crate) signatures: BTreeSet<String>,
    pub(crate) probe: Probe,
    /// Other devices whose file system has the same UUID.
    pub(crate) doubles: Vec<PathBuf>,
}

impl Disk {
    pub(crate) fn uuid(&self) -> Option<&str> {
        self.probe.tag("UUID")
    }

    /// A path that cannot come to mean another disk.
    pub(crate) fn lasting_path(&self) -> PathBuf {
        Path::new("/dev/disk/by-id").join(&self.names[0])
    }
}

/// The directory to mount on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MountPoint {
    Absent,
    Directory {
        empty: bool,
        uid: u32,
        gid: u32,
        mode: u32,
    },
    /// Not a directory.
    Other,
    /// The path, or its beginning, is a symbolic link to here.
    Link(PathBuf),
}

impl State {
    /// What is seen on the mount point: the last that was mounted there.
    pub(crate) fn mounted_on(&self, path: &Path) -> Option<&Mount> {
        self.mounts.iter().rev().find(|mount| mount.mount_point == path)
    }

    /// Where the disk, or something on it, is mounted.
    pub(crate) fn mounts_of_disk(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(|mount| {
            self.disk.block.tree().any(|device| {
                device.device_number == mount.device_number || Path::new(&mount.source) == device.path
            })
        })
    }

    /// The disk's own mount on the mount point.
    pub(crate) fn own_mount(&self, path: &Path) -> Option<&Mount> {
        self.mounted_on(path)
            .filter(|mount| mount.device_number == self.disk.block.device_number && mount.root == "/")
    }
}

pub(crate) fn observe(args: &Args, host: &Host, new_uuid: &str, run: &Run) -> Result<State, Failure> {
    let (names, device) = find(args, host, run)?;
    let disk = read_disk(names, &device, host, run)?;
    let proc_error = |error: io::Error| Failure::new(ErrorCode::COMMAND_FAILED, format!("/proc: {error}"));
    Ok(State {
        disk,
        mounts: host.mounts().map_err(proc_error)?,
        swaps: host.swaps().map_err(proc_error)?,
        mount_point: read_mount_point(&args.path, host)?,
        fstab: read_fstab(host)?,
        mkfs_installed: host.find(args.fstype.mkfs()).is_some(),
        new_uuid: new_uuid.to_owned(),
        owner: resolve(args.owner.as_deref(), "passwd", "user", host, run)?,
        group: resolve(args.group.as_deref(), "group", "group", host, run)?,
    })
}

/// What cannot be written back byte by byte is not read either.
pub(crate) fn read_fstab(host: &Host) -> Result<String, Failure> {
    let bytes = match fs::read(host.path("/etc/fstab")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(Failure::refused(format!("/etc/fstab cannot be read: {error}"))),
    };
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::refused(format!(
            "line {line} of /etc/fstab is no UTF-8 text, and could not be written back as it is: correct it by hand"
        ))
    })
}

/// Waits until udev shows the disk.
fn find(args: &Args, host: &Host, run: &Run) -> Result<(Vec<String>, PathBuf), Failure> {
    let mut present = Vec::new();
    let links: Vec<ByIdLink> = run
        .deadline
        .poll(|| {
            let links = host.by_id_links().map_err(block_failure)?;
            let found: Vec<ByIdLink> =
                links.iter().filter(|link| has_serial(&link.name, &args.serial)).cloned().collect();
            present = links;
            Ok::<_, Failure>((!found.is_empty()).then_some(found))
        })
        .map_err(|failure| {
            if failure.code == ErrorCode::TIMEOUT { not_there(args, &present, &failure) } else { failure }
        })?;
    let devices: BTreeSet<&PathBuf> = links.iter().map(|link| &link.device).collect();
    if devices.len() > 1 {
        let found: Vec<String> =
            links.iter().map(|link| format!("{} ({})", link.name, link.device.display())).collect();
        return Err(Failure::new(
            ErrorCode::CONFLICT,
            format!(
                "more than one disk has the serial number {}: {}. Give each disk its own `serial=` in Proxmox",
                args.serial,
                found.join(", ")
            ),
        ));
    }
    let device = links[0].device.clone();
    Ok((links.into_iter().map(|link| link.name).collect(), device))
}

pub(crate) fn has_serial(name: &str, serial: &str) -> bool {
    let rest = QEMU_PREFIXES.iter().filter_map(|prefix| name.strip_prefix(prefix));
    rest.filter_map(|rest| rest.strip_prefix(serial)).any(|suffix| SUFFIXES.contains(&suffix))
}

fn not_there(args: &Args, present: &[ByIdLink], failure: &Failure) -> Failure {
    let disks: Vec<&str> =
        present.iter().map(|link| link.name.as_str()).filter(|name| !name.contains("-part")).collect();
    let disks = if disks.is_empty() { "no disk at all".to_owned() } else { disks.join(", ") };
    let hint = if args.serial.len() > 20 {
        ". A virtio-blk disk shows only the first 20 characters of a serial number: use a shorter one, or scsi"
    } else {
        ""
    };
    Failure::not_found(format!(
        "no disk with the serial number {} under /dev/disk/by-id: {}. There is {disks}. Is the disk attached, with \
         `serial={}`?{hint}",
        args.serial, failure.msg, args.serial
    ))
    .with("present", present.iter().map(|link| link.name.clone()).collect::<Vec<_>>())
}

fn read_disk(names: Vec<String>, device: &Path, host: &Host, run: &Run) -> Result<Disk, Failure> {
    let deadline = &run.deadline;
    let block = host.block_device(device, deadline).map_err(block_failure)?;
    let probe = host.probe(device, deadline).map_err(block_failure)?;
    let signatures = host.signatures(device, deadline).map_err(block_failure)?;
    let doubles = match probe.tag("UUID") {
        Some(uuid) => devices_with_uuid(uuid, host, run)?,
        None => Vec::new(),
    };
    Ok(Disk {
        names,
        holders: host.holders(&block).map_err(block_failure)?,
        signatures: signatures.into_iter().map(|signature| signature.kind).collect(),
        probe,
        doubles: doubles.into_iter().filter(|double| double != device).collect(),
        block,
    })
}

fn devices_with_uuid(uuid: &str, host: &Host, run: &Run) -> Result<Vec<PathBuf>, Failure> {
    let token = format!("UUID={uuid}");
    // Without the cache, which may still know what a device once was.
    let command = Command::new("blkid").args(["--cache-file", "/dev/null", "--match-token", &token]);
    let output = host.run(&command.args(["--output", "device"]), &run.deadline).map_err(command_failure)?;
    match output.code() {
        Some(0) => Ok(output.stdout_text().lines().map(PathBuf::from).collect()),
        // Nothing found (blkid(8)).
        Some(2) => Ok(Vec::new()),
        _ => Err(command_failure(output.into_failure())),
    }
}

fn read_mount_point(path: &Path, host: &Host) -> Result<MountPoint, Failure> {
    let broken = |error: io::Error| Failure::refused(format!("{} cannot be read: {error}", path.display()));
    // The first link on the way counts, also when the rest does not exist yet.
    for part in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
        if let Ok(target) = fs::read_link(host.path(part)) {
            return Ok(MountPoint::Link(target));
        }
    }
    let metadata = match fs::metadata(host.path(path)) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(MountPoint::Absent),
        Err(error) => return Err(broken(error)),
    };
    if !metadata.is_dir() {
        return Ok(MountPoint::Other);
    }
    Ok(MountPoint::Directory {
        empty: fs::read_dir(host.path(path)).map_err(broken)?.next().is_none(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        mode: metadata.mode() & 0o7777,
    })
}

/// The number of a user or group; names may come from anywhere that the machine looks them up.
fn resolve(
    name: Option<&str>,
    database: &str,
    what: &str,
    host: &Host,
    run: &Run,
) -> Result<Option<u32>, Failure> {
    let Some(name) = name else { return Ok(None) };
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let command = Command::new("getent").args([database, "--", name]);
    let output = host.run(&command, &run.deadline).map_err(command_failure)?;
    let line = output.stdout_text();
    let number = line.trim().split(':').nth(2).and_then(|field| field.parse().ok());
    number.map(Some).ok_or_else(|| Failure::not_found(format!("there is no {what} `{name}` on this machine")))
}

pub(crate) fn block_failure(error: BlockError) -> Failure {
    match error {
        BlockError::Command(error) => command_failure(error),
        other => Failure::new(ErrorCode::COMMAND_FAILED, other.to_string()),
    }
}

pub(crate) fn command_failure(error: CommandError) -> Failure {
    match error {
        CommandError::Stopped { why, .. } => Failure::from(why).while_doing(error),
        other => Failure::new(ErrorCode::COMMAND_FAILED, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_matched_whole() {
        for (name, found) in [
            ("virtio-web01-data", true),
            ("scsi-0QEMU_QEMU_HARDDISK_web01-data", true),
            ("scsi-SQEMU_QEMU_HARDDISK_web01-data", true),
            ("ata-QEMU_HARDDISK_web01-data", true),
            ("nvme-QEMU_NVMe_Ctrl_web01-data", true),
            ("nvme-QEMU_NVMe_Ctrl_web01-data_1", true),
            ("usb-QEMU_QEMU_HARDDISK_web01-data-0:0", true),
            ("virtio-web01-data-part1", false),
            ("virtio-web01-data2", false),
            ("virtio-my-web01-data", false),
            ("scsi-0QEMU_QEMU_HARDDISK_my_web01-data", false),
            ("wwn-0xweb01-data", false),
            ("dm-name-web01-data", false),
            ("web01-data", false),
        ] {
            assert_eq!(has_serial(name, "web01-data"), found, "{name}");
        }
    }
}
