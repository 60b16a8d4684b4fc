//! The option table, and the checked arguments made from it.

use std::collections::BTreeSet;

use ansible_module::{Arguments, Failure, Kind, Opt, Rule, Spec, Table};
use api_options::{ProxmoxOptions, proxmox_table};
use net_types::{DomainName, Vmid};
use proxmox_api::values::{Ip4, Ip6, RandomSource, Size, Slot};
use proxmox_vm::{Hardware, boot_order_option, check_numbered, hardware_options, refuse_twice, size, text};
use secrecy::SecretString;
use serde::Deserialize;

/// The VM that gives VM 1101 its fresh disk is 900001101.
const REBUILD_VMIDS: u32 = 900_000_000;

/// What power state and existence the task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Goal {
    Present,
    Started,
    Stopped,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpdatePassword {
    OnCreate,
    Always,
}

/// How the task names the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Template {
    Name(String),
    Vmid(Vmid),
    Prefix(String),
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
    template: Option<String>,
    template_vmid: Option<Vmid>,
    template_prefix: Option<String>,
    pub(crate) snapname: Option<String>,
    pub(crate) full: bool,
    pub(crate) storage: Option<String>,
    pub(crate) format: Option<String>,
    pub(crate) bwlimit: Option<u32>,
    #[serde(default, deserialize_with = "text")]
    pub(crate) rng: Option<RandomSource>,
    pub(crate) os_disk: Option<OsDisk>,
    pub(crate) cloud_init: Option<CloudInit>,
    #[serde(default)]
    pub(crate) delete: Vec<String>,
    pub(crate) state: Goal,
    pub(crate) stop: bool,
    pub(crate) restart: bool,
    pub(crate) rebuild_os_disk: bool,
    rebuild_vmid: Option<Vmid>,
    pub(crate) destroy_data_disks: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OsDisk {
    #[serde(default, deserialize_with = "text")]
    pub(crate) slot: Option<Slot>,
    #[serde(deserialize_with = "size")]
    pub(crate) size: Size,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CloudInit {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<SecretString>,
    pub(crate) update_password: UpdatePassword,
    pub(crate) ssh_keys: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) ip_config: Vec<GuestAddress>,
    pub(crate) nameserver: Option<Vec<String>>,
    pub(crate) searchdomain: Option<Vec<String>>,
    pub(crate) upgrade: Option<bool>,
    pub(crate) custom: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GuestAddress {
    pub(crate) slot: String,
    #[serde(default, deserialize_with = "text")]
    pub(crate) ip: Option<Ip4>,
    pub(crate) gateway: Option<std::net::Ipv4Addr>,
    #[serde(default, deserialize_with = "text")]
    pub(crate) ip6: Option<Ip6>,
    pub(crate) gateway6: Option<std::net::Ipv6Addr>,
}

impl Args {
    pub(crate) fn parse(arguments: &Arguments) -> Result<Self, Failure> {
        let args = Self { hardware: Hardware::parse(arguments)?, ..arguments.parse()? };
        args.check_clone()?;
        args.check_rebuild()?;
        args.check_os_disk()?;
        args.check_cloud_init()?;
        args.check_delete()?;
        Ok(args)
    }

    /// The template the task names; the option table lets through only one of the three.
    pub(crate) fn template(&self) -> Option<Template> {
        let by_name = self.template.clone().map(Template::Name);
        let by_prefix = self.template_prefix.clone().map(Template::Prefix);
        by_name.or(self.template_vmid.map(Template::Vmid)).or(by_prefix)
    }

    /// The number of the temporary VM that a rebuild makes. It is told by the VM's own, so that a run finds
    /// what an earlier one left.
    pub(crate) fn rebuild_vmid(&self) -> Option<Vmid> {
        self.rebuild_vmid.or_else(|| Vmid::new(REBUILD_VMIDS.checked_add(self.vmid.get())?).ok())
    }

    fn check_rebuild(&self) -> Result<(), Failure> {
        if self.rebuild_vmid == Some(self.vmid) {
            return Err(Failure::bad_argument("rebuild_vmid", "it is that of the VM itself"));
        }
        if !self.rebuild_os_disk {
            return Ok(());
        }
        if !matches!(self.state, Goal::Started | Goal::Stopped) {
            let why = "it goes with `state: started` or `state: stopped`; the VM is stopped for it, and nothing would \
                       start what a cut-off run left stopped";
            return Err(Failure::bad_argument("rebuild_os_disk", why));
        }
        if self.rebuild_vmid().is_none() {
            let why = format!("needed, since {REBUILD_VMIDS} and {} make no VMID", self.vmid);
            return Err(Failure::bad_argument("rebuild_vmid", why));
        }
        Ok(())
    }

    fn check_clone(&self) -> Result<(), Failure> {
        if self.template_vmid == Some(self.vmid) {
            return Err(Failure::bad_argument("vmid", "the new VM cannot have the VMID of its template"));
        }
        for (option, given) in [("storage", &self.storage), ("format", &self.format)] {
            if given.is_some() && !self.full {
                let why = "a linked clone stays on the template's storage, in its format; needs `full: true`";
                return Err(Failure::bad_argument(option, why));
            }
        }
        if self.snapname.is_some() && self.template_prefix.is_some() {
            let why = "a template has no snapshots, and a prefix finds templates only; name the VM with template or \
                       template_vmid";
            return Err(Failure::bad_argument("snapname", why));
        }
        if self.restart && self.state != Goal::Started {
            let why = "it goes with `state: started`; otherwise nothing would start what a cut-off run left stopped";
            return Err(Failure::bad_argument("restart", why));
        }
        let texts = [
            ("template", &self.template),
            ("template_prefix", &self.template_prefix),
            ("snapname", &self.snapname),
        ];
        for (option, text) in texts {
            if text.as_ref().is_some_and(|text| text.trim().is_empty()) {
                return Err(Failure::bad_argument(option, "expected text, found nothing"));
            }
        }
        Ok(())
    }

    fn check_os_disk(&self) -> Result<(), Failure> {
        let os_disk = self.os_disk.as_ref().and_then(|disk| disk.slot.as_ref());
        let twin = self.hardware.disks.iter().position(|disk| Some(&disk.slot) == os_disk);
        twin.zip(os_disk).map_or(Ok(()), |(index, slot)| {
            Err(Failure::bad_argument(format!("disks[{index}].slot"), format!("{slot} is the OS disk")))
        })
    }

    fn check_delete(&self) -> Result<(), Failure> {
        for (index, key) in self.delete.iter().enumerate() {
            let refuse =
                |why: &str| Err(Failure::bad_argument(format!("delete[{index}]"), format!("`{key}`: {why}")));
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if key.is_empty() || !key.chars().all(plain) {
                return refuse("expected the name of a setting, such as net1");
            }
            if key.parse::<Slot>().is_ok() || key.starts_with("unused") {
                return refuse("a disk is not removed by this module");
            }
            if matches!(
                key.as_str(),
                "name" | "lock" | "digest" | "template" | "vmgenid" | "smbios1" | "meta"
            ) {
                return refuse("this is no setting to remove");
            }
            if self.hardware.net.iter().any(|net| net.slot == *key) {
                return refuse("the task sets it as well");
            }
        }
        Ok(())
    }

    fn check_cloud_init(&self) -> Result<(), Failure> {
        let Some(cloud_init) = &self.cloud_init else { return Ok(()) };
        let mut seen = BTreeSet::new();
        for (index, address) in cloud_init.ip_config.iter().enumerate() {
            let at = |option: &str| format!("cloud_init.ip_config[{index}].{option}");
            check_numbered(&at("slot"), &address.slot, "net", 31)?;
            refuse_twice(&mut seen, &at("slot"), &address.slot)?;
            if address.ip == Some(Ip4::Dhcp) && address.gateway.is_some() {
                return Err(Failure::bad_argument(at("gateway"), "DHCP brings its own gateway"));
            }
        }
        for (index, key) in cloud_init.ssh_keys.iter().flatten().enumerate() {
            let kind = key.trim().split(' ').next().unwrap_or_default();
            if !["ssh-", "ecdsa-", "sk-"].iter().any(|start| kind.starts_with(start)) {
                let why = "expected the text of a public key, like `ssh-ed25519 AAAA... name`";
                return Err(Failure::bad_argument(format!("cloud_init.ssh_keys[{index}]"), why));
            }
        }
        Ok(())
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("proxmox_vm_clone", "Clones, configures, verifies and starts a Proxmox VE virtual machine")
        .describe(
            "One task takes a template to a running virtual machine that is what was declared: it is cloned, \
             configured, read back and compared, its OS disk is grown, and only then it is started. The same task \
             run again reads three times and says unchanged.",
        )
        .describe(
            "The VMID is the identity and the name must agree with it. A VMID that belongs to another name, to a \
             container or to a template is refused with what was found.",
        )
        .describe(
            "Only what the task names is managed. What the template brought and the task does not name is left alone, \
             also inside one network device or disk. A MAC address is never lost, a disk is never re-created or \
             shrunk.",
        )
        .describe(
            "A virtual machine that an interrupted run left half made is taken up and finished by the next run. Until \
             it is configured, its description says so.",
        )
        .note(
            "Privileges are the same on Proxmox VE 8 and 9 where nothing else is said. Of a token with privilege \
             separation both the token and its user need them. In any case C(VM.Audit) on C(/vms/VMID), and on the \
             template or on C(/vms).",
        )
        .note(
            "To clone (O(template), O(full), O(snapname)): C(VM.Clone) on the template's C(/vms/VMID); C(VM.Allocate) on \
             the new C(/vms/VMID), or with O(pool) on C(/pool/POOL); C(Datastore.AllocateSpace) on C(/storage/STORAGE) of \
             O(storage) or of the template's disks; C(SDN.Use) on C(/sdn/zones/localnetwork/BRIDGE) of the template's \
             cards, Proxmox VE 8 and newer.",
        )
        .note(
            "On C(/vms/VMID), C(VM.Config.CPU) for O(cores), O(sockets) and O(cpu); C(VM.Config.Memory) for O(memory) and \
             O(balloon); C(VM.Config.HWType) for O(scsihw) and O(rng); C(VM.Config.Options) for O(agent), \
             O(description), O(tags), O(onboot), O(protection) and O(startup), which needs C(Sys.Modify) on C(/) too, and \
             for every new virtual machine, whose description is written; C(VM.Config.Network) for O(net), with \
             C(SDN.Use) on its bridge; C(VM.Config.Disk) for O(disks), O(os_disk) and O(boot_order), with \
             C(Datastore.AllocateSpace) on the storage of a new disk; C(VM.Config.Cloudinit) for O(cloud_init), or \
             C(VM.Config.Network) except to write the drive of a running virtual machine anew. O(delete) needs what the \
             setting does.",
        )
        .note(
            "V(/dev/hwrng) as source of O(rng) needs C(Mapping.Use) on C(/mapping/hwrng) from Proxmox VE 8.4 on; before, \
             C(root@pam) alone may set it.",
        )
        .note(
            "C(VM.PowerMgmt) for O(state=started), O(state=stopped), O(restart) and O(stop); C(VM.Allocate) on \
             C(/vms/VMID) for O(state=absent). Nothing here asks the guest agent: neither C(VM.Monitor) (8) nor \
             C(VM.GuestAgent.Audit) (9) is needed.",
        )
        .note(
            "O(rebuild_os_disk) needs what a clone does with O(rebuild_vmid) as the new VMID, and besides \
             C(VM.Config.Disk) on both, C(Datastore.AllocateSpace) on the disk's storage, C(VM.PowerMgmt) on \
             O(vmid), and C(VM.Config.Options) on O(rebuild_vmid) when the template is protected.",
        )
        .note(
            "O(state=absent) destroys the virtual machine with every volume it owns, data disks included. Nothing \
             brings them back but a backup.",
        )
        .options(proxmox_table(true).with(identity()).with(clone()).with(hardware_options()).with(own_hardware()).with(rest()))
        .timeout(900)
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn identity() -> Table {
    Table::new(vec![
        Opt::int("vmid").required().doc("Number of the virtual machine, V(100) to V(999999999)."),
        Opt::str("name").required().doc("Name of the virtual machine, a DNS name. It must agree with O(vmid)."),
        Opt::str("node").doc(
            "Node the virtual machine shall live on; by default the template's. A virtual machine that exists is \
             not moved: that it lives elsewhere is a warning.",
        ),
        Opt::str("pool").doc("Resource pool the new virtual machine is put into. It is used when cloning only."),
        Opt::str("description").doc("Notes of the virtual machine, in Markdown."),
        Opt::list("tags", Kind::Str).doc(
            "Tags of the virtual machine, all of them; an empty list removes them. Order and case do not matter.",
        ),
        Opt::str("state")
            .default("present")
            .choices(&["present", "started", "stopped", "absent"])
            .doc("V(present) makes and configures the virtual machine and leaves its power state alone.")
            .doc("V(started) starts it as well, after everything else was read back and found right.")
            .doc("V(stopped) shuts it down.")
            .doc(
                "V(absent) destroys it with every volume it owns, if O(vmid) and O(name) both match and it is not \
                 protected.",
            ),
        Opt::bool("stop").default(false).aliases(&["force_stop"]).doc(
            "Allows to stop a running virtual machine that would be lost or changed under the guest otherwise. With \
             O(state=absent) its power is cut; without it, a running one is not destroyed. With O(rebuild_os_disk) it \
             is shut down, and its power is cut when the guest does not follow. With O(state=stopped) and O(restart), \
             which shut down anyway, it allows to cut the power when the guest does not follow.",
        ),
        Opt::bool("restart").default(false).doc(
            "Allows to restart a running virtual machine for changes that it cannot take while it runs: it is shut \
             down, changed and started. Without it, such changes are stored and reported as pending. It needs \
             O(state=started), so that a run which is cut off in between is finished by the next one.",
        ),
        Opt::bool("rebuild_os_disk").default(false).doc(
            "Gives a virtual machine that exists a fresh OS: the disk it boots from is replaced by a clone of the \
             template's. VMID, name, MAC addresses, serials, data disks, EFI disk and TPM stay; what was on the OS \
             disk is lost. A run that was cut off at any point is finished by the next one that says so \
             too; a run that says so when none is unfinished rebuilds again, so say it once, on the command line \
             rather than in the inventory. It needs O(state=started) or O(state=stopped), and O(stop=true) while the \
             virtual machine runs: the template is copied first, then it is stopped for the time of a few requests.",
        )
        .doc(
            "The new disk has the size of O(os_disk), or else of the old one, if the template's is not larger; it \
             keeps the old one's options, such as its serial. A virtual machine that is protected, or has snapshots \
             (which hold the old disk), is refused.",
        ),
        Opt::int("rebuild_vmid").doc(
            "VMID of the temporary virtual machine that O(rebuild_os_disk) makes and removes; by default O(vmid) and \
             900000000: 1101 is rebuilt by 900001101.",
        ),
        Opt::bool("destroy_data_disks").default(false).doc(
            "Allows O(state=absent) for a virtual machine that has more disks than the one it boots from.",
        ),
    ])
}

fn clone() -> Table {
    Table::new(vec![
        Opt::str("template").doc(
            "Name of the template. When several nodes have one of that name, the one on O(node) is taken. One of \
             O(template), O(template_vmid) and O(template_prefix) is needed while the virtual machine does not exist.",
        ),
        Opt::int("template_vmid").doc("VMID of the template."),
        Opt::str("template_prefix").doc(
            "Beginning of the template's name; of all templates that go on with a digit behind it, the newest is \
             taken, in natural order: V(fedora-server-) takes C(fedora-server-42) before C(fedora-server-9), and never \
             C(fedora-server-rawhide). Two equally new ones are refused.",
        ),
        Opt::str("snapname").doc(
            "Clones this snapshot of a virtual machine instead of a template; O(template) or O(template_vmid) name the \
             virtual machine, since a template has no snapshots.",
        ),
        Opt::bool("full").default(true).doc("Whether all disks are copied. V(false) makes a linked clone."),
        Opt::str("storage")
            .doc("Storage of the copied disks; by default that of the template's. It needs O(full=true)."),
        Opt::str("format")
            .choices(&["raw", "qcow2", "vmdk"])
            .doc("File format of the copied disks, on a storage of files. It needs O(full=true)."),
        Opt::int("bwlimit").doc("Limit of the copy in KiB per second."),
    ])
    .rule(Rule::MutuallyExclusive(vec!["template", "template_vmid", "template_prefix"]))
}

fn own_hardware() -> Table {
    Table::new(vec![
        Opt::str("rng").aliases(&["rng0"]).doc(
            "Random number generator: V(/dev/urandom), or more as in \
             V(source=/dev/urandom,max_bytes=1024,period=1000). What is not given is kept, or Proxmox VE's default.",
        ),
        Opt::dict_of("os_disk", os_disk_options()).doc("The disk the virtual machine boots from."),
        Opt::list("delete", Kind::Str).doc(
            "Settings to remove, by Proxmox VE's names, such as V(net1) or V(balloon). Disks are not removed.",
        ),
        boot_order_option(),
    ])
}

fn os_disk_options() -> Table {
    Table::new(vec![
        Opt::str("slot").aliases(&["device"]).doc("Which slot; by default the first disk of the boot order."),
        Opt::str("size").required().doc(
            "Size: a number of GiB, or V(64G), V(1T). The disk is grown before the first start. It is never shrunk: \
             a disk that is larger is refused.",
        ),
    ])
}

fn rest() -> Table {
    Table::new(vec![Opt::dict_of("cloud_init", cloud_init_options()).doc(
        "What cloud-init tells the guest. On a running virtual machine the drive it is read from is written anew, \
         and the result says that the guest must reboot to see it (RV(vm.guest_reboot_needed)). A run that is cut off \
         between the settings and the drive leaves the old drive until the virtual machine is started anew.",
    )])
}

fn cloud_init_options() -> Table {
    Table::new(vec![
        Opt::str("user").doc("Name of the guest's user."),
        Opt::str("password").no_log().doc("Password of the guest's user."),
        Opt::str("update_password").default("on_create").choices(&["on_create", "always"]).doc(
            "Proxmox VE shows the password masked, so it cannot be compared. V(on_create) sets it on a new virtual \
             machine only; V(always) sets it in each run, which is always a change.",
        ),
        Opt::list("ssh_keys", Kind::Str).doc("Public keys of the guest's user, all of them."),
        Opt::list_of(
            "ip_config",
            Table::new(vec![
                Opt::str("slot").default("net0").doc("The network device meant."),
                Opt::str("ip").doc("V(dhcp), or an IPv4 address with its prefix length."),
                Opt::str("gateway").doc("IPv4 gateway."),
                Opt::str("ip6").doc("V(dhcp), V(auto), or an IPv6 address with its prefix length."),
                Opt::str("gateway6").doc("IPv6 gateway."),
            ]),
        )
        .doc("Addresses of the network devices."),
        Opt::list("nameserver", Kind::Str).doc("Name servers."),
        Opt::list("searchdomain", Kind::Str).doc("Search domains."),
        Opt::bool("upgrade").doc("Whether packages are upgraded at the first boot."),
        Opt::str("custom").doc("Files that replace the generated ones, such as V(user=local:snippets/user.yml)."),
    ])
}

const EXAMPLES: &str = r#"
- name: Take the newest Fedora template to a running server
  homelab.anvil.proxmox_vm_clone:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    ca_path: /etc/anvil/pve-root-ca.pem
    vmid: 1101
    name: web01
    node: pve1
    template_prefix: fedora-server-
    cores: 4
    memory: 8192
    net:
      - slot: net0
        mac: "02:a5:00:00:04:4d"
        bridge: vmbr0
        vlan: 20
    os_disk:
      size: 40
    disks:
      - slot: scsi1
        storage: local-lvm
        size: 100
        serial: web01-data
    cloud_init:
      user: admin
      ssh_keys: ["{{ lookup('file', '~/.ssh/id_ed25519.pub') }}"]
      ip_config:
        - ip: dhcp
    tags: [web, production]
    state: started

- name: Give it more memory
  homelab.anvil.proxmox_vm_clone:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    vmid: 1101
    name: web01
    memory: 16384
  register: grown

- name: Say when it takes effect
  ansible.builtin.debug:
    msg: "stored, in effect after a restart: {{ grown.vm.pending }}"
  when: grown.vm.restart_needed

- name: Destroy it with its data
  homelab.anvil.proxmox_vm_clone:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    vmid: 1101
    name: web01
    state: absent
    stop: true
    destroy_data_disks: true

- name: Give it a fresh OS and keep its data disk, its MAC address and its VMID
  homelab.anvil.proxmox_vm_clone:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    vmid: 1101
    name: web01
    template_prefix: fedora-server-
    rebuild_os_disk: true
    stop: true
    state: started
"#;

const RETURNS: &str = r#"
vm:
  description: The virtual machine as it was read back; in check mode as it would be; V(null) when it is gone.
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
      description: The settings that are stored and not in effect before a restart.
      type: list
      elements: str
    restart_needed:
      description: Whether there are such settings.
      type: bool
    guest_reboot_needed:
      description: Whether this run gave a running guest new cloud-init settings, which it reads when it boots.
      type: bool
    rebuilt:
      description: Whether this run replaced the OS disk, or in check mode would; the guest's host keys are new then.
      type: bool
  sample:
    vmid: 1101
    name: web01
    node: pve1
    status: running
    mac: "02:a5:00:00:04:4d"
template:
  description: The template that was cloned, or would be.
  returned: when the virtual machine did not exist, or its OS disk is rebuilt from it
  type: dict
  sample: {"vmid": 8042, "name": "fedora-server-42", "node": "pve1"}
"#;
