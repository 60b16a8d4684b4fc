//! Every read: the server's reservations, and what decides whether one more may be written.

pub(crate) mod kea;
pub(crate) mod opnsense;

use dhcp_reservations::{Field, Reservation, Reservations, Subnet};
use kea_api::{ClientClass, Dhcp4Config};
use net_types::{ClientId, HostIdentifier, MacAddress};

use crate::args::{Args, SubnetName};

/// The server as it was seen.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub(crate) subnets: Vec<Subnet>,
    pub(crate) reservations: Vec<Reservation>,
    /// Kea's classes; OPNsense has none.
    pub(crate) classes: Vec<ClientClass>,
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
    /// Whether Kea changes single hosts on command (hook host_cmds).
    pub(crate) host_commands: bool,
    /// Kea's configuration, which a change is made from.
    pub(crate) config: Option<Dhcp4Config>,
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
    /// A lease of this card and this client identifier, to `host`.
    pub(crate) fn of(mac: Option<MacAddress>, client_id: Option<&ClientId>, host: &HostIdentifier) -> Self {
        let is_own = match host {
            HostIdentifier::Mac(own) => mac == Some(*own),
            HostIdentifier::ClientId(own) => client_id == Some(own),
        };
        match (is_own, mac) {
            (true, _) => Self::Own,
            (false, Some(mac)) => Self::Other(mac.to_string()),
            (false, None) => Self::Other("an unknown client".to_owned()),
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
    pub(crate) fn of(all: Reservations) -> Self {
        Self { subnets: all.subnets, reservations: all.reservations, ..Self::default() }
    }

    /// The subnet the task is about; `None` when there is no such subnet, or none was named.
    pub(crate) fn subnet(&self, args: &Args) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| match (&args.subnet, args.ip) {
            (Some(SubnetName::Cidr(cidr)), _) => subnet.cidr.network() == *cidr,
            (Some(SubnetName::Key(key)), _) => subnet.key == *key,
            (None, Some(ip)) => subnet.cidr.contains(ip),
            (None, None) => false,
        })
    }

    /// The reservations of the task's host, in its subnet if it names one.
    pub(crate) fn own(&self, args: &Args) -> Vec<&Reservation> {
        let key = self.subnet(args).map(|subnet| &subnet.key);
        let anywhere = args.subnet.is_none() && args.ip.is_none();
        let own = self.reservations.iter().filter(|one| one.host.as_ref() == Some(&args.host));
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
