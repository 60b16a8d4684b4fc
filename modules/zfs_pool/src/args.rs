//! The checked arguments.

use std::collections::BTreeMap;

use ansible_module::{Arguments, Failure};
use serde::Deserialize;
use serde_json::{Map, Value};
use zfs::{Layout, check_pool_name, strip_partition};

use crate::storage::Storage;

pub(crate) const BY_ID: &str = "/dev/disk/by-id/";

const POOL_DEFAULTS: [(&str, &str); 1] = [("ashift", "12")];
const FILESYSTEM_DEFAULTS: [(&str, &str); 4] =
    [("compression", "lz4"), ("atime", "off"), ("xattr", "sa"), ("acltype", "posixacl")];

/// They would make a pool that is not there after a boot, or not where it seems to be.
const NOT_FOR_A_NEW_POOL: [&str; 4] = ["altroot", "cachefile", "readonly", "bootfs"];
/// A key would have to be typed.
const OF_ENCRYPTION: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

#[derive(Debug, Deserialize)]
struct Raw {
    pools: Vec<RawPool>,
    wipe: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct RawPool {
    name: String,
    layout: Layout,
    disks: Vec<String>,
    allow_no_redundancy: bool,
    properties: Map<String, Value>,
    filesystem_properties: Map<String, Value>,
    proxmox_storage: Value,
}

/// What the task asks for.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) pools: Vec<Wanted>,
}

/// A pool as it is declared.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) layout: Layout,
    /// Names below `/dev/disk/by-id`, in the order of the declaration.
    pub(crate) disks: Vec<String>,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) filesystem_properties: BTreeMap<String, String>,
    pub(crate) storage: Option<Storage>,
    /// What is on its disks may be erased, as far as nobody uses it.
    pub(crate) wipe: bool,
}

impl Wanted {
    /// Where ZFS would mount it; none when it would not.
    pub(crate) fn mount_point(&self) -> Option<String> {
        match self.filesystem_properties.get("mountpoint").map(String::as_str) {
            Some("none" | "legacy") => None,
            Some(path) => Some(path.to_owned()),
            None => Some(format!("/{}", self.name)),
        }
    }

    pub(crate) fn disk_paths(&self) -> impl Iterator<Item = String> {
        self.disks.iter().map(|name| format!("{BY_ID}{name}"))
    }
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if raw.pools.is_empty() {
            return Err(Failure::bad_argument("pools", "expected at least one pool"));
        }
        let names: Vec<String> = raw.pools.iter().map(|pool| pool.name.clone()).collect();
        if let Some(unknown) = raw.wipe.iter().find(|name| !names.contains(name)) {
            let why = format!(
                "expected names of pools that this task declares ({}), found `{unknown}`",
                names.join(", ")
            );
            return Err(Failure::bad_argument("wipe", why));
        }
        let mut pools: Vec<Wanted> = Vec::new();
        for (index, pool) in raw.pools.into_iter().enumerate() {
            let wipe = raw.wipe.contains(&pool.name);
            let path = format!("pools[{index}]");
            let pool = check_pool(pool, wipe)
                .map_err(|(option, why)| Failure::bad_argument(format!("{path}.{option}"), why))?;
            if let Some(earlier) = pools.iter().find(|earlier| clash(earlier, &pool)) {
                let why = format!(
                    "pool `{}` and pool `{}` have the same name, disk, mount point or storage",
                    earlier.name, pool.name
                );
                return Err(Failure::bad_argument(path, why));
            }
            pools.push(pool);
        }
        Ok(Self { pools })
    }
}

fn clash(a: &Wanted, b: &Wanted) -> bool {
    let id = |pool: &Wanted| pool.storage.as_ref().map(|storage| storage.id.clone());
    a.name == b.name
        || a.disks.iter().any(|disk| b.disks.contains(disk))
        || (a.mount_point().is_some() && a.mount_point() == b.mount_point())
        || (id(a).is_some() && id(a) == id(b))
}

type Bad = (&'static str, String);

fn check_pool(raw: RawPool, wipe: bool) -> Result<Wanted, Bad> {
    check_pool_name(&raw.name).map_err(|why| ("name", why))?;
    let mut disks: Vec<String> = Vec::new();
    for disk in &raw.disks {
        let disk = check_disk(disk).map_err(|why| ("disks", why))?;
        if disks.contains(&disk) {
            return Err(("disks", format!("`{disk}` is there twice")));
        }
        disks.push(disk);
    }
    if disks.len() < raw.layout.least_disks() {
        let why = format!(
            "expected at least {} disks for {}, found {}",
            raw.layout.least_disks(),
            raw.layout,
            disks.len()
        );
        return Err(("disks", why));
    }
    if raw.layout == Layout::Stripe && !raw.allow_no_redundancy {
        let why = "a stripe is lost with the first disk that fails: expected mirror, raidz1, raidz2 or raidz3, or \
                   `allow_no_redundancy: true`";
        return Err(("layout", why.into()));
    }
    let properties = properties(&raw.properties, &POOL_DEFAULTS).map_err(|why| ("properties", why))?;
    check_pool_properties(&properties).map_err(|why| ("properties", why))?;
    let filesystem_properties = self::properties(&raw.filesystem_properties, &FILESYSTEM_DEFAULTS)
        .map_err(|why| ("filesystem_properties", why))?;
    check_filesystem_properties(&filesystem_properties).map_err(|why| ("filesystem_properties", why))?;
    let storage = Storage::check(&raw.proxmox_storage, &raw.name).map_err(|why| ("proxmox_storage", why))?;
    Ok(Wanted { name: raw.name, layout: raw.layout, disks, properties, filesystem_properties, storage, wipe })
}

/// The name below `/dev/disk/by-id`, given with the directory or without.
fn check_disk(disk: &str) -> Result<String, String> {
    let name = disk.strip_prefix(BY_ID).unwrap_or(disk);
    let expected = "expected the name of a whole disk under /dev/disk/by-id, which zfs_pool_info lists";
    if strip_partition(name) != name {
        return Err(format!("{expected}, found the partition `{disk}`"));
    }
    let kernel_name = name.strip_prefix("dm-").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    if name.contains('/')
        || !name.contains('-')
        || kernel_name
        || name.chars().any(|c| c.is_control() || c == ' ')
    {
        return Err(format!(
            "{expected}, found `{disk}`; a name such as sdb can mean another disk after a boot"
        ));
    }
    Ok(name.to_owned())
}

fn properties(
    given: &Map<String, Value>,
    defaults: &[(&str, &str)],
) -> Result<BTreeMap<String, String>, String> {
    let mut all: BTreeMap<String, String> =
        defaults.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for (name, value) in given {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.:@".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(format!("expected a property's name, found `{name}`"));
        }
        let text = match value {
            // YAML reads `off` as false.
            Value::Bool(true) => "on".to_owned(),
            Value::Bool(false) => "off".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.clone(),
            other => return Err(format!("`{name}`: expected one value, found {other}")),
        };
        all.insert(name.clone(), text);
    }
    Ok(all)
}

fn check_pool_properties(properties: &BTreeMap<String, String>) -> Result<(), String> {
    if let Some(name) = NOT_FOR_A_NEW_POOL.iter().find(|name| properties.contains_key(**name)) {
        return Err(format!("`{name}` is not for a pool that shall be there after a boot"));
    }
    let ashift = &properties["ashift"];
    match ashift.parse::<u8>() {
        Ok(9..=16) => Ok(()),
        _ => Err(format!("`ashift`: expected 9 to 16, found `{ashift}`; it cannot be changed later")),
    }
}

fn check_filesystem_properties(properties: &BTreeMap<String, String>) -> Result<(), String> {
    let given = |name: &str| properties.get(name).map(String::as_str);
    if let Some(name) = OF_ENCRYPTION.iter().find(|name| !matches!(given(name), None | Some("off"))) {
        return Err(format!("`{name}`: a pool is made without a key; make an encrypted dataset in it"));
    }
    match given("mountpoint") {
        None | Some("none" | "legacy") => Ok(()),
        Some(path)
            if path.starts_with('/') && path.len() > 1 && !path.split('/').any(|part| part == "..") =>
        {
            Ok(())
        }
        Some(path) => {
            Err(format!("`mountpoint`: expected an absolute path, `none` or `legacy`, found `{path}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_a_lasting_name() {
        for (given, name) in [
            ("ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000001", Some("ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000001")),
            ("/dev/disk/by-id/wwn-0x5000c50000000001", Some("wwn-0x5000c50000000001")),
            ("nvme-nvme.1b36-4e56-51-00000001", Some("nvme-nvme.1b36-4e56-51-00000001")),
            ("scsi-X-partition", Some("scsi-X-partition")),
            ("sdb", None),
            ("/dev/sdb", None),
            ("nvme0n1", None),
            ("dm-0", None),
            ("/dev/disk/by-path/pci-0000:00:04.0-scsi-0:0:0:0", None),
            ("/dev/disk/by-id/../../sda", None),
            ("scsi-X-part1", None),
            ("", None),
            ("scsi-X ", None),
        ] {
            assert_eq!(check_disk(given).ok().as_deref(), name, "{given}");
        }
    }

    #[test]
    fn yaml_reads_off_as_false() {
        let given = serde_json::json!({"atime": false, "relatime": true, "copies": 2, "compression": "zstd"});
        let all = properties(given.as_object().unwrap(), &FILESYSTEM_DEFAULTS).unwrap();
        let all: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            all.join(" "),
            "acltype=posixacl atime=off compression=zstd copies=2 relatime=on xattr=sa"
        );
        for bad in [
            serde_json::json!({"-o": "x"}),
            serde_json::json!({"a": null}),
            serde_json::json!({"a": [1]}),
            serde_json::json!({"a": "b\nc"}),
        ] {
            assert!(properties(bad.as_object().unwrap(), &[]).is_err(), "{bad}");
        }
    }
}
