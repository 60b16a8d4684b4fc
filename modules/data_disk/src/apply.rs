//! Every write.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;

use ansible_module::{ErrorCode, Failure, Run};
use host::{Command, Host, New, Probe, write_atomic};

use crate::args::{Args, Fstype};
use crate::fstab;
use crate::observe::{State, block_failure, command_failure, read_fstab};
use crate::plan::Action;

/// Present where SELinux is in use.
const SELINUX: &str = "/sys/fs/selinux/enforce";
/// Present where systemd runs the machine (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
/// Options for the boot: here they would hide that the disk is missing.
const NOT_BY_HAND: [&str; 2] = ["nofail", "noauto"];

pub(crate) struct Hands<'a> {
    pub(crate) args: &'a Args,
    pub(crate) host: &'a Host,
    pub(crate) run: &'a Run,
}

impl Hands<'_> {
    pub(crate) fn apply(&self, action: &Action, state: &State) -> Result<(), Failure> {
        match action {
            Action::MakeFilesystem { uuid } => self.make_filesystem(uuid, state),
            Action::MakeMountPoint => self.make_mount_point(),
            Action::Mount { uuid } => self.mount(uuid),
            Action::Remount => self.remount(),
            Action::WriteFstab { line } => self.write_fstab(line),
            Action::SetOwnership { owner, group, mode } => self.set_ownership(*owner, *group, *mode),
        }
    }

    fn command(&self, command: &Command) -> Result<(), Failure> {
        let output = self.host.run(command, &self.run.deadline).map_err(command_failure)?;
        output.ok().map(drop).map_err(command_failure)
    }

    fn make_filesystem(&self, uuid: &str, state: &State) -> Result<(), Failure> {
        let device = state.disk.lasting_path();
        // Looked at once more, through the lasting name: somebody else may have used the disk since.
        let deadline = &self.run.deadline;
        let signatures = self.host.signatures(&device, deadline).map_err(block_failure)?;
        let probe = self.host.probe(&device, deadline).map_err(block_failure)?;
        if !signatures.is_empty() || probe != Probe::Nothing {
            return Err(Failure::new(
                ErrorCode::CONFLICT,
                format!("{} was empty a moment ago and no longer is: nothing was done", device.display()),
            )
            .nothing_sent());
        }
        let fstype = self.args.fstype;
        // Without -F and -f: mkfs shall refuse by itself what it finds in use.
        let command = match fstype {
            Fstype::Ext4 => Command::new(fstype.mkfs()).args(["-q", "-U", uuid]),
            Fstype::Xfs => Command::new(fstype.mkfs()).args(["-q", "-m", &format!("uuid={uuid}")]),
        };
        self.command(&command.arg(device))
    }

    fn make_mount_point(&self) -> Result<(), Failure> {
        let path = &self.args.path;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(self.host.path(path))
            .map_err(|error| failed("making the directory", path, &error))
    }

    fn mount(&self, uuid: &str) -> Result<(), Failure> {
        let command = Command::new("mount")
            .args(["-t", self.args.fstype.name(), "-o", &self.options_by_hand()])
            .arg(format!("UUID={uuid}"))
            .arg(&self.args.path);
        self.command(&command)?;
        // A new file system has no labels, and services confined by SELinux may not enter it.
        if self.host.path(SELINUX).exists() && self.host.find("restorecon").is_some() {
            self.command(&Command::new("restorecon").arg(&self.args.path))?;
        }
        Ok(())
    }

    fn remount(&self) -> Result<(), Failure> {
        let options = format!("remount,{}", self.options_by_hand());
        self.command(&Command::new("mount").args(["-o", &options]).arg(&self.args.path))
    }

    fn options_by_hand(&self) -> String {
        let options: Vec<&str> = self
            .args
            .opts
            .iter()
            .map(String::as_str)
            .filter(|option| !NOT_BY_HAND.contains(option))
            .collect();
        if options.is_empty() { "defaults".into() } else { options.join(",") }
    }

    fn write_fstab(&self, line: &str) -> Result<(), Failure> {
        let before = read_fstab(self.host).map_err(Failure::nothing_sent)?;
        let text = fstab::with_line(&before, &self.args.serial, line)
            .map_err(|broken| Failure::refused(broken.to_string()).nothing_sent())?;
        if let Some(said) = self.faults(&text)? {
            if self.faults(&before)?.is_none() {
                return Err(Failure::refused(format!(
                    "/etc/fstab is left as it was, since findmnt finds a fault in the new one: {said}"
                ))
                .nothing_sent());
            }
            self.run.warn(format!(
                "findmnt finds a fault in /etc/fstab, also before this line was added: {said}"
            ));
        }
        let path = self.host.path("/etc/fstab");
        write_atomic(&path, text.as_bytes(), New { mode: 0o644 }).map_err(|error| {
            let failure = Failure::new(ErrorCode::COMMAND_FAILED, error.to_string());
            if error.is_untouched() { failure.nothing_sent() } else { failure }
        })?;
        // systemd has made units of the old lines, and acts by them.
        if self.host.path(SYSTEMD).is_dir() {
            self.command(&Command::new("systemctl").arg("daemon-reload"))?;
        }
        Ok(())
    }

    /// What `findmnt --verify` says against a text; nothing where there is no such program.
    fn faults(&self, text: &str) -> Result<Option<String>, Failure> {
        if self.host.find("findmnt").is_none() {
            return Ok(None);
        }
        let temporary = |error: io::Error| failed("writing a temporary file", Path::new("fstab"), &error);
        let mut file = tempfile::Builder::new().prefix("anvil-fstab-").tempfile().map_err(temporary)?;
        file.write_all(text.as_bytes()).map_err(temporary)?;
        let command = Command::new("findmnt").args(["--verify", "--tab-file"]).arg(file.path());
        let output = self.host.run(&command, &self.run.deadline).map_err(command_failure)?;
        Ok((!output.status.success())
            .then(|| format!("{}{}", output.stdout_text(), output.stderr_text()).trim().to_owned()))
    }

    fn set_ownership(
        &self,
        owner: Option<u32>,
        group: Option<u32>,
        mode: Option<u32>,
    ) -> Result<(), Failure> {
        let path = self.host.path(&self.args.path);
        chown(&path, owner, group)
            .map_err(|error| failed("setting the owner of", &self.args.path, &error))?;
        // After the owner: chown takes the set-group-ID bit away.
        if let Some(mode) = mode {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                .map_err(|error| failed("setting the mode of", &self.args.path, &error))?;
        }
        Ok(())
    }
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(ErrorCode::COMMAND_FAILED, format!("{doing} {} failed: {error}", path.display()))
}
