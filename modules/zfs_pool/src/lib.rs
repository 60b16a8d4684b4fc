//! `zfs_pool`: data pools on disks that are proved to be free; a pool that is there is left as it is.

mod apply;
mod args;
mod observe;
mod plan;
mod spec;
mod storage;
#[cfg(test)]
mod tests;
mod wipe;

use std::collections::BTreeSet;
use std::path::Path;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use host::Host;
use serde_json::{Map, Value, json};
use zfs::same_value;

use crate::apply::Hands;
use crate::args::{Args, BY_ID, Wanted};
use crate::observe::{Properties, State};
use crate::plan::Action;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<ZfsPool>()
}

struct ZfsPool {
    args: Args,
    host: Host,
    /// Storages that this run added or changed, whose state is part of the proof.
    written_storages: BTreeSet<String>,
}

impl Module for ZfsPool {
    type State = State;
    type Action = Action;

    fn spec() -> Spec {
        spec::spec()
    }

    fn new(arguments: &Arguments, _: &Run) -> Result<Self, Failure> {
        Ok(Self { args: Args::check(arguments)?, host: Host::local(), written_storages: BTreeSet::new() })
    }

    fn subject(&self) -> String {
        let names: Vec<&str> = self.args.pools.iter().map(|wanted| wanted.name.as_str()).collect();
        format!("ZFS pools {}", names.join(", "))
    }

    /// One for all pools: any of them may want any disk.
    fn lock(&self) -> Option<String> {
        Some("ZFS pools".into())
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        observe::observe(&self.args, &self.written_storages, &self.host, run)
    }

    fn plan(&self, state: &State) -> Result<Plan<Action>, Failure> {
        plan::plan(&self.args, state)
    }

    fn apply(&mut self, action: &Action, state: &State, run: &Run) -> Result<(), Failure> {
        if let Action::Storage { pool } = action {
            let written = self.args.pools.iter().filter(|wanted| wanted.name == *pool);
            self.written_storages
                .extend(written.filter_map(|wanted| wanted.storage.as_ref()).map(|one| one.id.clone()));
        }
        Hands { args: &self.args, host: &self.host, run }.apply(action, state)
    }

    fn proof(&self, change: &Change, state: &State) -> Proof {
        prove(&self.args, change, state)
    }

    fn report(&self, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
        let pools: Vec<Value> =
            self.args.pools.iter().map(|wanted| report(wanted, state, planned.is_some())).collect();
        Map::from_iter([("pools".to_owned(), pools.into())])
    }
}

/// Fields are `wipe.DISK`, `pools.POOL.WHAT`, `import.UNIT` and `storage.ID.WHAT`.
fn prove(args: &Args, change: &Change, state: &State) -> Proof {
    let (kind, rest) = change.field.split_once('.').unwrap_or_default();
    match kind {
        "wipe" => prove_wiped(rest, state),
        "import" => Proof::equal(&change.after, state.import.enabled.contains(rest).then_some("enabled")),
        "storage" => prove_storage(rest, change, state),
        _ => {
            // A name may hold dots, and begin with another one.
            let mut pools: Vec<&Wanted> = args.pools.iter().collect();
            pools.sort_by_key(|wanted| std::cmp::Reverse(wanted.name.len()));
            let wanted = pools.into_iter().find(|wanted| rest.starts_with(&format!("{}.", wanted.name)));
            match wanted {
                Some(wanted) => prove_pool(wanted, &rest[wanted.name.len() + 1..], change, state),
                None => Proof::Mismatch { found: Value::Null },
            }
        }
    }
}

fn prove_wiped(disk: &str, state: &State) -> Proof {
    let device = state.machine.resolve(&Path::new(BY_ID).join(disk));
    let Some(device) = device else { return Proof::Mismatch { found: "the disk is gone".into() } };
    let Some(contents) = state.contents.get(&device.path) else {
        return Proof::Mismatch { found: "the disk was not read again".into() };
    };
    let found: Vec<String> =
        state.machine.findings(device, contents).iter().map(ToString::to_string).collect();
    if found.is_empty() { Proof::Held } else { Proof::Mismatch { found: found.into() } }
}

fn prove_pool(wanted: &Wanted, field: &str, change: &Change, state: &State) -> Proof {
    let Some(pool) = state.machine.pool(&wanted.name) else { return Proof::Mismatch { found: Value::Null } };
    let none = Properties::default();
    let properties = state.properties.get(&wanted.name).unwrap_or(&none);
    let property = |name: &str, all: &std::collections::BTreeMap<String, String>| {
        let asked = change.after.as_str().unwrap_or_default();
        match all.get(name) {
            Some(found) if same_value(name, asked, found) => Proof::Held,
            found => Proof::Mismatch { found: found.cloned().into() },
        }
    };
    match field.split_once('.') {
        Some(("properties", name)) => property(name, &properties.pool),
        Some(("filesystem_properties", name)) => property(name, &properties.filesystem),
        _ => match field {
            "state" => Proof::equal(&change.after, pool.state.as_str()),
            "layout" => Proof::equal(&change.after, pool.shape()),
            _ => {
                let paths: Vec<String> = pool.data_paths().map(|path| path.display().to_string()).collect();
                let by_id = paths.iter().all(|path| path.starts_with(BY_ID));
                if by_id && plan::is_as_declared(wanted, pool, &state.machine) {
                    Proof::Held
                } else {
                    Proof::Mismatch { found: paths.into() }
                }
            }
        },
    }
}

fn prove_storage(field: &str, change: &Change, state: &State) -> Proof {
    let (id, name) = field.rsplit_once('.').unwrap_or_default();
    let section = state.storage.as_ref().and_then(|config| config.section(id));
    let Some(section) = section else { return Proof::Mismatch { found: Value::Null } };
    let asked = change.after.as_str().unwrap_or_default();
    let words = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    match name {
        "status" => Proof::equal(&change.after, state.storage_status.get(id).cloned()),
        // A node that another run added since is no fault.
        "nodes" if section.nodes().is_none_or(|nodes| asked.split(',').all(|node| nodes.contains(node))) => {
            Proof::Held
        }
        "content" if section.field(name).map(words) == Some(words(asked)) => Proof::Held,
        "sparse" if section.field(name).unwrap_or("0") == asked => Proof::Held,
        name => Proof::equal(&change.after, section.field(name)),
    }
}

/// The pool as it is; one that check mode would make, as it would be.
fn report(wanted: &Wanted, state: &State, planned: bool) -> Value {
    let declared: Vec<String> = wanted.disk_paths().collect();
    let pool = state.machine.pool(&wanted.name);
    let properties = state.properties.get(&wanted.name).cloned().unwrap_or_else(|| {
        let asked = |all: &std::collections::BTreeMap<String, String>| {
            if planned { all.clone() } else { Default::default() }
        };
        Properties { pool: asked(&wanted.properties), filesystem: asked(&wanted.filesystem_properties) }
    });
    let disks: Vec<Value> = match pool {
        Some(pool) => pool
            .data_paths()
            .map(|path| json!({"by_id": plan::shown_path(path, &declared, &state.machine), "path": path}))
            .collect(),
        None => declared.iter().map(|by_id| json!({"by_id": by_id, "path": null})).collect(),
    };
    json!({
        "name": wanted.name,
        "state": pool.map(|pool| pool.state.clone()),
        "layout": pool.map_or_else(|| wanted.layout.to_string(), zfs::Pool::shape),
        "disks": disks,
        "properties": properties.pool,
        "filesystem_properties": properties.filesystem,
        "proxmox_storage": wanted.storage.as_ref().map(|storage| storage.id.clone()),
    })
}
