//! A shell in a mount namespace of its own, which holds a loop device; everything goes with the shell.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const FSTAB: &str = "# the system itself\nproc /proc proc defaults 0 0\n";

/// The size of the disk, 64 MiB.
pub(crate) const SECTORS: u64 = 131_072;

/// Ends what a command in the shell said, with its exit code behind it.
const END: &str = "anvil-end-of-answer";

/// `losetup --detach` of a device that is held open lets the kernel free it with the last user, however that
/// ends. `/etc` and `/dev` are copies: udev's names and the line in fstab are made in them only.
const SETUP: &str = r#"
set -e
truncate -s $((SECTORS * 512)) $T/image
LOOP=$(losetup --find --show $T/image)
exec 9<>$LOOP
losetup --detach $LOOP
mkdir $T/dev $T/etc
mount -t tmpfs -o mode=755 none $T/dev
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/loop-control $LOOP $T/dev/
mkdir -p $T/dev/disk/by-id
ln -s ../..${LOOP#/dev} $T/dev/disk/by-id/virtio-$SERIAL
cp -a /etc/passwd /etc/group /etc/nsswitch.conf $T/etc/ 2>/dev/null || true
[ ! -e /etc/mke2fs.conf ] || cp -a /etc/mke2fs.conf $T/etc/
printf '%s' "$FSTAB" >$T/etc/fstab
ln -s /proc/self/mounts $T/etc/mtab
mount --bind $T/etc /etc
mount --bind $T/dev /dev
set +e
"#;

pub(crate) struct Namespace {
    directory: TempDir,
    shell: Child,
    talk: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Namespace {
    /// With a blank disk that udev seems to have named. `None`, said aloud, where the machine cannot do it.
    pub(crate) fn with_disk(serial: &str) -> Option<Self> {
        Self::with_disk_of(serial, SECTORS)
    }

    pub(crate) fn with_disk_of(serial: &str, sectors: u64) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let mut shell = Command::new("unshare")
            .args(["--mount", "setpriv", "--pdeathsig", "KILL", "sh"])
            .env("T", directory.path())
            .env("SERIAL", serial)
            .env("SECTORS", sectors.to_string())
            .env("FSTAB", FSTAB)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare (util-linux) is installed");
        let talk = Mutex::new((shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap())));
        let namespace = Self { directory, shell, talk };
        match namespace.try_sh(SETUP) {
            Some((_, 0)) => Some(namespace),
            _ => {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: needs root, loop devices and mount namespaces (the QEMU guest has them)"
                );
                None
            }
        }
    }

    /// A directory that does not exist yet, on the test's own ground.
    pub(crate) fn mount_point(&self) -> String {
        self.directory.path().join("srv").display().to_string()
    }

    /// A file that commands find as `$T/NAME`.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.directory.path().join(name), bytes).unwrap();
    }

    /// What a command that must succeed says.
    pub(crate) fn sh(&self, script: &str) -> String {
        match self.try_sh(script) {
            Some((said, 0)) => said,
            ended => panic!("{script}: {ended:?}"),
        }
    }

    pub(crate) fn has(&self, program: &str) -> bool {
        matches!(self.try_sh(&format!("command -v {program}")), Some((_, 0)))
    }

    pub(crate) fn run(&self, program: &str, arguments: &Value) -> Value {
        let file = self.directory.path().join("arguments.json");
        fs::write(&file, arguments.to_string()).unwrap();
        let (said, _) = self.try_sh(&format!("env -i {program} {}", file.display())).expect("an answer");
        serde_json::from_str(&said).expect("one JSON object on standard output")
    }

    /// The output and the exit code; `None` when the shell is gone.
    fn try_sh(&self, script: &str) -> Option<(String, i32)> {
        let (stdin, stdout) = &mut *self.talk.lock().unwrap();
        writeln!(stdin, "{script}\necho {END} $?").ok()?;
        stdin.flush().ok()?;
        let mut said = String::new();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // The program's answer ends without a new line.
            if let Some((before, code)) = line.split_once(END) {
                said.push_str(before);
                return Some((said, code.trim().parse().ok()?));
            }
            said.push_str(&line);
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // With the shell go its mounts, and with the last of them the loop device.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
