//! What a guest tells about itself.

use crate::args::{Expected, RootSize};

/// Understood by every shell. The mark parts the answers from what a login script may print before.
pub(crate) const QUESTION: &str =
    "echo anvil-facts; hostname 2>/dev/null || uname -n; env LC_ALL=C df -P -k /";
const MARK: &str = "anvil-facts";

const KIB_IN_GIB: f64 = 1_048_576.0;
/// How much larger than declared a root file system may look: disk sizes get rounded up.
const ROUNDING_GIB: f64 = 0.5;

/// The answers to [`QUESTION`].
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub hostname: String,
    pub root_size_gib: f64,
}

impl Facts {
    /// `None` when an answer is missing.
    pub(crate) fn parse(answer: &str) -> Option<Self> {
        let mut lines = answer.lines().skip_while(|line| line.trim() != MARK).skip(1);
        let hostname = lines.next()?.trim().to_owned();
        let root = lines.find(|line| line.split_ascii_whitespace().next_back() == Some("/"))?;
        // Read from the end (POSIX df: blocks, used, available, capacity, mount point): the file system's
        // name in front may hold blanks.
        let blocks: f64 = root.split_ascii_whitespace().rev().nth(4)?.parse().ok()?;
        let root_size_gib = (blocks / KIB_IN_GIB * 100.0).round() / 100.0;
        (!hostname.is_empty()).then_some(Self { hostname, root_size_gib })
    }
}

/// A field that is not as declared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Deviation {
    pub(crate) field: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
    /// Where to look, beyond the field itself.
    pub(crate) hint: &'static str,
}

impl Expected {
    /// Every field in which the guest is something else.
    pub(crate) fn deviations(&self, facts: &Facts) -> Vec<Deviation> {
        let hostname = self.hostname.as_ref().filter(|wanted| !is_called(wanted.as_str(), &facts.hostname));
        let hostname = hostname.map(|wanted| Deviation {
            field: "hostname",
            expected: wanted.to_string(),
            found: facts.hostname.clone(),
            hint: "another guest answers at this address, or cloud-init did not set the name",
        });
        let root = self.root.and_then(|size| root_deviation(size, facts.root_size_gib));
        hostname.into_iter().chain(root).collect()
    }
}

fn root_deviation(size: RootSize, found: f64) -> Option<Deviation> {
    let RootSize { declared, tolerance } = size;
    let hint = if found < declared - tolerance {
        "the disk may have grown while growpart or the file system's resize did not run in the guest"
    } else if found > declared + ROUNDING_GIB {
        "the guest has a larger disk than declared"
    } else {
        return None;
    };
    Some(Deviation {
        field: "root_size_gib",
        expected: format!("{declared} (at least {:.2})", (declared - tolerance).max(0.0)),
        found: found.to_string(),
        hint,
    })
}

/// A name without a dot speaks of the first label only; a guest without a domain answers with one label.
fn is_called(wanted: &str, found: &str) -> bool {
    let found = found.to_ascii_lowercase();
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    if wanted.contains('.') && found.contains('.') { found == wanted } else { first(&found) == first(wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DF: &str = "Filesystem     1024-blocks    Used Available Capacity Mounted on\n";

    #[test]
    fn facts_are_read_behind_the_mark() {
        for (answer, facts) in [
            (format!("anvil-facts\nweb01\n{DF}/dev/vda3 65011712 1 2 3% /\n"), Some(("web01", 62.0))),
            (
                format!(
                    "Welcome!\nweb02\nanvil-facts\nWeb01.example.net\n{DF}/dev/mapper/fedora root 1048576 1 2 3% /\n"
                ),
                Some(("Web01.example.net", 1.0)),
            ),
            (format!("anvil-facts\nweb01\n{DF}/dev/vda3 1048576 1 2 3% /boot\n"), None),
            (format!("web01\n{DF}/dev/vda3 1048576 1 2 3% /\n"), None),
            (format!("anvil-facts\n\n{DF}/dev/vda3 1048576 1 2 3% /\n"), None),
            ("anvil-facts\nweb01\ndf: not found\n".to_owned(), None),
            (String::new(), None),
        ] {
            let facts = facts.map(|(name, root_size_gib)| Facts { hostname: name.into(), root_size_gib });
            assert_eq!(Facts::parse(&answer), facts, "{answer}");
        }
    }

    #[test]
    fn a_hostname_may_come_with_or_without_a_domain() {
        for (wanted, found, same) in [
            ("web01", "web01", true),
            ("web01", "WEB01.example.net", true),
            ("web01.example.net", "web01", true),
            ("web01.example.net", "web01.example.net", true),
            ("web01.example.net", "web01.example.org", false),
            ("web01", "web010", false),
            ("web01", "localhost", false),
        ] {
            assert_eq!(is_called(wanted, found), same, "{wanted} {found}");
        }
    }

    #[test]
    fn a_root_that_did_not_grow_is_seen() {
        let deviation = |declared, tolerance, found| {
            root_deviation(RootSize { declared, tolerance }, found).map(|deviation| deviation.expected)
        };
        assert_eq!(deviation(64.0, 4.7, 62.7), None);
        assert_eq!(deviation(64.0, 4.7, 64.0), None);
        assert_eq!(deviation(64.0, 4.7, 31.3), Some("64 (at least 59.30)".into()));
        assert_eq!(deviation(64.0, 0.0, 63.99), Some("64 (at least 64.00)".into()));
        assert_eq!(deviation(1.0, 1.55, 0.2), None, "the tolerance is larger than the disk");
        assert_eq!(deviation(32.0, 3.1, 63.0), Some("32 (at least 28.90)".into()), "too large");
    }
}
