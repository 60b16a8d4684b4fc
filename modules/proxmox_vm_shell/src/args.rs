//! The option table, and the checked arguments made from it.

use ansible_module::{Arguments, Failure, Kind, Opt, Rule, Spec, Table};
use api_options::{ProxmoxOptions, proxmox_table};
use net_types::{DomainName, Vmid};
use proxmox_api::values::Slot;
use proxmox_vm::{Hardware, boot_order_option, hardware_options};
use serde::Deserialize;

/// What power state and existence the task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Goal {
    Present,
    Started,
    Absent,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Args {
    #[serde(flatten)]
    pub(crate) connection: ProxmoxOptions,
    #[serde(skip)]
    pub(crate) hardware: Hardware,
    pub(crate) vmid: Vmid,
    pub(crate) name: DomainName,
    pub(crate) node: Option<String>,
    pub(crate) pool: Option<String>,
    pub(crate) ostype: String,
    efi_storage: Option<String>,
    pub(crate) secure_boot: bool,
    pub(crate) rng: String,
    pub(crate) state: Goal,
    pub(crate) overwrite_disk: bool,
    pub(crate) force_stop: bool,
}

impl Args {
    pub(crate) fn parse(arguments: &Arguments) -> Result<Self, Failure> {
        let mut args = Self { hardware: Hardware::parse(arguments)?, ..arguments.parse()? };
        let hardware = &mut args.hardware;
        hardware.scsihw.get_or_insert_with(|| "virtio-scsi-single".to_owned());
        hardware.boot_order.get_or_insert_with(|| vec!["net0".to_owned()]);
        if hardware.agent.is_none() {
            hardware.agent = "1".parse().ok();
        }
        args.check()?;
        Ok(args)
    }

    /// The disk that the installation writes to.
    pub(crate) fn boot_slot(&self) -> Option<&Slot> {
        let disks = &self.hardware.disks;
        let by_order = self.hardware.boot_order.iter().flatten();
        by_order
            .filter_map(|device| disks.iter().find(|disk| disk.slot.to_string() == *device))
            .chain(disks)
            .map(|disk| &disk.slot)
            .next()
    }

    pub(crate) fn efi_storage(&self) -> Option<&str> {
        let boot_disk = || self.hardware.disks.first().map(|disk| disk.storage.as_str());
        self.efi_storage.as_deref().or_else(boot_disk)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.state == Goal::Absent {
            return Ok(());
        }
        if self.hardware.disks.is_empty() {
            let why =
                "expected the disk that the system is installed on, such as slot scsi0 with storage and size";
            return Err(Failure::bad_argument("disks", why));
        }
        let Some((index, net)) =
            self.hardware.net.iter().enumerate().find(|(_, net)| self.boots_from(&net.slot))
        else {
            let why = "expected a network device to boot from that `net` declares, such as net0";
            return Err(Failure::bad_argument("boot_order", why));
        };
        if net.mac.is_none() {
            let why = "expected the MAC address: reservation and boot file are found by it";
            return Err(Failure::bad_argument(format!("net[{index}].mac"), why));
        }
        if net.bridge.is_none() {
            let why = "expected the bridge: without one the firmware has no network";
            return Err(Failure::bad_argument(format!("net[{index}].bridge"), why));
        }
        Ok(())
    }

    fn boots_from(&self, device: &str) -> bool {
        self.hardware.boot_order.iter().flatten().any(|name| name == device)
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("proxmox_vm_shell", "Creates the empty UEFI virtual machine for an installation over the network")
        .describe(
            "Creates a q35 machine with OVMF firmware and its EFI disk, a virtio SCSI controller, a random number \
             generator, an empty disk and a network device of a declared MAC address that it boots from. Everything \
             is read back before it is started.",
        )
        .describe(
            "Without the random number generator a UEFI guest cannot boot from the network: the firmware switches its \
             network stack off, and not one packet leaves in a whole boot. The console then says C(BdsDxe: No bootable \
             option or device was found). The model of the network card and old firmware variables have nothing to do \
             with it.",
        )
        .describe(
            "Until the system is installed, the description of the virtual machine ends with a mark that says so; \
             M(homelab.anvil.proxmox_boot_order) takes it off. A virtual machine with a disk in the boot slot and \
             without the mark has data: it is not touched unless O(overwrite_disk=true). Such a one is at most started, \
             and only when it boots from that disk first.",
        )
        .note(
            "A token needs C(VM.Audit), C(VM.Allocate) on the VMID or its pool, C(Datastore.AllocateSpace) on the storages, \
             C(SDN.Use) on the bridges (Proxmox VE 8 and newer), C(VM.PowerMgmt), C(VM.Config.CPU), C(VM.Config.Memory), \
             C(VM.Config.Network), C(VM.Config.Disk), C(VM.Config.HWType) and C(VM.Config.Options).",
        )
        .note(
            "A Proxmox VE from before 2025 lets only C(root@pam) with its password set C(rng0), not even a token of root: \
             give O(api_user=root@pam) and O(api_password) there.",
        )
        .note(
            "The boot order of a running virtual machine is fixed: only a stop and a start, not a reboot, makes the \
             firmware see another one.",
        )
        .seealso(&["homelab.anvil.proxmox_boot_order", "homelab.anvil.proxmox_vm_clone"])
        .options(proxmox_table(true).with(identity()).with(firmware()).with(hardware_options()).with(boot_order()))
        .timeout(300)
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn identity() -> Table {
    Table::new(vec![
        Opt::int("vmid").required().doc("Number of the virtual machine, V(100) to V(999999999)."),
        Opt::str("name").required().doc("Name of the virtual machine, a DNS name. It must agree with O(vmid)."),
        Opt::str("node").doc(
            "Node that the virtual machine is created on. One that exists is not moved: that it lives elsewhere is a \
             warning.",
        ),
        Opt::str("pool").doc("Resource pool of the new virtual machine."),
        Opt::str("description").doc("Notes of the virtual machine, in Markdown; the mark is put behind them."),
        Opt::list("tags", Kind::Str).doc("Tags of the virtual machine, all of them."),
        Opt::str("state")
            .default("present")
            .choices(&["present", "started", "absent"])
            .doc("V(present) creates the virtual machine and leaves its power state alone.")
            .doc("V(started) starts it as well, after everything was read back and found right.")
            .doc("V(absent) destroys it with every volume it owns, if O(vmid) and O(name) both match."),
        Opt::bool("overwrite_disk").default(false).doc(
            "Gives up what the disk in the boot slot holds: the virtual machine is shaped as declared, boots from the \
             network again, and is stopped for that if it runs and O(state=started). Once the mark is on, this is no \
             change any more. It is needed for O(state=absent) too.",
        ),
        Opt::bool("force_stop")
            .default(false)
            .doc("Allows O(state=absent) to cut the power of a virtual machine that runs."),
    ])
    .rule(needed_for("present"))
    .rule(needed_for("started"))
}

fn boot_order() -> Table {
    Table::new(vec![boot_order_option()])
}

fn needed_for(state: &str) -> Rule {
    Rule::RequiredIf {
        option: "state",
        value: state.into(),
        required: vec!["node", "net", "disks"],
        any: false,
    }
}

fn firmware() -> Table {
    Table::new(vec![
        Opt::str("efi_storage")
            .doc("Storage of the EFI disk, which holds the firmware's variables; by default that of the first disk."),
        Opt::bool("secure_boot").default(false).doc(
            "Whether the EFI disk comes with enrolled keys. With them the firmware starts signed boot loaders only.",
        ),
        Opt::str("rng")
            .default("/dev/urandom")
            .choices(&["/dev/urandom", "/dev/random", "/dev/hwrng"])
            .doc("Where the guest's random number generator takes its numbers from, on the node."),
        Opt::str("ostype").default("l26").doc("What kind of system it is going to be; used when creating only."),
    ])
}

const EXAMPLES: &str = r#"
- name: An empty machine that installs itself over the network
  homelab.anvil.proxmox_vm_shell:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    ca_path: /etc/anvil/pve-root-ca.pem
    vmid: 1101
    name: web01
    node: pve1
    cores: 4
    memory: 4096
    net:
      - slot: net0
        mac: "02:a5:00:00:04:4d"
        bridge: vmbr0
        vlan: 20
    disks:
      - slot: scsi0
        storage: local-lvm
        size: 40
    boot_order: [net0]
    state: started

- name: Install it anew, its data is given up
  homelab.anvil.proxmox_vm_shell:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    vmid: 1101
    name: web01
    node: pve1
    net:
      - mac: "02:a5:00:00:04:4d"
        bridge: vmbr0
    disks:
      - slot: scsi0
        storage: local-lvm
        size: 40
    overwrite_disk: true
    state: started
"#;

const RETURNS: &str = r#"
vm:
  description: The virtual machine as it was read back; in check mode as it would be; V(null) when there is none.
  returned: success
  type: dict
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
      description: V(running) or V(stopped).
      type: str
    installed:
      description: Whether there is a disk in the boot slot and no mark that it may be written over.
      type: bool
    boot:
      description: The boot order as it is stored.
      type: list
      elements: str
    rng:
      description: The source of the random number generator; V(null) without one.
      type: str
    mac:
      description: The MAC address of C(net0), in lower case.
      type: str
    net:
      description: Its network devices by slot, in Proxmox VE's words.
      type: dict
    disks:
      description: Its disks by slot, each with C(storage), C(volume), C(size) and its options.
      type: dict
    cores:
      description: CPU cores per socket.
      type: int
    memory:
      description: Memory in MiB.
      type: int
    tags:
      description: Its tags, sorted.
      type: list
      elements: str
    pending:
      description: The settings that are stored and not in effect before a stop and a start.
      type: list
      elements: str
  sample:
    vmid: 1101
    name: web01
    node: pve1
    status: running
    installed: false
    boot: [net0]
    rng: /dev/urandom
    mac: "02:a5:00:00:04:4d"
started:
  description: Whether this run started it; in check mode whether it would.
  returned: success
  type: bool
"#;
