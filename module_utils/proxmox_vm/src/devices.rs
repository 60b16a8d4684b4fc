use ansible_module::{Failure, Plan};
use proxmox_api::VmConfig;
use proxmox_api::values::{Drive, Slot};

use crate::fields::unreadable;
use crate::options::{Disk, Hardware};

/// A disk that is there is taken as it is, or refused; never re-created.
///
/// # Errors
/// `refused`, with the slot and what is in it.
pub fn check_disks<A>(
    hardware: &Hardware,
    base: &VmConfig,
    os_disk: Option<&Slot>,
    plan: &mut Plan<A>,
) -> Result<(), Failure> {
    for disk in &hardware.disks {
        let Some(there) = base.parsed::<Drive>(&disk.slot.to_string()).map_err(unreadable)? else { continue };
        check_disk(disk, &there, os_disk)?;
        if there.volume.storage() != Some(disk.storage.as_str()) {
            plan.warn(format!(
                "{} is on {}, not on {}; it is not moved",
                disk.slot, there.volume, disk.storage
            ));
        }
        if there.size().is_some_and(|size| size > disk.size) {
            plan.warn(format!(
                "{} is larger than declared: {} instead of {}",
                disk.slot,
                shown(&there),
                disk.size
            ));
        }
    }
    Ok(())
}

fn check_disk(disk: &Disk, there: &Drive, os_disk: Option<&Slot>) -> Result<(), Failure> {
    let slot = &disk.slot;
    let refuse = |found: String| {
        Err(Failure::refused(format!("{slot}: expected a data disk of {} there, found {found}", disk.size))
            .with("field", slot.to_string())
            .with("found", there.to_string()))
    };
    if there.is_cdrom() {
        return refuse(format!("a CD-ROM drive ({there})"));
    }
    if os_disk == Some(slot) {
        return refuse("the disk the virtual machine boots from".to_owned());
    }
    if there.size().is_some_and(|size| size < disk.size) {
        return refuse(format!("one of {}; data disks are never resized, grow it by hand", shown(there)));
    }
    match (there.options.get("serial"), &disk.serial) {
        (Some(found), Some(asked)) if found != asked => {
            refuse(format!("one with the serial `{found}` instead of `{asked}`: it may hold other data"))
        }
        _ => Ok(()),
    }
}

fn shown(drive: &Drive) -> String {
    drive.size().map_or_else(|| "unknown size".to_owned(), |size| size.to_string())
}

/// Proxmox VE refuses a boot order with a device that does not exist.
///
/// # Errors
/// `refused`, with the devices there are.
pub fn check_boot_order(hardware: &Hardware, later: &VmConfig) -> Result<(), Failure> {
    let Some(devices) = &hardware.boot_order else { return Ok(()) };
    match devices.iter().find(|device| later.get(device).is_none()) {
        Some(device) => Err(Failure::refused(format!(
            "boot_order: the virtual machine has no device `{device}`; it has {}",
            bootable(later).join(", ")
        ))),
        None => Ok(()),
    }
}

/// The devices that a boot order can name.
#[must_use]
pub fn bootable(config: &VmConfig) -> Vec<&str> {
    let is_net = |key: &str| key.strip_prefix("net").is_some_and(|n| n.parse::<u8>().is_ok());
    config
        .keys()
        .filter(|key| key.parse::<Slot>().is_ok_and(|slot| slot.holds_a_disk()) || is_net(key))
        .collect()
}
