//! May this disk be used, and what is missing until it is? Pure.

use std::collections::BTreeSet;
use std::path::Path;

use ansible_module::{Change, Failure, Plan};
use host::{Mount, Probe};
use serde_json::Value;

use crate::args::Args;
use crate::fstab;
use crate::observe::{Disk, MountPoint, State};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    MakeFilesystem {
        uuid: String,
    },
    MakeMountPoint,
    Mount {
        uuid: String,
    },
    /// Mounts again with the options that are asked for.
    Remount,
    /// Puts the line into `/etc/fstab` as it is by then: making a file system takes its time.
    WriteFstab {
        line: String,
    },
    /// Of the mounted file system's root directory.
    SetOwnership {
        owner: Option<u32>,
        group: Option<u32>,
        mode: Option<u32>,
    },
}

/// # Errors
/// `refused`, with what is in the way; nothing is ever taken out of it.
pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    let existing = usable_filesystem(args, state)?;
    usable_mount_point(args, state)?;
    let uuid = existing.unwrap_or(&state.new_uuid);
    let fstab_step = fstab_step(args, state, uuid)?;

    let mut plan = Plan::new();
    if existing.is_none() {
        plan.step(
            Action::MakeFilesystem { uuid: uuid.to_owned() },
            vec![
                Change::new("filesystem.type", Value::Null, args.fstype.name()),
                Change::new("filesystem.uuid", Value::Null, uuid),
            ],
        );
        plan.gate();
    }
    match state.own_mount(&args.path) {
        None => {
            if state.mount_point == MountPoint::Absent {
                plan.step(Action::MakeMountPoint, vec![Change::new("path", Value::Null, path_text(args))]);
            }
            plan.step(
                Action::Mount { uuid: uuid.to_owned() },
                vec![
                    Change::new("mount.path", Value::Null, path_text(args)),
                    Change::new("mount.options", Value::Null, args.opts.join(",")),
                ],
            );
        }
        Some(mount) if !missing_flags(&args.opts, mount).is_empty() => {
            plan.step(
                Action::Remount,
                vec![Change::new("mount.options", mount.options.join(","), args.opts.join(","))],
            );
        }
        Some(_) => {}
    }
    plan.gate();
    if let Some((line, change)) = fstab_step {
        plan.step(Action::WriteFstab { line }, vec![change]);
    }
    let ownership = ownership_changes(args, state);
    if !ownership.is_empty() {
        plan.step(
            Action::SetOwnership { owner: state.owner, group: state.group, mode: args.mode },
            ownership,
        );
    }
    Ok(plan)
}

/// The UUID of the file system that is there; none on a disk with nothing on it.
fn usable_filesystem<'s>(args: &Args, state: &'s State) -> Result<Option<&'s str>, Failure> {
    let disk = &state.disk;
    let name = disk_name(args, state);
    let refuse = |why: String| Err(Failure::refused(format!("{name} {why}")));
    if let Some(part) = disk.block.children.first() {
        let parts: Vec<String> =
            disk.block.children.iter().map(|d| format!("{} ({})", d.path.display(), d.kind)).collect();
        let what = if part.kind == "part" { "has partitions" } else { "is in use by other devices" };
        let system = if is_system_disk(state) { ": it is the disk of the system itself" } else { "" };
        return refuse(format!("{what}: {}{system}", parts.join(", ")));
    }
    if !disk.holders.is_empty() {
        return refuse(format!("is in use by the kernel: {}", disk.holders.join(", ")));
    }
    if let Some(mount) = state.mounts_of_disk().find(|mount| mount.mount_point != args.path) {
        return refuse(format!("is already mounted on {}", mount.mount_point.display()));
    }
    if state.swaps.contains(&disk.block.path) {
        return refuse("is in use as swap space".into());
    }
    let wanted = args.fstype.name();
    let found = what_is_on_it(&disk.signatures, &disk.probe);
    if found.is_empty() && disk.probe == Probe::Nothing {
        return if disk.block.read_only {
            refuse("has nothing on it and is read-only".into())
        } else if !state.mkfs_installed {
            refuse(format!(
                "needs a file system, and {} is not installed: install {}",
                args.fstype.mkfs(),
                args.fstype.package()
            ))
        } else {
            Ok(None)
        };
    }
    let agreed = disk.signatures.iter().eq([wanted]) && disk.probe.tag("TYPE") == Some(wanted);
    let Some(uuid) = disk.uuid().filter(|_| agreed && disk.probe.tag("PTTYPE").is_none()) else {
        let list: Vec<&str> = found.iter().map(String::as_str).collect();
        return refuse(format!(
            "is not empty and is no {wanted} file system: it has {}. Nothing was touched. If nobody needs that, erase it \
             yourself (`wipefs --all {}`)",
            list.join(", "),
            disk.block.path.display()
        ));
    };
    if !disk.doubles.is_empty() {
        let doubles: Vec<_> = disk.doubles.iter().map(|path| path.display().to_string()).collect();
        return refuse(format!("has the same UUID {uuid} as {}: a copied disk", doubles.join(", ")));
    }
    Ok(Some(uuid))
}

fn disk_name(args: &Args, state: &State) -> String {
    format!("the disk {} ({})", args.serial, state.disk.block.path.display())
}

fn is_system_disk(state: &State) -> bool {
    state
        .mounts_of_disk()
        .any(|mount| ["/", "/boot", "/usr"].iter().any(|path| mount.mount_point == Path::new(path)))
}

/// Everything either tool sees: each misses something that the other one finds.
fn what_is_on_it(signatures: &BTreeSet<String>, probe: &Probe) -> BTreeSet<String> {
    let mut found = signatures.clone();
    found.extend(["TYPE", "PTTYPE"].iter().filter_map(|tag| probe.tag(tag)).map(str::to_owned));
    match probe {
        Probe::Ambiguous => drop(found.insert("signatures that contradict each other".into())),
        Probe::Found(tags) if found.is_empty() => {
            found.extend(tags.iter().map(|(tag, value)| format!("{tag}={value}")));
        }
        Probe::Found(_) | Probe::Nothing => {}
    }
    found
}

fn usable_mount_point(args: &Args, state: &State) -> Result<(), Failure> {
    let path = args.path.display();
    let refuse = |why: String| Err(Failure::refused(format!("the mount point {path} {why}")));
    if state.own_mount(&args.path).is_some() {
        return Ok(());
    }
    if let Some(mount) = state.mounted_on(&args.path) {
        return refuse(format!("is taken: {} ({}) is mounted there", mount.source, mount.fs_type));
    }
    match &state.mount_point {
        MountPoint::Absent | MountPoint::Directory { empty: true, .. } => Ok(()),
        MountPoint::Directory { .. } => {
            refuse("is a directory with content, which the mount would hide: move it away first".into())
        }
        MountPoint::Other => refuse("is no directory".into()),
        MountPoint::Link(target) => {
            refuse(format!("leads over a symbolic link to {}: give the real path", target.display()))
        }
    }
}

/// The line of fstab, when the one that is there does not have it.
fn fstab_step(args: &Args, state: &State, uuid: &str) -> Result<Option<(String, Change)>, Failure> {
    let refuse = |why: String| Err(Failure::refused(why));
    let mut before = Value::Null;
    for entry in fstab::entries(&state.fstab) {
        if entry.serial.as_deref() == Some(args.serial.as_str()) {
            before = entry.text.into();
        } else if Path::new(&entry.file) == args.path {
            let owner = entry.serial.map(|serial| format!(", for the disk {serial}")).unwrap_or_default();
            return refuse(format!(
                "line {} of /etc/fstab mounts {} on {} already{owner}: remove it first",
                entry.number, entry.spec, entry.file
            ));
        } else if is_name_of(&entry.spec, uuid, &state.disk) {
            return refuse(format!(
                "line {} of /etc/fstab mounts this disk on {} already: remove it first",
                entry.number, entry.file
            ));
        }
    }
    let line = fstab::line(uuid, &args.path, args.fstype.name(), &args.opts);
    let text = match fstab::with_line(&state.fstab, &args.serial, &line) {
        Ok(text) => text,
        Err(error) => return refuse(error.to_string()),
    };
    Ok((text != state.fstab).then(|| (line.clone(), Change::new("fstab", before, line))))
}

/// Every way in which a line of fstab(5) may name the disk.
fn is_name_of(spec: &str, uuid: &str, disk: &Disk) -> bool {
    let label = disk.probe.tag("LABEL");
    let below = |directory: &str| spec.strip_prefix(directory);
    let by_uuid = below("UUID=").or_else(|| below("/dev/disk/by-uuid/"));
    let by_label = below("LABEL=").or_else(|| below("/dev/disk/by-label/"));
    by_uuid.is_some_and(|found| found.eq_ignore_ascii_case(uuid))
        || by_label.is_some_and(|found| Some(found) == label)
        || below("/dev/disk/by-id/").is_some_and(|found| disk.names.iter().any(|name| name == found))
        || Path::new(spec) == disk.block.path
}

/// Options that the kernel shows in /proc as they were given, so that a missing one means something.
const VISIBLE: [&str; 12] = [
    "ro",
    "rw",
    "noatime",
    "nodiratime",
    "relatime",
    "nosuid",
    "nodev",
    "noexec",
    "sync",
    "dirsync",
    "lazytime",
    "nosymfollow",
];

/// The options asked for that the mount does not have.
pub(crate) fn missing_flags<'a>(opts: &'a [String], mount: &Mount) -> Vec<&'a str> {
    let shown = |option: &str| mount.options.iter().any(|have| have == option);
    // A file system mounted read-only shows `ro` for the mount and `rw` for itself, or the other way round.
    let is_read_only = shown("ro");
    opts.iter()
        .map(String::as_str)
        .filter(|option| VISIBLE.contains(option))
        .filter(|option| match *option {
            "ro" => !is_read_only,
            "rw" => is_read_only,
            other => !shown(other),
        })
        .collect()
}

/// For mount(8), systemd and the boot, or what is so by default: the kernel never hears of them.
const NOT_OF_THE_KERNEL: [&str; 6] = ["defaults", "nofail", "auto", "noauto", "_netdev", "nouser"];

/// The options asked for of which nobody can tell whether the mount has them.
pub(crate) fn unseen_options<'a>(opts: &'a [String], mount: &Mount) -> Vec<&'a str> {
    let is_shown =
        |option: &str| VISIBLE.contains(&option) || mount.options.iter().any(|have| have == option);
    let of_the_kernel = |option: &str| !NOT_OF_THE_KERNEL.contains(&option) && !option.starts_with("x-");
    opts.iter().map(String::as_str).filter(|option| of_the_kernel(option) && !is_shown(option)).collect()
}

/// Before it is mounted nothing is known about the file system's own root directory.
fn ownership_changes(args: &Args, state: &State) -> Vec<Change> {
    let now = match (&state.mount_point, state.own_mount(&args.path)) {
        (MountPoint::Directory { uid, gid, mode, .. }, Some(_)) => Some((*uid, *gid, *mode)),
        _ => None,
    };
    let number = |field: &str, wanted: Option<u32>, now: Option<u32>| {
        let wanted = wanted.filter(|wanted| now != Some(*wanted))?;
        Some(Change::new(field, now.map_or(Value::Null, Value::from), wanted))
    };
    let mode = args.mode.filter(|wanted| now.map(|(_, _, mode)| mode) != Some(*wanted)).map(|wanted| {
        Change::new("mode", now.map_or(Value::Null, |(_, _, mode)| mode_text(mode).into()), mode_text(wanted))
    });
    let owner = number("owner", state.owner, now.map(|(uid, _, _)| uid));
    let group = number("group", state.group, now.map(|(_, gid, _)| gid));
    owner.into_iter().chain(group).chain(mode).collect()
}

pub(crate) fn mode_text(mode: u32) -> String {
    format!("{mode:04o}")
}

pub(crate) fn path_text(args: &Args) -> String {
    args.path.to_string_lossy().into_owned()
}
