//! A server whose BMC is the sushy-tools emulator: what the playbook tells the BMC, the firmware does.
//!
//! The emulator's fake driver has no machine. Here one follows it, as a server of metal follows its BMC: power on and
//! off, and the boot override, which the firmware uses up. That the BMC knows a serial, `Once` and that it was used up
//! is a double's.

use std::fs;
use std::process::Command;

use anyhow::Result;
use lab::qemu::{Boot, Machine};
use lab::redfish::emulator::{Emulator, SERIAL};
use serde_json::json;

use crate::proved;
use crate::site::{BOOT_SERVER, Site};

const MAC: &str = "52:54:00:ab:cd:0b";
const ADDRESS: &str = "10.77.0.31";

struct Server {
    bmc: Emulator,
    machine: Machine,
    /// What each boot went by.
    boots: Vec<Option<String>>,
}

impl Server {
    /// Power and boot order as the BMC has them now.
    fn follow(bmc: &Emulator, machine: &mut Machine, boots: &mut Vec<Option<String>>) -> Result<()> {
        let shall_be_on = bmc.system()?["PowerState"] == "On";
        match (shall_be_on, machine.is_on()?) {
            (true, false) => {
                let wanted = bmc.take_override()?;
                let is_pxe = wanted.as_deref() == Some("Pxe");
                boots.push(wanted);
                machine.start(if is_pxe { Boot::NetworkThenDisk } else { Boot::DiskThenNetwork })
            }
            (false, true) => machine.cut_power(),
            _ => Ok(()),
        }
    }

    fn wait_for(&mut self, text: &str) {
        let Self { bmc, machine, boots } = self;
        let mut seen = false;
        machine
            .wait_until(&format!("the console says {text:?}"), |machine| {
                seen = seen || machine.says(text);
                Self::follow(bmc, machine, boots)?;
                Ok(seen)
            })
            .unwrap();
    }
}

/// `playbooks/boot_once.yml` with the collection as it was built last; what it printed, when it ended well.
fn boot_once(site: &Site, bmc: &Emulator, confirm: &str) -> Result<String, String> {
    let proxy = bmc.proxy();
    let inventory = json!({"all": {"hosts": {"server1": {
        "bmc_boot_once_api": {
            "api_host": proxy.host(), "api_port": proxy.port(), "ca_path": proxy.ca_path(),
            "api_user": "operator", "api_password": "e2e-unused",
        },
        "bmc_boot_once_serial": SERIAL, "bmc_boot_once_verify_consumed": true, "bmc_boot_once_timeout": 120,
        "bmc_boot_once_refuse_serials": ["PROD001"], "bmc_boot_once_refuse_macs": ["00:11:22:33:44:55"],
    }}}});
    let file = site.file("inventory.json");
    fs::write(&file, inventory.to_string()).unwrap();
    let checkout = lab::checkout();
    let output = Command::new(lab::pve::python().unwrap().with_file_name("ansible-playbook"))
        .arg("-i")
        .arg(&file)
        .args(["playbooks/boot_once.yml", "-e", &format!("confirm={confirm}")])
        .current_dir(&checkout)
        .env("HOME", site.file("home"))
        .env("ANSIBLE_CONFIG", checkout.join("ansible.cfg"))
        .env("ANSIBLE_NOCOLOR", "1")
        .env_remove("ANSIBLE_COLLECTIONS_PATH")
        .env_remove("REDFISH_PASSWORD")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

#[test]
fn a_server_boots_once_from_the_network_and_then_from_its_disk() {
    let Some(site) = Site::open() else { return };
    let Some(bmc) = Emulator::start() else { return };
    let _ = site.module("kea_reservation").run(&site.reservation(MAC, ADDRESS, BOOT_SERVER)).done();
    site.offer_install(MAC);
    let machine = Machine::builder(MAC).ends_at_reset().build(&site.network).unwrap();
    let mut server = Server { bmc, machine, boots: Vec::new() };

    boot_once(&site, &server.bmc, "").unwrap();
    assert!(server.bmc.proxy().log().iter().all(|one| one.method == "GET"));
    boot_once(&site, &server.bmc, "server1").unwrap();
    server.wait_for("Welcome to GRUB!");
    assert_eq!(server.boots, [Some("Pxe".to_owned())]);
    let requests = site.tftp_requests(ADDRESS);
    assert!(requests.iter().any(|name| name.ends_with("grubnetx64.efi")), "{requests:?}");
    proved("redfish: boot_once.yml set Pxe once and switched the server on, and it loaded GRUB over TFTP");

    server.wait_for("anvil: installer done");
    let requests = site.tftp_requests(ADDRESS);
    server.wait_for("anvil: installed system is up from disk");
    assert_eq!(server.boots, [Some("Pxe".to_owned()), None]);
    assert_eq!(site.tftp_requests(ADDRESS), requests, "the MAC file still offers the install");
    proved(
        "redfish: the override was used up: the next boot went to the disk, with the install still on offer",
    );

    let refused = boot_once(&site, &server.bmc, "server1").unwrap_err();
    assert!(refused.contains("the server is already on"), "{refused}");
    assert!(server.machine.is_on().unwrap());
    assert_eq!(server.boots.len(), 2);
    proved("redfish: a second run refuses the server that is on, and it runs on");
}
