//! `playbooks/build_netboot.yml`, run by the real `ansible-playbook` on the lab. Firmware, loader and installer are a thread
//! that asks for what they ask for, and writes the logs that the boot server would.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::lab::Lab;
use lab::play::{Outcome, Play};
use serde_json::{Value, json};

const HOST: &str = "web01";
const VMID: u32 = 1000;
const MAC: &str = "02:a5:00:00:03:e8";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 20, 30, 21);
const MARK: &str = "[homelab.anvil: empty, to be installed over the network; its disk may be written over]";

/// The lab with a boot server, which is this machine.
struct House {
    lab: Lab,
}

impl House {
    fn new() -> Self {
        let house = Self { lab: Lab::start() };
        fs::create_dir_all(house.prefix()).unwrap();
        fs::write(house.prefix().join("grub.cfg"), "").unwrap();
        fs::write(house.web_log(), "").unwrap();
        fs::write(house.tftp_log(), "").unwrap();
        let inventory = house.lab.directory().join("inventory");
        let vars = inventory.join("host_vars/web01/vars.yml");
        let declared = fs::read_to_string(&vars).unwrap();
        let pxe = "dns_name: web01.lab.example.org\n      pxe_boot: {tftp_server: 127.20.30.2, boot_file: grubx64.efi}";
        fs::write(&vars, declared.replace("dns_name: web01.lab.example.org", pxe)).unwrap();
        let group = inventory.join("group_vars/all");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("netboot.yml"), house.variables().to_string()).unwrap();
        fs::write(house.boot_server(), "all:\n  hosts:\n    boot01:\n      ansible_connection: local\n")
            .unwrap();
        house
    }

    fn variables(&self) -> Value {
        json!({
            "anvil_netboot": {
                "server": "boot01", "prefix_dir": self.prefix(), "kernel": "/fedora/vmlinuz", "initrd": "/fedora/initrd.img",
                "arguments": ["inst.ks=http://127.20.30.2/ks/web01.ks"], "log": self.web_log(), "logs": [self.tftp_log()],
                "journal": false,
            },
            "netboot_vm_become": false,
            "netboot_vm_timeout": 60,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.lab.directory().join(name)
    }

    fn prefix(&self) -> PathBuf {
        self.at("tftp")
    }

    fn web_log(&self) -> PathBuf {
        self.at("artifacts.access.log")
    }

    fn tftp_log(&self) -> PathBuf {
        self.at("tftpd.log")
    }

    fn boot_server(&self) -> PathBuf {
        self.at("boot_server.yml")
    }

    fn play(&self) -> Play<'_> {
        let play = Play::new(&self.lab, "playbooks/build_netboot.yml").args(["--limit", HOST, "--inventory"]);
        play.args([self.boot_server()])
    }

    /// Plays while the machine, as long as it runs and boots from the network, asks for what an installation asks for.
    fn play_while_it_installs(&self, play: Play<'_>) -> Outcome {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) && !self.boots_from_network() {
                    thread::sleep(Duration::from_millis(100));
                }
                if !over.load(Ordering::SeqCst) {
                    self.install();
                }
            });
            let outcome = play.run();
            over.store(true, Ordering::SeqCst);
            outcome
        })
    }

    fn boots_from_network(&self) -> bool {
        let pve = self.lab.pve();
        pve.node_of(VMID).is_some()
            && pve.vm_status(VMID) == "running"
            && pve.vm_config(VMID)["boot"] == "order=net0"
    }

    /// What is served by TFTP depends on the file for the MAC address, as in a real boot.
    fn install(&self) {
        let name = format!("grub.cfg-{MAC}");
        let script = fs::read_to_string(self.prefix().join(&name)).unwrap_or_default();
        for file in ["grubx64.efi", "grub/grub.cfg", &format!("grub/{name}")] {
            self.reads(file);
        }
        assert!(script.contains("/fedora/vmlinuz"), "the machine was not sent to the installer: {script}");
        self.reads("fedora/vmlinuz");
        self.reads("fedora/initrd.img");
        self.asks("/ks/web01.ks");
        (0..5).for_each(|number| self.asks(&format!("/fedora/Packages/p{number}.rpm")));
        self.asks("/keys/ssh/web01.pub");
    }

    fn reads(&self, file: &str) {
        let now = date("+%b %e %H:%M:%S");
        append(&self.tftp_log(), &format!("{now} boot01 in.tftpd[411]: RRQ from {ADDRESS} filename {file}"));
    }

    fn asks(&self, path: &str) {
        let now = date("+%d/%b/%Y:%H:%M:%S %z");
        append(
            &self.web_log(),
            &format!(r#"{ADDRESS} - - [{now}] "GET {path} HTTP/1.1" 200 512 "-" "anaconda""#),
        );
    }

    /// The names in the directory of `grub.cfg`, besides `grub.cfg`.
    fn mac_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.prefix()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.starts_with("grub.cfg-"));
        names.sort();
        names
    }

    fn writes(&self) -> Vec<String> {
        let both = [self.lab.proxmox().writes(), self.lab.opnsense().writes()];
        both.concat().iter().map(ToString::to_string).collect()
    }
}

fn append(path: &PathBuf, line: &str) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

fn date(format: &str) -> String {
    let said = Command::new("date").env("LC_ALL", "C").arg(format).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_host_is_installed_once_boots_from_its_disk_and_a_second_run_changes_nothing() {
    let house = House::new();
    let predicted = house.play().args(["--check", "--diff"]).run().expect_success();
    assert!(predicted.of(HOST).changed > 0, "{}", predicted.output);
    assert_eq!((house.writes(), house.mac_files()), (vec![], vec![]), "check mode writes nothing");
    assert_eq!(house.lab.pve().node_of(VMID), None);

    let built = house.play_while_it_installs(house.play()).expect_success();
    assert!(built.of(HOST).changed >= 5, "{}", built.output);
    let config = house.lab.pve().vm_config(VMID);
    assert_eq!(config["boot"], "order=scsi0;net0", "{config}");
    assert_eq!(config["net0"].as_str().unwrap().to_lowercase(), format!("virtio={MAC},bridge=vmbr0,tag=30"));
    assert_eq!((&config["bios"], &config["rng0"]), (&json!("ovmf"), &json!("source=/dev/urandom")));
    assert!(!config["description"].as_str().unwrap_or_default().contains(MARK), "{config}");
    assert_eq!(house.mac_files(), [""; 0], "nothing is left to install from");
    assert_eq!(house.lab.guest_address(VMID), Some(ADDRESS), "{:?}", house.lab.events());
    let power: Vec<String> = house.writes().into_iter().filter(|one| one.contains("/status/")).collect();
    assert_eq!(power.len(), 3, "start, and the stop and start of the pinning: {power:?}");

    house.lab.proxmox().forget();
    house.lab.opnsense().forget();
    let again = house.play().run().expect_success();
    assert_eq!((again.of(HOST).changed, house.writes()), (0, vec![]), "{}", again.output);
    assert!(house.lab.proxmox().log().len() <= 3, "{:?}", house.lab.proxmox().log());
}

#[test]
fn an_installation_that_never_completes_leaves_no_install_entry_and_no_stopped_machine() {
    let house = House::new();
    let play = house
        .play()
        .args(["--extra-vars", r#"{"netboot_vm_completion": "/never", "netboot_vm_timeout": 8}"#]);
    let failed = house.play_while_it_installs(play).expect_failure();
    assert!(failed.output.contains("no safe moment came before the deadline"), "{}", failed.output);
    assert!(failed.output.contains("5 packages so far"), "{}", failed.output);
    assert_eq!(house.lab.pve().vm_status(VMID), "running");
    let script = fs::read_to_string(house.prefix().join(format!("grub.cfg-{MAC}"))).unwrap();
    assert!(!script.contains("vmlinuz"), "the next reboot goes to the disk: {script}");

    // The next run goes on where that one gave up: it starts nothing, and sends the machine to no installer.
    house.asks("/keys/ssh/web01.pub");
    house.lab.proxmox().forget();
    house.play().run().expect_success();
    let creations =
        house.writes().iter().filter(|one| one.contains("POST") && one.ends_with("/qemu")).count();
    assert_eq!(creations, 0, "{:?}", house.writes());
    assert_eq!(house.lab.pve().vm_config(VMID)["boot"], "order=scsi0;net0");
    assert_eq!(house.mac_files(), [""; 0]);
}

#[test]
fn without_a_next_server_nothing_is_made() {
    let house = House::new();
    let play = house.play().args(["--extra-vars", "netboot_vm_next_server="]);
    let failed = play.run().expect_failure();
    assert!(
        failed.output.contains("Without a next server UEFI firmware asks the DHCP server itself"),
        "{}",
        failed.output
    );
    assert_eq!(house.lab.pve().node_of(VMID), None);
    assert_eq!(house.mac_files(), [""; 0]);
}

#[test]
fn a_machine_with_data_is_refused_before_anything_could_install_over_it() {
    let house = House::new();
    let config = json!({"boot": "order=net0;scsi0", "scsi0": "local-lvm:8", "net0": format!("virtio={MAC},bridge=vmbr0")});
    let form: Vec<(&str, &str)> = config
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, text)| (key.as_str(), text.as_str().unwrap()))
        .collect();
    house
        .lab
        .pve()
        .call("POST", "/nodes/pve1/qemu", &[&[("vmid", "1000"), ("name", HOST)], &form[..]].concat())
        .unwrap();
    let identity = house.at("inventory/host_vars/web01/identity.yml");
    fs::write(identity, format!("anvil_assigned_vmid: {VMID}\nanvil_assigned_mac: \"{MAC}\"\n")).unwrap();
    let failed = house.play().run().expect_failure();
    assert!(failed.output.contains("has a disk with data in its boot slot"), "{}", failed.output);
    assert_eq!(house.mac_files(), [""; 0]);
    assert_eq!(house.lab.pve().vm_status(VMID), "stopped");
}
