//! How the disks of a pool stand together.

use std::fmt;

use serde::Deserialize;

/// One top-level vdev over all disks, or none (`stripe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    Stripe,
    Mirror,
    Raidz1,
    Raidz2,
    Raidz3,
}

impl Layout {
    pub const ALL: [Self; 5] = [Self::Mirror, Self::Raidz1, Self::Raidz2, Self::Raidz3, Self::Stripe];

    /// The word for it, which is also what `zpool create` takes, `stripe` excepted.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::Mirror => "mirror",
            Self::Raidz1 => "raidz1",
            Self::Raidz2 => "raidz2",
            Self::Raidz3 => "raidz3",
        }
    }

    /// The keyword of `zpool create` (zpool-create(8)); disks alone are a stripe.
    #[must_use]
    pub fn keyword(self) -> Option<&'static str> {
        (self != Self::Stripe).then(|| self.word())
    }

    /// With fewer disks there is nothing left that the redundancy could protect.
    #[must_use]
    pub fn least_disks(self) -> usize {
        match self {
            Self::Stripe => 1,
            Self::Mirror => 2,
            Self::Raidz1 => 3,
            Self::Raidz2 => 4,
            Self::Raidz3 => 5,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
