//! The option table and the checked arguments.

use std::path::{Component, Path, PathBuf};

use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use serde::Deserialize;
use serde_json::json;

/// Directories of the system itself: a data disk mounted over one of them hides the system.
const SYSTEM_DIRECTORIES: [&str; 15] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys",
    "/tmp", "/usr", "/var",
];

#[derive(Debug, Deserialize)]
struct Raw {
    serial: String,
    path: PathBuf,
    fstype: Fstype,
    opts: Vec<String>,
    owner: Option<String>,
    group: Option<String>,
    mode: Option<String>,
}

/// A file system this module makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fstype {
    Ext4,
    Xfs,
}

impl Fstype {
    /// The name that mount(8), blkid(8) and wipefs(8) have for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The program that makes it.
    pub(crate) fn mkfs(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
        }
    }

    /// The package that has it, on every distribution.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
        }
    }
}

/// What the task asks for.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) serial: String,
    pub(crate) path: PathBuf,
    pub(crate) fstype: Fstype,
    pub(crate) opts: Vec<String>,
    /// A name or a number.
    pub(crate) owner: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) mode: Option<u32>,
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if raw.serial.is_empty() || !raw.serial.chars().all(plain) {
            let why = format!("expected letters, digits, `-`, `_` and `.`, found `{}`", raw.serial);
            return Err(Failure::bad_argument("serial", why));
        }
        check_path(&raw.path).map_err(|why| Failure::bad_argument("path", why))?;
        check_opts(&raw.opts).map_err(|why| Failure::bad_argument("opts", why))?;
        let mode = match raw.mode.as_deref().map(parse_mode) {
            Some(Err(why)) => return Err(Failure::bad_argument("mode", why)),
            Some(Ok(mode)) => Some(mode),
            None => None,
        };
        Ok(Self {
            serial: raw.serial,
            path: raw.path,
            fstype: raw.fstype,
            opts: raw.opts,
            owner: raw.owner,
            group: raw.group,
            mode,
        })
    }
}

fn check_path(path: &Path) -> Result<(), String> {
    let text = path.to_string_lossy();
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let normal: PathBuf = path.components().collect();
    if !path.is_absolute() || !plain || normal.as_os_str() != path.as_os_str() {
        return Err(format!(
            "expected an absolute path without `..`, `//` and a `/` at its end, found `{text}`"
        ));
    }
    if text.chars().any(char::is_control) {
        return Err("expected a path without control characters".into());
    }
    if SYSTEM_DIRECTORIES.contains(&text.as_ref()) {
        return Err(format!("{text} belongs to the system: a disk mounted there would hide it"));
    }
    Ok(())
}

fn check_opts(opts: &[String]) -> Result<(), String> {
    if opts.is_empty() {
        return Err("expected at least one mount option, such as `defaults`".into());
    }
    let bad = opts.iter().find(|one| one.is_empty() || one.contains([' ', '\t', '\n', ',', '#', '\\']));
    bad.map_or(Ok(()), |bad| Err(format!("expected one mount option an element, found `{bad}`")))
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = digits.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    mode.ok_or_else(|| {
        format!("expected three or four octal digits, quoted, such as \"0755\", found `{text}`")
    })
}

pub(crate) fn spec() -> Spec {
    Spec::new("data_disk", "Put a guest's data disk in use: file system, mount, fstab, by serial number")
        .describe(
            "Runs as root in the guest. Finds the disk by its serial number under C(/dev/disk/by-id), never by a name \
             such as C(sdb), which follows the order of discovery; waits for it until O(timeout).",
        )
        .describe(
            "Makes a file system only on a disk with nothing on it: no partition, and no signature of anything that \
             wipefs and blkid know. Nothing is ever erased or formatted over. A disk with a file system, which an \
             earlier guest left, is mounted with its data.",
        )
        .describe(
            "Refuses a disk with partitions, with the signature of anything else (another file system, swap, LVM, RAID, \
             ZFS), in use elsewhere or found twice, and a mount point that is not empty or holds another mount.",
        )
        .describe(
            "Mounts by UUID, and only after the mount is proved writes the line into C(/etc/fstab), between two marks of its \
             own. Every other line stays as it is; the new file is checked with C(findmnt --verify) before it \
             replaces the old one.",
        )
        .note("The file system's root directory gets its SELinux label (C(restorecon)) when it is mounted.")
        .note("The data lives as long as the VM's disk: destroying the VM deletes it.")
        .note("A label or a UUID that an earlier guest gave is kept. The file system does not grow with its disk.")
        .requirement("In the guest: udev, util-linux 2.33 or newer (lsblk, blkid, wipefs, mount, findmnt), and C(mkfs.ext4) or C(mkfs.xfs)")
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
        .timeout(120)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("serial").required().quoted("a serial number").doc(
            "Serial number of the disk, as set in its C(serial=) in Proxmox. A virtio-blk disk shows its first 20 \
             characters only: keep it that short.",
        ),
        Opt::path("path").required().aliases(&["mount"]).doc(
            "Where the disk is mounted; the directory is made when it does not exist.",
        ),
        Opt::str("fstype")
            .default("ext4")
            .choices(&["ext4", "xfs"])
            .doc("The file system that an empty disk gets, and that another disk must have."),
        Opt::list("opts", Kind::Str)
            .default(json!(["defaults", "nofail"]))
            .doc("Mount options. Without C(nofail) a guest whose disk is missing does not boot to the end."),
        Opt::str("owner").doc("Owner of the mounted file system's root directory, by name or number; left as it is by default."),
        Opt::str("group").doc("Group of that directory, by name or number; left as it is by default."),
        Opt::str("mode").quoted("a file mode").doc(
            "Mode of that directory, in octal digits and quoted, such as V(\"0755\"); left as it is by default.",
        ),
    ])
}

const EXAMPLES: &str = r#"
- name: The data disk is mounted on /srv
  homelab.anvil.data_disk:
    serial: web01-data
    path: /srv
  become: true

- name: A database gets XFS, and its directory
  homelab.anvil.data_disk:
    serial: db01-data
    path: /srv/postgresql
    fstype: xfs
    opts: [defaults, nofail, noatime]
    owner: postgres
    group: postgres
    mode: "0700"
  become: true
"#;

const RETURNS: &str = r"
disk:
  description: The disk as it is in use; in check mode as it would be.
  returned: success
  type: dict
  contains:
    serial:
      description: The serial number.
      type: str
      sample: web01-data
    by_id:
      description: Its lasting names.
      type: list
      elements: str
      sample: [/dev/disk/by-id/virtio-web01-data]
    device:
      description: Its name at the moment.
      type: str
      sample: /dev/vdb
    size_gib:
      description: Its size in GiB.
      type: float
      sample: 100.0
    fstype:
      description: Its file system.
      type: str
      sample: ext4
    uuid:
      description: The file system's UUID; null in check mode when the file system is still to be made.
      type: str
    path:
      description: Where it is mounted.
      type: str
      sample: /srv
    options:
      description: The mount options as the kernel shows them; empty in check mode when it is still to be mounted.
      type: list
      elements: str
    fstab:
      description: Its line in C(/etc/fstab).
      type: str
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_absolute_plain_and_not_of_the_system() {
        for path in ["/srv", "/srv/data", "/var/lib/postgresql", "/mnt/my data", "/home"] {
            assert_eq!(check_path(Path::new(path)), Ok(()), "{path}");
        }
        for path in ["srv", "", "/srv/", "/srv//data", "/srv/../etc", "/srv/.", "/", "/usr", "/var", "/a\nb"]
        {
            assert!(check_path(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn a_mode_is_octal() {
        assert_eq!(parse_mode("0755"), Ok(0o755));
        assert_eq!(parse_mode("2770"), Ok(0o2770));
        for text in ["755 ", "0o755", "u=rwx", "0888", "00755", "7", ""] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_option_cannot_break_the_line_of_fstab() {
        let opts = |list: &[&str]| check_opts(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(opts(&["defaults", "x-systemd.device-timeout=30s"]), Ok(()));
        for bad in [&[][..], &[""], &["a b"], &["a,b"], &["ro\n/evil"], &["#"]] {
            assert!(opts(bad).is_err(), "{bad:?}");
        }
    }
}
