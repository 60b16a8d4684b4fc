//! What the Proxmox cluster uses: the VMIDs and MACs of all VMs, templates and containers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use ansible_module::{ErrorCode, Failure, Run};
use api_options::{ProxmoxOptions, proxmox_failure};
use net_types::{MacAddress, Vmid};
use proxmox_api::{ApiError, GuestKind, Proxmox};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::Args;
use crate::batch::{self, Batch};
use crate::observe::Inventory;
use crate::plan;

/// A guest of the cluster and what it uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Guest {
    pub(crate) vmid: Vmid,
    /// For messages: `VM 1001 (web01) on node pve1`.
    pub(crate) who: String,
    pub(crate) macs: Vec<MacAddress>,
}

/// A session with the cluster; nothing is sent before [`Cluster::guests`].
#[derive(Debug)]
pub(crate) struct Cluster {
    proxmox: Proxmox,
    address: String,
}

impl Cluster {
    pub(crate) fn new(options: &ProxmoxOptions) -> Result<Self, Failure> {
        Ok(Self { proxmox: options.connect()?, address: format!("{}:{}", options.host(), options.port()) })
    }

    /// Asked once for a batch, whoever comes first.
    pub(crate) fn guests(
        &self,
        args: &Args,
        inventory: &Inventory,
        run: &Run,
    ) -> Result<Vec<Guest>, Failure> {
        let batch = Batch {
            cluster: self.address.clone(),
            inventory: fs::canonicalize(&args.directory).unwrap_or_else(|_| args.directory.clone()),
            hosts: args.batch.clone(),
            check_mode: run.check_mode,
        };
        let waiting = plan::waiting(args, inventory);
        batch::guests(&batch, &args.host, &waiting, run, || self.look(run))
    }

    pub(crate) fn api_calls(&self) -> BTreeMap<String, u64> {
        self.proxmox.calls()
    }

    fn look(&self, run: &Run) -> Result<Vec<Guest>, Failure> {
        self.require_sight(run)?;
        let listed = self.proxmox.guests(&run.deadline).map_err(proxmox_failure)?;
        let mut away = BTreeSet::new();
        listed
            .iter()
            .map(|guest| {
                let macs = self.macs(guest, &mut away, run)?;
                Ok(Guest { vmid: guest.vmid, who: name(guest), macs })
            })
            .collect()
    }

    /// The list of guests silently leaves out what the user may not see (pve-manager `PVE/API2/Cluster.pm`),
    /// and a hidden guest's VMID would look free.
    fn require_sight(&self, run: &Run) -> Result<(), Failure> {
        let held =
            self.proxmox.get("/access/permissions?path=/vms", &run.deadline).map_err(proxmox_failure)?;
        let mut paths = held.as_object().into_iter().flat_map(|paths| paths.values());
        if paths.any(|privileges| privileges.get("VM.Audit").is_some_and(is_set)) {
            return Ok(());
        }
        Err(Failure::new(
            ErrorCode::AUTH,
            "the API user does not see all guests of the cluster, so a VMID that looks free may be taken: grant VM.Audit \
             on /vms with propagation (to the user, and to the token when its privileges are separated)",
        ))
    }

    /// `away` holds the nodes that do not answer: each is tried once, not once a guest.
    fn macs(
        &self,
        guest: &proxmox_api::Guest,
        away: &mut BTreeSet<String>,
        run: &Run,
    ) -> Result<Vec<MacAddress>, Failure> {
        if away.contains(&guest.node) {
            return Ok(Vec::new());
        }
        let kind = match guest.kind {
            GuestKind::Qemu => "qemu",
            GuestKind::Container => "lxc",
        };
        let path = format!("/nodes/{}/{kind}/{}/config", guest.node, guest.vmid);
        match self.proxmox.get(&path, &run.deadline) {
            Ok(config) => Ok(macs(&config)),
            // Removed since it was listed.
            Err(ApiError::Refused(refusal)) if refusal.is_missing_vm() => Ok(Vec::new()),
            Err(error) if error.refusal().is_some() && error.is_unreached() => {
                run.warn(format!(
                    "node {} does not answer ({error}): the VMIDs of its guests are known, their MAC addresses are not",
                    guest.node
                ));
                away.insert(guest.node.clone());
                Ok(Vec::new())
            }
            Err(error) => Err(proxmox_failure(error)),
        }
    }
}

fn is_set(flag: &Value) -> bool {
    flag.as_u64() == Some(1) || flag.as_str() == Some("1")
}

/// Of `net0`, `net1`, ...: `virtio=MAC` or `macaddr=MAC` of a VM, `hwaddr=MAC` of a container.
fn macs(config: &Value) -> Vec<MacAddress> {
    let devices = config.as_object().into_iter().flatten().filter(|(key, _)| is_net(key));
    let properties = devices.filter_map(|(_, value)| value.as_str()).flat_map(|device| device.split(','));
    properties.filter_map(|property| property.split_once('=')?.1.parse().ok()).collect()
}

fn is_net(key: &str) -> bool {
    key.strip_prefix("net")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn name(guest: &proxmox_api::Guest) -> String {
    let kind = match guest.kind {
        GuestKind::Container => "container",
        GuestKind::Qemu if guest.template => "template",
        GuestKind::Qemu => "VM",
    };
    let name = guest.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{kind} {}{name} on node {}", guest.vmid, guest.node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_macs_of_all_devices_are_found() {
        let config = json!({
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=10",
            "net12": "model=e1000,bridge=vmbr0,macaddr=bc:24:11:00:00:02",
            "net1": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:03,ip=192.0.2.5/24,type=veth",
            "net2": "virtio,bridge=vmbr0",
            "network": "virtio=BC:24:11:00:00:04",
            "description": "hwaddr=BC:24:11:00:00:05",
            "netx": "a=BC:24:11:00:00:06", "net": "a=BC:24:11:00:00:07",
        });
        let found: Vec<String> = macs(&config).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["bc:24:11:00:00:01", "bc:24:11:00:00:02", "bc:24:11:00:00:03"]);
    }
}
