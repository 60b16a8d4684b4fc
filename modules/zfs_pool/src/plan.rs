//! May these disks become these pools, and what is missing? Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ansible_module::{Change, Failure, Plan};
use serde_json::{Value, json};
use zfs::{Device, Finding, Identity, Label, Layout, Machine, Pool, PoolState, same_value};

use crate::args::{Args, BY_ID, Wanted};
use crate::observe::{MountPoint, State, devices};
use crate::storage;

/// `zpool create` itself takes no members that differ by more (`ZPOOL_FUZZ` of OpenZFS' cmd/zpool/zpool_vdev.c).
const LARGEST_DIFFERENCE: u64 = 16 << 20;
/// `SPA_MINDEVSIZE` of OpenZFS' include/sys/fs/zfs.h.
const LEAST_SIZE: u64 = 64 << 20;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// What is on this disk, found as written, is erased.
    Wipe {
        pool: String,
        disk: String,
        found: Vec<Finding>,
    },
    Create {
        pool: String,
    },
    EnableImport {
        unit: String,
    },
    Storage {
        pool: String,
    },
}

/// A disk that a pool cannot have.
struct Refused<'s> {
    pool: &'s str,
    name: &'s str,
    device: Option<&'s Device>,
    found: Vec<String>,
}

/// What is wrong, of every pool, so that nothing is done before everything is right.
#[derive(Default)]
struct Faults<'s> {
    disks: Vec<Refused<'s>>,
    /// Pools whose disks `wipe` would free.
    wipe_would_do: BTreeSet<&'s str>,
    messages: Vec<String>,
    differing: Vec<Value>,
}

/// # Errors
/// `refused`, with everything that is in the way of any pool.
pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    let mut faults = Faults::default();
    let mut wipes = Vec::new();
    let mut calls = BTreeMap::new();
    let owners = owners(args, &state.machine);
    for wanted in &args.pools {
        match state.machine.pool(&wanted.name) {
            Some(pool) => faults.compare(wanted, pool, &state.machine),
            None => wipes.extend(faults.check_new(wanted, state, &owners)),
        }
        match storage_call(wanted, state) {
            Ok(Some(call)) => drop(calls.insert(&wanted.name, call)),
            Ok(None) => {}
            Err(why) => faults.messages.push(format!("{}: {why}", wanted.name)),
        }
    }
    faults.into_result(&state.machine)?;

    let mut plan = Plan::new();
    for (action, change) in wipes {
        plan.step(action, vec![change]);
    }
    plan.gate();
    for wanted in args.pools.iter().filter(|wanted| state.machine.pool(&wanted.name).is_none()) {
        plan.step(Action::Create { pool: wanted.name.clone() }, creation(wanted));
    }
    plan.gate();
    let mut units = BTreeSet::new();
    for wanted in &args.pools {
        let is_new = state.machine.pool(&wanted.name).is_none();
        let unit = state.import.unit(&wanted.name);
        let imported_at_boot =
            state.import.enabled.contains(&unit) || (!is_new && state.import.imports_all());
        let is_other_unit_enough = !state.import.has_template && state.import.imports_all();
        if !imported_at_boot && !is_other_unit_enough && units.insert(unit.clone()) {
            let change = Change::new(format!("import.{unit}"), Value::Null, "enabled");
            plan.step(Action::EnableImport { unit }, vec![change]);
        }
    }
    plan.gate();
    for (name, call) in calls {
        plan.step(Action::Storage { pool: name.clone() }, call.changes);
    }
    warnings(args, state).into_iter().for_each(|warning| plan.warn(warning));
    Ok(plan)
}

/// The disk behind each declared name; of two names for one disk the second is at fault.
fn owners<'s>(args: &'s Args, machine: &'s Machine) -> BTreeMap<&'s Path, Vec<(&'s str, &'s str)>> {
    let mut owners: BTreeMap<&Path, Vec<(&str, &str)>> = BTreeMap::new();
    for wanted in &args.pools {
        for (name, device) in devices(wanted, machine) {
            if let Some(device) = device {
                owners.entry(&device.path).or_default().push((&wanted.name, name));
            }
        }
    }
    owners
}

fn storage_call(wanted: &Wanted, state: &State) -> Result<Option<storage::Call>, String> {
    let Some(asked) = &wanted.storage else { return Ok(None) };
    let Some(config) = &state.storage else {
        return Err("`proxmox_storage` needs Proxmox VE, and there is no pvesm on this host".into());
    };
    storage::call(asked, &wanted.name, &state.node, config)
}

fn creation(wanted: &Wanted) -> Vec<Change> {
    let field = |name: &str| format!("pools.{}.{name}", wanted.name);
    let mut changes = vec![
        Change::new(field("state"), Value::Null, "ONLINE"),
        Change::new(field("layout"), Value::Null, wanted.layout.word()),
        Change::new(field("disks"), Value::Null, wanted.disk_paths().collect::<Vec<_>>()),
    ];
    for (kind, properties) in
        [("properties", &wanted.properties), ("filesystem_properties", &wanted.filesystem_properties)]
    {
        let change = |(name, value): (&String, &String)| {
            Change::new(field(&format!("{kind}.{name}")), Value::Null, value.as_str())
        };
        changes.extend(properties.iter().map(change));
    }
    changes
}

impl<'s> Faults<'s> {
    /// An existing pool is what is declared, or an error; never something to be changed.
    fn compare(&mut self, wanted: &'s Wanted, pool: &Pool, machine: &Machine) {
        if is_as_declared(wanted, pool, machine) {
            return;
        }
        let declared: Vec<String> = wanted.disk_paths().collect();
        let found: Vec<String> = pool.data_paths().map(|path| shown_path(path, &declared, machine)).collect();
        self.messages.push(format!(
            "the pool {} exists with other disks or another layout, and is left as it is\n  declared: {} of {}\n  found:    \
             {} of {}",
            wanted.name,
            wanted.layout,
            declared.join(", "),
            pool.shape(),
            found.join(", ")
        ));
        self.differing.push(json!({
            "name": wanted.name,
            "declared": {"layout": wanted.layout.word(), "disks": declared},
            "found": {"layout": pool.shape(), "disks": found},
        }));
    }

    /// The wipes that a pool needs which is not there.
    fn check_new(
        &mut self,
        wanted: &'s Wanted,
        state: &'s State,
        owners: &BTreeMap<&Path, Vec<(&str, &str)>>,
    ) -> Vec<(Action, Change)> {
        let mut wipes = Vec::new();
        let mut only_liftable = true;
        let before = self.disks.len();
        for (name, device) in devices(wanted, &state.machine) {
            let Some(device) = device else {
                only_liftable = false;
                let found = vec!["there is no such name under /dev/disk/by-id".into()];
                self.disks.push(Refused { pool: &wanted.name, name, device, found });
                continue;
            };
            let contents = state.contents.get(&device.path).cloned().unwrap_or_default();
            let findings = state.machine.findings(device, &contents);
            let mut found: Vec<String> = Vec::new();
            let aliases = owners.get(device.path.as_path()).map(Vec::as_slice).unwrap_or_default();
            found.extend(
                aliases
                    .iter()
                    .filter(|(_, other)| *other != name)
                    .map(|(pool, other)| format!("it is declared twice: {other} of {pool} is the same disk")),
            );
            found.extend(size_fault(wanted, device, &state.machine));
            only_liftable &= found.is_empty() && findings.iter().all(Finding::is_lifted_by_wipe);
            let lifts = wanted.wipe && found.is_empty() && findings.iter().all(Finding::is_lifted_by_wipe);
            if lifts && !findings.is_empty() {
                wipes.push(wipe(wanted, name, findings));
            } else if !(found.is_empty() && findings.is_empty()) {
                found.extend(findings.iter().map(described));
                dedup(&mut found);
                self.disks.push(Refused { pool: &wanted.name, name, device: Some(device), found });
            }
        }
        if self.disks.len() > before && only_liftable {
            self.wipe_would_do.insert(&wanted.name);
        }
        self.check_surroundings(wanted, state);
        wipes
    }

    fn check_surroundings(&mut self, wanted: &Wanted, state: &State) {
        let mount_point = wanted.mount_point();
        if let Some(MountPoint::Taken(why)) =
            mount_point.as_ref().and_then(|path| state.mount_points.get(path))
        {
            self.messages.push(format!(
                "{}: the mount point {} {why}; move it away, or set `filesystem_properties.mountpoint`",
                wanted.name,
                mount_point.unwrap_or_default()
            ));
        }
        for (device, label) in state.strays.iter().filter(|(_, label)| label.pool == wanted.name) {
            if label.state != PoolState::Destroyed {
                self.messages.push(format!(
                    "{}: a pool of this name is on {} ({}) and is not imported; {}",
                    wanted.name,
                    device.display(),
                    label.state.word(),
                    import_command(label)
                ));
            }
        }
    }

    fn into_result(self, machine: &Machine) -> Result<(), Failure> {
        if self.disks.is_empty() && self.messages.is_empty() {
            return Ok(());
        }
        let mut text = vec!["refused, and nothing was touched".to_owned()];
        text.extend(self.messages.iter().cloned());
        text.extend(self.disks.iter().map(Refused::line));
        for pool in &self.wipe_would_do {
            text.push(format!(
                "{pool}: if nobody needs what is on these disks, `wipe: [{pool}]` erases it before the pool is made"
            ));
        }
        if self.disks.iter().any(|refused| refused.device.is_none()) {
            let names: Vec<String> = machine.disks().map(|disk| machine.best_name(&disk.path)).collect();
            text.push(format!("disks of this host: {}", names.join(", ")));
        }
        let disks: Vec<Value> = self.disks.iter().map(Refused::json).collect();
        Err(Failure::refused(text.join("\n"))
            .with("refused_disks", disks)
            .with("differing_pools", self.differing))
    }
}

impl Refused<'_> {
    fn line(&self) -> String {
        let identity = match self.device {
            Some(device) => format!(
                " ({}, {} bytes, model {}, serial {})",
                device.path.display(),
                device.size,
                device.model.as_deref().unwrap_or("unknown"),
                device.serial.as_deref().unwrap_or("unknown")
            ),
            None => String::new(),
        };
        format!("{}: {BY_ID}{}{identity}: {}", self.pool, self.name, self.found.join("; "))
    }

    fn json(&self) -> Value {
        json!({
            "pool": self.pool,
            "by_id": format!("{BY_ID}{}", self.name),
            "device": self.device.map(|device| &device.path),
            "size": self.device.map(|device| device.size),
            "model": self.device.and_then(|device| device.model.as_ref()),
            "serial": self.device.and_then(|device| device.serial.as_ref()),
            "found": self.found,
        })
    }
}

fn dedup(lines: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
}

fn wipe(wanted: &Wanted, name: &str, found: Vec<Finding>) -> (Action, Change) {
    let before: Vec<String> = found.iter().map(ToString::to_string).collect();
    let change = Change::new(format!("wipe.{name}"), before, "nothing");
    (Action::Wipe { pool: wanted.name.clone(), disk: name.to_owned(), found }, change)
}

/// zpool compares the members of a mirror or raidz.
fn size_fault(wanted: &Wanted, device: &Device, machine: &Machine) -> Option<String> {
    if device.size < LEAST_SIZE {
        return Some(format!("it has {} bytes, and ZFS takes no disk below {LEAST_SIZE}", device.size));
    }
    let sizes = || devices(wanted, machine).filter_map(|(_, device)| device).map(|device| device.size);
    let smallest = sizes().min()?;
    let differs =
        wanted.layout != Layout::Stripe && device.size - smallest.min(device.size) > LARGEST_DIFFERENCE;
    differs.then(|| {
        format!(
            "it has {} bytes and another disk of the pool {smallest}: more than {LARGEST_DIFFERENCE} apart",
            device.size
        )
    })
}

pub(crate) fn is_as_declared(wanted: &Wanted, pool: &Pool, machine: &Machine) -> bool {
    let declared: Vec<Identity> =
        wanted.disk_paths().map(|path| machine.identity(Path::new(&path))).collect();
    let mut found: Vec<Identity> = pool.data_paths().map(|path| machine.identity(path)).collect();
    let leaves = pool.leaves().filter(|leaf| leaf.class.holds_data()).count();
    // A disk that is gone now: of its names only the one that ZFS remembers is known.
    let mut left = declared.clone();
    left.retain(|identity| {
        let place = found.iter().position(|other| other == identity);
        place.map(|place| found.remove(place)).is_none()
    });
    left.is_empty() && found.is_empty() && leaves == declared.len() && pool.layout() == Some(wanted.layout)
}

/// In the words of the declaration where it is one of its disks, else by the disk's best name.
pub(crate) fn shown_path(path: &Path, declared: &[String], machine: &Machine) -> String {
    let identity = machine.identity(path);
    if let Some(same) = declared.iter().find(|other| machine.identity(Path::new(other)) == identity) {
        return same.clone();
    }
    match machine.identity(path) {
        Identity::Disk(_) => machine.best_name(path),
        Identity::Missing(name) => format!("{BY_ID}{name} (not there)"),
    }
}

fn import_command(label: &Label) -> String {
    match label.state {
        PoolState::Destroyed => format!("`zpool import -D -d /dev/disk/by-id {}` brings it back", label.pool),
        _ => format!("`zpool import -d /dev/disk/by-id {}` imports it", label.pool),
    }
}

/// A label comes with the way back to its pool.
fn described(finding: &Finding) -> String {
    match finding {
        Finding::Label { label, .. } if !label.pool.is_empty() => {
            format!("{finding}, {}", import_command(label))
        }
        _ => finding.to_string(),
    }
}

fn warnings(args: &Args, state: &State) -> Vec<String> {
    let mut warnings = Vec::new();
    for wanted in &args.pools {
        let Some(pool) = state.machine.pool(&wanted.name) else { continue };
        let name = &wanted.name;
        if pool.state != "ONLINE" {
            warnings.push(format!("the pool {name} is {}: see `zpool status {name}`", pool.state));
        }
        let Some(found) = state.properties.get(name) else { continue };
        for (program, wanted, found) in [
            ("zpool", &wanted.properties, &found.pool),
            ("zfs", &wanted.filesystem_properties, &found.filesystem),
        ] {
            for (property, value) in wanted {
                let found = found.get(property).map_or("unknown", String::as_str);
                if !same_value(property, value, found) {
                    let remedy = if property == "ashift" {
                        "it cannot be changed".to_owned()
                    } else {
                        format!("`{program} set {property}={value} {name}` changes it")
                    };
                    warnings.push(format!("{name}: {property} is {found}, declared is {value}; an existing pool is left as it is, {remedy}"));
                }
            }
        }
    }
    warnings
}
