//! Every read.

use std::collections::BTreeSet;

use ansible_module::{Failure, Run};
use api_options::proxmox_failure;
use proxmox_api::{Guest, GuestKind, Proxmox, VmConfig, VmStatus};
use proxmox_vm::{Holder, Vm, described, unreadable};

use crate::args::{Args, Goal};
use crate::fields::MARK;
use crate::templates;

/// The world as far as this task is concerned.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) vm: Option<Vm>,
    /// A container that has the VMID.
    pub(crate) container: Option<Guest>,
    /// The VMID is taken by a guest that this user may not see.
    pub(crate) hidden: bool,
    /// The template to clone; looked for while the VM does not exist.
    pub(crate) source: Option<Source>,
    /// Other VMs of this name.
    pub(crate) namesakes: Vec<Guest>,
    /// What has the VMID of the temporary VM of a rebuild.
    pub(crate) temporary: Option<Temporary>,
    /// Cloud-init settings that are not on the drive; known once this run wrote the drive anew.
    pub(crate) stale_cloud_init: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Temporary {
    /// A VM, read because this task has to do with it.
    Read(Vm),
    /// A guest that only stands in a list.
    Listed(Guest),
}

impl Temporary {
    pub(crate) fn vm(&self) -> Option<&Vm> {
        match self {
            Self::Read(vm) => Some(vm),
            Self::Listed(_) => None,
        }
    }
}

impl State {
    pub(crate) fn holder(&self) -> Holder {
        match (&self.container, self.hidden) {
            (Some(container), _) => Holder::Container(container.clone()),
            (None, true) => Holder::Hidden,
            (None, false) => Holder::Nobody,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) guest: Guest,
    pub(crate) config: VmConfig,
}

impl Source {
    /// What a clone of it will have before it is configured. MAC addresses are drawn anew
    /// (qemu-server `PVE/API2/Qemu.pm`, `clone_vm`).
    pub(crate) fn clone_config(&self, args: &Args) -> Result<VmConfig, Failure> {
        let mut config: VmConfig = self
            .config
            .keys()
            .filter(|key| !is_left_behind(key))
            .filter_map(|key| Some((key.to_owned(), self.config.get(key)?.to_owned())))
            .collect();
        for (slot, mut device) in self.config.nets().map_err(unreadable)? {
            device.mac = None;
            config.set(slot, device.to_string());
        }
        config.set("name", args.name.to_string());
        config.set("description", MARK.put_on(self.config.get("description")));
        Ok(config)
    }
}

/// qemu-server `PVE/API2/Qemu.pm`, `clone_vm`, and `PVE/QemuConfig.pm`, `__snapshot_apply_config`.
fn is_left_behind(key: &str) -> bool {
    matches!(
        key,
        "template" | "lock" | "parent" | "snapshots" | "digest" | "snaptime" | "snapstate" | "vmstate"
    ) || key.starts_with("unused")
}

/// What need not be asked again in a run.
#[derive(Debug, Default)]
pub(crate) struct Known {
    looked: bool,
    /// Where the VM is.
    pub(crate) node: Option<String>,
    /// Where the temporary VM of a rebuild is.
    pub(crate) temporary: Option<String>,
    /// This run wrote cloud-init's drive anew, and the server can tell what is on it.
    pub(crate) regenerated: bool,
    /// Whether it runs; forgotten when the run changes that.
    pub(crate) status: Option<VmStatus>,
    rest: State,
}

pub(crate) fn observe(
    args: &Args,
    proxmox: &Proxmox,
    known: &mut Known,
    run: &Run,
) -> Result<State, Failure> {
    if !known.looked {
        look_around(args, proxmox, known, run)?;
        known.looked = true;
    }
    let vm = match &known.node {
        Some(node) => {
            let config = proxmox.config(node, args.vmid, &run.deadline).map_err(proxmox_failure)?;
            match config {
                Some(config) => {
                    let status = match &known.status {
                        Some(status) => status.clone(),
                        None => proxmox.status(node, args.vmid, &run.deadline).map_err(proxmox_failure)?,
                    };
                    known.status = Some(status.clone());
                    Some(Vm { node: node.clone(), config, status })
                }
                None => None,
            }
        }
        None => None,
    };
    let mut state = State { vm, ..known.rest.clone() };
    if let (Some(node), Some(vmid)) = (&known.temporary, args.rebuild_vmid()) {
        let config = proxmox.config(node, vmid, &run.deadline).map_err(proxmox_failure)?;
        // Nobody starts it.
        let status = VmStatus { status: "stopped".to_owned(), ha_managed: false, uptime: 0 };
        state.temporary = config.map(|config| Temporary::Read(Vm { node: node.clone(), config, status }));
    }
    if let (true, Some(vm)) = (known.regenerated, &state.vm) {
        let stale = proxmox.stale_cloud_init(&vm.node, args.vmid, &run.deadline).map_err(proxmox_failure)?;
        state.stale_cloud_init = Some(stale);
    }
    Ok(state)
}

/// Where the VM is; and, while there is none, whether the VMID is free and what is to be cloned.
fn look_around(args: &Args, proxmox: &Proxmox, known: &mut Known, run: &Run) -> Result<(), Failure> {
    let mut guests = proxmox.guests(&run.deadline).map_err(proxmox_failure)?;
    let holder = |guests: &[Guest]| guests.iter().find(|guest| guest.vmid == args.vmid).cloned();
    let mut own = holder(&guests);
    if own.as_ref().is_some_and(is_in_the_making) {
        proxmox.unlocked(args.vmid, &run.deadline).map_err(proxmox_failure)?;
        guests = proxmox.guests(&run.deadline).map_err(proxmox_failure)?;
        own = holder(&guests);
    }
    look_for_temporary(args, proxmox, known, &guests, run)?;
    let rebuilds = args.rebuild_os_disk && known.temporary.is_none() && known.rest.temporary.is_none();
    match own {
        Some(guest) if guest.kind == GuestKind::Container => known.rest.container = Some(guest),
        Some(guest) => {
            if rebuilds {
                known.rest.source = find_source(args, proxmox, &guests, Some(&guest.node), run)?;
            }
            known.node = Some(guest.node);
        }
        None => {
            known.rest.hidden = !proxmox.vmid_is_free(args.vmid, &run.deadline).map_err(proxmox_failure)?;
            if args.state != Goal::Absent && !known.rest.hidden {
                known.rest.source = find_source(args, proxmox, &guests, args.node.as_deref(), run)?;
            }
        }
    }
    let name = args.name.to_string();
    known.rest.namesakes = guests
        .into_iter()
        .filter(|guest| guest.vmid != args.vmid && guest.kind == GuestKind::Qemu)
        .filter(|guest| guest.name.as_deref().is_some_and(|other| other.eq_ignore_ascii_case(&name)))
        .collect();
    Ok(())
}

/// What an earlier run that was cut off while it rebuilt the OS disk left. A task that has nothing to do with it
/// does not read it.
fn look_for_temporary(
    args: &Args,
    proxmox: &Proxmox,
    known: &mut Known,
    guests: &[Guest],
    run: &Run,
) -> Result<(), Failure> {
    let vmid = args.rebuild_vmid();
    let Some(there) = guests.iter().find(|guest| Some(guest.vmid) == vmid) else { return Ok(()) };
    let concerned = args.rebuild_os_disk || args.state == Goal::Absent;
    if !concerned || there.kind == GuestKind::Container {
        known.rest.temporary = Some(Temporary::Listed(there.clone()));
        return Ok(());
    }
    if is_in_the_making(there) {
        proxmox.unlocked(there.vmid, &run.deadline).map_err(proxmox_failure)?;
    }
    known.temporary = Some(there.node.clone());
    Ok(())
}

fn is_in_the_making(guest: &Guest) -> bool {
    guest.lock.as_deref().is_some_and(|lock| matches!(lock, "clone" | "create"))
}

/// The template, by names asked of the nodes themselves: the cluster's list may be behind.
fn find_source(
    args: &Args,
    proxmox: &Proxmox,
    guests: &[Guest],
    near: Option<&str>,
    run: &Run,
) -> Result<Option<Source>, Failure> {
    let Some(wanted) = args.template() else { return Ok(None) };
    let mut nodes: Vec<&str> = guests
        .iter()
        .filter(|guest| guest.kind == GuestKind::Qemu)
        .map(|guest| guest.node.as_str())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut candidates = Vec::new();
    for node in nodes {
        candidates.extend(proxmox.node_vms(node, &run.deadline).map_err(proxmox_failure)?);
    }
    // Only what is no template has snapshots.
    candidates.iter_mut().for_each(|guest| guest.template |= args.snapname.is_some());
    let guest = templates::choose(&candidates, &wanted, near)?.clone();
    if let Some(snapshot) = &args.snapname {
        let config = proxmox.snapshot_config(&guest.node, guest.vmid, snapshot, &run.deadline);
        let config = config.map_err(|error| {
            proxmox_failure(error)
                .while_doing(format!("looking for the snapshot {snapshot} of {}", described(&guest)))
        })?;
        return Ok(Some(Source { guest, config }));
    }
    let config = proxmox.config(&guest.node, guest.vmid, &run.deadline).map_err(proxmox_failure)?;
    let config = config.ok_or_else(|| {
        Failure::not_found(format!("template {} vanished while it was read", described(&guest)))
    })?;
    Ok(Some(Source { guest, config: config.stored }))
}
