use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use net_types::Ipv4Cidr;

use super::ValueError;
use super::property::PropertyString;

const WHAT: &str = "an IP configuration";

/// How a guest gets its IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip4 {
    Dhcp,
    Static(Ipv4Cidr),
}

/// How a guest gets its IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip6 {
    Dhcp,
    /// Router advertisements.
    Auto,
    /// Address and prefix length.
    Static(Ipv6Addr, u8),
}

/// `ipconfigN`: what cloud-init tells the guest about `netN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpConfig {
    pub ip: Option<Ip4>,
    pub gw: Option<Ipv4Addr>,
    pub ip6: Option<Ip6>,
    pub gw6: Option<Ipv6Addr>,
}

impl FromStr for Ip4 {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "dhcp" {
            return Ok(Self::Dhcp);
        }
        let cidr = text.parse::<Ipv4Cidr>();
        cidr.map(Self::Static).map_err(|why| ValueError::new("dhcp or an address", text, why.to_string()))
    }
}

impl fmt::Display for Ip4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dhcp => f.write_str("dhcp"),
            Self::Static(cidr) => cidr.fmt(f),
        }
    }
}

impl FromStr for Ip6 {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "dhcp" => return Ok(Self::Dhcp),
            "auto" => return Ok(Self::Auto),
            _ => {}
        }
        let parts = text.split_once('/').and_then(|(address, prefix)| {
            Some((address.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 128)?))
        });
        parts
            .map(|(address, prefix)| Self::Static(address, prefix))
            .ok_or_else(|| ValueError::new("an IPv6 setting", text, "expected dhcp, auto or ADDRESS/PREFIX"))
    }
}

impl fmt::Display for Ip6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dhcp => f.write_str("dhcp"),
            Self::Auto => f.write_str("auto"),
            Self::Static(address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

impl FromStr for IpConfig {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |why: String| ValueError::new(WHAT, text, why);
        let mut parsed: PropertyString = text.parse()?;
        let config = Self {
            ip: parsed.take("ip")?,
            gw: parsed.take("gw")?,
            ip6: parsed.take("ip6")?,
            gw6: parsed.take("gw6")?,
        };
        if let Some(stray) = parsed.bare.as_ref().or_else(|| parsed.keys.keys().next()) {
            return Err(wrong(format!("{stray:?} is not ip, gw, ip6 or gw6")));
        }
        if config.gw.is_some() && config.ip.is_none() {
            return Err(wrong("gw needs ip".into()));
        }
        if config.gw6.is_some() && config.ip6.is_none() {
            return Err(wrong("gw6 needs ip6".into()));
        }
        Ok(config)
    }
}

impl fmt::Display for IpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("gw", self.gw.map(|value| value.to_string())),
            ("gw6", self.gw6.map(|value| value.to_string())),
            ("ip", self.ip.map(|value| value.to_string())),
            ("ip6", self.ip6.map(|value| value.to_string())),
        ];
        let shown = parts.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
        f.write_str(&shown.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn normal_forms() {
        for (text, normal) in [
            ("ip=dhcp", "ip=dhcp"),
            ("ip=10.0.0.5/24,gw=10.0.0.1", "gw=10.0.0.1,ip=10.0.0.5/24"),
            ("ip6=2001:DB8:0::5/64,gw6=fe80::1", "gw6=fe80::1,ip6=2001:db8::5/64"),
            ("ip=dhcp,ip6=auto", "ip=dhcp,ip6=auto"),
            ("", ""),
        ] {
            assert_eq!(text.parse::<IpConfig>().unwrap().to_string(), normal);
        }
    }

    #[test]
    fn what_is_no_ip_configuration_is_refused() {
        for text in
            ["gw=10.0.0.1", "gw6=fe80::1", "ip=10.0.0.5", "ip=10.0.0.500/24", "ip6=::1/129", "dhcp", "dns=1"]
        {
            assert!(text.parse::<IpConfig>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(
            v4 in proptest::option::of((any::<Ipv4Addr>(), 1_u8..=32)),
            gw: Ipv4Addr,
            v6 in proptest::option::of((any::<Ipv6Addr>(), 0_u8..=128)),
            gw6: Ipv6Addr,
        ) {
            let config = IpConfig {
                ip: v4.and_then(|(address, prefix)| Ipv4Cidr::new(address, prefix).ok()).map(Ip4::Static),
                gw: v4.map(|_| gw),
                ip6: v6.map(|(address, prefix)| Ip6::Static(address, prefix)),
                gw6: v6.map(|_| gw6),
            };
            prop_assume!(config.ip.is_some() || config.gw.is_none());
            prop_assert_eq!(config.to_string().parse::<IpConfig>(), Ok(config));
        }
    }
}
