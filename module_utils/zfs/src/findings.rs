//! Why a disk is not free. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use host::{Mount, Probe, Signature};

use crate::label::{Label, PoolState};
use crate::machine::{Device, Machine};

/// What was read from a disk and from each of its partitions, the disk first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub device: PathBuf,
    pub signatures: Vec<Signature>,
    pub probe: Probe,
    pub label: Option<Label>,
}

/// One thing that was found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A partition, a volume, an optical drive: no whole disk.
    NoDisk {
        kind: String,
    },
    BootDisk {
        device: PathBuf,
        why: String,
    },
    ReadOnly,
    Removable,
    Usb,
    RaidVolume {
        sign: String,
    },
    /// The same serial number and WWN on another device, and no multipath map over both.
    SecondPath {
        other: PathBuf,
    },
    Imported {
        pool: String,
        vdev: String,
    },
    Mounted {
        device: PathBuf,
        mount_point: PathBuf,
    },
    Swap {
        device: PathBuf,
    },
    /// Something stands on it: LVM, RAID, encryption.
    Holder {
        device: PathBuf,
        holder: PathBuf,
        kind: String,
    },
    Partition {
        device: PathBuf,
        size: u64,
        lifted: bool,
    },
    /// ZFS wrote it.
    Label {
        device: PathBuf,
        label: Label,
        is_own: bool,
    },
    /// Signatures of one kind on one device.
    Signature {
        device: PathBuf,
        kind: String,
        offsets: Vec<String>,
    },
    /// blkid sees it, wipefs does not.
    Probed {
        device: PathBuf,
        what: String,
    },
}

impl Finding {
    /// Whether `wipe` may take it away: what nobody uses, and ZFS labels only of a pool that this host gave up.
    #[must_use]
    pub fn is_lifted_by_wipe(&self) -> bool {
        match self {
            Self::Signature { .. } | Self::Probed { .. } => true,
            Self::Partition { lifted, .. } => *lifted,
            Self::Label { label, is_own, .. } => {
                *is_own && matches!(label.state, PoolState::Exported | PoolState::Destroyed)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDisk { kind } => write!(f, "it is no whole disk: {kind}"),
            Self::BootDisk { device, why } => {
                write!(f, "{}: the machine boots from this disk ({why})", device.display())
            }
            Self::ReadOnly => f.write_str("it is read-only"),
            Self::Removable => f.write_str("it is removable"),
            Self::Usb => f.write_str("it is a USB device"),
            Self::RaidVolume { sign } => write!(
                f,
                "it is a virtual disk of a RAID controller ({sign}): ZFS wants each disk on its own, pass the disks through \
                 (HBA, IT or JBOD mode)"
            ),
            Self::SecondPath { other } => write!(
                f,
                "{} has the same serial number and WWN: two paths to one disk, and no multipath map over them",
                other.display()
            ),
            Self::Imported { pool, vdev } => write!(f, "it is in the imported pool {pool}, as {vdev}"),
            Self::Mounted { device, mount_point } => {
                write!(f, "{}: mounted on {}", device.display(), mount_point.display())
            }
            Self::Swap { device } => write!(f, "{}: in use as swap", device.display()),
            Self::Holder { device, holder, kind } => {
                write!(f, "{}: in use by {} ({kind})", device.display(), holder.display())
            }
            Self::Partition { device, size, .. } => {
                write!(f, "{}: a partition of {size} bytes", device.display())
            }
            Self::Label { device, label, is_own } => {
                write!(f, "{}: ZFS label of the pool {}", device.display(), label.pool)?;
                write!(f, " (GUID {}, {}", label.pool_guid, label.state.word())?;
                let host = label.hostname.as_deref().unwrap_or("an unknown host");
                if *is_own {
                    write!(f, ", last used by this host)")
                } else {
                    write!(f, ", last used by {host})")
                }
            }
            Self::Signature { device, kind, offsets } => {
                write!(f, "{}: {kind} at {}", device.display(), shortened(offsets))
            }
            Self::Probed { device, what } => write!(f, "{}: {what}", device.display()),
        }
    }
}

/// A ZFS member has up to forty.
fn shortened(offsets: &[String]) -> String {
    match offsets {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more places", rest.len())
        }
        _ => offsets.join(", "),
    }
}

impl Machine {
    /// What keeps a device from being given to a new pool; nothing for a disk that is proved to be free.
    #[must_use]
    pub fn findings(&self, device: &Device, contents: &Contents) -> Vec<Finding> {
        let mut found = self.facts(device);
        found.extend(self.uses(device));
        found.extend(contents.parts.iter().flat_map(|part| self.findings_on(part)));
        found
    }

    /// What needs no look at the disk's bytes.
    fn facts(&self, device: &Device) -> Vec<Finding> {
        let paths = self.paths_of(device);
        let is_disk = device.kind == "disk" || device.kind == "mpath";
        let physical = || std::iter::once(device).chain(paths.iter().copied());
        let mut found = Vec::new();
        if !is_disk {
            found.push(Finding::NoDisk { kind: device.kind.clone() });
        }
        if physical().any(|device| device.read_only) {
            found.push(Finding::ReadOnly);
        }
        if physical().any(|device| device.removable) {
            found.push(Finding::Removable);
        }
        if physical().any(|device| device.transport.as_deref() == Some("usb")) {
            found.push(Finding::Usb);
        }
        if let Some(sign) = physical().find_map(|device| device.raid_volume.clone()) {
            found.push(Finding::RaidVolume { sign });
        }
        let is_twin = |other: &&Device| {
            other.path != device.path
                && device.serial.is_some()
                && device.wwn.is_some()
                && (&other.serial, &other.wwn) == (&device.serial, &device.wwn)
        };
        if device.kind == "disk" {
            let twins = self.devices.iter().filter(is_twin);
            found.extend(twins.map(|other| Finding::SecondPath { other: other.path.clone() }));
        }
        found
    }

    /// Who uses it now.
    fn uses(&self, device: &Device) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some((pool, vdev)) = self.pool_of(&device.path) {
            found.push(Finding::Imported { pool: pool.name.clone(), vdev: vdev.name.clone() });
        }
        for member in device.tree() {
            for mount in self.mounts_of(member) {
                let mount_point = mount.mount_point.clone();
                if is_of_the_boot(&mount_point) {
                    let why = format!("{} is there", mount_point.display());
                    found.push(Finding::BootDisk { device: member.path.clone(), why });
                }
                found.push(Finding::Mounted { device: member.path.clone(), mount_point });
            }
            if self.swaps.contains(&member.path) {
                found.push(Finding::Swap { device: member.path.clone() });
            }
            if let Some(uuid) = member.uuid.as_ref().filter(|uuid| self.boot_uuids.contains(uuid)) {
                let why = format!("proxmox-boot-tool keeps kernels on {uuid}");
                found.push(Finding::BootDisk { device: member.path.clone(), why });
            }
            for child in &member.children {
                let device_path = member.path.clone();
                found.push(if child.kind == "part" {
                    // Partitions of a multipath map are maps themselves, which a new table would not take away.
                    Finding::Partition {
                        device: child.path.clone(),
                        size: child.size,
                        lifted: member.kind == "disk",
                    }
                } else {
                    Finding::Holder {
                        device: device_path,
                        holder: child.path.clone(),
                        kind: child.kind.clone(),
                    }
                });
            }
        }
        found
    }

    fn mounts_of<'m>(&'m self, device: &'m Device) -> impl Iterator<Item = &'m Mount> {
        self.mounts.iter().filter(|mount| {
            mount.device_number == device.device_number || Path::new(&mount.source) == device.path
        })
    }

    fn findings_on(&self, part: &Part) -> Vec<Finding> {
        let device = || part.device.clone();
        let mut found = Vec::new();
        if let Some(label) = &part.label {
            let imported = self.pools.iter().any(|pool| pool.guid == Some(label.pool_guid));
            let finding =
                Finding::Label { device: device(), label: label.clone(), is_own: self.is_own(label) };
            found.push(if imported {
                Finding::Imported { pool: label.pool.clone(), vdev: part.device.display().to_string() }
            } else {
                finding
            });
        }
        let mut offsets: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for signature in &part.signatures {
            offsets.entry(&signature.kind).or_default().push(signature.offset.clone());
        }
        let kinds: BTreeSet<&str> = offsets.keys().copied().collect();
        match &part.probe {
            Probe::Nothing => {}
            Probe::Ambiguous if kinds.is_empty() => {
                let what = "signatures that contradict each other".to_owned();
                found.push(Finding::Probed { device: device(), what });
            }
            Probe::Ambiguous => {}
            probe @ Probe::Found(tags) => {
                let named: Vec<&str> = ["TYPE", "PTTYPE"].iter().filter_map(|tag| probe.tag(tag)).collect();
                // What blkid says of a partition's own entry in the table is no signature on it.
                let says_something = tags.keys().any(|tag| !tag.starts_with("PART_ENTRY_"));
                if named.is_empty() && says_something && kinds.is_empty() {
                    let what = tags
                        .iter()
                        .map(|(tag, value)| format!("{tag}={value}"))
                        .collect::<Vec<_>>()
                        .join(" ");
                    found.push(Finding::Probed { device: device(), what });
                }
                found.extend(
                    named
                        .into_iter()
                        .filter(|kind| !kinds.contains(kind))
                        .map(|kind| Finding::Probed { device: device(), what: format!("blkid says {kind}") }),
                );
            }
        }
        found.extend(offsets.into_iter().map(|(kind, offsets)| Finding::Signature {
            device: device(),
            kind: kind.to_owned(),
            offsets,
        }));
        found
    }

    /// Whether this host used the pool last.
    fn is_own(&self, label: &Label) -> bool {
        match (label.hostid, self.hostid) {
            (Some(theirs), Some(ours)) => theirs == ours,
            // Without a number anywhere only the name is left to go by.
            (None, None) => label.hostname.as_ref() == Some(&self.hostname),
            _ => false,
        }
    }
}

fn is_of_the_boot(mount_point: &Path) -> bool {
    ["/", "/usr", "/boot", "/boot/efi", "/efi"].iter().any(|path| mount_point == Path::new(path))
}
