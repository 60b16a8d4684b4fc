//! Every read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ansible_module::{ErrorCode, Failure, Run};
use host::{BlockError, Command, CommandError, Host};
use zfs::{Contents, Device, Label, Machine, ReadError, parse_label};

use crate::args::{Args, BY_ID, Wanted};
use crate::storage::{Config, parse_status};

pub(crate) const STORAGE_CFG: &str = "/etc/pve/storage.cfg";
const UNIT_DIRECTORIES: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const OWN_UNITS: &str = "/etc/systemd/system";
/// Any one of them imports every pool that this host knows.
const IMPORT_ALL: [&str; 2] = ["zfs-import-cache.service", "zfs-import-scan.service"];

/// The machine, and what is on the disks that are to become pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) machine: Machine,
    /// By the kernel's name of the disk; only of disks that are declared for a pool that is not there.
    pub(crate) contents: BTreeMap<PathBuf, Contents>,
    /// Labels on other devices, of pools that have a declared name and are not imported.
    pub(crate) strays: Vec<(PathBuf, Label)>,
    /// By pool; only of pools that are there.
    pub(crate) properties: BTreeMap<String, Properties>,
    /// By path; only of pools that are not there.
    pub(crate) mount_points: BTreeMap<String, MountPoint>,
    pub(crate) import: Import,
    /// None: no Proxmox VE.
    pub(crate) storage: Option<Config>,
    /// By storage; asked only for those that this run wrote.
    pub(crate) storage_status: BTreeMap<String, String>,
    /// As Proxmox VE calls this host.
    pub(crate) node: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) pool: BTreeMap<String, String>,
    pub(crate) filesystem: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MountPoint {
    Free,
    Taken(String),
}

/// Whether systemd imports pools at boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Import {
    /// Proxmox VE has a unit for each pool, `zfs-import@POOL.service`.
    pub(crate) has_template: bool,
    /// Units that are enabled, of those that import pools.
    pub(crate) enabled: BTreeSet<String>,
}

impl Import {
    pub(crate) fn imports_all(&self) -> bool {
        IMPORT_ALL.iter().any(|unit| self.enabled.contains(*unit))
    }

    /// The unit that a new pool gets.
    pub(crate) fn unit(&self, pool: &str) -> String {
        if self.has_template { format!("zfs-import@{}.service", escaped(pool)) } else { IMPORT_ALL[0].into() }
    }
}

/// systemd-escape(1).
fn escaped(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("\\x{other:02x}"),
        })
        .collect()
}

/// The disks that are declared for a pool, with the device that each name stands for.
pub(crate) fn devices<'s>(
    wanted: &'s Wanted,
    machine: &'s Machine,
) -> impl Iterator<Item = (&'s str, Option<&'s Device>)> {
    wanted.disks.iter().map(|name| (name.as_str(), machine.resolve(&Path::new(BY_ID).join(name))))
}

pub(crate) fn observe(
    args: &Args,
    written_storages: &BTreeSet<String>,
    host: &Host,
    run: &Run,
) -> Result<State, Failure> {
    let machine = Machine::read(host, &run.deadline).map_err(read_failure)?;
    let (present, missing): (Vec<&Wanted>, Vec<&Wanted>) =
        args.pools.iter().partition(|wanted| machine.pool(&wanted.name).is_some());
    let mut contents = BTreeMap::new();
    for (_, device) in missing.iter().flat_map(|wanted| devices(wanted, &machine)) {
        if let Some(device) = device {
            let found = machine.examine(device, host, &run.deadline).map_err(read_failure)?;
            contents.insert(device.path.clone(), found);
        }
    }
    let mut mount_points = BTreeMap::new();
    for path in missing.iter().filter_map(|wanted| wanted.mount_point()) {
        let found = read_mount_point(&path, &machine, host);
        mount_points.insert(path, found);
    }
    let mut storage_status = BTreeMap::new();
    for id in written_storages {
        let output = host.run(&Command::new("pvesm").args(["status", "--storage", id]), &run.deadline);
        let output = output.map_err(command_failure)?;
        let status = parse_status(&output.stdout_text(), id);
        let said = || format!("pvesm status says: {}", output.stderr_text().trim());
        storage_status.insert(id.clone(), status.unwrap_or_else(said));
    }
    Ok(State {
        strays: strays(&missing, &contents, &machine, host, run)?,
        contents,
        properties: read_properties(&present, host, run)?,
        mount_points,
        import: read_import(host),
        storage: host.find("pvesm").map(|_| Config::parse(&host.read(STORAGE_CFG).unwrap_or_default())),
        storage_status,
        // PVE/INotify.pm, nodename.
        node: machine.hostname.split('.').next().unwrap_or_default().to_lowercase(),
        machine,
    })
}

/// A pool may be on disks that nobody declares: one of the same name beside it could not be imported by name.
fn strays(
    missing: &[&Wanted],
    contents: &BTreeMap<PathBuf, Contents>,
    machine: &Machine,
    host: &Host,
    run: &Run,
) -> Result<Vec<(PathBuf, Label)>, Failure> {
    let is_examined =
        |path: &Path| contents.values().flat_map(|contents| &contents.parts).any(|part| part.device == path);
    let is_wanted = |name: &str| missing.iter().any(|wanted| wanted.name == name);
    let mut found = Vec::new();
    for device in machine.all() {
        let is_member = device.fs_type.as_deref() == Some("zfs_member");
        if !is_member || is_examined(&device.path) || !device.label.as_deref().is_some_and(is_wanted) {
            continue;
        }
        let output = host.run(&Command::new("zdb").arg("-l").arg(&device.path), &run.deadline);
        if let Some(label) = parse_label(&output.map_err(command_failure)?.stdout_text())
            && is_wanted(&label.pool)
        {
            found.push((device.path.clone(), label));
        }
    }
    Ok(found)
}

fn read_properties(
    present: &[&Wanted],
    host: &Host,
    run: &Run,
) -> Result<BTreeMap<String, Properties>, Failure> {
    let mut all: BTreeMap<String, Properties> = BTreeMap::new();
    if present.is_empty() {
        return Ok(all);
    }
    let names: Vec<&str> = present.iter().map(|wanted| wanted.name.as_str()).collect();
    let get = |program: &str, of: fn(&Wanted) -> &BTreeMap<String, String>| {
        let asked: BTreeSet<&str> =
            present.iter().flat_map(|wanted| of(wanted).keys()).map(String::as_str).collect();
        let asked = asked.into_iter().collect::<Vec<_>>().join(",");
        let command =
            Command::new(program).args(["get", "-H", "-p", "-o", "name,property,value", &asked]).args(&names);
        let output = host.run(&command, &run.deadline).and_then(host::Output::ok).map_err(command_failure)?;
        Ok::<_, Failure>(output.stdout_text())
    };
    for (name, property, value) in rows(&get("zpool", |wanted| &wanted.properties)?) {
        all.entry(name).or_default().pool.insert(property, value);
    }
    for (name, property, value) in rows(&get("zfs", |wanted| &wanted.filesystem_properties)?) {
        all.entry(name).or_default().filesystem.insert(property, value);
    }
    Ok(all)
}

fn rows(text: &str) -> Vec<(String, String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut columns = line.split('\t').map(str::to_owned);
            Some((columns.next()?, columns.next()?, columns.next()?))
        })
        .collect()
}

fn read_mount_point(path: &str, machine: &Machine, host: &Host) -> MountPoint {
    if let Some(mount) = machine.mounts.iter().find(|mount| mount.mount_point == Path::new(path)) {
        return MountPoint::Taken(format!("{} ({}) is mounted there", mount.source, mount.fs_type));
    }
    match fs::read_dir(host.path(path)) {
        Ok(mut entries) => match entries.next() {
            None => MountPoint::Free,
            Some(_) => MountPoint::Taken("is a directory with content, which the pool would hide".into()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => MountPoint::Free,
        Err(error) => MountPoint::Taken(format!("is no directory that can be used: {error}")),
    }
}

fn read_import(host: &Host) -> Import {
    let template = |directory: &str| host.path(Path::new(directory).join("zfs-import@.service")).exists();
    let mut enabled = BTreeSet::new();
    for wants in fs::read_dir(host.path(OWN_UNITS)).into_iter().flatten().flatten() {
        let name = wants.file_name();
        if !matches!(
            Path::new(&name).extension().and_then(|extension| extension.to_str()),
            Some("wants" | "requires")
        ) {
            continue;
        }
        let units = fs::read_dir(wants.path()).into_iter().flatten().flatten();
        let units = units.map(|unit| unit.file_name().to_string_lossy().into_owned());
        enabled.extend(units.filter(|unit| unit.starts_with("zfs-import")));
    }
    Import { has_template: UNIT_DIRECTORIES.into_iter().any(template), enabled }
}

pub(crate) fn read_failure(error: ReadError) -> Failure {
    match error {
        ReadError::Command(error @ CommandError::Stopped { .. })
        | ReadError::Block(BlockError::Command(error)) => command_failure(error),
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
    fn a_unit_is_named_as_systemd_escapes_it() {
        let import = Import { has_template: true, enabled: BTreeSet::new() };
        assert_eq!(import.unit("tank"), "zfs-import@tank.service");
        assert_eq!(import.unit("vm-data_1"), r"zfs-import@vm\x2ddata_1.service");
        assert_eq!(Import::default().unit("tank"), "zfs-import-cache.service");
    }
}
