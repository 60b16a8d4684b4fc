//! Where this machine's own BMC listens, as far as the machine itself can tell.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use deadline::Deadline;
use host::{Command, Host};

/// A BMC that does not answer its own machine in this time tells nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// SMBIOS structure type of a management controller's host interface (SMBIOS 7.43, DSP0270).
const HOST_INTERFACE: &str = "42-";
const REDFISH_OVER_IP: u8 = 0x04;
/// In a Redfish over IP record: the format and the bytes of the service's address (DSP0270, table 6).
const SERVICE_FORMAT: usize = 51;
const SERVICE_ADDRESS: usize = 52;

/// Addresses of this machine's BMC: from the firmware's tables, and from the BMC through the kernel's IPMI device. Both
/// need root; whoever may not ask finds none.
pub(crate) fn addresses(host: &Host) -> Vec<IpAddr> {
    let mut found = from_firmware(host);
    found.extend(from_ipmi(host));
    found.retain(|address| !address.is_unspecified() && !address.is_loopback());
    found.sort_unstable();
    found.dedup();
    found
}

fn from_firmware(host: &Host) -> Vec<IpAddr> {
    let Ok(entries) = fs::read_dir(host.path("/sys/firmware/dmi/entries")) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(HOST_INTERFACE))
        .filter_map(|entry| fs::read(entry.path().join("raw")).ok())
        .flat_map(|raw| service_addresses(&raw))
        .collect()
}

/// The Redfish service addresses of one structure: after the interface's own data, a count of protocol records, each with
/// its type and length. Whatever is cut short tells nothing.
fn service_addresses(raw: &[u8]) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let length = raw.get(1).copied().map_or(0, usize::from);
    let own = raw.get(5).copied().map_or(0, usize::from);
    let Some((count, mut rest)) =
        raw.get(..length).and_then(|structure| structure.get(6 + own..)).and_then(<[u8]>::split_first)
    else {
        return found;
    };
    for _ in 0..*count {
        let [kind, size, tail @ ..] = rest else { break };
        let Some((record, next)) = tail.split_at_checked(usize::from(*size)) else { break };
        if *kind == REDFISH_OVER_IP {
            found.extend(service_address(record));
        }
        rest = next;
    }
    found
}

fn service_address(record: &[u8]) -> Option<IpAddr> {
    let bytes: [u8; 16] = record.get(SERVICE_ADDRESS..SERVICE_ADDRESS + 16)?.try_into().ok()?;
    match record.get(SERVICE_FORMAT)? {
        1 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        2 => Some(Ipv6Addr::from(bytes).to_canonical()),
        _ => None,
    }
}

/// Asked only where the kernel has such a device: elsewhere `ipmitool` would wait for nothing.
fn from_ipmi(host: &Host) -> Option<IpAddr> {
    let devices = ["/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"];
    devices.iter().find(|device| host.path(device).exists())?;
    let ask = Command::new("ipmitool").args(["lan", "print"]);
    let answer = host.run(&ask, &Deadline::after(PATIENCE)).ok()?;
    lan_address(&answer.stdout_text())
}

/// `IP Address              : 192.0.2.5`, and not the line of its source.
fn lan_address(text: &str) -> Option<IpAddr> {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "IP Address").then(|| value.trim().parse().ok())?
    };
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A host interface by USB with one Redfish over IP record.
    fn structure(format: u8, address: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 91];
        record[SERVICE_FORMAT] = format;
        record[SERVICE_ADDRESS..SERVICE_ADDRESS + address.len()].copy_from_slice(address);
        let mut raw = vec![42, 0, 7, 0, 0x40, 3, 2, 0x6b, 0x1d, 1, REDFISH_OVER_IP, 91];
        raw.extend(record);
        raw[1] = u8::try_from(raw.len()).unwrap();
        raw.extend([0, 0]);
        raw
    }

    #[test]
    fn a_host_interface_names_the_redfish_service() {
        let ipv6: Ipv6Addr = "fe80::1".parse().unwrap();
        for (raw, addresses) in [
            (structure(1, &[169, 254, 0, 17]), vec!["169.254.0.17"]),
            (structure(2, &ipv6.octets()), vec!["fe80::1"]),
            (structure(0, &[169, 254, 0, 17]), vec![]),
            (Vec::new(), vec![]),
        ] {
            let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(service_addresses(&raw), addresses, "{raw:?}");
        }
    }

    #[test]
    fn a_structure_that_is_cut_short_or_lies_about_its_length_tells_nothing() {
        let whole = structure(1, &[169, 254, 0, 17]);
        for length in 0..whole.len() - 2 {
            assert_eq!(service_addresses(&whole[..length]), [] as [IpAddr; 0], "{length}");
        }
        for position in [1, 5, 9, 11] {
            let mut raw = whole.clone();
            raw[position] = 255;
            let _ = service_addresses(&raw);
        }
    }

    #[test]
    fn lan_print_is_read_by_its_line() {
        let text = "Set in Progress         : Set Complete\nIP Address Source       : Static Address\n\
                    IP Address              : 192.0.2.5\nSubnet Mask             : 255.255.255.0\n";
        assert_eq!(lan_address(text), Some("192.0.2.5".parse().unwrap()));
        assert_eq!(lan_address("IP Address Source       : 192.0.2.5\n"), None);
    }

    #[test]
    fn this_machines_bmc_is_found_by_either_way() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, bytes: &[u8]| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            path
        };
        let tool = write("bin/ipmitool", b"#!/bin/sh\necho 'IP Address              : 192.0.2.5'\n");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        write("sys/firmware/dmi/entries/42-0/raw", &structure(1, &[169, 254, 0, 17]));
        write("sys/firmware/dmi/entries/1-0/raw", &structure(1, &[10, 0, 0, 1]));
        let host = Host::rooted(root.path(), vec![root.path().join("bin")]);
        let found =
            |addresses: &[&str]| addresses.iter().map(|one| one.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(addresses(&host), found(&["169.254.0.17"]), "without the kernel's device nobody is asked");
        write("dev/ipmi0", b"");
        assert_eq!(addresses(&host), found(&["169.254.0.17", "192.0.2.5"]));
    }
}
