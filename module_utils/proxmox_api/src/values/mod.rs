//! The values of a VM's configuration as types.
//!
//! Every type reads what Proxmox VE stores (`FromStr`) and prints its normal form (`Display`): the
//! default key first, the rest in alphabetical order, as pve-common `PVE/JSONSchema.pm`
//! (`print_property_string`) does. Reading a printed value gives the same value again.

mod agent;
mod boot;
mod drive;
mod ipconfig;
mod net;
mod property;
mod size;
mod sshkeys;
mod tags;

pub use agent::Agent;
pub use boot::BootOrder;
pub use drive::{Drive, Slot, Volume};
pub use ipconfig::{Ip4, Ip6, IpConfig};
pub use net::{NetDevice, Trunks};
pub use property::{PropertyString, RandomSource, Smbios, Startup, parse_bool};
pub use size::Size;
pub use sshkeys::SshKeys;
pub use tags::Tags;

use std::fmt;

/// A value that does not follow its grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    what: &'static str,
    text: String,
    why: String,
}

impl ValueError {
    pub fn new(what: &'static str, text: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what, text: text.into(), why: why.into() }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}: {}", self.text, self.what, self.why)
    }
}

impl std::error::Error for ValueError {}
