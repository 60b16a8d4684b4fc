//! Every read.

use std::collections::{BTreeMap, BTreeSet};

use ansible_module::{Failure, Run};
use api_options::proxmox_failure;
use net_types::MacAddress;
use proxmox_api::{ApiError, Guest, GuestInterface, GuestKind, Proxmox};
use serde_json::{Value, json};

use crate::args::Args;
use crate::settings;

/// What the task asks for, sorted by VMID.
pub(crate) fn vms(args: &Args, proxmox: &Proxmox, run: &Run) -> Result<Vec<Value>, Failure> {
    let mut guests: Vec<Guest> =
        current(args, proxmox, run)?.into_iter().filter(|guest| args.means(guest)).collect();
    guests.sort_by_key(|guest| guest.vmid);
    guests.iter().map(|guest| vm(args, proxmox, guest, run)).collect()
}

/// Every VM that could be meant, as its own node tells it.
fn current(args: &Args, proxmox: &Proxmox, run: &Run) -> Result<Vec<Guest>, Failure> {
    let mut listed = proxmox.guests(&run.deadline).map_err(proxmox_failure)?;
    listed.retain(|guest| {
        guest.kind == GuestKind::Qemu
            && args.vmid.is_none_or(|vmid| guest.vmid == vmid)
            && args.node.as_ref().is_none_or(|node| guest.node == *node)
    });
    let nodes: BTreeSet<String> = listed.iter().map(|guest| guest.node.clone()).collect();
    let mut current = Vec::new();
    for node in nodes {
        match proxmox.node_vms(&node, &run.deadline) {
            Ok(vms) => current.extend(vms),
            Err(error) if is_unreachable(&error) => {
                run.warn(format!("node {node} cannot be reached ({error}): its virtual machines are told as the cluster's list has them"));
                let unknown = |guest: &Guest| Guest { status: Some("unknown".to_owned()), ..guest.clone() };
                current.extend(listed.iter().filter(|guest| guest.node == node).map(unknown));
            }
            Err(error) => return Err(proxmox_failure(error)),
        }
    }
    Ok(current)
}

/// pve-http-server `PVE/APIServer/AnyEvent.pm`: what a node could not pass on to another.
fn is_unreachable(error: &ApiError) -> bool {
    error.refusal().is_some_and(|refusal| (595..=599).contains(&refusal.status))
}

fn vm(args: &Args, proxmox: &Proxmox, guest: &Guest, run: &Run) -> Result<Value, Failure> {
    let status = guest.status.as_deref().unwrap_or("unknown");
    let mut vm = json!({
        "vmid": guest.vmid.get(),
        "name": guest.name,
        "node": guest.node,
        "status": status,
        "template": guest.template,
        "lock": guest.lock,
        "tags": guest.tags,
    });
    if !args.config || status == "unknown" {
        return Ok(vm);
    }
    let config = proxmox.config(&guest.node, guest.vmid, &run.deadline).map_err(proxmox_failure)?;
    let Some(config) = config else { return Ok(vm) };
    let mut parts = settings::told(&config.stored);
    parts["pending"] = json!(config.pending);
    parts["restart_needed"] = json!(status == "running" && !config.pending.is_empty());
    if args.agent && status == "running" {
        parts["agent_error"] = Value::Null;
        match proxmox.guest_interfaces(&guest.node, guest.vmid, &run.deadline) {
            Ok(interfaces) => add_addresses(&mut parts["net"], &interfaces),
            Err(ApiError::Refused(refusal)) => parts["agent_error"] = json!(refusal.to_string()),
            Err(error) => return Err(proxmox_failure(error)),
        }
    }
    if let (Some(vm), Value::Object(parts)) = (vm.as_object_mut(), parts) {
        vm.extend(parts);
    }
    Ok(vm)
}

/// To each card the addresses that the guest has on that MAC address.
fn add_addresses(net: &mut Value, interfaces: &[GuestInterface]) {
    let mut by_mac: BTreeMap<MacAddress, Vec<String>> = BTreeMap::new();
    for interface in interfaces {
        let Some(mac) = interface.mac else { continue };
        let global = interface.addresses.iter().filter(|address| !address.is_link_local());
        by_mac.entry(mac).or_default().extend(global.map(ToString::to_string));
    }
    for device in net.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        let mac = device["macaddr"].as_str().and_then(|mac| mac.parse::<MacAddress>().ok());
        device["addresses"] = json!(mac.and_then(|mac| by_mac.get(&mac)).cloned().unwrap_or_default());
    }
}
