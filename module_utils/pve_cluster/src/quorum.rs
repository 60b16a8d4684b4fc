//! `corosync-quorumtool`: `-s` (with or without `-i`, `-p`, `-H`) and `-l`.

use serde::Serialize;

use crate::ParseError;

const WHAT: &str = "the output of corosync-quorumtool";

/// votequorum as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quorum {
    pub quorate: bool,
    pub nodeid: u32,
    pub expected_votes: u32,
    pub highest_expected: u32,
    pub total_votes: u32,
    /// Votes that are needed.
    pub quorum: u32,
    pub flags: Vec<String>,
    /// Who can be reached, this node included.
    pub members: Vec<Member>,
}

/// A row of the membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// 0 is the quorum device.
    pub nodeid: u32,
    pub votes: u32,
    /// A node's name, or with `-i` its address on the first link.
    pub name: String,
    pub local: bool,
}

impl Quorum {
    /// Reads everything that `-s` prints. Whether there is quorum stands in three places; they must agree.
    ///
    /// # Errors
    /// A field is missing (corosync is not running: "Cannot initialize CMAP service"), or they contradict.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let field = |label: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(label)?.strip_prefix(':'));
            lines.next().map(str::trim)
        };
        let missing = |label: &str| ParseError::new(WHAT, format!("no `{label}` in it: `{}`", text.trim()));
        let count = |label: &str| -> Result<u32, ParseError> {
            let value = field(label).ok_or_else(|| missing(label))?;
            number(value.split_whitespace().next().unwrap_or_default())
                .ok_or_else(|| ParseError::new(WHAT, format!("`{label}` is no number: `{value}`")))
        };
        let quorate = match field("Quorate") {
            Some("Yes") => true,
            Some("No") => false,
            Some(other) => return Err(ParseError::new(WHAT, format!("`Quorate` is `{other}`"))),
            None => return Err(missing("Quorate")),
        };
        let quorum = Self {
            quorate,
            nodeid: count("Node ID")?,
            expected_votes: count("Expected votes")?,
            highest_expected: count("Highest expected")?,
            total_votes: count("Total votes")?,
            quorum: count("Quorum")?,
            flags: field("Flags").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            members: parse_membership(text)?,
        };
        let blocked = field("Quorum").is_some_and(|value| value.ends_with("Activity blocked"));
        let flagged = quorum.flags.iter().any(|flag| flag == "Quorate");
        if blocked == quorate || (quorate != flagged && field("Flags").is_some()) {
            return Err(ParseError::new(
                WHAT,
                format!("it contradicts itself about quorum: `{}`", text.trim()),
            ));
        }
        Ok(quorum)
    }

    /// This node's own row.
    #[must_use]
    pub fn own(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.nodeid == self.nodeid)
    }
}

/// The rows under "Membership information"; none when there is no such part.
///
/// # Errors
/// A row that is none.
pub fn parse_membership(text: &str) -> Result<Vec<Member>, ParseError> {
    let mut rows = text.lines().skip_while(|line| !line.trim_start().starts_with("Nodeid"));
    let Some(header) = rows.next() else { return Ok(Vec::new()) };
    // Only with a quorum device, or with -p.
    let has_qdevice = header.contains("Qdevice");
    rows.take_while(|line| !line.trim().is_empty()).map(|line| row(line, has_qdevice)).collect()
}

fn row(line: &str, has_qdevice: bool) -> Result<Member, ParseError> {
    let bad = || ParseError::new(WHAT, format!("no row of the membership: `{line}`"));
    let mut words = line.split_whitespace();
    let nodeid = words.next().and_then(number).ok_or_else(bad)?;
    let votes = words.next().and_then(number).ok_or_else(bad)?;
    // The device's own row has no state in that column.
    if has_qdevice && nodeid != 0 {
        words.next().ok_or_else(bad)?;
    }
    let name = words.next().ok_or_else(bad)?.to_owned();
    match (words.next(), words.next()) {
        (None, None) => Ok(Member { nodeid, votes, name, local: false }),
        (Some("(local)"), None) => Ok(Member { nodeid, votes, name, local: true }),
        _ => Err(bad()),
    }
}

fn number(text: &str) -> Option<u32> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUORATE: &str = "Quorate:          Yes\nNode ID:          0x0000000a\nExpected votes:   3\nHighest expected: 3\n\
        Total votes:      3\nQuorum:           2  \nFlags:            Quorate Qdevice \n\nMembership information\n\
        ----------------------\n    Nodeid      Votes    Qdevice Name\n0x0000000a          1    A,V,NMW 10.77.0.1 (local)\n\
        0x0000000b          1    A,V,NMW 10.77.0.2\n0x00000000          1            Qdevice\n";

    #[test]
    fn a_quorum_device_has_a_row_and_a_column() {
        let quorum = Quorum::parse(QUORATE).unwrap();
        assert_eq!((quorum.quorate, quorum.nodeid, quorum.quorum), (true, 10, 2));
        assert_eq!(quorum.own().unwrap().name, "10.77.0.1");
        let rows: Vec<_> =
            quorum.members.iter().map(|member| (member.nodeid, member.name.as_str())).collect();
        assert_eq!(rows, [(10, "10.77.0.1"), (11, "10.77.0.2"), (0, "Qdevice")]);
    }

    #[test]
    fn contradictions_and_gaps_are_refused() {
        for (old, new) in [
            ("Quorate:          Yes", "Quorate:          No"),
            ("Quorate:          Yes", "Quorate:          Maybe"),
            ("Quorum:           2  ", "Quorum:           2 Activity blocked"),
            ("Quorate Qdevice", "Qdevice"),
            ("Total votes:      3", "Total votes:      three"),
            ("Expected votes:   3\n", ""),
            ("0x0000000b          1", "0x0000000b"),
            ("10.77.0.2\n", "10.77.0.2 (remote)\n"),
        ] {
            assert!(QUORATE.contains(old));
            assert!(Quorum::parse(&QUORATE.replace(old, new)).is_err(), "{new}");
        }
    }
}
