use std::fmt;
use std::str::FromStr;

use anyhow::Context;

/// A release of OPNsense, `year.month[.patch]`. Those named here are where its API changed; any other can be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release(u16, u16, u16);

impl Release {
    pub const V25_1: Self = Self(25, 1, 0);
    /// `general.manual_config` of Kea.
    pub const V25_1_5: Self = Self(25, 1, 5);
    /// The generator turns `-` of a MAC address into `:`.
    pub const V25_1_7: Self = Self(25, 1, 7);
    /// Grid rows hold keys and `%` descriptions; `option_data` of reservations; snake_case in the privileges.
    pub const V25_7: Self = Self(25, 7, 0);
    /// TXT host overrides.
    pub const V25_7_4: Self = Self(25, 7, 4);
    /// MAC addresses are unique whatever their case; messages end with a full stop.
    pub const V25_7_8: Self = Self(25, 7, 8);
    /// Subnets are unique.
    pub const V25_7_11: Self = Self(25, 7, 11);
    pub const V26_1: Self = Self(26, 1, 0);
    /// `addptr` of host overrides; a search finds UUIDs.
    pub const V26_1_3: Self = Self(26, 1, 3);
    /// `option` of reservations.
    pub const V26_1_5: Self = Self(26, 1, 5);
    /// `del_lease`; aliases within the rows of host overrides.
    pub const V26_1_6: Self = Self(26, 1, 6);
    /// `client_id`, a MAC address no longer required, `user-context`, a subnet in use cannot be deleted.
    pub const V26_1_8: Self = Self(26, 1, 8);
    /// `next_server` of reservations.
    pub const V26_1_9: Self = Self(26, 1, 9);
    pub const V26_7: Self = Self(26, 7, 0);
    /// Stored `subnet_id`.
    pub const V26_7_2: Self = Self(26, 7, 2);
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(year, month, patch) = self;
        write!(formatter, "{year}.{month}")?;
        if *patch > 0 { write!(formatter, ".{patch}") } else { Ok(()) }
    }
}

impl FromStr for Release {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<u16>, _> = text.split('.').map(str::parse).collect();
        match numbers.ok().as_deref() {
            Some(&[year, month]) => Some(Self(year, month, 0)),
            Some(&[year, month, patch]) => Some(Self(year, month, patch)),
            _ => None,
        }
        .with_context(|| format!("expected a release such as 25.7 or 26.1.9, found {text:?}"))
    }
}
