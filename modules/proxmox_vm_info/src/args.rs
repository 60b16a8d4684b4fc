//! The option table.

use ansible_module::{Kind, Opt, Spec, Table};
use api_options::{ProxmoxOptions, proxmox_table};
use net_types::Vmid;
use proxmox_api::Guest;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Args {
    #[serde(flatten)]
    pub(crate) connection: ProxmoxOptions,
    pub(crate) vmid: Option<Vmid>,
    name: Option<String>,
    prefix: Option<String>,
    pub(crate) node: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    pub(crate) config: bool,
    pub(crate) agent: bool,
}

impl Args {
    /// Whether the task asks for this one.
    pub(crate) fn means(&self, guest: &Guest) -> bool {
        let name = guest.name.as_deref().unwrap_or_default();
        self.vmid.is_none_or(|vmid| guest.vmid == vmid)
            && self.node.as_ref().is_none_or(|node| guest.node == *node)
            && self.name.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(name))
            && self.prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix.as_str()))
            && self.tags.iter().all(|tag| guest.tags.iter().any(|there| there.eq_ignore_ascii_case(tag)))
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("proxmox_vm_info", "Reads the virtual machines of a Proxmox VE cluster")
        .describe(
            "Reads virtual machines and templates from their nodes' own configuration files: names, tags and status are \
             current, not those of the cluster's broadcast. It sends nothing but GET, except to sign in with a password.",
        )
        .describe(
            "Of the virtual machines that O(vmid), O(name), O(prefix), O(node) and O(tags) all fit, the settings are told \
             as objects. None that fits is an empty list, and no failure. Containers are left out.",
        )
        .note(
            "A token sees the virtual machines on which it has C(VM.Audit), and no others. O(agent) needs \
             C(VM.GuestAgent.Audit) on Proxmox VE 9 and C(VM.Monitor) before.",
        )
        .note("A node that cannot be reached is a warning; of its virtual machines only the cluster's list is told.")
        .seealso(&["homelab.anvil.proxmox_vm_clone"])
        .options(proxmox_table(true).with(choice()))
        .timeout(120)
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn choice() -> Table {
    Table::new(vec![
        Opt::int("vmid").doc("The virtual machine of this number."),
        Opt::str("name").doc("Virtual machines of this name; case does not matter."),
        Opt::str("prefix").doc("Virtual machines whose names begin with this."),
        Opt::str("node").doc("Virtual machines that live on this node."),
        Opt::list("tags", Kind::Str).doc("Virtual machines that carry all of these tags."),
        Opt::bool("config").default(true).doc("Whether the settings are read: one request each."),
        Opt::bool("agent").default(false).aliases(&["network"]).doc(
            "Whether the guest agents of running virtual machines are asked for their addresses: one request each. An \
             agent that does not answer is told in C(agent_error), and no failure.",
        ),
    ])
}

const EXAMPLES: &str = r#"
- name: Read the web servers and their addresses
  homelab.anvil.proxmox_vm_info:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    tags: [web]
    agent: true
  register: web

- name: Wait until one of them has an address
  homelab.anvil.proxmox_vm_info:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    vmid: 1101
    agent: true
  register: found
  until: found.vms[0].net.net0.addresses | default([])
  retries: 30
  delay: 3
"#;

const RETURNS: &str = r#"
vms:
  description: The virtual machines, by VMID.
  returned: success
  type: list
  elements: dict
  contains:
    vmid:
      description: Its number.
      type: int
    name:
      description: Its name.
      type: str
    node:
      description: The node it lives on.
      type: str
    status:
      description: V(running), V(stopped), or V(unknown) when its node cannot be reached.
      type: str
    template:
      description: Whether it is a template.
      type: bool
    lock:
      description: The task that holds it, such as V(clone) or V(backup).
      type: str
    tags:
      description: Its tags, sorted.
      type: list
      elements: str
    net:
      description: >-
        Its network devices by slot, in Proxmox VE's words. C(addresses), with O(agent), are those that the guest has on
        the card of that MAC address, with their prefix lengths; link-local ones are left out.
      type: dict
    disks:
      description: Its disks by slot, each with C(storage), C(volume), C(size) and its options.
      type: dict
    cdroms:
      description: Its CD-ROM drives by slot, cloud-init's among them.
      type: dict
    unused:
      description: Volumes that it owns and no slot holds, by key.
      type: dict
    config:
      description: >-
        Its other settings. Property strings are dicts, lists are lists, numbers are numbers; a password is left out. What
        cannot be read is the text as it is.
      type: dict
    pending:
      description: The settings that are stored and not in effect before a restart.
      type: list
      elements: str
    restart_needed:
      description: Whether there are such settings.
      type: bool
    agent_error:
      description: Why the guest's addresses are not known, with O(agent).
      type: str
  sample:
    - vmid: 1101
      name: web01
      node: pve1
      status: running
      net: {"net0": {"model": "virtio", "macaddr": "02:a5:00:00:04:4d", "addresses": ["10.20.0.40/24"]}}
"#;
