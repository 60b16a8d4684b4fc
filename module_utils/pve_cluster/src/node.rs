//! A node as its answers show it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::{CorosyncConf, Firewall, Links, Members, ParseError, Probe, Status, guests};

/// What a member runs, in the order of the question.
pub const SERVICES: [&str; 5] = ["pve-cluster", "corosync", "pvedaemon", "pveproxy", "pvestatd"];

/// Everything that is known of a node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The host name without its domain: the node's name (PVE::INotify `nodename`).
    pub name: String,
    /// Seconds since 1970 when the look began and when it ended, by the node's own clock.
    pub clock: (f64, f64),
    pub clock_synchronized: Option<bool>,
    /// The version of pve-manager, `9.1.1`.
    pub version: Option<String>,
    /// `/etc/pve/corosync.conf`, the cluster's.
    pub conf: Option<CorosyncConf>,
    /// `/etc/corosync/corosync.conf`, the copy that corosync itself reads.
    pub local_conf: Option<CorosyncConf>,
    pub has_authkey: bool,
    /// None: pmxcfs is not there.
    pub members: Option<Members>,
    /// VMIDs of the whole cluster.
    pub guests: Vec<u32>,
    /// The names in `/etc/pve/nodes`.
    pub directories: Vec<String>,
    /// Whether pvecm itself would call the node quorate (PVE::Cluster `check_cfs_quorum`).
    pub writable: bool,
    pub firewall: Firewall,
    /// What pvecm says; else why there is nothing.
    pub status: Option<Status>,
    pub status_said: String,
    pub links: Option<Links>,
    /// Service to `active`, `inactive`, `failed` ...
    pub services: BTreeMap<String, String>,
    /// The addresses on the node's own interfaces.
    pub addresses: Vec<IpAddr>,
    /// What the node's name stands for on the node itself.
    pub resolved: Vec<IpAddr>,
    /// A `pvecm add` that runs at this moment.
    pub joining: Option<String>,
    /// What was there and could not be understood.
    pub broken: Vec<String>,
}

impl Node {
    /// Reads the answers; what is not there is absent, what makes no sense stands in `broken`.
    #[must_use]
    pub fn read(probe: &Probe) -> Self {
        let mut broken = Vec::new();
        let conf = understood(probe.found("conf").map(CorosyncConf::parse), &mut broken);
        let local_conf = understood(probe.found("local_conf").map(CorosyncConf::parse), &mut broken);
        for conf in [&conf, &local_conf].into_iter().flatten() {
            understood(Some(conf.nodes()), &mut broken);
        }
        let seconds = |name| probe.found(name).and_then(|text| text.parse().ok()).unwrap_or_default();
        let addresses = understood(Some(addresses(probe.said("addresses"))), &mut broken);
        let states = probe.said("services").lines().map(|line| line.trim().to_owned());
        Self {
            name: probe.said("name").split('.').next().unwrap_or_default().to_owned(),
            clock: (seconds("start"), seconds("end")),
            clock_synchronized: probe.found("clock").and_then(|word| match word {
                "yes" => Some(true),
                "no" => Some(false),
                _ => None,
            }),
            version: probe.found("version").and_then(version),
            has_authkey: probe.found("authkey").is_some(),
            members: understood(probe.found("members").map(Members::parse), &mut broken),
            guests: understood(probe.found("guests").map(guests), &mut broken).unwrap_or_default(),
            directories: probe.found("directories").unwrap_or_default().lines().map(str::to_owned).collect(),
            writable: probe.found("local").and_then(|mode| mode.chars().nth(2)) == Some('w'),
            firewall: probe.found("firewall").map(Firewall::parse).unwrap_or_default(),
            status: Status::parse(probe.said("status")).ok(),
            status_said: probe.said("status").to_owned(),
            links: Links::parse(probe.said("links")).ok(),
            services: SERVICES.iter().map(|name| (*name).to_owned()).zip(states).collect(),
            addresses: addresses.unwrap_or_default(),
            resolved: resolved(probe.found("resolved").unwrap_or_default()),
            joining: probe.found("joining").and_then(|text| text.lines().next()).map(str::to_owned),
            conf,
            local_conf,
            broken,
        }
    }

    /// The services that a member runs and this node does not, with their state.
    #[must_use]
    pub fn idle_services(&self) -> Vec<(&'static str, &str)> {
        let state = |name: &'static str| (name, self.services.get(name).map_or("unknown", String::as_str));
        SERVICES.iter().map(|name| state(name)).filter(|(_, state)| *state != "active").collect()
    }

    /// Whether this node has quorum, by pvecm and by pmxcfs.
    #[must_use]
    pub fn quorate(&self) -> bool {
        let pmxcfs = self.members.as_ref().and_then(|members| members.cluster.as_ref());
        self.status.as_ref().is_some_and(|status| status.quorum.quorate)
            && pmxcfs.is_some_and(|cluster| cluster.quorate)
    }
}

/// How many seconds another clock is away from ours at least: the look at it began and ended inside `ours`, so that
/// its length and the way there do not count as a difference.
#[must_use]
pub fn clock_skew(ours: (f64, f64), theirs: (f64, f64)) -> f64 {
    let (least, most) = (theirs.1 - ours.1, theirs.0 - ours.0);
    if least > 0.0 {
        least
    } else if most < 0.0 {
        -most
    } else {
        0.0
    }
}

fn understood<T>(read: Option<Result<T, ParseError>>, broken: &mut Vec<String>) -> Option<T> {
    match read? {
        Ok(value) => Some(value),
        Err(error) => {
            broken.push(error.to_string());
            None
        }
    }
}

/// `pve-manager/9.1.1/42db4a6cf33dac83 (running kernel: 6.17.2-1-pve)`
fn version(text: &str) -> Option<String> {
    let rest = text.lines().find_map(|line| line.strip_prefix("pve-manager/"))?;
    rest.split(['/', ' ']).next().filter(|version| !version.is_empty()).map(str::to_owned)
}

fn addresses(text: &str) -> Result<Vec<IpAddr>, ParseError> {
    let what = "the output of ip -json address show";
    let interfaces: Vec<Value> =
        serde_json::from_str(text).map_err(|error| ParseError::new(what, error.to_string()))?;
    let infos = interfaces.iter().filter_map(|interface| interface.get("addr_info")?.as_array()).flatten();
    Ok(infos.filter_map(|info| info.get("local")?.as_str()?.parse().ok()).collect())
}

/// `getent ahosts`: an address may have a zone (`fe80::1%eth0`), and stands once a socket type.
fn resolved(text: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for line in text.lines() {
        let word = line.split_whitespace().next().and_then(|word| word.split('%').next());
        if let Some(address) = word.and_then(|word| word.parse().ok())
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skew_is_what_the_way_there_cannot_explain() {
        for (ours, theirs, skew) in [
            ((100.0, 103.0), (101.0, 102.0), 0.0),
            ((100.0, 103.0), (108.0, 109.0), 6.0),
            ((100.0, 103.0), (90.0, 91.0), 10.0),
            // The look took 2.9 of 3 seconds: hardly anything is left to explain a difference.
            ((100.0, 103.0), (101.0, 103.9), 0.9),
        ] {
            assert!((clock_skew(ours, theirs) - skew).abs() < 0.001, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn small_answers() {
        assert_eq!(
            version("pve-manager/9.1.1/42db4a6cf33dac83 (running kernel: 6.17.2-1-pve)").unwrap(),
            "9.1.1"
        );
        assert_eq!(version("sh: pveversion: not found"), None);
        assert_eq!(resolved("127.0.1.1 STREAM pve2\n127.0.1.1 DGRAM\nfe80::1%eth0 RAW\n").len(), 2);
        assert!(addresses("Command \"show\" is unknown").is_err());
    }
}
