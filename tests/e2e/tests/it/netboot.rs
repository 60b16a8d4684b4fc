//! Firmware, GRUB, installer and installed system, one after another.

use std::fs;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lab::qemu::{Boot, Machine};

use serde_json::json;

use crate::hypervisor::Hypervisor;
use crate::proved;
use crate::site::{BOOT_SERVER, LOADER, ROUTER, Site};

const MAC: &str = "52:54:00:ab:cd:ef";
const ADDRESS: &str = "10.77.0.21";
const MENU: &str = "executed automatically";

#[test]
fn a_machine_is_installed_over_the_network_once_and_then_boots_from_its_disk() {
    let Some(site) = Site::open() else { return };
    let (module, options) = (site.module("kea_reservation"), site.reservation(MAC, ADDRESS, BOOT_SERVER));
    assert_eq!(module.run(&options).done()["changed"], true);
    assert_eq!(module.run(&options).done()["changed"], false);
    site.offer_install(MAC);

    let mut machine = site.machine(MAC);
    machine.start(Boot::NetworkThenDisk).unwrap();
    assert_eq!(site.watch(MAC, ADDRESS, Some("served"))["state"], "installing");
    site.write_mac_file(MAC, "local_disk");
    proved(
        "netboot: netboot_watch saw kernel and initrd served, and the MAC file was switched to the disk at once",
    );

    machine.wait_for("anvil: installer started").unwrap();
    let requests = site.tftp_requests(ADDRESS);
    let order = [LOADER, "grub.cfg", &format!("grub.cfg-{MAC}"), "vmlinuz", "initrd.img"];
    let mut rest = requests.iter();
    for name in order {
        assert!(rest.any(|request| request.ends_with(name)), "{name} in {requests:?}");
    }
    proved(&format!(
        "netboot: the reservation made firmware load {LOADER}, and GRUB the MAC file, kernel and initrd"
    ));

    machine.wait_for(&format!("anvil: address {ADDRESS}")).unwrap();
    machine.wait_for("anvil: installer done").unwrap();
    let http = site.http_log();
    assert!(http.lines().last().unwrap().contains("GET /keys/ssh/anvil.pub"), "{http}");
    proved(
        "netboot: the installer got the reserved address, wrote the disk and fetched the key at its very end",
    );

    assert_eq!(site.watch(MAC, ADDRESS, Some("done"))["state"], "done");
    proved("netboot: netboot_watch says done");

    machine.wait_for("anvil: GRUB of the installed system").unwrap();
    machine.wait_for("anvil: installed system is up from disk").unwrap();
    let requests = site.tftp_requests(ADDRESS);
    assert_eq!(requests.iter().filter(|name| name.ends_with("initrd.img")).count(), 1, "{requests:?}");
    assert_eq!(requests.iter().filter(|name| name.ends_with(LOADER)).count() % 2, 0, "{requests:?}");
    proved("netboot: the reboot asked the network again and went to the disk: it installed once");

    machine.cut_power().unwrap();
    machine.start(Boot::DiskThenNetwork).unwrap();
    machine.wait_for("anvil: installed system is up from disk").unwrap();
    assert_eq!(site.tftp_requests(ADDRESS), requests);
    proved("netboot: with the disk first after a power cycle, nothing is asked of the network");
}

#[test]
fn a_machine_without_a_mac_file_gets_the_menu() {
    let Some(site) = Site::open() else { return };
    let (mac, address) = ("52:54:00:ab:cd:01", "10.77.0.22");
    let _ = site.module("kea_reservation").run(&site.reservation(mac, address, BOOT_SERVER)).done();
    site.offer_install(MAC);
    let mut machine = site.machine(mac);
    machine.start(Boot::Network).unwrap();
    machine.wait_for(MENU).unwrap();
    let requests = site.tftp_requests(address);
    assert!(requests.iter().any(|name| name.ends_with("grub.cfg")), "{requests:?}");
    assert!(!requests.iter().any(|name| name.ends_with("vmlinuz")), "{requests:?}");
    assert_eq!(site.watch(mac, address, None)["state"], "menu_instead_of_install");
    proved(
        "netboot: a machine with another MAC address gets the menu and not the install: netboot_watch says so",
    );
}

#[test]
fn without_a_next_server_the_firmware_asks_the_router() {
    let Some(site) = Site::open() else { return };
    let router = UdpSocket::bind((ROUTER, 69)).unwrap();
    router.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let _ = site.module("kea_reservation").run(&site.reservation(MAC, ADDRESS, "")).done();
    let mut machine = site.machine(MAC);
    machine.start(Boot::Network).unwrap();
    let mut request = [0; 512];
    machine.wait_until("the router is asked", |_| Ok(router.recv(&mut request).is_ok())).unwrap();
    // RFC 1350: opcode 1, the file's name.
    assert!(request.starts_with(&[b"\0\x01", LOADER.as_bytes()].concat()));
    assert!(site.tftp_requests(ADDRESS).is_empty(), "{}", site.tftp_log());
    assert_eq!(site.watch(MAC, ADDRESS, None)["state"], "no_tftp");
    proved(
        "netboot: without next_server the firmware asks the router for the boot file, and netboot_watch says no_tftp",
    );
}

#[test]
fn firmware_that_wants_entropy_has_no_network_without_an_rng() {
    let Some(site) = Site::open() else { return };
    let _ = site.module("kea_reservation").run(&site.reservation(MAC, ADDRESS, BOOT_SERVER)).done();
    site.offer_menu();
    let with_firmware = || Machine::builder(MAC).firmware(&site.firmware);

    let mut machine = with_firmware().without_rng().build(&site.network).unwrap();
    machine.start(Boot::Network).unwrap();
    // Debian's firmware falls back on its shell; Proxmox VE's has none and says "No bootable option or device was found".
    machine.wait_for("UEFI Interactive Shell").unwrap();
    assert_eq!(machine.traffic().unwrap().sent, 0);
    assert_eq!(site.watch(MAC, ADDRESS, None)["state"], "no_dhcp");
    proved(
        "netboot: without virtio-rng Debian 13's firmware sends not one packet: netboot_watch says no_dhcp",
    );
    drop(machine);

    let mut machine = with_firmware().build(&site.network).unwrap();
    machine.start(Boot::Network).unwrap();
    machine.wait_for(MENU).unwrap();
    assert!(machine.traffic().unwrap().sent > 0);
    proved("netboot: with virtio-rng the same firmware boots GRUB from the network");
}

#[test]
fn a_looping_install_is_stopped_only_when_everything_is_written() {
    let Some(site) = Site::open() else { return };
    let _ = site.module("kea_reservation").run(&site.reservation(MAC, ADDRESS, BOOT_SERVER)).done();
    // Nobody switches this one to the disk.
    site.offer_install(MAC);
    let last_requests = Arc::new(Mutex::new(Vec::new()));
    let (seen, log) = (Arc::clone(&last_requests), site.http_log_path());
    let hypervisor = Hypervisor::start(site.machine(MAC), MAC, move || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        seen.lock().unwrap().extend(log.lines().last().map(str::to_owned));
    });
    let shell = hypervisor.options(json!({
        "node": "pve1", "memory": 512, "net": [{"slot": "net0", "mac": MAC, "bridge": "vmbr0"}],
        "disks": [{"slot": "scsi0", "storage": "local-lvm", "size": 1}], "boot_order": ["net0"], "state": "started",
    }));
    assert_eq!(site.module("proxmox_vm_shell").run(&shell).done()["changed"], true);
    hypervisor.machine().wait_for("anvil: installer done").unwrap();
    hypervisor.machine().wait_for("anvil: installed mirror").unwrap();
    proved(
        "netboot: with the network first and the install on offer, a machine that was installed is installed again",
    );

    let pin = hypervisor.options(json!({
        "boot_order": ["scsi0", "net0"], "log": site.http_log_path(), "client": ADDRESS, "timeout": 600,
    }));
    let pinned = site.module("proxmox_boot_order").run(&pin).done();
    assert_eq!((&pinned["changed"], &pinned["vm"]["boot"]), (&json!(true), &json!(["scsi0", "net0"])));
    let last_requests = last_requests.lock().unwrap().clone();
    assert!(
        matches!(last_requests.as_slice(), [one] if one.contains("GET /keys/ssh/anvil.pub")),
        "{last_requests:?}"
    );
    proved(
        "netboot: proxmox_boot_order waited out the install and stopped the machine after its last request, once",
    );

    hypervisor.machine().wait_for("anvil: installed system is up from disk, with 3 files").unwrap();
    assert_eq!(site.module("proxmox_boot_order").run(&pin).done()["changed"], false);
    proved("netboot: with the boot order pinned it starts from a disk that is whole");
}
