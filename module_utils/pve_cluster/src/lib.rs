//! What a node of a Proxmox VE cluster says about itself: corosync.conf, corosync's tools, pmxcfs.
//!
//! Exit codes are never what is judged: `corosync-quorumtool -l` and `corosync-cfgtool -s` answer 0 on a node
//! that lost its quorum or a link. Only what was printed counts, and what cannot be read is an error.
//!
//! ```
//! use pve_cluster::Quorum;
//!
//! let said = "Quorate:          No\nNode ID:          0x00000001\nExpected votes:   3\nHighest expected: 3\n\
//!             Total votes:      1\nQuorum:           2 Activity blocked\n";
//! assert!(!Quorum::parse(said)?.quorate);
//! # Ok::<(), pve_cluster::ParseError>(())
//! ```

mod conf;
mod firewall;
mod link;
mod links;
mod members;
mod node;
mod probe;
mod proof;
mod quorum;
mod status;

use std::fmt;

pub use conf::{ConfNode, CorosyncConf};
pub use firewall::Firewall;
pub use link::{Link, LinkMap, MAX_LINK};
pub use links::{LinkState, LinkStatus, Links};
pub use members::{ClusterInfo, MemberInfo, Members, guests};
pub use node::{Node, SERVICES, clock_skew};
pub use probe::{Probe, ProbeError, Way};
pub use proof::{Missing, Wanted, own_proofs, peer_proofs};
pub use quorum::{Member, Quorum, parse_membership};
pub use status::Status;

/// Text that is not what its program writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What was read, such as `corosync.conf`.
    pub what: &'static str,
    pub why: String,
}

impl ParseError {
    pub(crate) fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read: {}", self.what, self.why)
    }
}

impl std::error::Error for ParseError {}
