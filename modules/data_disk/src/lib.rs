//! `data_disk`: a guest's data disk, found by its serial number, gets a file system if it has nothing at all, and is mounted.

mod apply;
mod args;
mod fstab;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

use ansible_module::{Arguments, Change, ErrorCode, Failure, Module, Plan, Proof, Run, Spec};
use host::Host;
use serde_json::{Map, Value, json};

use crate::apply::Hands;
use crate::args::Args;
use crate::observe::MountPoint;
pub use crate::observe::State;
pub use crate::plan::Action;

/// The kernel makes a new one at every read.
const RANDOM_UUID: &str = "/proc/sys/kernel/random/uuid";

/// The module.
#[derive(Debug)]
pub struct DataDisk {
    args: Args,
    host: Host,
    /// What a new file system is called; chosen once, so that the plan knows it.
    new_uuid: String,
}

impl DataDisk {
    fn on(host: Host, args: Args) -> Result<Self, Failure> {
        let new_uuid = host
            .read(RANDOM_UUID)
            .map_err(|error| Failure::new(ErrorCode::INTERNAL, format!("{RANDOM_UUID}: {error}")))?
            .trim()
            .to_owned();
        Ok(Self { args, host, new_uuid })
    }
}

impl Module for DataDisk {
    type State = State;
    type Action = Action;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        Self::on(Host::local(), Args::check(arguments)?)
    }

    fn subject(&self) -> String {
        format!("the disk {}", self.args.serial)
    }

    /// One for all disks: they share fstab.
    fn lock(&self) -> Option<String> {
        Some("data disks".into())
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        observe::observe(&self.args, &self.host, &self.new_uuid, run)
    }

    fn plan(&self, state: &State) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, state)
    }

    fn apply(&mut self, action: &Action, state: &State, run: &Run) -> Result<(), Failure> {
        Hands { args: &self.args, host: &self.host, run }.apply(action, state)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        let mount = state.own_mount(&self.args.path);
        let directory = match (&state.mount_point, mount) {
            (MountPoint::Directory { uid, gid, mode, .. }, Some(_)) => Some((*uid, *gid, *mode)),
            _ => None,
        };
        let found: Value = match change.field.as_str() {
            "filesystem.type" => state.disk.probe.tag("TYPE").into(),
            "filesystem.uuid" => state.disk.uuid().into(),
            "path" if matches!(state.mount_point, MountPoint::Directory { .. }) => {
                plan::path_text(&self.args).into()
            }
            "mount.path" => mount.map(|_| plan::path_text(&self.args)).into(),
            "mount.options" => match mount {
                Some(mount) if plan::missing_flags(&self.args.opts, mount).is_empty() => {
                    return match plan::unseen_options(&self.args.opts, mount)[..] {
                        [] => Proof::Held,
                        ref unseen => Proof::Unreadable(format!(
                            "mounted with it, but the kernel does not show {}",
                            unseen.join(", ")
                        )),
                    };
                }
                Some(mount) => mount.options.join(",").into(),
                None => Value::Null,
            },
            "fstab" => own_line(&state.fstab, &self.args.serial).into(),
            "owner" => directory.map(|(uid, _, _)| uid).into(),
            "group" => directory.map(|(_, gid, _)| gid).into(),
            "mode" => directory.map(|(_, _, mode)| plan::mode_text(mode)).into(),
            _ => Value::Null,
        };
        Proof::equal(&change.after, found)
    }

    fn report(&self, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let disk = &state.disk;
        let after = |field: &str| {
            let mut changes = planned.into_iter().flat_map(Plan::changes);
            changes.find(|change| change.field == field).map(|change| change.after.clone())
        };
        let by_id: Vec<String> = disk.names.iter().map(|name| format!("/dev/disk/by-id/{name}")).collect();
        let size_gib = (disk.block.size as f64 / f64::from(1 << 30) * 100.0).round() / 100.0;
        let mount = state.own_mount(&self.args.path);
        let disk = json!({
            "serial": self.args.serial,
            "by_id": by_id,
            "device": disk.block.path,
            "size_gib": size_gib,
            "fstype": self.args.fstype.name(),
            "uuid": disk.uuid(),
            "path": self.args.path,
            "options": mount.map(|mount| mount.options.clone()).unwrap_or_default(),
            "fstab": after("fstab").or_else(|| own_line(&state.fstab, &self.args.serial).map(Value::from)),
        });
        Map::from_iter([("disk".to_owned(), disk)])
    }
}

/// The line between this disk's marks.
fn own_line(text: &str, serial: &str) -> Option<String> {
    let mut entries = fstab::entries(text).into_iter();
    entries.find(|entry| entry.serial.as_deref() == Some(serial)).map(|entry| entry.text)
}
