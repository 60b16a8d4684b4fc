//! `proxmox_vm_info`: the virtual machines of a Proxmox VE cluster, their settings as objects and their guests'
//! addresses. It only reads.

mod args;
mod observe;
mod settings;

use std::collections::BTreeMap;
use std::convert::Infallible;

use ansible_module::{Arguments, Change, Entry, Failure, Module, Plan, Proof, Run, Spec};
use proxmox_api::Proxmox;
use serde_json::{Map, Value};

use crate::args::Args;

/// The module for the bundle's table.
#[must_use]
pub fn entry() -> Entry {
    Entry::of::<ProxmoxVmInfo>()
}

struct ProxmoxVmInfo {
    args: Args,
    proxmox: Proxmox,
}

impl Module for ProxmoxVmInfo {
    type State = Vec<Value>;
    /// There is nothing that this module could write.
    type Action = Infallible;

    fn spec() -> Spec {
        args::spec()
    }

    fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
        let args: Args = arguments.parse()?;
        Ok(Self { proxmox: args.connection.connect()?, args })
    }

    fn observe(&mut self, run: &Run) -> Result<Vec<Value>, Failure> {
        observe::vms(&self.args, &self.proxmox, run)
    }

    fn plan(&self, _vms: &Vec<Value>) -> Result<Plan<Infallible>, Failure> {
        Ok(Plan::new())
    }

    fn apply(&mut self, action: &Infallible, _vms: &Vec<Value>, _run: &Run) -> Result<(), Failure> {
        match *action {}
    }

    fn proof(&self, _change: &Change, _vms: &Vec<Value>) -> Proof {
        Proof::Held
    }

    fn report(&self, vms: &Vec<Value>, _planned: Option<&Plan<Infallible>>) -> Map<String, Value> {
        Map::from_iter([("vms".to_owned(), Value::from(vms.clone()))])
    }

    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        Some(self.proxmox.calls())
    }
}
