//! Asks a network segment what DHCPv4 would give a client: one DISCOVER, the OFFERs that come back.
//!
//! It stops after the OFFER: nothing is requested, no lease is taken. The client's MAC address is the
//! DHCP field `chaddr` only; the Ethernet source is the interface's own address, so that no switch
//! learns a wrong port and no filter drops a foreign source. The broadcast flag brings the answer back
//! to an interface that does not own the client's address (RFC 2131, section 4.1).
//!
//! Raw packet sockets (CAP_NET_RAW) are needed: an address-less client cannot use an ordinary socket.

mod message;
mod wire;

pub use message::{Architecture, Discover, Offer};
pub use wire::{ProbeError, Segment};
