//! Firmware, GRUB, installer and installed system, one after another.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use lab::qemu::{Boot, Machine};

use crate::proved;
use crate::site::{BOOT_SERVER, LOADER, ROUTER, Site};

const MAC: &str = "52:54:00:ab:cd:ef";
const ADDRESS: &str = "10.77.0.21";
const MENU: &str = "executed automatically";

const LOCAL_DISK: &str = r#"
set timeout=0
menuentry "Local disk" {
  search --no-floppy --set=root --file /EFI/BOOT/BOOTX64.EFI
  chainloader /EFI/BOOT/BOOTX64.EFI
}
"#;

#[test]
fn a_machine_is_installed_over_the_network_once_and_then_boots_from_its_disk() {
    let Some(site) = Site::open() else { return };
    let (module, options) = (site.module("kea_reservation"), site.reservation(MAC, ADDRESS, BOOT_SERVER));
    assert_eq!(module.run(&options).done()["changed"], true);
    assert_eq!(module.run(&options).done()["changed"], false);
    let mac_file = site.grub().join(format!("grub.cfg-{MAC}"));
    site.offer_install(MAC);

    let mut machine = site.machine(MAC);
    machine.start(Boot::NetworkThenDisk).unwrap();
    machine.wait_for("anvil: installer started").unwrap();
    fs::write(&mac_file, LOCAL_DISK).unwrap();
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
    proved("netboot: a machine with another MAC address gets the menu and not the install");
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
    proved(
        "netboot: without next_server the firmware asks the router for the boot file, not the boot server",
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
    proved("netboot: without virtio-rng Debian 13's firmware sends not one packet and finds nothing to boot");
    drop(machine);

    let mut machine = with_firmware().build(&site.network).unwrap();
    machine.start(Boot::Network).unwrap();
    machine.wait_for(MENU).unwrap();
    assert!(machine.traffic().unwrap().sent > 0);
    proved("netboot: with virtio-rng the same firmware boots GRUB from the network");
}
