//! A corosync link as `pvecm --linkN` takes it: `10.0.0.1` or `10.0.0.1,priority=5`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Links are numbered 0 to 7 (PVE::Corosync `MAX_LINK_INDEX`).
pub const MAX_LINK: u8 = 7;

/// This node's address of a link, and the link's priority (`knet_link_priority`; the higher one is used first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub address: IpAddr,
    /// Only counts where the cluster is founded; `pvecm add` ignores it.
    pub priority: Option<u8>,
}

/// Links by number.
pub type LinkMap = BTreeMap<u8, Link>;

impl FromStr for Link {
    type Err = String;

    /// Host names are not taken: corosync resolves them when it starts, perhaps before the network is there.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected an IP address, perhaps with `,priority=0` to 255, found `{text}`");
        let (address, rest) =
            text.split_once(',').map_or((text, None), |(address, rest)| (address, Some(rest)));
        let address: IpAddr =
            address.strip_prefix("address=").unwrap_or(address).parse().map_err(|_| expected())?;
        if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            return Err(format!("{address} is no address that other nodes can reach"));
        }
        let priority = rest.map(|rest| rest.strip_prefix("priority=").and_then(|number| number.parse().ok()));
        match priority {
            Some(None) => Err(expected()),
            priority => Ok(Self { address, priority: priority.flatten() }),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        self.priority.map_or(Ok(()), |priority| write!(f, ",priority={priority}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_pvecm() {
        for (text, normal) in [
            ("10.0.0.1", "10.0.0.1"),
            ("address=10.0.0.1", "10.0.0.1"),
            ("10.0.0.1,priority=255", "10.0.0.1,priority=255"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(text.parse::<Link>().map(|link| link.to_string()), Ok(normal.to_owned()));
        }
        for text in [
            "",
            "pve2",
            "10.0.0.1/24",
            "10.0.0.1,",
            "10.0.0.1,priority=256",
            "10.0.0.1,prio=1",
            "127.0.0.1",
            "0.0.0.0",
            "::1",
        ] {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
    }
}
