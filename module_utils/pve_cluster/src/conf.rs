//! corosync.conf: sections of `key: value` lines, as corosync.conf(5) has them.

use std::collections::BTreeMap;
use std::fmt;

use crate::ParseError;
use crate::link::MAX_LINK;

const WHAT: &str = "corosync.conf";

/// A corosync.conf; it is printed in the form that pve-cluster writes (comments are not kept).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorosyncConf {
    root: Section,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Section {
    values: Vec<(String, String)>,
    sections: Vec<(String, Section)>,
}

/// A node of the node list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfNode {
    pub name: String,
    pub nodeid: u32,
    /// 1 where the file has none: votequorum(5).
    pub votes: u32,
    /// Link number to address (`ringN_addr`).
    pub links: BTreeMap<u8, String>,
}

impl CorosyncConf {
    /// # Errors
    /// What is no corosync.conf, and a value that corosync and pve-cluster read differently: with blanks or a `#`
    /// in it (PVE::Corosync `parse_conf` ends it there, corosync does not).
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut open = vec![(String::new(), Section::default())];
        for (index, line) in text.lines().enumerate() {
            let bad =
                |why: &str| ParseError::new(WHAT, format!("line {}: {why}: `{}`", index + 1, line.trim()));
            let line_text = line.trim();
            if line_text.is_empty() || line_text.starts_with('#') {
                continue;
            }
            if let Some(name) = line_text.strip_suffix('{') {
                let name = name.trim();
                if !is_word(name) {
                    return Err(bad("no name of a section"));
                }
                open.push((name.to_owned(), Section::default()));
            } else if line_text == "}" {
                let Some((name, section)) = open.pop().filter(|(name, _)| !name.is_empty()) else {
                    return Err(bad("nothing to close"));
                };
                if let Some((_, parent)) = open.last_mut() {
                    parent.sections.push((name, section));
                }
            } else {
                let (key, value) =
                    line_text.split_once(':').ok_or_else(|| bad("neither section nor value"))?;
                let (key, value) = (key.trim(), value.trim());
                if !is_word(key) || !is_word(value) {
                    return Err(bad("expected `key: value`, the value without blanks and `#`"));
                }
                if let Some((_, section)) = open.last_mut() {
                    section.values.push((key.to_owned(), value.to_owned()));
                }
            }
        }
        match (open.pop(), open.is_empty()) {
            (Some((_, root)), true) => Ok(Self { root }),
            (open, _) => {
                let name = open.map(|(name, _)| name).unwrap_or_default();
                Err(ParseError::new(WHAT, format!("the section `{name}` is not closed")))
            }
        }
    }

    fn totem(&self) -> Option<&Section> {
        self.root.section("totem")
    }

    /// `totem.cluster_name`.
    #[must_use]
    pub fn cluster_name(&self) -> Option<&str> {
        self.totem()?.value("cluster_name")
    }

    /// `totem.config_version`.
    #[must_use]
    pub fn config_version(&self) -> Option<u64> {
        self.totem()?.value("config_version")?.parse().ok()
    }

    /// The node list in the order of the file.
    ///
    /// # Errors
    /// A node without a name or number, or a name or number given twice.
    pub fn nodes(&self) -> Result<Vec<ConfNode>, ParseError> {
        let list = self.root.section("nodelist");
        let sections = list.into_iter().flat_map(|list| list.all("node"));
        let nodes: Vec<ConfNode> = sections.map(ConfNode::read).collect::<Result<_, _>>()?;
        for (index, node) in nodes.iter().enumerate() {
            if let Some(twin) =
                nodes[..index].iter().find(|other| other.name == node.name || other.nodeid == node.nodeid)
            {
                let why = format!("the nodes `{}` and `{}` share a name or a nodeid", twin.name, node.name);
                return Err(ParseError::new(WHAT, why));
            }
        }
        Ok(nodes)
    }

    /// The links that the cluster has: every number that a node has an address for.
    ///
    /// # Errors
    /// As [`Self::nodes`].
    pub fn link_numbers(&self) -> Result<Vec<u8>, ParseError> {
        let mut numbers: Vec<u8> = self.nodes()?.iter().flat_map(|node| node.links.keys().copied()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// This file with one link more and the next `config_version`.
    ///
    /// # Errors
    /// The link is there already, or a node of the list has no address in `addresses`.
    pub fn with_link(&self, number: u8, addresses: &BTreeMap<String, String>) -> Result<Self, ParseError> {
        if self.link_numbers()?.contains(&number) {
            return Err(ParseError::new(WHAT, format!("link {number} is there already")));
        }
        let version =
            self.config_version().ok_or_else(|| ParseError::new(WHAT, "it has no config_version"))?;
        let mut new = self.clone();
        let list =
            new.root.section_mut("nodelist").ok_or_else(|| ParseError::new(WHAT, "it has no nodelist"))?;
        for (_, node) in list.sections.iter_mut().filter(|(name, _)| name == "node") {
            let name = ConfNode::read(node)?.name;
            let address = addresses
                .get(&name)
                .ok_or_else(|| ParseError::new(WHAT, format!("there is no address for the node `{name}`")))?;
            node.set(&format!("ring{number}_addr"), address);
        }
        let totem = new.root.section_mut("totem").ok_or_else(|| ParseError::new(WHAT, "it has no totem"))?;
        totem.set("config_version", &(version + 1).to_string());
        // pve-cluster wants an interface for each link as soon as there is one at all (`verify_conf`).
        if totem.section("interface").is_some() {
            let mut interface = Section::default();
            interface.set("linknumber", &number.to_string());
            totem.sections.push(("interface".into(), interface));
        }
        Ok(new)
    }
}

impl ConfNode {
    fn read(section: &Section) -> Result<Self, ParseError> {
        let number = |key: &str| section.value(key).map(str::parse::<u32>);
        let bad = |why: String| ParseError::new(WHAT, why);
        let name = section.value("name").or_else(|| section.value("ring0_addr"));
        let name = name.ok_or_else(|| bad("a node without a name".into()))?.to_owned();
        let nodeid = match number("nodeid") {
            Some(Ok(nodeid)) => nodeid,
            _ => return Err(bad(format!("the node `{name}` has no nodeid that is a number"))),
        };
        let votes = number("quorum_votes").unwrap_or(Ok(1));
        let votes = votes.map_err(|_| bad(format!("quorum_votes of the node `{name}` is no number")))?;
        let links = (0..=MAX_LINK)
            .filter_map(|link| Some((link, section.value(&format!("ring{link}_addr"))?.to_owned())))
            .collect();
        Ok(Self { name, nodeid, votes, links })
    }
}

impl Section {
    /// The last one counts, as in corosync.
    fn value(&self, key: &str) -> Option<&str> {
        self.values.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, key: &str, value: &str) {
        match self.values.iter_mut().rev().find(|(name, _)| name == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.values.push((key.to_owned(), value.to_owned())),
        }
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|(own, _)| own == name).map(|(_, section)| section)
    }

    fn section_mut(&mut self, name: &str) -> Option<&mut Section> {
        self.sections.iter_mut().find(|(own, _)| own == name).map(|(_, section)| section)
    }

    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Section> {
        self.sections.iter().filter(move |(own, _)| own == name).map(|(_, section)| section)
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        for (key, value) in &self.values {
            writeln!(f, "{indent}{key}: {value}")?;
        }
        for (name, section) in &self.sections {
            writeln!(f, "{indent}{name} {{")?;
            section.print(f, depth + 1)?;
            writeln!(f, "{indent}}}")?;
            if depth == 0 {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for CorosyncConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.print(f, 0)
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "{}#".contains(c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn section() -> impl Strategy<Value = Section> {
        let word = "[a-z_][a-z0-9_.-]{0,8}";
        let values = prop::collection::vec((word, "[a-zA-Z0-9:._/-]{1,12}"), 0..4);
        let leaf = values.clone().prop_map(|values| Section { values, sections: Vec::new() });
        leaf.prop_recursive(3, 12, 3, move |inner| {
            (values.clone(), prop::collection::vec((word, inner), 0..3))
                .prop_map(|(values, sections)| Section { values, sections })
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(root in section()) {
            let conf = CorosyncConf { root };
            prop_assert_eq!(CorosyncConf::parse(&conf.to_string()), Ok(conf));
        }

        #[test]
        fn nothing_makes_it_panic(text in "[a-z{}:# \n]{0,80}") {
            if let Ok(conf) = CorosyncConf::parse(&text) {
                prop_assert_eq!(CorosyncConf::parse(&conf.to_string()), Ok(conf));
            }
        }
    }

    const TWO_NODES: &str = "# made by hand\ntotem {\n version: 2\n  cluster_name: lab\n  config_version: 4\n  interface {\n    \
        linknumber: 0\n  }\n}\nnodelist {\n  node {\n    name: pve\n    nodeid: 1\n    quorum_votes: 2\n    ring0_addr: \
        10.0.0.1\n  }\n  node {\n    name: pve2\n    nodeid: 2\n    ring0_addr: 10.0.0.2\n  }\n}\n";

    #[test]
    fn names_votes_and_links_are_read() {
        let conf = CorosyncConf::parse(TWO_NODES).unwrap();
        assert_eq!((conf.cluster_name(), conf.config_version()), (Some("lab"), Some(4)));
        assert_eq!(conf.link_numbers(), Ok(vec![0]));
        let nodes = conf.nodes().unwrap();
        let short: Vec<_> = nodes
            .iter()
            .map(|node| (node.name.as_str(), node.nodeid, node.votes, node.links[&0].as_str()))
            .collect();
        assert_eq!(short, [("pve", 1, 2, "10.0.0.1"), ("pve2", 2, 1, "10.0.0.2")]);
    }

    #[test]
    fn a_second_link_changes_the_version_and_every_node() {
        let conf = CorosyncConf::parse(TWO_NODES).unwrap();
        let addresses = |list: &[(&str, &str)]| {
            list.iter().map(|(name, address)| ((*name).to_owned(), (*address).to_owned())).collect()
        };
        let both = addresses(&[("pve", "10.1.0.1"), ("pve2", "10.1.0.2")]);
        insta::assert_snapshot!(conf.with_link(1, &both).unwrap(), @r"
        totem {
          version: 2
          cluster_name: lab
          config_version: 5
          interface {
            linknumber: 0
          }
          interface {
            linknumber: 1
          }
        }

        nodelist {
          node {
            name: pve
            nodeid: 1
            quorum_votes: 2
            ring0_addr: 10.0.0.1
            ring1_addr: 10.1.0.1
          }
          node {
            name: pve2
            nodeid: 2
            ring0_addr: 10.0.0.2
            ring1_addr: 10.1.0.2
          }
        }
        ");
        let why = |number, addresses| conf.with_link(number, &addresses).unwrap_err().to_string();
        assert_eq!(why(0, both), "corosync.conf cannot be read: link 0 is there already");
        assert_eq!(
            why(1, addresses(&[("pve", "10.1.0.1")])),
            "corosync.conf cannot be read: there is no address for the node `pve2`"
        );
    }

    #[test]
    fn what_is_no_corosync_conf_is_refused_with_its_line() {
        for (text, why) in [
            ("totem {", "the section `totem` is not closed"),
            ("}", "line 1: nothing to close: `}`"),
            ("totem {\n}\n}", "line 3: nothing to close: `}`"),
            ("a b {\n}", "line 1: no name of a section: `a b {`"),
            ("totem", "line 1: neither section nor value: `totem`"),
            ("key:", "line 1: expected `key: value`, the value without blanks and `#`: `key:`"),
            ("key: a b", "line 1: expected `key: value`, the value without blanks and `#`: `key: a b`"),
            ("key: a#b", "line 1: expected `key: value`, the value without blanks and `#`: `key: a#b`"),
        ] {
            assert_eq!(CorosyncConf::parse(text), Err(ParseError::new(WHAT, why)), "{text}");
        }
        for nodes in [
            "node {\n nodeid: 1\n}",
            "node {\n name: a\n}",
            "node {\n name: a\n nodeid: x\n}",
            "node {\n name: a\n nodeid: 1\n quorum_votes: x\n}",
            "node {\n name: a\n nodeid: 1\n}\nnode {\n name: b\n nodeid: 1\n}",
        ] {
            let conf = CorosyncConf::parse(&format!("nodelist {{\n{nodes}\n}}")).unwrap();
            assert!(conf.nodes().is_err(), "{nodes}");
        }
    }
}
