//! A made machine: a root directory, and commands that do to it what the real ones do to a real one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deadline::Deadline;
use host::{Command, Host};
use tempfile::TempDir;

use super::NEW_UUID;

/// The files `disk/type` and `disk/uuid` are what is on the disk. Every command leaves a line in `log`.
const COMMANDS: [(&str, &str); 10] = [
    (
        "lsblk",
        r#"[ "$(eval echo \${$#})" = /dev/vdb ] || { echo "lsblk: not a block device" >&2; exit 32; }
children=; [ ! -f $R/disk/children ] || children=",\"children\":$(cat $R/disk/children)"
echo "{\"blockdevices\":[{\"name\":\"/dev/vdb\",\"type\":\"disk\",\"size\":10737418240,\"ro\":false,\"maj:min\":\"253:16\"$children}]}""#,
    ),
    (
        "wipefs",
        r#"case "$*" in *--no-act*) ;; *) echo "this would erase" >&2; exit 1;; esac
echo '{"signatures": ['
[ ! -f $R/disk/type ] || echo "{\"device\":\"vdb\",\"offset\":\"0x438\",\"type\":\"$(cat $R/disk/type)\",\"uuid\":null,\"label\":null}"
echo ']}'"#,
    ),
    (
        "blkid",
        r#"[ -f $R/disk/type ] || exit 2
case "$*" in
  *--match-token*) case "$*" in *"UUID=$(cat $R/disk/uuid) "*) echo /dev/vdb;; *) exit 2;; esac;;
  *) echo "TYPE=$(cat $R/disk/type)"; echo "UUID=$(cat $R/disk/uuid)";;
esac"#,
    ),
    (
        "mkfs.ext4",
        r#"[ ! -f $R/fault/mkfs ] || { cat $R/fault/mkfs >&2; exit 1; }
[ ! -f $R/disk/type ] || { echo "contains a file system" >&2; exit 1; }
echo ext4 >$R/disk/type; echo $3 >$R/disk/uuid"#,
    ),
    ("mkfs.xfs", r"echo xfs >$R/disk/type; echo ${3#uuid=} >$R/disk/uuid"),
    (
        "mount",
        r#"[ ! -f $R/fault/mount ] || { cat $R/fault/mount >&2; exit 32; }
case "$2" in
  remount,*) sed -i "s| $3 [^ ]* - | $3 rw,${2#remount,} - |" $R/proc/self/mountinfo; exit;;
esac
[ "$5" = "UUID=$(cat $R/disk/uuid)" ] || { echo "mount: can't find $5." >&2; exit 1; }
[ -d "$R$6" ] || { echo "mount: $6: mount point does not exist." >&2; exit 32; }
path=$(printf %s "$6" | sed 's| |\\040|g')
printf '%s\n' "99 1 253:16 / $path rw,$4 - $2 /dev/vdb rw" >>$R/proc/self/mountinfo"#,
    ),
    (
        "findmnt",
        r#"grep -q unreadable $3 || exit 0
echo "   [E] unreadable line"; exit 1"#,
    ),
    ("getent", r#"[ "$3" != postgres ] || echo postgres:x:$(id -u):"#),
    ("systemctl", ":"),
    ("restorecon", ":"),
];

pub(super) struct Machine {
    root: TempDir,
}

impl Machine {
    /// With a blank disk `web01-data`, in a file system of its own only in name.
    pub(super) fn new() -> Self {
        let machine = Self { root: TempDir::new().unwrap() };
        for directory in
            ["bin", "disk", "fault", "etc", "srv", "dev/disk/by-id", "proc/self", "proc/sys/kernel/random"]
        {
            fs::create_dir_all(machine.path(directory)).unwrap();
        }
        symlink("../../vdb", machine.path("dev/disk/by-id/virtio-web01-data")).unwrap();
        machine.put("etc/fstab", super::OTHER_LINES);
        machine.put("proc/self/mountinfo", "22 1 253:1 / / rw,relatime - ext4 /dev/vda1 rw\n");
        machine.put("proc/swaps", "Filename\tType\n");
        machine.put("proc/sys/kernel/random/uuid", &format!("{NEW_UUID}\n"));
        for (name, script) in COMMANDS {
            machine.install(name, script);
        }
        machine
    }

    /// Written by a child: a file that this process has open for writing may be inherited by the command of
    /// another test, and then cannot be run ("text file busy").
    fn install(&self, name: &str, script: &str) {
        let root = self.root.path().display();
        let text = format!("#!/bin/sh\nR={root}\necho \"{name} $*\" >>$R/log\n{script}\n");
        let install = Command::new("install")
            .args(["-m", "755", "/dev/stdin"])
            .arg(self.path("bin").join(name))
            .stdin(text);
        Host::local().run(&install, &Deadline::after(Duration::from_secs(30))).unwrap().ok().unwrap();
    }

    pub(super) fn host(&self) -> Host {
        Host::rooted(self.root.path(), vec![self.path("bin")])
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(name)
    }

    pub(super) fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(super) fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(super) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// The commands that write, since the last time this was asked.
    pub(super) fn writes(&self) -> Vec<String> {
        let reads = ["lsblk ", "wipefs --no-act", "blkid ", "findmnt ", "getent "];
        let log = self.get("log");
        self.put("log", "");
        let root = self.root.path().display().to_string();
        let writes = log.lines().filter(|line| !reads.iter().any(|read| line.starts_with(read)));
        writes.map(|line| line.replace(&root, "")).collect()
    }
}
