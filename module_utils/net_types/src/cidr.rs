use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::Ipv4Net;

use crate::invalid::{Invalid, serde_as_text};

const WHAT: &str = "an IPv4 network";
const FORM: &str = "an address and a prefix length (like 10.20.0.0/24)";

/// An IPv4 address with a prefix length. The address is kept as given, host bits included:
/// `10.0.0.5/24` is an interface, and its [`network`](Self::network) is `10.0.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ipv4Cidr(Ipv4Net);

impl Ipv4Cidr {
    /// # Errors
    /// [`Invalid`] when the prefix length is above 32.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Result<Self, Invalid> {
        Ipv4Net::new(address, prefix).map(Self).map_err(|_| {
            Invalid::new(
                format_args!("{address}/{prefix}"),
                WHAT,
                "a prefix length of 0 to 32",
                prefix.to_string(),
            )
        })
    }

    /// The address as it was given.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        self.0.addr()
    }

    /// The prefix length, 0 to 32.
    #[must_use]
    pub fn prefix(self) -> u8 {
        self.0.prefix_len()
    }

    #[must_use]
    pub fn netmask(self) -> Ipv4Addr {
        self.0.netmask()
    }

    /// The same network without host bits.
    #[must_use]
    pub fn network(self) -> Self {
        Self(self.0.trunc())
    }

    /// No host bits are set: this is a network, not an interface in one.
    #[must_use]
    pub fn is_network(self) -> bool {
        self.0.addr() == self.0.network()
    }

    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.0.contains(&address)
    }

    /// The first address of the network, which names it and which no host may have (except in /31 and /32,
    /// RFC 3021).
    #[must_use]
    pub fn is_network_address(self, address: Ipv4Addr) -> bool {
        self.prefix() < 31 && address == self.0.network()
    }

    /// The last address of the network, which reaches all hosts (there is none in /31 and /32, RFC 3021).
    #[must_use]
    pub fn is_broadcast_address(self, address: Ipv4Addr) -> bool {
        self.prefix() < 31 && address == self.0.broadcast()
    }

    /// Inside, and neither the network's own nor its broadcast address.
    #[must_use]
    pub fn is_host_address(self, address: Ipv4Addr) -> bool {
        self.contains(address) && !self.is_network_address(address) && !self.is_broadcast_address(address)
    }
}

impl FromStr for Ipv4Cidr {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = |found: String| Invalid::new(text, WHAT, FORM, found);
        let (address, prefix) =
            text.split_once('/').ok_or_else(|| refuse("no prefix length after a \"/\"".into()))?;
        let address = address.parse().map_err(|_| refuse(format!("\"{address}\" for the address")))?;
        let canonical =
            prefix.bytes().all(|b| b.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
        match prefix.parse() {
            Ok(length) if canonical && length <= 32 => Self::new(address, length),
            _ => Err(refuse(format!("\"{prefix}\" for the prefix length (0 to 32)"))),
        }
    }
}

impl fmt::Display for Ipv4Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_text!(Ipv4Cidr, WHAT);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cidr(text: &str) -> Ipv4Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn the_host_address_is_kept_beside_its_network() {
        let interface = cidr("10.20.0.5/24");
        assert_eq!(interface.to_string(), "10.20.0.5/24");
        assert_eq!(interface.address(), Ipv4Addr::new(10, 20, 0, 5));
        assert_eq!(interface.network(), cidr("10.20.0.0/24"));
        assert_eq!(interface.netmask(), Ipv4Addr::new(255, 255, 255, 0));
        assert!(!interface.is_network());
        assert!(interface.network().is_network());
    }

    #[test]
    fn who_may_have_an_address_in_a_network() {
        // (network, address, contained, network address, broadcast, host)
        for (network, address, contained, first, last, host) in [
            ("10.20.0.0/24", "10.20.0.1", true, false, false, true),
            ("10.20.0.0/24", "10.20.0.0", true, true, false, false),
            ("10.20.0.0/24", "10.20.0.255", true, false, true, false),
            ("10.20.0.9/24", "10.20.0.255", true, false, true, false),
            ("10.20.0.0/24", "10.20.1.1", false, false, false, false),
            ("10.20.0.0/31", "10.20.0.0", true, false, false, true),
            ("10.20.0.0/31", "10.20.0.1", true, false, false, true),
            ("10.20.0.7/32", "10.20.0.7", true, false, false, true),
            ("0.0.0.0/0", "255.255.255.255", true, false, true, false),
        ] {
            let (net, address) = (cidr(network), address.parse().unwrap());
            let said = (
                net.contains(address),
                net.is_network_address(address),
                net.is_broadcast_address(address),
                net.is_host_address(address),
            );
            assert_eq!(said, (contained, first, last, host), "{address} in {network}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_in_words() {
        for (text, found) in [
            ("10.20.0.0", "no prefix length after a \"/\""),
            ("10.20.0/24", "\"10.20.0\" for the address"),
            ("10.20.0.010/24", "\"10.20.0.010\" for the address"),
            ("fd00::/64", "\"fd00::\" for the address"),
            ("10.20.0.0/33", "\"33\" for the prefix length (0 to 32)"),
            ("10.20.0.0/+8", "\"+8\" for the prefix length (0 to 32)"),
            ("10.20.0.0/08", "\"08\" for the prefix length (0 to 32)"),
            ("10.20.0.0/", "\"\" for the prefix length (0 to 32)"),
            ("10.20.0.0/255.255.255.0", "\"255.255.255.0\" for the prefix length (0 to 32)"),
        ] {
            let error = text.parse::<Ipv4Cidr>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("\"{text}\" is not {WHAT}: expected {FORM}, found {found}")
            );
        }
        assert!(Ipv4Cidr::new(Ipv4Addr::LOCALHOST, 33).is_err());
    }

    proptest! {
        #[test]
        fn networks_survive_text_and_json(address: u32, prefix in 0_u8..=32) {
            let cidr = Ipv4Cidr::new(address.into(), prefix).unwrap();
            prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
            let json = serde_json::to_string(&cidr).unwrap();
            prop_assert_eq!(serde_json::from_str::<Ipv4Cidr>(&json).unwrap(), cidr);
            prop_assert!(cidr.contains(cidr.address()) && cidr.network().contains(cidr.address()));
        }

        #[test]
        fn any_text_is_its_own_normal_form_or_refused(text in "[0-9./]{0,20}") {
            if let Ok(cidr) = text.parse::<Ipv4Cidr>() {
                prop_assert_eq!(cidr.to_string(), text);
            }
        }
    }
}
