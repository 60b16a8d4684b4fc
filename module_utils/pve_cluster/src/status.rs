//! `pvecm status`: a header of its own over `corosync-quorumtool -siH` (PVE::CLI::pvecm `status`).

use serde::Serialize;

use crate::{ParseError, Quorum};

const WHAT: &str = "the output of pvecm status";

/// A cluster as pvecm shows it on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub name: String,
    pub config_version: u64,
    pub transport: String,
    pub secure_auth: bool,
    pub quorum: Quorum,
}

impl Status {
    /// # Errors
    /// A part is missing: no cluster ("Error: Corosync config ... does not exist"), or corosync does not run.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let field = |label: &str| {
            let value =
                text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(':')).map(str::trim);
            value.ok_or_else(|| ParseError::new(WHAT, format!("no `{label}` in it: `{}`", text.trim())))
        };
        let version = field("Config Version")?;
        Ok(Self {
            name: field("Name")?.to_owned(),
            config_version: version
                .parse()
                .map_err(|_| ParseError::new(WHAT, format!("`Config Version` is no number: `{version}`")))?,
            transport: field("Transport")?.to_owned(),
            secure_auth: field("Secure auth")? == "on",
            quorum: Quorum::parse(text)?,
        })
    }
}
