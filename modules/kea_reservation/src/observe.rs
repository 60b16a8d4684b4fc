//! Every read: the server's reservations, and what decides whether one more may be written.

pub(crate) mod kea;
pub(crate) mod opnsense;

use std::net::Ipv4Addr;

use ::kea_api::Dhcp4Config;
use net_types::{Ipv4Cidr, MacAddress};

use crate::args::{Args, SubnetName};
use crate::values::{Field, Values};

/// The server as it was seen.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub(crate) subnets: Vec<Subnet>,
    pub(crate) reservations: Vec<Reservation>,
    /// Fields this server would drop without a word, each with what it takes to store it.
    pub(crate) lacking: Vec<(Field, &'static str)>,
    /// Why reservations have no effect at all, if so.
    pub(crate) off: Option<String>,
    /// What OPNsense says of its service; `None` when it was not asked.
    pub(crate) service: Option<String>,
    /// A change is stored and not in effect, or not in Kea's file.
    pub(crate) pending: bool,
    pub(crate) lease: Lease,
    /// Whether the server can forget a lease.
    pub(crate) can_clear_lease: bool,
    /// Kea's configuration, which a change is made from.
    pub(crate) config: Option<Dhcp4Config>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subnet {
    /// Kea's subnet-id or OPNsense's UUID.
    pub(crate) key: String,
    pub(crate) cidr: Ipv4Cidr,
    pub(crate) routers: Vec<Ipv4Addr>,
    pub(crate) next_server: Option<Ipv4Addr>,
    /// Pools in which this Kea ignores reservations (`reservations-out-of-pool`).
    pub(crate) forbidden: Vec<(Ipv4Addr, Ipv4Addr)>,
}

/// One reservation, of either backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservation {
    /// OPNsense's UUID; empty on plain Kea.
    pub(crate) uuid: String,
    /// The key of its subnet; empty for one outside every subnet.
    pub(crate) subnet: String,
    pub(crate) mac: Option<MacAddress>,
    /// The identifier as stored, for messages.
    pub(crate) identifier: String,
    pub(crate) values: Values,
}

impl Reservation {
    pub(crate) fn ip(&self) -> Option<Ipv4Addr> {
        self.values.text(Field::IpAddress).parse().ok()
    }
}

/// Who has the address now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lease {
    #[default]
    NotChecked,
    Free,
    Own,
    Other(String),
}

impl Lease {
    pub(crate) fn of(holder: Option<Option<MacAddress>>, mac: MacAddress) -> Self {
        match holder {
            None => Self::Free,
            Some(Some(holder)) if holder == mac => Self::Own,
            Some(Some(holder)) => Self::Other(holder.to_string()),
            Some(None) => Self::Other("an unknown client".to_owned()),
        }
    }

    /// Its word in the result.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::NotChecked => "not_checked",
            Self::Free => "free",
            Self::Own => "own",
            Self::Other(_) => "other",
        }
    }
}

impl Observed {
    /// The subnet the task is about; `None` when there is no such subnet, or none was named.
    pub(crate) fn subnet(&self, args: &Args) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| match (&args.subnet, args.ip) {
            (Some(SubnetName::Cidr(cidr)), _) => subnet.cidr.network() == *cidr,
            (Some(SubnetName::Key(key)), _) => subnet.key == *key,
            (None, Some(ip)) => subnet.cidr.contains(ip),
            (None, None) => false,
        })
    }

    /// The reservations of the task's MAC address, in its subnet if it names one.
    pub(crate) fn own(&self, args: &Args) -> Vec<&Reservation> {
        let key = self.subnet(args).map(|subnet| &subnet.key);
        let anywhere = args.subnet.is_none() && args.ip.is_none();
        let own = self.reservations.iter().filter(|one| one.mac == Some(args.mac));
        let mut own: Vec<_> = own.filter(|one| anywhere || Some(&one.subnet) == key).collect();
        // Of several spellings of one MAC address, the one with the right address is kept.
        own.sort_by_key(|one| args.ip.is_some() && one.ip() != args.ip);
        own
    }

    pub(crate) fn cidr_of(&self, key: &str) -> String {
        let subnet = self.subnets.iter().find(|subnet| subnet.key == key);
        subnet.map(|subnet| subnet.cidr.to_string()).unwrap_or_default()
    }
}
