//! `tests/integration`: every module and every role under the real `ansible-playbook`, all on one lab.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use lab::guests::Guest;
use lab::ipmi::{IpmiSim, Tool, Tools};
use lab::lab::Lab;
use lab::play::{Outcome, Play};
use lab::redfish::{RedfishDouble, Tree};
use serde_json::{Map, Value, json};

/// How far a target's life goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// It only reads.
    Looks,
    /// A second run is refused with these words.
    Once(&'static str),
    /// Made, and then there.
    Made,
    /// One field of it can be altered as well.
    Altered,
    /// And it can be taken away.
    Removed,
}

use Life::{Altered, Looks, Made, Once, Removed};

const ON_ALREADY: &str = "the server is already on";

/// The folders of `tests/integration/targets`; those of roles begin with `role_`.
const TARGETS: [(&str, Life); 21] = [
    ("anvil_ping", Looks),
    ("dns_record", Removed),
    ("ipmi_boot_once", Once(ON_ALREADY)),
    ("ipmi_power", Altered),
    ("kea_reservation", Removed),
    ("opnsense_reconfigure", Removed),
    ("proxmox_vm_clone", Removed),
    ("proxmox_vm_shell", Removed),
    ("redfish_boot_once", Once(ON_ALREADY)),
    ("redfish_info", Looks),
    ("redfish_power", Altered),
    ("redfish_virtual_media", Removed),
    ("ssh_ready", Made),
    ("vm_identity", Made),
    ("role_bmc_boot_once", Once(ON_ALREADY)),
    ("role_bmc_boot_once_ipmi", Once(ON_ALREADY)),
    ("role_dhcp_reservation", Altered),
    ("role_dns_host", Altered),
    ("role_guest_ready", Made),
    ("role_proxmox_vm", Altered),
    ("role_vm_identity", Made),
];

/// What has no target: where it is proved instead, and why.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "data_disk",
        "modules/data_disk/tests/it",
        "it writes to a disk: in a mount namespace with a loop device",
    ),
    ("dhcp_probe", "modules/dhcp_probe/tests/it", "it asks on a network: in a namespace with a real Kea"),
    (
        "grub_dispatcher",
        "modules/grub_dispatcher/tests",
        "it writes a boot server's files: in a folder, and by GRUB",
    ),
    (
        "grub_mac_config",
        "modules/grub_mac_config/tests",
        "it writes a boot server's files: in a folder, and by GRUB",
    ),
    (
        "kea_reservation_info",
        "modules/kea_reservation_info/tests",
        "it only reads: against the real Kea and the double",
    ),
    (
        "proxmox_boot_order",
        "modules/proxmox_boot_order/tests/it",
        "it waits for an installation that a log shows",
    ),
    ("netboot_watch", "modules/netboot_watch/tests/it", "it watches the log of a boot server"),
    ("proxmox_vm_info", "modules/proxmox_vm_info/tests", "it only reads: against fakepve"),
    (
        "pvecm_create",
        "tests/lab/tests/it/cluster.rs",
        "it needs nodes: the role's play founds a cluster of three",
    ),
    ("pvecm_info", "tests/lab/tests/it/cluster.rs", "it needs nodes: the role's play reads three"),
    ("pvecm_join", "tests/lab/tests/it/cluster.rs", "it needs nodes: the role's play joins two"),
    (
        "zfs_pool",
        "modules/zfs_pool/tests",
        "it needs disks and a kernel with ZFS: a stand-in, and a machine in QEMU",
    ),
    (
        "zfs_pool_info",
        "modules/zfs_pool/tests",
        "it needs a kernel with ZFS: a stand-in, and a machine in QEMU",
    ),
    ("role_data_disk", "tests/lab/tests/it/site.rs", "its one task is the module, which writes to a disk"),
    (
        "role_grub_mac",
        "modules/grub_mac_config/tests/it/role.rs",
        "it writes a boot server's files: played there",
    ),
    (
        "role_netboot_vm",
        "tests/lab/tests/it/netboot.rs",
        "it installs a machine over the network: played there",
    ),
    ("role_pve_cluster", "tests/lab/tests/it/cluster.rs", "it needs nodes"),
    ("role_zfs_pools", "tests/zfs", "it needs disks and a kernel with ZFS: a machine in QEMU"),
];

/// The lab, and what it has not: servers of metal, and a guest that is up from the start.
struct Site {
    lab: Lab,
    bmcs: BTreeMap<&'static str, RedfishDouble>,
    sims: BTreeMap<&'static str, IpmiSim>,
    tools: Tools,
    guest: Guest,
}

impl Site {
    fn start() -> Self {
        let lab = Lab::start();
        let plain = |name| (name, RedfishDouble::builder(Tree::plain()).start());
        let bmcs = [
            "redfish_boot_once",
            "redfish_info",
            "redfish_power",
            "redfish_virtual_media",
            "role_bmc_boot_once",
        ];
        let sims = ["ipmi_boot_once", "ipmi_power", "role_bmc_boot_once_ipmi"]
            .map(|name| (name, IpmiSim::start("SIM0001", true)));
        let guest = Guest::builder("target-guest", Ipv4Addr::new(127, 20, 30, 120), lab.guest_port())
            .authorized_keys(&lab.key().public)
            .root_size_gib(64)
            .start();
        let site = Self {
            bmcs: bmcs.map(plain).into(),
            sims: sims.into(),
            tools: Tools::new(Tool::RealWithFlags),
            guest,
            lab,
        };
        site.write_inventory();
        site
    }

    fn write_inventory(&self) {
        let directory = self.lab.directory();
        let (proxmox, firewall) = self.lab.connections();
        let mut hosts: Map<String, Value> =
            TARGETS.iter().map(|(name, _)| ((*name).to_owned(), json!({}))).collect();
        let connection = |options: Value| {
            let known = ["api_host", "api_port", "ca_path", "api_user", "api_password"];
            known.iter().filter_map(|key| Some((*key, options.get(key)?.clone()))).collect::<BTreeMap<_, _>>()
        };
        for (name, bmc) in &self.bmcs {
            hosts[*name]["bmc"] = json!(connection(bmc.options()));
        }
        for (name, sim) in &self.sims {
            hosts[*name]["bmc"] = json!(connection(sim.options()));
        }
        let user =
            fs::read_to_string(directory.join("inventory/group_vars/management_plane/lab.yml")).unwrap();
        let user: Value = serde_json::from_str(&user).unwrap();
        let vars = json!({
            "ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3",
            "altered": false, "gone": false,
            "proxmox": proxmox, "firewall": firewall, "lab_inventory": directory.join("inventory"),
            "guest": {
                "address": self.guest.address().ip(), "port": self.guest.address().port(),
                "user": user["ansible_user"], "key": self.lab.key().private, "known_hosts": directory.join("targets.known"),
            },
        });
        let inventory = json!({"targets": {"hosts": hosts, "vars": vars}});
        fs::write(self.inventory(), inventory.to_string()).unwrap();
        let declared = directory.join("inventory/host_vars/role_vm_identity");
        fs::create_dir_all(&declared).unwrap();
        fs::write(declared.join("vars.yml"), "infrastructure: {}\n").unwrap();
    }

    fn inventory(&self) -> std::path::PathBuf {
        self.lab.directory().join("targets.json")
    }

    fn play(&self, targets: &[&str], arguments: &[&str]) -> Outcome {
        Play::new(&self.lab, "tests/integration/play.yml")
            .args(["-i".into(), self.inventory().into_os_string()])
            .args(["--forks", "20", "--limit", &targets.join(",")])
            .args(arguments.iter().copied())
            .env("PATH", self.tools.path())
            .run()
    }

    /// What everybody was asked to write.
    fn writes(&self) -> Vec<String> {
        let proxies = [self.lab.proxmox().writes(), self.lab.opnsense().writes()].concat();
        let bmcs = self.bmcs.values().flat_map(RedfishDouble::writes);
        proxies.iter().map(ToString::to_string).chain(bmcs).chain(self.tools.writes()).collect()
    }
}

/// The targets whose life `goes` that far.
fn those(goes: impl Fn(Life) -> bool) -> Vec<&'static str> {
    TARGETS.iter().filter(|(_, life)| goes(*life)).map(|(name, _)| *name).collect()
}

/// Of these targets, the ones that changed something; none may have failed.
fn changed<'a>(step: &str, targets: &[&'a str], outcome: &Outcome) -> Vec<&'a str> {
    let recap = |name: &str| outcome.of(name);
    let failed: Vec<_> =
        targets.iter().filter(|name| recap(name).failed + recap(name).unreachable > 0).collect();
    assert!(failed.is_empty(), "{step}: failed: {failed:?}\n{}", outcome.output);
    targets.iter().filter(|name| recap(name).changed > 0).copied().collect()
}

#[test]
fn every_target_lives_its_life() {
    if !lab::present(lab::ipmi::installed(), "ipmitool and ipmi_sim (openipmi)") {
        return;
    }
    let site = Site::start();
    let all = those(|_| true);
    let making = those(|life| life != Looks);
    let lasting = those(|life| !matches!(life, Once(_)));
    let alterable = those(|life| matches!(life, Altered | Removed));
    let removable = those(|life| life == Removed);

    let expect = |step: &str, targets: &[&'static str], arguments: &[&str], changing: &[&str]| {
        let began = Instant::now();
        let outcome = site.play(targets, arguments);
        assert_eq!(changed(step, targets, &outcome), changing, "{step}:\n{}", outcome.output);
        println!("{step}: {} targets in {:.1?}", targets.len(), began.elapsed());
    };
    expect("check mode", &all, &["--check", "--diff"], &making);
    assert_eq!(site.writes(), [""; 0], "check mode only reads");
    expect("run", &all, &[], &making);
    let again = site.play(&all, &[]);
    assert_eq!(changed("again", &lasting, &again), [""; 0], "{}", again.output);
    for (name, life) in TARGETS {
        let Once(words) = life else { continue };
        assert_eq!((again.of(name).failed, again.of(name).changed), (1, 0), "{}", again.output);
        assert!(again.output.contains(words), "{}", again.output);
    }
    let altered = &["-e", r#"{"altered": true}"#][..];
    expect("altered, in check mode", &alterable, &[altered, &["--check", "--diff"]].concat(), &alterable);
    expect("altered", &alterable, altered, &alterable);
    expect("altered, again", &alterable, altered, &[]);
    let gone = &["-e", r#"{"altered": true, "gone": true}"#];
    expect("gone", &removable, gone, &removable);
    expect("gone, again", &removable, gone, &[]);

    assert_eq!(site.bmcs["redfish_boot_once"].boots(), ["Pxe"]);
    assert_eq!(site.bmcs["role_bmc_boot_once"].boots(), ["Pxe"]);
    for name in ["ipmi_boot_once", "role_bmc_boot_once_ipmi"] {
        assert_eq!(site.sims[name].done(), ["boot pxe", "power 1"], "{name}");
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn every_module_and_role_has_a_target_or_is_proved_elsewhere() {
    let root = lab::checkout();
    let folders = names(&root.join("tests/integration/targets"));
    let listed: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders, listed, "the folders, and the table of this file");
    let mut wanted = names(&root.join("modules"));
    wanted.extend(names(&root.join("roles")).iter().map(|role| format!("role_{role}")));
    let elsewhere: BTreeSet<String> = ELSEWHERE.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let missing: Vec<_> =
        wanted.iter().filter(|name| !listed.contains(*name) && !elsewhere.contains(*name)).collect();
    assert!(missing.is_empty(), "neither in tests/integration/targets nor in ELSEWHERE: {missing:?}");
    for (name, place, _) in ELSEWHERE.iter().filter(|(name, ..)| wanted.contains(*name)) {
        assert!(!listed.contains(*name), "{name} has a target; it is not proved elsewhere only");
        assert!(root.join(place).exists(), "{name}: there is no {place}");
    }
}
