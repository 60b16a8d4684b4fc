//! Every write.

use std::path::Path;

use ansible_module::{ErrorCode, Failure, Run};
use host::{Command, CommandError, Host};
use zfs::{Finding, Machine};

use crate::args::{Args, BY_ID, Wanted};
use crate::observe::{STORAGE_CFG, State, command_failure, read_failure};
use crate::plan::Action;
use crate::storage::{self, Config};
use crate::wipe::Exclusive;

/// pvesm's word for a digest that is not the file's (PVE/Tools.pm, assert_if_modified).
const SOMEBODY_WROTE: &str = "detected modified configuration";
/// Its word for an `add` that came second (PVE/API2/Storage/Config.pm, create).
const SOMEBODY_ADDED: &str = "already defined";
/// What `zpool create` says when udev made a partition's link too late.
const LATE_LINK: &str = "cannot resolve path";

pub(crate) struct Hands<'a> {
    pub(crate) args: &'a Args,
    pub(crate) host: &'a Host,
    pub(crate) run: &'a Run,
}

impl Hands<'_> {
    pub(crate) fn apply(&self, action: &Action, state: &State) -> Result<(), Failure> {
        match action {
            Action::Wipe { disk, found, .. } => self.wipe(disk, found, &state.machine),
            Action::Create { pool } => self.create(self.wanted(pool)?),
            Action::EnableImport { unit } => self.command(&Command::new("systemctl").args(["enable", unit])),
            Action::Storage { pool } => self.storage(self.wanted(pool)?, state),
        }
    }

    fn wanted(&self, pool: &str) -> Result<&Wanted, Failure> {
        let mut pools = self.args.pools.iter();
        pools.find(|wanted| wanted.name == pool).ok_or_else(|| Failure::new(ErrorCode::INTERNAL, pool))
    }

    fn command(&self, command: &Command) -> Result<(), Failure> {
        let output = self.host.run(command, &self.run.deadline).map_err(command_failure)?;
        output.ok().map(drop).map_err(command_failure)
    }

    /// After it, the names under `/dev/disk` are those of what is on the disks now.
    fn settle(&self) -> Result<(), Failure> {
        self.command(&Command::new("udevadm").arg("settle"))
    }

    fn wipe(&self, disk: &str, planned: &[Finding], machine: &Machine) -> Result<(), Failure> {
        let path = Path::new(BY_ID).join(disk);
        let changed = |why: String| {
            Failure::new(ErrorCode::CONFLICT, format!("{}: {why}: it was left as it is", path.display()))
                .nothing_sent()
        };
        let device = machine.resolve(&path).ok_or_else(|| changed("the name is gone".into()))?;
        let exclusive = Exclusive::open(&self.host.path(&path), device)
            .map_err(|error| changed(format!("it could not be opened for this run alone: {error}")))?;
        // Looked at once more, now that nobody else can change it.
        let (_, found) = self.look(disk)?;
        if found != planned {
            return Err(changed("what is on it is not what was planned to be erased".into()));
        }
        exclusive.erase(device).map_err(|error| {
            Failure::new(ErrorCode::COMMAND_FAILED, format!("erasing {} failed: {error}", path.display()))
        })?;
        drop(exclusive);
        if !device.children.is_empty() {
            self.command(&Command::new("blockdev").arg("--rereadpt").arg(&device.path))?;
        }
        self.settle()
    }

    /// The machine and what is on a disk at this moment.
    fn look(&self, disk: &str) -> Result<(Machine, Vec<Finding>), Failure> {
        let deadline = &self.run.deadline;
        let machine = Machine::read(self.host, deadline).map_err(read_failure)?;
        let device = machine.resolve(&Path::new(BY_ID).join(disk));
        let Some(device) = device else {
            return Ok((machine, vec![Finding::NoDisk { kind: "gone".into() }]));
        };
        let contents = machine.examine(device, self.host, deadline).map_err(read_failure)?;
        let found = machine.findings(device, &contents);
        Ok((machine, found))
    }

    fn create(&self, wanted: &Wanted) -> Result<(), Failure> {
        self.settle()?;
        let used = self.no_longer_free(wanted)?;
        if !used.is_empty() {
            return Err(Failure::new(
                ErrorCode::CONFLICT,
                format!(
                    "disks of {} were free a moment ago and no longer are: {}",
                    wanted.name,
                    used.join("; ")
                ),
            )
            .nothing_sent());
        }
        let command = create_command(wanted);
        let mut output =
            self.host.run(&command, &self.run.deadline).map_err(|error| self.with_remains(wanted, error))?;
        if !output.status.success()
            && output.stderr_text().contains(LATE_LINK)
            && self.no_longer_free(wanted)?.is_empty()
        {
            self.settle()?;
            output = self
                .host
                .run(&command, &self.run.deadline)
                .map_err(|error| self.with_remains(wanted, error))?;
        }
        output.ok().map_err(|error| self.with_remains(wanted, error))?;
        self.settle()
    }

    fn no_longer_free(&self, wanted: &Wanted) -> Result<Vec<String>, Failure> {
        let mut used = Vec::new();
        for disk in &wanted.disks {
            let (_, found) = self.look(disk)?;
            used.extend(found.iter().map(|finding| format!("{disk}: {finding}")));
        }
        Ok(used)
    }

    /// `zpool create` may fail after it wrote a partition table: the user hears of it, and of the way on.
    fn with_remains(&self, wanted: &Wanted, error: CommandError) -> Failure {
        let failure = command_failure(error);
        match self.no_longer_free(wanted) {
            Ok(left) if left.is_empty() => failure.with("left", left),
            Ok(left) => {
                let name = &wanted.name;
                let mut failure = failure.with("left", left.clone());
                failure.msg = format!(
                    "{}. It left on the disks: {}. Run this task again; where it refuses that, `wipe: [{name}]` erases it",
                    failure.msg,
                    left.join("; ")
                );
                failure
            }
            Err(error) => {
                let mut failure = failure;
                failure.msg =
                    format!("{}. What it left on the disks could not be read: {}", failure.msg, error.msg);
                failure
            }
        }
    }

    /// Another node may write the same file at the same time: pvesm then refuses, and the file is read again.
    fn storage(&self, wanted: &Wanted, state: &State) -> Result<(), Failure> {
        let Some(asked) = &wanted.storage else { return Ok(()) };
        self.run.deadline.poll(|| {
            let text = self.host.read(STORAGE_CFG).unwrap_or_default();
            let call = storage::call(asked, &wanted.name, &state.node, &Config::parse(&text));
            let Some(call) = call.map_err(Failure::refused)? else { return Ok(Some(())) };
            let command = Command::new("pvesm").args(&call.arguments);
            let output = self.host.run(&command, &self.run.deadline).map_err(command_failure)?;
            let said = output.stderr_text();
            if !output.status.success() && (said.contains(SOMEBODY_WROTE) || said.contains(SOMEBODY_ADDED)) {
                return Ok(None);
            }
            output.ok().map_err(command_failure)?;
            Ok(Some(()))
        })
    }
}

/// Never with `-f`.
fn create_command(wanted: &Wanted) -> Command {
    let mut command = Command::new("zpool").arg("create");
    for (flag, properties) in [("-o", &wanted.properties), ("-O", &wanted.filesystem_properties)] {
        for (name, value) in properties {
            command = command.arg(flag).arg(format!("{name}={value}"));
        }
    }
    command.arg(&wanted.name).args(wanted.layout.keyword()).args(wanted.disk_paths())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use zfs::Layout;

    use super::*;

    #[test]
    fn a_pool_is_made_by_lasting_names_and_never_by_force() {
        let words = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let mut wanted = Wanted {
            name: "tank".into(),
            layout: Layout::Mirror,
            disks: vec!["scsi-A".into(), "scsi-B".into()],
            properties: words(&[("ashift", "12")]),
            filesystem_properties: words(&[("atime", "off"), ("compression", "lz4")]),
            storage: None,
            wipe: true,
        };
        insta::assert_snapshot!(create_command(&wanted), @"zpool create -o ashift=12 -O atime=off -O compression=lz4 tank mirror /dev/disk/by-id/scsi-A /dev/disk/by-id/scsi-B");
        wanted.layout = Layout::Stripe;
        assert!(
            create_command(&wanted)
                .to_string()
                .ends_with("tank /dev/disk/by-id/scsi-A /dev/disk/by-id/scsi-B")
        );
    }
}
