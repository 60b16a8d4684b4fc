//! The plan on made states, and the whole life of a disk on a made machine.

mod life;
mod machine;
mod plan;

use std::collections::BTreeMap;

use ansible_module::{Arguments, Module};
use host::{BlockDevice, Mount, Probe};
use serde_json::{Value, json};

use crate::DataDisk;
use crate::args::Args;
use crate::observe::{Disk, MountPoint, State};

const UUID: &str = "11111111-2222-3333-4444-555555555555";
const NEW_UUID: &str = "99999999-8888-7777-6666-555555555555";
const OTHER_LINES: &str = "# /etc/fstab\nUUID=aaaa / ext4 defaults 0 1\n";

/// Checked arguments: the disk `web01-data` on `/srv`, with further options.
fn args(further: Value) -> Args {
    let mut raw = json!({"serial": "web01-data", "path": "/srv"});
    raw.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    Args::check(&Arguments::for_tests(&DataDisk::spec(), raw).unwrap()).unwrap()
}

/// A blank disk on a machine where nothing is in the way.
fn blank() -> State {
    State {
        disk: Disk {
            names: vec!["virtio-web01-data".into()],
            block: device("/dev/vdb", "disk", "253:16"),
            holders: vec![],
            signatures: ["ext4"; 0].map(String::from).into(),
            probe: Probe::Nothing,
            doubles: vec![],
        },
        mounts: vec![mount("/", "253:1", "ext4", "/dev/vda1", &["rw", "relatime"])],
        swaps: vec![],
        mount_point: MountPoint::Absent,
        fstab: OTHER_LINES.into(),
        mkfs_installed: true,
        new_uuid: NEW_UUID.into(),
        owner: None,
        group: None,
    }
}

/// A disk with a file system and nothing else.
fn filled(fstype: &str) -> State {
    let mut state = blank();
    state.disk.signatures = [fstype.to_owned()].into();
    state.disk.probe = found(&[("TYPE", fstype), ("UUID", UUID)]);
    state
}

/// A disk in use as asked.
fn in_use() -> State {
    let mut state = filled("ext4");
    state.mounts.push(mount("/srv", "253:16", "ext4", "/dev/vdb", &["rw", "relatime"]));
    state.mount_point = MountPoint::Directory { empty: false, uid: 0, gid: 0, mode: 0o755 };
    state.fstab = fstab_with(&format!("UUID={UUID} /srv ext4 defaults,nofail 0 2"));
    state
}

fn fstab_with(line: &str) -> String {
    format!(
        "{OTHER_LINES}# BEGIN homelab.anvil data_disk web01-data\n{line}\n# END homelab.anvil data_disk web01-data\n"
    )
}

fn device(path: &str, kind: &str, number: &str) -> BlockDevice {
    BlockDevice {
        path: path.into(),
        kind: kind.into(),
        size: 10 << 30,
        read_only: false,
        device_number: number.into(),
        children: vec![],
    }
}

fn mount(path: &str, number: &str, fs_type: &str, source: &str, options: &[&str]) -> Mount {
    Mount {
        device_number: number.into(),
        root: "/".into(),
        mount_point: path.into(),
        fs_type: fs_type.into(),
        source: source.into(),
        options: options.iter().map(ToString::to_string).collect(),
    }
}

fn found(tags: &[(&str, &str)]) -> Probe {
    Probe::Found(
        tags.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>(),
    )
}
