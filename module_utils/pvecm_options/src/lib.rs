//! What the pvecm modules share: options, the look at a node, and how a node is reported.

mod faults;
mod report;
mod unattended;

use std::collections::BTreeMap;

use ansible_module::{ErrorCode, Failure, Opt, Run, Table};
use host::{CommandError, Host};
use pve_cluster::{Link, LinkMap, Missing, Node, Probe, ProbeError, Way};
use serde::Deserialize;

pub use faults::{Fault, node_faults, refusal};
pub use report::{RETURNS, report};
pub use unattended::unattended;

const LINKS: [&str; 8] = ["link0", "link1", "link2", "link3", "link4", "link5", "link6", "link7"];
/// PVE::API2::ClusterConfig `create`.
const LONGEST_NAME: usize = 15;

/// The option `links`, with a sub-option for each link.
#[must_use]
pub fn links_option(doc: &str) -> Opt {
    let link = |name| Opt::str(name).doc("An address of this node, such as V(10.0.0.1).");
    Opt::dict_of("links", Table::new(LINKS.map(link).to_vec())).doc(doc)
}

/// `links` as it was given.
#[derive(Debug, Default, Deserialize)]
pub struct RawLinks(BTreeMap<String, Option<String>>);

impl RawLinks {
    /// # Errors
    /// `bad_argument`: not an address, or one given twice.
    pub fn check(&self) -> Result<LinkMap, Failure> {
        let mut links = LinkMap::new();
        for (name, number) in LINKS.iter().zip(0..) {
            let Some(text) = self.0.get(*name).and_then(Option::as_deref) else { continue };
            let bad = |why: String| Failure::bad_argument(format!("links.{name}"), why);
            let link: Link = text.parse().map_err(bad)?;
            if let Some((twin, _)) = links.iter().find(|(_, other)| other.address == link.address) {
                return Err(bad(format!("{} is the address of link{twin} already", link.address)));
            }
            links.insert(number, link);
        }
        Ok(links)
    }
}

/// A cluster's name as pvecm takes it: `pve-node` format, 15 characters.
///
/// # Errors
/// `bad_argument`.
pub fn check_cluster_name(name: &str) -> Result<(), Failure> {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let edges = !name.starts_with('-') && !name.ends_with('-');
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(inner) && edges {
        return Ok(());
    }
    let why = format!("expected 1 to {LONGEST_NAME} letters, digits and inner `-`, found `{name}`");
    Err(Failure::bad_argument("cluster_name", why))
}

/// Looks at a node.
///
/// # Errors
/// [`ProbeError`].
pub fn look(host: &Host, way: &Way, run: &Run) -> Result<Node, ProbeError> {
    Probe::take(host, way, &run.deadline).map(|probe| Node::read(&probe))
}

/// Looks at this node.
///
/// # Errors
/// The script could not be run.
pub fn look_here(host: &Host, run: &Run) -> Result<Node, Failure> {
    look(host, &Way::Here, run).map_err(|error| match error {
        ProbeError::Command(error) => command_failure(error),
        other => Failure::new(ErrorCode::COMMAND_FAILED, other.to_string()),
    })
}

/// A command's failure as a module's.
#[must_use]
pub fn command_failure(error: CommandError) -> Failure {
    match error {
        CommandError::Stopped { why, .. } => Failure::from(why).while_doing(error),
        other => Failure::new(ErrorCode::COMMAND_FAILED, other.to_string()),
    }
}

/// The proofs that are not there, in a sentence.
#[must_use]
pub fn sentence(missing: &[Missing]) -> String {
    missing.iter().map(|missing| format!("{}: {}", missing.proof, missing.why)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(links: &[(&str, &str)]) -> RawLinks {
        RawLinks(links.iter().map(|(name, text)| ((*name).to_owned(), Some((*text).to_owned()))).collect())
    }

    #[test]
    fn links_are_numbered_by_their_names() {
        let links = raw(&[("link0", "10.0.0.1"), ("link3", "10.3.0.1,priority=5")]).check().unwrap();
        assert_eq!(links.keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert_eq!(links[&3].priority, Some(5));
        for wrong in [&[("link0", "pve1")][..], &[("link0", "10.0.0.1"), ("link1", "10.0.0.1")]] {
            assert_eq!(raw(wrong).check().unwrap_err().code, ErrorCode::BAD_ARGUMENT, "{wrong:?}");
        }
    }

    #[test]
    fn a_name_has_at_most_15_characters() {
        for name in ["lab", "a", "fifteen-letters", "0"] {
            assert!(check_cluster_name(name).is_ok(), "{name}");
        }
        for name in ["", "sixteen-letters-", "a-name-of-sixteen", "-a", "a-", "a_b", "a.b", "ä"] {
            assert!(check_cluster_name(name).is_err(), "{name}");
        }
    }
}
