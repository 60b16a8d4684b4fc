//! Block devices: what udev calls them, what is on them, what stands on top of them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use deadline::Deadline;
use serde::Deserialize;

use crate::command::{Command, CommandError, Output};
use crate::machine::Host;

const BY_ID: &str = "/dev/disk/by-id";

/// Why a fact about a block device is not known.
#[derive(Debug)]
pub enum BlockError {
    Command(CommandError),
    /// A tool answered in a form that this program does not know.
    Answer {
        command: String,
        why: String,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(error) => error.fmt(f),
            Self::Answer { command, why } => {
                write!(f, "`{command}` gave an answer that cannot be read: {why}")
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for BlockError {}

impl From<CommandError> for BlockError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

/// A name under `/dev/disk/by-id` and the device it stands for at this moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByIdLink {
    /// The name without its directory, `virtio-web01-data`.
    pub name: String,
    /// The device, `/dev/vdb`.
    pub device: PathBuf,
}

/// A device as lsblk(8) shows it, with what stands on top of it (partitions, volumes, RAID members).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BlockDevice {
    /// `/dev/vdb`.
    #[serde(rename = "name")]
    pub path: PathBuf,
    /// `disk`, `part`, `lvm`, `crypt`, `raid1`, `loop`, `rom` ...
    #[serde(rename = "type")]
    pub kind: String,
    /// In bytes.
    #[serde(deserialize_with = "lenient::number")]
    pub size: u64,
    #[serde(rename = "ro", deserialize_with = "lenient::flag")]
    pub read_only: bool,
    /// Major and minor number, `253:16`.
    #[serde(rename = "maj:min", deserialize_with = "lenient::trimmed")]
    pub device_number: String,
    #[serde(default)]
    pub children: Vec<BlockDevice>,
}

impl BlockDevice {
    /// This device and everything above it.
    pub fn tree(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        Box::new(std::iter::once(self).chain(self.children.iter().flat_map(Self::tree)))
    }
}

/// A signature that wipefs(8) sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Signature {
    /// `ext4`, `zfs_member`, `LVM2_member`, `gpt`, `swap` ...
    #[serde(rename = "type")]
    pub kind: String,
    /// In hex, `0x438`.
    pub offset: String,
    pub uuid: Option<String>,
    pub label: Option<String>,
}

/// What blkid(8) finds by low-level probing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    Nothing,
    /// Its tags: `TYPE`, `UUID`, `LABEL`, `PTTYPE`, `USAGE` ...
    Found(BTreeMap<String, String>),
    /// Signatures of more than one kind, which blkid refuses to choose between.
    Ambiguous,
}

impl Probe {
    #[must_use]
    pub fn tag(&self, name: &str) -> Option<&str> {
        match self {
            Self::Found(tags) => tags.get(name).map(String::as_str),
            Self::Nothing | Self::Ambiguous => None,
        }
    }
}

impl Host {
    /// Every name under `/dev/disk/by-id`, sorted; none when the directory does not exist (no udev, no disk).
    ///
    /// # Errors
    /// What reading the directory says.
    pub fn by_id_links(&self) -> Result<Vec<ByIdLink>, BlockError> {
        let directory = self.path(BY_ID);
        let fail = |error| BlockError::Io { path: PathBuf::from(BY_ID), error };
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut links = Vec::new();
        for entry in entries {
            let entry = entry.map_err(fail)?;
            // udev removes and makes links at any time: one that is gone was no answer to the question.
            if let Ok(target) = fs::read_link(entry.path()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                links.push(ByIdLink { name, device: normalize(&Path::new(BY_ID).join(target)) });
            }
        }
        links.sort();
        Ok(links)
    }

    /// The device and everything above it.
    ///
    /// # Errors
    /// [`BlockError`]; also when there is no such device.
    pub fn block_device(&self, device: &Path, deadline: &Deadline) -> Result<BlockDevice, BlockError> {
        let columns = "NAME,TYPE,SIZE,RO,MAJ:MIN";
        let command =
            Command::new("lsblk").args(["--json", "--bytes", "--paths", "--output", columns]).arg(device);
        let output = self.run(&command, deadline)?.ok()?;
        #[derive(Deserialize)]
        struct Answer {
            blockdevices: Vec<BlockDevice>,
        }
        let answer: Answer = read_json(&output)?;
        let [device] =
            <[BlockDevice; 1]>::try_from(answer.blockdevices).map_err(|devices| BlockError::Answer {
                command: output.command,
                why: format!("{} devices instead of one", devices.len()),
            })?;
        Ok(device)
    }

    /// Every signature on a device, also those that blkid does not show (a GPT whose beginning is lost).
    /// Nothing is erased.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn signatures(&self, device: &Path, deadline: &Deadline) -> Result<Vec<Signature>, BlockError> {
        let command = Command::new("wipefs").args(["--no-act", "--json"]).arg(device);
        let output = self.run(&command, deadline)?.ok()?;
        #[derive(Deserialize)]
        struct Answer {
            signatures: Vec<Signature>,
        }
        // Before util-linux 2.35 an empty device gives no JSON at all.
        if output.stdout.iter().all(u8::is_ascii_whitespace) {
            return Ok(Vec::new());
        }
        read_json::<Answer>(&output).map(|answer| answer.signatures)
    }

    /// Probes a device, past every cache.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn probe(&self, device: &Path, deadline: &Deadline) -> Result<Probe, BlockError> {
        let command = Command::new("blkid").args(["--probe", "--output", "export"]).arg(device);
        let output = self.run(&command, deadline)?;
        // blkid(8), EXIT STATUS.
        match output.code() {
            Some(0) => Ok(Probe::Found(parse_tags(&output.stdout_text()))),
            // Also the answer to a device that cannot be read, but then it says why.
            Some(2) if output.stderr.is_empty() => Ok(Probe::Nothing),
            Some(8) => Ok(Probe::Ambiguous),
            _ => Err(output.into_failure().into()),
        }
    }

    /// The names of the kernel's devices that stand on a device (`dm-0`, `md127`); sorted.
    ///
    /// # Errors
    /// What reading `/sys` says.
    pub fn holders(&self, device: &BlockDevice) -> Result<Vec<String>, BlockError> {
        let path = PathBuf::from(format!("/sys/dev/block/{}/holders", device.device_number));
        let entries = match fs::read_dir(self.path(&path)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(BlockError::Io { path, error }),
        };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }
}

fn read_json<T: serde::de::DeserializeOwned>(output: &Output) -> Result<T, BlockError> {
    serde_json::from_slice(&output.stdout)
        .map_err(|error| BlockError::Answer { command: output.command.clone(), why: error.to_string() })
}

/// Reads `blkid --output export`: `NAME=value` lines, with a backslash before what a shell would not take.
fn parse_tags(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| *name != "DEVNAME")
        .map(|(name, value)| {
            let mut characters = value.chars();
            let mut plain = String::new();
            while let Some(c) = characters.next() {
                plain.push(if c == '\\' { characters.next().unwrap_or(c) } else { c });
            }
            (name.to_owned(), plain)
        })
        .collect()
}

/// `/dev/disk/by-id/../../vdb` is `/dev/vdb`.
fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == std::path::Component::ParentDir {
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    plain
}

/// Before util-linux 2.33 lsblk wrote numbers and flags as text; 2.3x pads `maj:min`.
mod lenient {
    use serde::{Deserialize, Deserializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Flag(bool),
        Number(u64),
        Text(String),
    }

    pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Number(number) => Ok(number),
            Value::Text(text) => text.trim().parse().map_err(D::Error::custom),
            Value::Flag(_) => Err(D::Error::custom("a flag where a number belongs")),
        }
    }

    pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Flag(flag) => Ok(flag),
            Value::Number(number) => Ok(number != 0),
            Value::Text(text) => Ok(text.trim() != "0"),
        }
    }

    pub(super) fn trimmed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        String::deserialize(deserializer).map(|text| text.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    const DISK: &str = "/dev/vdb";

    /// A machine whose commands print what the test gives them.
    struct Made {
        directory: tempfile::TempDir,
    }

    impl Made {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn says(self, command: &str, code: i32, stdout: &str) -> Self {
            self.runs(command, &format!("cat <<'END'\n{stdout}\nEND\nexit {code}"))
        }

        fn runs(self, command: &str, script: &str) -> Self {
            // A child writes the script: a file this process has open for writing may be inherited by the
            // command of another test, and then cannot be run ("text file busy").
            let install = Command::new("install")
                .args(["-m", "755", "/dev/stdin"])
                .arg(self.directory.path().join(command))
                .stdin(format!("#!/bin/sh\n{script}\n"));
            Host::local().run(&install, &soon()).unwrap().ok().unwrap();
            self
        }

        fn host(&self) -> Host {
            Host::rooted(self.directory.path(), vec![self.directory.path().to_owned()])
        }

        fn probe(&self) -> Result<Probe, BlockError> {
            self.host().probe(Path::new(DISK), &soon())
        }

        fn signatures(&self) -> Result<Vec<Signature>, BlockError> {
            self.host().signatures(Path::new(DISK), &soon())
        }
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(30))
    }

    #[test]
    fn by_id_names_lead_to_devices() {
        let made = Made::new();
        let directory = made.directory.path().join("dev/disk/by-id");
        fs::create_dir_all(&directory).unwrap();
        symlink("../../vdb", directory.join("virtio-data")).unwrap();
        symlink("../../vda1", directory.join("virtio-os-part1")).unwrap();
        fs::write(directory.join("no-link"), "").unwrap();
        let links = made.host().by_id_links().unwrap();
        let found: Vec<_> = links.iter().map(|l| (l.name.as_str(), l.device.to_str().unwrap())).collect();
        assert_eq!(found, [("virtio-data", "/dev/vdb"), ("virtio-os-part1", "/dev/vda1")]);
    }

    #[test]
    fn a_machine_without_udev_has_no_names() {
        assert_eq!(Made::new().host().by_id_links().unwrap(), []);
    }

    #[test]
    fn a_disk_comes_with_what_stands_on_it() {
        let made = Made::new().says(
            "lsblk",
            0,
            r#"{"blockdevices": [{"name":"/dev/vda","type":"disk","size":10737418240,"ro":false,"maj:min":"253:0",
               "children":[{"name":"/dev/vda1","type":"part","size":1024,"ro":false,"maj:min":"253:1",
               "children":[{"name":"/dev/mapper/root","type":"lvm","size":512,"ro":true,"maj:min":"254:0"}]}]}]}"#,
        );
        let disk = made.host().block_device(Path::new("/dev/vda"), &soon()).unwrap();
        let tree: Vec<_> =
            disk.tree().map(|d| (d.path.to_str().unwrap(), d.kind.as_str(), d.read_only)).collect();
        assert_eq!(
            tree,
            [("/dev/vda", "disk", false), ("/dev/vda1", "part", false), ("/dev/mapper/root", "lvm", true)]
        );
        assert_eq!((disk.size, disk.device_number.as_str()), (10_737_418_240, "253:0"));
    }

    #[test]
    fn the_text_values_of_an_old_lsblk_are_understood() {
        let made = Made::new().says(
            "lsblk",
            0,
            r#"{"blockdevices": [{"name":"/dev/vdb","type":"disk","size":"1024","ro":"0","maj:min":" 253:16 "}]}"#,
        );
        let disk = made.host().block_device(Path::new(DISK), &soon()).unwrap();
        assert_eq!((disk.size, disk.read_only, disk.device_number.as_str()), (1024, false, "253:16"));
    }

    #[test]
    fn an_lsblk_that_fails_or_talks_nonsense_is_quoted() {
        let made = Made::new().runs("lsblk", "echo 'lsblk: /dev/vdb: not a block device' >&2; exit 32");
        let error = made.host().block_device(Path::new(DISK), &soon()).unwrap_err().to_string();
        assert!(error.ends_with("failed with exit code 32: lsblk: /dev/vdb: not a block device"), "{error}");
        let made = Made::new().says("lsblk", 0, r#"{"blockdevices": []}"#);
        let error = made.host().block_device(Path::new(DISK), &soon()).unwrap_err().to_string();
        assert!(error.ends_with("cannot be read: 0 devices instead of one"), "{error}");
    }

    #[test]
    fn signatures_are_listed_and_none_is_an_empty_list() {
        let made = Made::new().says(
            "wipefs",
            0,
            r#"{"signatures": [
               {"device":"vdb","offset":"0x3fffe00","type":"gpt","uuid":null,"label":null},
               {"device":"vdb","offset":"0x438","type":"ext4","uuid":"ee66","label":"data"}]}"#,
        );
        let signatures = made.signatures().unwrap();
        assert_eq!(signatures.iter().map(|s| s.kind.as_str()).collect::<Vec<_>>(), ["gpt", "ext4"]);
        assert_eq!(signatures[1].uuid.as_deref(), Some("ee66"));
        assert_eq!(Made::new().says("wipefs", 0, r#"{"signatures": [ ]}"#).signatures().unwrap(), []);
        assert_eq!(Made::new().runs("wipefs", "").signatures().unwrap(), []);
    }

    #[test]
    fn a_wipefs_that_cannot_read_is_not_an_empty_disk() {
        let made =
            Made::new().runs("wipefs", "echo 'wipefs: error: /dev/vdb: probing: I/O error' >&2; exit 1");
        assert!(made.signatures().is_err());
    }

    #[test]
    fn the_exit_codes_of_blkid_are_told_apart() {
        let tags = "DEVNAME=/dev/vdb\nLABEL=my\\ data\nUUID=ee66\nTYPE=ext4";
        let found = Made::new().says("blkid", 0, tags).probe().unwrap();
        assert_eq!(found.tag("TYPE"), Some("ext4"));
        assert_eq!(found.tag("LABEL"), Some("my data"));
        assert_eq!(found.tag("DEVNAME"), None);
        assert_eq!(Made::new().runs("blkid", "exit 2").probe().unwrap(), Probe::Nothing);
        assert_eq!(Made::new().runs("blkid", "exit 8").probe().unwrap(), Probe::Ambiguous);
        let unread = Made::new().runs("blkid", "echo 'blkid: error: /dev/vdb: I/O error' >&2; exit 2");
        assert!(unread.probe().is_err(), "an unreadable disk is not an empty one");
        assert!(Made::new().runs("blkid", "exit 4").probe().is_err());
    }

    #[test]
    fn holders_come_from_the_kernel() {
        let made = Made::new().says(
            "lsblk",
            0,
            r#"{"blockdevices": [{"name":"/dev/vdb","type":"disk","size":1,"ro":false,"maj:min":"253:16"}]}"#,
        );
        let disk = made.host().block_device(Path::new(DISK), &soon()).unwrap();
        assert!(made.host().holders(&disk).unwrap().is_empty());
        let holders = made.directory.path().join("sys/dev/block/253:16/holders");
        fs::create_dir_all(holders.join("md127")).unwrap();
        fs::create_dir_all(holders.join("dm-0")).unwrap();
        assert_eq!(made.host().holders(&disk).unwrap(), ["dm-0", "md127"]);
    }

    /// The states of a disk as the real tools were recorded with them.
    #[test]
    fn recorded_disks_are_read_as_what_they_are() {
        let recordings =
            PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../../shared/data/disks");
        if !recordings.is_dir() {
            let _ = writeln!(io::stderr(), "skipped: no recordings in {}", recordings.display());
            return;
        }
        // (recording, what wipefs sees, blkid's TYPE, blkid's PTTYPE)
        type Row = (&'static str, &'static [&'static str], Option<&'static str>, Option<&'static str>);
        let table: [Row; 7] = [
            ("empty", &[], None, None),
            ("ext4", &["ext4"], Some("ext4"), None),
            ("swap", &["swap"], Some("swap"), None),
            ("pmbr", &["PMBR"], None, Some("PMBR")),
            ("gptempty", &["PMBR", "gpt", "gpt"], None, Some("gpt")),
            ("gptpart", &["PMBR", "gpt", "gpt"], None, Some("gpt")),
            ("gptbackup", &["gpt"], None, None),
        ];
        for (name, kinds, fs_type, table_type) in table {
            let text = fs::read_to_string(recordings.join(format!("{name}.txt"))).unwrap();
            let (wipefs, wipefs_code) = recorded(&text, "$ wipefs");
            let (blkid, blkid_code) = recorded(&text, "$ blkid");
            let blkid_script = if blkid.is_empty() { "" } else { &format!("cat <<'END'\n{blkid}\nEND") };
            let made = Made::new()
                .says("wipefs", wipefs_code, &wipefs)
                .runs("blkid", &format!("{blkid_script}\nexit {blkid_code}"));
            let mut seen: Vec<String> = made.signatures().unwrap().into_iter().map(|s| s.kind).collect();
            seen.sort();
            assert_eq!(seen, kinds, "{name}");
            let probe = made.probe().unwrap();
            assert_eq!((probe.tag("TYPE"), probe.tag("PTTYPE")), (fs_type, table_type), "{name}");
        }
    }

    /// The output and exit code below a heading of a recording.
    fn recorded(text: &str, heading: &str) -> (String, i32) {
        let lines = text.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
        let mut output = Vec::new();
        for line in lines {
            if let Some(code) = line.strip_prefix("[rc=").and_then(|rest| rest.strip_suffix(']')) {
                return (output.join("\n"), code.parse().unwrap());
            }
            output.push(line);
        }
        panic!("no exit code below {heading}");
    }
}
