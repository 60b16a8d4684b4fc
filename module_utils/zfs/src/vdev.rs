//! The tree of a pool as `zpool status` shows it.

use std::path::{Path, PathBuf};

use crate::layout::Layout;

/// An imported pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// `ONLINE`, `DEGRADED`, `FAULTED`, `UNAVAIL`, `SUSPENDED`.
    pub state: String,
    /// Only in the JSON form.
    pub guid: Option<u64>,
    /// Top-level vdevs of every class.
    pub vdevs: Vec<Vdev>,
}

/// What a vdev is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Normal,
    Log,
    Cache,
    Spare,
    Special,
    Dedup,
}

impl Class {
    /// The pool cannot be read without it.
    #[must_use]
    pub fn holds_data(self) -> bool {
        matches!(self, Self::Normal | Self::Special | Self::Dedup)
    }

    /// The heading of the text form (`logs`), and its key in the JSON form where that differs.
    pub(crate) fn of_heading(heading: &str) -> Option<Self> {
        match heading {
            "logs" => Some(Self::Log),
            "cache" | "l2cache" => Some(Self::Cache),
            "spares" => Some(Self::Spare),
            "special" => Some(Self::Special),
            "dedup" => Some(Self::Dedup),
            _ => None,
        }
    }

    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Normal => "data",
            Self::Log => "logs",
            Self::Cache => "cache",
            Self::Spare => "spares",
            Self::Special => "special",
            Self::Dedup => "dedup",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VdevKind {
    Mirror,
    /// With its parity.
    Raidz(u8),
    /// A disk or a file.
    Leaf,
    /// `draid1:4d:6c:0s`, `replacing`, `spare`, `indirect`.
    Other(String),
}

impl VdevKind {
    /// Of `mirror-0`, `raidz2-1`, `replacing-0`; a path or a number is a leaf.
    pub(crate) fn of_name(name: &str) -> Self {
        let Some((word, number)) = name.rsplit_once('-') else { return Self::Leaf };
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Self::Leaf;
        }
        match word {
            "mirror" => Self::Mirror,
            "raidz1" => Self::Raidz(1),
            "raidz2" => Self::Raidz(2),
            "raidz3" => Self::Raidz(3),
            "replacing" | "spare" | "indirect" | "hole" | "missing" => Self::Other(word.to_owned()),
            word if word.starts_with("draid") => Self::Other(word.to_owned()),
            _ => Self::Leaf,
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Mirror => "mirror".into(),
            Self::Raidz(parity) => format!("raidz{parity}"),
            Self::Leaf => "stripe".into(),
            Self::Other(word) => word.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vdev {
    /// As ZFS shows it: `mirror-0`, a path, or the GUID of a disk that is missing.
    pub name: String,
    pub kind: VdevKind,
    pub class: Class,
    pub state: String,
    /// Of a leaf: where ZFS has it open, or had it last.
    pub path: Option<PathBuf>,
    pub children: Vec<Vdev>,
}

impl Vdev {
    /// This vdev and everything below it.
    pub fn tree(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        Box::new(std::iter::once(self).chain(self.children.iter().flat_map(Self::tree)))
    }
}

impl Pool {
    /// Everything that has a path.
    pub fn leaves(&self) -> impl Iterator<Item = &Vdev> {
        self.vdevs.iter().flat_map(Vdev::tree).filter(|vdev| vdev.kind == VdevKind::Leaf)
    }

    /// The paths of the leaves that hold data.
    pub fn data_paths(&self) -> impl Iterator<Item = &Path> {
        self.leaves().filter(|leaf| leaf.class.holds_data()).filter_map(|leaf| leaf.path.as_deref())
    }

    fn data_vdevs(&self) -> impl Iterator<Item = &Vdev> {
        self.vdevs.iter().filter(|vdev| vdev.class.holds_data())
    }

    /// The layout, when it is one that [`Layout`] has.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        let vdevs: Vec<&Vdev> = self.data_vdevs().collect();
        if vdevs.iter().any(|vdev| vdev.class != Class::Normal) {
            return None;
        }
        match vdevs[..] {
            [one] if one.children.iter().all(|child| child.kind == VdevKind::Leaf) => match one.kind {
                VdevKind::Mirror => Some(Layout::Mirror),
                VdevKind::Raidz(1) => Some(Layout::Raidz1),
                VdevKind::Raidz(2) => Some(Layout::Raidz2),
                VdevKind::Raidz(_) => Some(Layout::Raidz3),
                VdevKind::Leaf => Some(Layout::Stripe),
                VdevKind::Other(_) => None,
            },
            _ => (!vdevs.is_empty() && vdevs.iter().all(|vdev| vdev.kind == VdevKind::Leaf))
                .then_some(Layout::Stripe),
        }
    }

    /// The layout in words, also one that [`Layout`] has not: `mirror + mirror`, `raidz1 (in it: replacing)`.
    #[must_use]
    pub fn shape(&self) -> String {
        if let Some(layout) = self.layout() {
            return layout.to_string();
        }
        let words: Vec<String> = self
            .data_vdevs()
            .map(|vdev| {
                let class = match vdev.class {
                    Class::Normal => String::new(),
                    class => format!("{} ", class.heading()),
                };
                let inner: Vec<String> = vdev
                    .tree()
                    .skip(1)
                    .filter(|inner| inner.kind != VdevKind::Leaf)
                    .map(|inner| inner.kind.word())
                    .collect();
                let inner =
                    if inner.is_empty() { String::new() } else { format!(" (in it: {})", inner.join(", ")) };
                format!("{class}{}{inner}", vdev.kind.word())
            })
            .collect();
        words.join(" + ")
    }
}
