//! Files that pmxcfs makes as they are read: `/etc/pve/.members` and `/etc/pve/.vmlist`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::ParseError;

/// `/etc/pve/.members`: the cluster as this node's pmxcfs sees it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Members {
    pub nodename: String,
    /// None on a node that is in no cluster.
    pub cluster: Option<ClusterInfo>,
    #[serde(default)]
    pub nodelist: BTreeMap<String, MemberInfo>,
}

/// The cluster's own part.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClusterInfo {
    pub name: String,
    /// `config_version` of corosync.conf.
    pub version: u64,
    /// Without quorum /etc/pve cannot be written.
    #[serde(deserialize_with = "flag")]
    pub quorate: bool,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MemberInfo {
    pub id: u32,
    #[serde(deserialize_with = "flag")]
    pub online: bool,
    /// What the node's name stood for when it last joined in.
    pub ip: Option<String>,
}

fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    u8::deserialize(deserializer).map(|number| number == 1)
}

impl Members {
    /// # Errors
    /// It is no such JSON.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        serde_json::from_str(text).map_err(|error| ParseError::new("/etc/pve/.members", error.to_string()))
    }
}

/// The VMIDs in `/etc/pve/.vmlist`: VMs and containers of every node.
///
/// # Errors
/// It is no such JSON.
pub fn guests(text: &str) -> Result<Vec<u32>, ParseError> {
    let bad = |why: String| ParseError::new("/etc/pve/.vmlist", why);
    let list: Value = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    let Some(ids) = list.get("ids").and_then(Value::as_object) else { return Ok(Vec::new()) };
    let mut vmids: Vec<u32> = ids
        .keys()
        .map(|id| id.parse().map_err(|_| bad(format!("`{id}` is no VMID"))))
        .collect::<Result<_, _>>()?;
    vmids.sort_unstable();
    Ok(vmids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_is_in_no_cluster() {
        let members = Members::parse("{\n\"nodename\": \"pve9\",\n\"version\": 0\n}\n").unwrap();
        assert_eq!((members.nodename.as_str(), members.cluster), ("pve9", None));
    }

    #[test]
    fn guests_are_counted_in_numbers() {
        let list = r#"{"version": 3, "ids": {"1000": {"node": "a", "type": "lxc", "version": 1}, "101": {"node": "a",
                       "type": "qemu", "version": 2}}}"#;
        assert_eq!(guests(list), Ok(vec![101, 1000]));
        assert_eq!(guests("{\n\"version\": 0\n\n}\n"), Ok(vec![]));
        assert!(guests(r#"{"ids": {"x": {}}}"#).is_err());
        assert!(guests("cat: /etc/pve/.vmlist: Transport endpoint is not connected").is_err());
    }
}
