//! What ZFS itself wrote on a disk: its label, as `zdb -l` shows it.

/// The label of a member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub pool: String,
    pub pool_guid: u64,
    pub state: PoolState,
    /// Of the host that used the pool last; a host without `/etc/hostid` writes none.
    pub hostid: Option<u64>,
    pub hostname: Option<String>,
    txg: u64,
}

/// `pool_state_t` of OpenZFS' include/sys/fs/zfs.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// In use, or not exported by the host that used it.
    Active,
    Exported,
    Destroyed,
    /// A hot spare or a cache device, or a state that this program does not know.
    Other(u64),
}

impl PoolState {
    fn of_number(number: u64) -> Self {
        match number {
            0 => Self::Active,
            1 => Self::Exported,
            2 => Self::Destroyed,
            other => Self::Other(other),
        }
    }

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "not exported",
            Self::Exported => "exported",
            Self::Destroyed => "destroyed",
            Self::Other(3) => "a hot spare of it",
            Self::Other(4) => "a cache device of it",
            Self::Other(_) => "in a state that this program does not know",
        }
    }
}

/// Reads the output of `zdb -l DEVICE`: of four copies the youngest; none where no copy can be read.
/// Spares and cache devices name no pool: theirs is empty.
#[must_use]
pub fn parse_label(text: &str) -> Option<Label> {
    let mut labels: Vec<Label> = Vec::new();
    for section in text.split("\nLABEL ").chain(text.strip_prefix("LABEL ")) {
        // Four blanks: deeper lines belong to the tree of vdevs.
        let fields = || {
            section
                .lines()
                .filter_map(|line| line.strip_prefix("    "))
                .filter(|line| !line.starts_with(' '))
                .filter_map(|line| line.split_once(": "))
        };
        let field = |name: &str| fields().find(|(key, _)| *key == name).map(|(_, value)| value.trim());
        let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
        let word = |name: &str| field(name).map(|value| value.trim_matches('\'').to_owned());
        let Some(state) = number("state") else { continue };
        labels.push(Label {
            pool: word("name").unwrap_or_default(),
            pool_guid: number("pool_guid").unwrap_or_default(),
            state: PoolState::of_number(state),
            hostid: number("hostid"),
            hostname: word("hostname"),
            txg: number("txg").unwrap_or_default(),
        });
    }
    labels.into_iter().max_by_key(|label| label.txg)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = "\
------------------------------------
LABEL 0 
------------------------------------
    version: 5000
    name: 'tank'
    state: 1
    txg: 12
    pool_guid: 12345678901234567890
    errata: 0
    hostid: 3735928559
    hostname: 'pve1'
    top_guid: 1
    guid: 2
    vdev_children: 1
    vdev_tree:
        type: 'mirror'
        id: 0
        state: 7
        name: 'inner'
    features_for_read:
        com.delphix:hole_birth
    labels = 0 1 2 3 
";

    #[test]
    fn the_pool_its_state_and_its_host_are_read() {
        let label = parse_label(EXPORTED).unwrap();
        assert_eq!(
            (label.pool.as_str(), label.pool_guid, label.state),
            ("tank", 12_345_678_901_234_567_890, PoolState::Exported)
        );
        assert_eq!((label.hostid, label.hostname.as_deref()), (Some(0xdead_beef), Some("pve1")));
    }

    #[test]
    fn of_several_copies_the_youngest_counts() {
        let younger = EXPORTED
            .replace("txg: 12", "txg: 13")
            .replace("state: 1", "state: 2")
            .replace("LABEL 0", "LABEL 2");
        assert_eq!(parse_label(&format!("{EXPORTED}{younger}")).unwrap().state, PoolState::Destroyed);
        assert_eq!(parse_label(&format!("{younger}{EXPORTED}")).unwrap().state, PoolState::Destroyed);
    }

    #[test]
    fn nothing_is_no_label() {
        let nothing = "failed to unpack label 0\nfailed to unpack label 1\nfailed to unpack label 2\nfailed to unpack label 3\n";
        assert_eq!(parse_label(nothing), None);
        assert_eq!(parse_label(""), None);
    }

    #[test]
    fn a_spare_names_no_pool() {
        let label = parse_label("LABEL 0\n    version: 5000\n    state: 3\n    guid: 7\n").unwrap();
        assert_eq!((label.pool.as_str(), label.state, label.hostid), ("", PoolState::Other(3), None));
    }
}
