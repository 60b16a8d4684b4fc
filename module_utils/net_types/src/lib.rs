//! The words of a network and of a Proxmox site as types: parsed once at the edge, correct ever after.
//!
//! Every type has `FromStr`, `Display` (its normal form: printing and parsing again gives the same value)
//! and serde through that text. Errors say what was expected and what was found.

mod cidr;
mod identifier;
mod invalid;
mod mac;
mod name;
mod vmid;

pub use cidr::Ipv4Cidr;
pub use identifier::{ClientId, HostIdentifier};
pub use invalid::Invalid;
pub use mac::{MacAddress, MacPrefix};
pub use name::{DomainName, Fqdn, HostName};
pub use vmid::Vmid;
