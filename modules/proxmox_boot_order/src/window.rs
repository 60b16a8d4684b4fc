//! When a virtual machine that installs itself may be stopped. Pure.
//!
//! An installation that is not stopped by anybody runs in rounds: boot files, packages, at the very end of the last
//! script the completion URL, then the reboot, which without a pinned boot order begins the next round. Only between the
//! completion and whatever the guest asks for next, nothing is being written.

use std::fmt;
use std::net::IpAddr;

use access_log::{Hit, Pattern};
use serde_json::{Value, json};

/// What to look for in the log.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) client: IpAddr,
    /// What the guest asks for last.
    pub(crate) completion: Pattern,
    /// What it asks for while it writes.
    pub(crate) packages: Vec<Pattern>,
    /// Seconds that the guest gets after the completion to write out what it has in memory.
    pub(crate) settle: u64,
}

/// What the log says about the guest now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Packages of the round that the last request belongs to.
    pub(crate) packages: usize,
    pub(crate) last_package: Option<Hit>,
    /// The last completion that was served.
    pub(crate) completion: Option<Hit>,
    pub(crate) verdict: Verdict,
    /// A completion was asked for; whatever else comes next begins the next round.
    pub(crate) round_over: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No request of the guest since it was started.
    #[default]
    Silent,
    /// The last request, and there is no completion behind the packages.
    Working(Hit),
    /// The completion URL was refused.
    Failed(Hit),
    /// A completion without any package of its round.
    NoPackages(Hit),
    /// The completion was served this many seconds ago: the guest still writes out what it has in memory.
    Settling(u64),
    /// The completion was served, and nothing was asked for since.
    Open,
    /// The window was open and is not any more: what came after it.
    Passed(Hit),
}

/// Judges the lines of the log in their order. `started` is when the guest's QEMU was started, `now` is now, in seconds
/// since 1970: what is older than the start belongs to another life of the guest.
pub(crate) fn judge<'a>(
    lines: impl Iterator<Item = &'a str>,
    rules: &Rules,
    started: i64,
    now: i64,
) -> Sight {
    let mut sight = Sight::default();
    let hits = lines.filter_map(Hit::parse).filter(|hit| hit.client == rules.client && hit.at >= started);
    hits.for_each(|hit| sight.take(hit, rules));
    if let (Verdict::Open, Some(hit)) = (&sight.verdict, &sight.completion) {
        let age = u64::try_from(now - hit.at).unwrap_or_default();
        if age < rules.settle {
            sight.verdict = Verdict::Settling(age);
        }
    }
    sight
}

impl Sight {
    fn take(&mut self, hit: Hit, rules: &Rules) {
        if hit.method == "GET" && rules.completion.matches(&hit.path) {
            return self.complete(hit);
        }
        if self.round_over {
            self.round_over = false;
            self.packages = 0;
        }
        if rules.packages.iter().any(|pattern| pattern.matches(&hit.path)) {
            self.packages += 1;
            self.last_package = Some(hit.clone());
        }
        self.verdict = if self.completion.is_some() && self.packages == 0 {
            Verdict::Passed(hit)
        } else {
            Verdict::Working(hit)
        };
    }

    /// Several keys may be asked for, one after the other, or one again: the last one counts.
    fn complete(&mut self, hit: Hit) {
        self.round_over = true;
        if !hit.is_success() {
            self.verdict = Verdict::Failed(hit);
        } else if self.packages == 0 {
            self.verdict = Verdict::NoPackages(hit);
        } else {
            self.completion = Some(hit);
            self.verdict = Verdict::Open;
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.verdict == Verdict::Open
    }

    /// For the result.
    pub(crate) fn object(&self) -> Value {
        let text = |hit: &Option<Hit>| hit.as_ref().map(ToString::to_string);
        json!({
            "open": self.is_open(),
            "packages": self.packages,
            "last_package": text(&self.last_package),
            "completion": text(&self.completion),
            "saw": self.to_string(),
        })
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packages = self.packages;
        match &self.verdict {
            Verdict::Silent => f.write_str("no request of the guest since it was started"),
            Verdict::Working(hit) => {
                write!(f, "an installation under way, {packages} packages so far; the last request is {hit}")
            }
            Verdict::Failed(hit) => write!(
                f,
                "the completion URL refused after {packages} packages: {hit}. The installation may be fine, but what it fetches \
                 there is missing"
            ),
            Verdict::NoPackages(hit) => {
                write!(f, "{hit}, and not one package before it, so it says nothing about an installation")
            }
            Verdict::Settling(age) => {
                write!(
                    f,
                    "an installation of {packages} packages complete since {age} seconds, still writing out"
                )
            }
            Verdict::Open => {
                write!(f, "an installation of {packages} packages complete, and no request since")
            }
            Verdict::Passed(hit) => {
                write!(f, "an installation complete, and then the next round begun: {hit}")
            }
        }
    }
}
