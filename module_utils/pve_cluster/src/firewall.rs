//! `/etc/pve/firewall/cluster.fw`: whether the datacenter firewall is on, and its IP sets.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// What of the datacenter's firewall decides who may log in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    /// `enable` in `[OPTIONS]`; a missing file or option is off.
    pub enabled: bool,
    /// Names in lower case, as pve-firewall compares them; elements as they are written.
    pub ipsets: BTreeMap<String, Vec<String>>,
}

impl Firewall {
    /// Lines that decide nothing here are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut firewall = Self::default();
        let mut section = String::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.to_ascii_lowercase();
                if let Some(set) = section.strip_prefix("ipset ") {
                    firewall.ipsets.entry(set.trim().to_owned()).or_default();
                }
            } else if section == "options" {
                if let Some(("enable", value)) =
                    line.split_once(':').map(|(key, value)| (key.trim(), value.trim()))
                {
                    firewall.enabled = value != "0";
                }
            } else if let Some(set) = section.strip_prefix("ipset ")
                && !line.is_empty()
            {
                firewall.ipsets.entry(set.trim().to_owned()).or_default().push(line.to_owned());
            }
        }
        firewall
    }

    /// Whether a set has this address. `! element` takes it out; an alias or a set inside a set is not followed.
    #[must_use]
    pub fn has(&self, ipset: &str, address: IpAddr) -> bool {
        let elements = self.ipsets.get(&ipset.to_ascii_lowercase()).map(Vec::as_slice).unwrap_or_default();
        let covers = |element: &str| covers(element, address);
        let excluded = |element: &String| element.strip_prefix('!').is_some_and(|rest| covers(rest.trim()));
        elements.iter().any(|element| covers(element)) && !elements.iter().any(excluded)
    }
}

fn covers(element: &str, address: IpAddr) -> bool {
    let (network, length) = element.split_once('/').map_or((element, None), |(net, len)| (net, Some(len)));
    let (width, network, address) = match (network.parse::<IpAddr>(), address) {
        (Ok(IpAddr::V4(network)), IpAddr::V4(address)) => {
            (32, u128::from(u32::from(network)), u128::from(u32::from(address)))
        }
        (Ok(IpAddr::V6(network)), IpAddr::V6(address)) => (128, u128::from(network), u128::from(address)),
        _ => return false,
    };
    match length.map_or(Some(width), |length| length.parse().ok()) {
        Some(0) => true,
        Some(length) if length <= width => network >> (width - length) == address >> (width - length),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_set_or_not() {
        let firewall = Firewall::parse(
            "[OPTIONS]\nenable: 1\n\n[IPSET pve_cluster] # nodes\n10.0.0.1 # pve\n10.1.0.0/24\n! 10.1.0.9\nfd00::/64\n\n\
             [RULES]\nIN ACCEPT -p tcp -dport 22\n",
        );
        assert!(firewall.enabled);
        for (address, inside) in [
            ("10.0.0.1", true),
            ("10.0.0.2", false),
            ("10.1.0.77", true),
            ("10.1.0.9", false),
            ("fd00::7", true),
            ("fd01::7", false),
        ] {
            assert_eq!(firewall.has("PVE_cluster", address.parse().unwrap()), inside, "{address}");
        }
        assert!(!firewall.has("other", "10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn no_file_and_no_option_mean_off() {
        for text in ["", "[RULES]\nenable: 1\n", "[OPTIONS]\nenable: 0\n", "[OPTIONS]\npolicy_in: DROP\n"] {
            assert!(!Firewall::parse(text).enabled, "{text}");
        }
    }
}
