//! What is mounted and what is swapped to, as the kernel says it.

use std::io;
use std::path::PathBuf;

use crate::machine::Host;

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the device, `253:16`.
    pub device_number: String,
    /// The directory of the file system that is mounted, `/` unless it is a bind mount or a subvolume.
    pub root: String,
    pub mount_point: PathBuf,
    pub fs_type: String,
    pub source: String,
    /// Options of this mount and of the file system, `rw` first.
    pub options: Vec<String>,
}

impl Host {
    /// Everything that is mounted, in the order of mounting: of two with the same mount point the later
    /// one is seen.
    ///
    /// # Errors
    /// What reading `/proc/self/mountinfo` says.
    pub fn mounts(&self) -> io::Result<Vec<Mount>> {
        self.read("/proc/self/mountinfo").map(|text| parse_mountinfo(&text))
    }

    /// The device or file names that are swapped to.
    ///
    /// # Errors
    /// What reading `/proc/swaps` says.
    pub fn swaps(&self) -> io::Result<Vec<PathBuf>> {
        self.read("/proc/swaps").map(|text| parse_swaps(&text))
    }
}

/// Reads the form of proc_pid_mountinfo(5); a line that does not have it is left out.
#[must_use]
pub fn parse_mountinfo(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_mount).collect()
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let [_, _, device_number, root, mount_point, mount_options, ..] = left[..] else { return None };
    let [fs_type, source, super_options, ..] = right[..] else { return None };
    let mut options: Vec<String> = Vec::new();
    for option in mount_options.split(',').chain(super_options.split(',')) {
        if !options.iter().any(|known| known == option) {
            options.push(unescape(option));
        }
    }
    Some(Mount {
        device_number: device_number.to_owned(),
        root: unescape(root),
        mount_point: unescape(mount_point).into(),
        fs_type: fs_type.to_owned(),
        source: unescape(source),
        options,
    })
}

/// Reads the form of `/proc/swaps`: a heading, then a name at the beginning of each line.
#[must_use]
pub fn parse_swaps(text: &str) -> Vec<PathBuf> {
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next())
        .map(|name| unescape(name).into())
        .collect()
}

/// Undoes the kernel's `\040` for white space and backslashes.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = (byte == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &tail[3..];
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_and_without_optional_fields() {
        let text = "\
22 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n\
40 22 0:35 /@home /home rw,noatime shared:5 master:2 - btrfs /dev/vda2 rw,subvolid=257\n\
51 22 253:16 / /srv/my\\040data ro - xfs /dev/vdb rw,attr2\n\
short line\n";
        let mounts = parse_mountinfo(text);
        assert_eq!(mounts.len(), 3);
        assert_eq!(
            mounts[0],
            Mount {
                device_number: "253:1".into(),
                root: "/".into(),
                mount_point: "/".into(),
                fs_type: "ext4".into(),
                source: "/dev/vda1".into(),
                options: ["rw", "relatime", "errors=remount-ro"].map(String::from).to_vec(),
            }
        );
        assert_eq!((mounts[1].root.as_str(), mounts[1].fs_type.as_str()), ("/@home", "btrfs"));
        assert_eq!(mounts[2].mount_point, PathBuf::from("/srv/my data"));
        assert_eq!(mounts[2].options, ["ro", "rw", "attr2"]);
    }

    #[test]
    fn swaps_are_read_below_the_heading() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/vdb                                partition\t8388604\t\t0\t\t-2\n\
                    /swap\\040file                           file\t\t1024\t\t0\t\t-3\n";
        assert_eq!(parse_swaps(text), [PathBuf::from("/dev/vdb"), PathBuf::from("/swap file")]);
        assert!(parse_swaps("Filename\tType\n").is_empty());
    }

    #[test]
    fn this_machine_has_a_root() {
        let mounts = Host::local().mounts().unwrap();
        assert!(mounts.iter().any(|mount| mount.mount_point == *"/"));
        Host::local().swaps().unwrap();
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape(r"a\134b\011c\04"), "a\\b\tc\\04");
    }
}
