use std::fs;
use std::net::IpAddr;

use host::Host;
use net_types::MacAddress;

use crate::own_bmc;
use crate::serial::Serial;

/// What the machine that runs this is known by.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub addresses: Vec<IpAddr>,
    /// Where its own BMC listens.
    pub bmc_addresses: Vec<IpAddr>,
    pub macs: Vec<MacAddress>,
    pub serials: Vec<Serial>,
}

impl Machine {
    /// This machine. Its serials and its BMC's addresses can only be read by root; others go by addresses and network
    /// cards.
    #[must_use]
    pub fn local() -> Self {
        let interfaces = pnet_datalink::interfaces();
        let addresses = interfaces.iter().flat_map(|interface| &interface.ips).map(|network| network.ip());
        Self {
            // A double or a tunnel to a BMC may well be on loopback.
            addresses: addresses.filter(|address| !address.is_loopback()).collect(),
            ..Self::of(&Host::local())
        }
    }

    /// Network cards, serials and BMC, from the kernel's files.
    #[must_use]
    pub fn of(host: &Host) -> Self {
        let bmc_addresses = own_bmc::addresses(host);
        Self { addresses: Vec::new(), bmc_addresses, macs: macs(host), serials: serials(host) }
    }
}

fn serials(host: &Host) -> Vec<Serial> {
    ["product_serial", "board_serial", "chassis_serial"]
        .iter()
        .filter_map(|file| host.read(format!("/sys/class/dmi/id/{file}")).ok())
        .filter_map(|text| Serial::known(&text))
        .collect()
}

/// Addresses that a maker gave to a card: the others belong to bridges, containers and the cards that BMCs
/// emulate, and many machines have the same.
fn macs(host: &Host) -> Vec<MacAddress> {
    let Ok(interfaces) = fs::read_dir(host.path("/sys/class/net")) else { return Vec::new() };
    interfaces
        .filter_map(Result::ok)
        .filter_map(|interface| fs::read_to_string(interface.path().join("address")).ok())
        .filter_map(|text| text.trim().parse().ok())
        .filter(|mac: &MacAddress| !mac.is_locally_administered() && mac.bytes() != [0; 6])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_say_who_this_is() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("sys/class/dmi/id/product_serial", "HERE777\n"),
            ("sys/class/dmi/id/board_serial", "To be filled by O.E.M.\n"),
            ("sys/class/net/eth0/address", "00:aa:00:aa:00:aa\n"),
            ("sys/class/net/lo/address", "00:00:00:00:00:00\n"),
            ("sys/class/net/docker0/address", "02:42:00:00:00:01\n"),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let here = Machine::of(&Host::rooted(root.path(), Vec::new()));
        assert_eq!(here.serials, [Serial::known("HERE777").unwrap()]);
        assert_eq!(here.macs, ["00:aa:00:aa:00:aa".parse().unwrap()]);
    }

    #[test]
    fn loopback_is_not_this_machine() {
        assert!(Machine::local().addresses.iter().all(|address| !address.is_loopback()));
    }
}
