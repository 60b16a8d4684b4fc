//! Every read.

use ansible_module::{Failure, Run};
use proxmox_api::{Guest, Proxmox, VmStatus};
use proxmox_vm::{Holder, Vm};

use crate::args::Args;

/// The world as far as this task is concerned.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) vm: Option<Vm>,
    pub(crate) holder: Holder,
    /// Other VMs of this name.
    pub(crate) namesakes: Vec<Guest>,
}

/// What need not be asked again in a run.
#[derive(Debug, Default)]
pub(crate) struct Known {
    looked: bool,
    /// Where the VM is.
    pub(crate) node: Option<String>,
    /// Whether it runs; forgotten when the run changes that.
    pub(crate) status: Option<VmStatus>,
    /// This run started it.
    pub(crate) started: bool,
    rest: State,
}

pub(crate) fn observe(
    args: &Args,
    proxmox: &Proxmox,
    known: &mut Known,
    run: &Run,
) -> Result<State, Failure> {
    if !known.looked {
        let place = proxmox_vm::find(args.vmid, proxmox, run)?;
        if let Holder::Vm { node } = &place.holder {
            known.node = Some(node.clone());
        }
        known.rest.namesakes = place.namesakes(args.vmid, &args.name).cloned().collect();
        known.rest.holder = place.holder;
        known.looked = true;
    }
    let vm = match &known.node {
        Some(node) => proxmox_vm::observe(args.vmid, node, &mut known.status, proxmox, run)?,
        None => None,
    };
    Ok(State { vm, ..known.rest.clone() })
}
