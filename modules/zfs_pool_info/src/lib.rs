//! `zfs_pool_info`: a host's disks, what is on each, and its pools. It only observes.

use std::convert::Infallible;

use ansible_module::{Arguments, Change, Entry, ErrorCode, Failure, Module, Plan, Proof, Run, Spec};
use host::Host;
use serde_json::{Map, Value, json};
use zfs::{Contents, Device, Machine, Pool, ReadError, Vdev};

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<ZfsPoolInfo>()
}

struct ZfsPoolInfo;

/// The machine, and the contents of each of its disks in the order of [`Machine::disks`].
struct State {
    machine: Machine,
    contents: Vec<Contents>,
}

impl Module for ZfsPoolInfo {
    type State = State;
    /// There is nothing that this module could write.
    type Action = Infallible;

    fn spec() -> Spec {
        Spec::new("zfs_pool_info", "A host's disks by their lasting names, what is on each, and its ZFS pools")
            .describe(
                "Runs as root on the host. Lists every disk with the names under C(/dev/disk/by-id) that stand for it, and \
                 everything that would keep it from being given to a new pool; and every imported pool with its layout. It is \
                 what a person copies into the declaration of M(homelab.anvil.zfs_pool).",
            )
            .requirement("On the host: OpenZFS 2.1 or newer (zpool, zdb), util-linux 2.36 or newer, udev")
            .seealso(&["homelab.anvil.zfs_pool"])
            .examples(EXAMPLES)
            .returns(RETURNS)
    }

    fn new(_: &Arguments, _: &Run) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn observe(&mut self, run: &Run) -> Result<State, Failure> {
        let host = Host::local();
        let fail = |error: ReadError| Failure::new(ErrorCode::COMMAND_FAILED, error.to_string());
        let machine = Machine::read(&host, &run.deadline).map_err(fail)?;
        let contents = machine.disks().map(|disk| machine.examine(disk, &host, &run.deadline).map_err(fail));
        Ok(State { contents: contents.collect::<Result<_, _>>()?, machine })
    }

    fn plan(&self, _: &State) -> Result<Plan<Infallible>, Failure> {
        Ok(Plan::new())
    }

    fn apply(&mut self, action: &Infallible, _: &State, _: &Run) -> Result<(), Failure> {
        match *action {}
    }

    fn proof(&self, _: &Change, _: &State) -> Proof {
        Proof::Held
    }

    fn report(&self, state: &State, _: Option<&Plan<Infallible>>) -> Map<String, Value> {
        let machine = &state.machine;
        let disks: Vec<Value> = machine
            .disks()
            .zip(&state.contents)
            .map(|(disk, contents)| disk_report(machine, disk, contents))
            .collect();
        let pools: Vec<Value> = machine.pools.iter().map(|pool| pool_report(machine, pool)).collect();
        Map::from_iter([("disks".to_owned(), disks.into()), ("pools".to_owned(), pools.into())])
    }
}

fn disk_report(machine: &Machine, disk: &Device, contents: &Contents) -> Value {
    let by_id: Vec<String> =
        machine.names_of(&disk.path).into_iter().map(|name| format!("/dev/disk/by-id/{name}")).collect();
    let paths = machine.paths_of(disk);
    // A multipath map has the model and the number of the disk behind it.
    let physical = paths.first().copied().unwrap_or(disk);
    let found: Vec<String> = machine.findings(disk, contents).iter().map(ToString::to_string).collect();
    json!({
        "device": disk.path,
        "by_id": by_id,
        "size": disk.size,
        "model": physical.model,
        "serial": physical.serial,
        "wwn": physical.wwn,
        "transport": physical.transport,
        "paths": paths.iter().map(|path| &path.path).collect::<Vec<_>>(),
        "free": found.is_empty(),
        "use": found,
        "pool": machine.pool_of(&disk.path).map(|(pool, _)| &pool.name),
    })
}

fn pool_report(machine: &Machine, pool: &Pool) -> Value {
    json!({
        "name": pool.name,
        "state": pool.state,
        "layout": pool.shape(),
        "disks": pool.leaves().map(|leaf| leaf_report(machine, leaf)).collect::<Vec<_>>(),
    })
}

fn leaf_report(machine: &Machine, leaf: &Vdev) -> Value {
    let by_id = leaf.path.as_deref().map(|path| machine.best_name(path));
    json!({"by_id": by_id, "path": leaf.path, "state": leaf.state, "class": leaf.class.heading()})
}

const EXAMPLES: &str = r#"
- name: What disks there are
  homelab.anvil.zfs_pool_info:
  register: storage
  become: true

- name: Those that are free
  ansible.builtin.debug:
    msg: "{{ storage.disks | selectattr('free') | map(attribute='by_id') | map('first') }}"
"#;

const RETURNS: &str = r"
disks:
  description: Every disk, a multipath map in the place of its paths.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: Its name at the moment.
      type: str
      sample: /dev/sdb
    by_id:
      description: Its lasting names; a disk without a serial number has none.
      type: list
      elements: str
      sample: [/dev/disk/by-id/ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000001]
    size:
      description: Its size in bytes.
      type: int
      sample: 4000787030016
    model:
      description: Its model; null where it shows none.
      type: str
    serial:
      description: Its serial number; null where it shows none.
      type: str
    wwn:
      description: Its World Wide Name; null where it shows none.
      type: str
    transport:
      description: How it is attached; null where the kernel does not say.
      type: str
      sample: sata
    paths:
      description: The disks under a multipath map; empty for any other disk.
      type: list
      elements: str
    free:
      description: Whether M(homelab.anvil.zfs_pool) would take it, sizes apart.
      type: bool
    use:
      description: Everything that was found on it, and where.
      type: list
      elements: str
    pool:
      description: The imported pool that it is in; null when it is in none.
      type: str
pools:
  description: Every imported pool.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    state:
      description: Its state.
      type: str
      sample: ONLINE
    layout:
      description: Its layout; the vdevs joined with a plus sign where there are several.
      type: str
      sample: raidz2
    disks:
      description: Its disks, with their lasting names, where ZFS has them open, their state and what they are for.
      type: list
      elements: dict
";
