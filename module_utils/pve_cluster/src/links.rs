//! `corosync-cfgtool -s`: this node's links, and whom it reaches over each.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ParseError;

const WHAT: &str = "the output of corosync-cfgtool -s";

/// The links of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Links {
    pub nodeid: u32,
    pub transport: String,
    pub links: Vec<LinkStatus>,
}

/// One link as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkStatus {
    pub number: u8,
    /// This node's own address on it.
    pub address: String,
    /// By nodeid, this node included.
    pub nodes: BTreeMap<u32, LinkState>,
}

/// Whether a node is reached over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The node itself.
    Localhost,
    Connected,
    Disconnected,
}

impl Links {
    /// # Errors
    /// Text that is something else, such as the brief form (`-sb`), which does not name the nodes, and what a
    /// stopped corosync leaves to be said ("Could not initialize corosync configuration API error 2").
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let bad = |line: &str| ParseError::new(WHAT, format!("not understood: `{line}`"));
        let head = lines.next().unwrap_or_default();
        let (nodeid, transport) = head
            .strip_prefix("Local node ID ")
            .and_then(|rest| rest.split_once(", transport "))
            .and_then(|(id, transport)| Some((id.parse().ok()?, transport.to_owned())))
            .ok_or_else(|| bad(head))?;
        let mut links: Vec<LinkStatus> = Vec::new();
        for line in lines {
            if let Some(rest) = line.strip_prefix("LINK ID ") {
                let number = rest.split_whitespace().next().and_then(|number| number.parse().ok());
                let number = number.ok_or_else(|| bad(line))?;
                links.push(LinkStatus { number, address: String::new(), nodes: BTreeMap::new() });
                continue;
            }
            let link = links.last_mut().ok_or_else(|| bad(line))?;
            if let Some(address) = line.strip_prefix("addr\t= ") {
                address.clone_into(&mut link.address);
            } else if let Some(rest) = line.strip_prefix("nodeid:") {
                let (id, state) = rest.split_once(':').ok_or_else(|| bad(line))?;
                let state = LinkState::read(state.trim()).ok_or_else(|| bad(line))?;
                link.nodes.insert(id.trim().parse().map_err(|_| bad(line))?, state);
            } else if line != "status:" {
                return Err(bad(line));
            }
        }
        // Every node reaches itself: what names no node is another form (`-n`, `-sb`), not a node without links.
        if links.is_empty() || links.iter().any(|link| link.nodes.is_empty()) {
            return Err(ParseError::new(WHAT, format!("it names no links or no nodes: `{}`", text.trim())));
        }
        Ok(Self { nodeid, transport, links })
    }

    /// Link and nodeid of each connection that is down.
    #[must_use]
    pub fn down(&self) -> Vec<(u8, u32)> {
        let down = |link: &LinkStatus| {
            let nodes = link.nodes.iter().filter(|(_, state)| **state == LinkState::Disconnected);
            nodes.map(|(node, _)| (link.number, *node)).collect::<Vec<_>>()
        };
        self.links.iter().flat_map(down).collect()
    }
}

impl LinkState {
    fn read(word: &str) -> Option<Self> {
        match word {
            "localhost" => Some(Self::Localhost),
            "connected" => Some(Self::Connected),
            "disconnected" => Some(Self::Disconnected),
            _ => None,
        }
    }
}
