//! Every module of the collection, linked into one program; and the files that are generated from
//! their option tables.

use ansible_module::Entry;

pub mod generate;

/// The bundle's table, in alphabetical order.
#[must_use]
pub fn modules() -> Vec<Entry> {
    vec![
        Entry::of::<anvil_ping::AnvilPing>(),
        Entry::of::<data_disk::DataDisk>(),
        dhcp_probe::entry(),
        Entry::of::<dns_record::DnsRecord>(),
        grub_dispatcher::entry(),
        grub_mac_config::entry(),
        ipmi_boot_once::entry(),
        ipmi_power::entry(),
        Entry::of::<kea_reservation::KeaReservation>(),
        kea_reservation_info::entry(),
        netboot_watch::entry(),
        Entry::of::<opnsense_reconfigure::OpnsenseReconfigure>(),
        Entry::of::<proxmox_boot_order::ProxmoxBootOrder>(),
        Entry::of::<proxmox_vm_clone::ProxmoxVmClone>(),
        proxmox_vm_info::entry(),
        Entry::of::<proxmox_vm_shell::ProxmoxVmShell>(),
        pvecm_create::entry(),
        pvecm_info::entry(),
        pvecm_join::entry(),
        redfish_boot_once::entry(),
        redfish_info::entry(),
        redfish_power::entry(),
        redfish_virtual_media::entry(),
        Entry::of::<ssh_ready::SshReady>(),
        Entry::of::<vm_identity::VmIdentity>(),
        zfs_pool::entry(),
        zfs_pool_info::entry(),
    ]
}
