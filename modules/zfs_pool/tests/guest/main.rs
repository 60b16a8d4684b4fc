//! The program on a real kernel with real OpenZFS: one guest, one case after the other.

#![allow(clippy::unwrap_used)]

mod bench;
mod creates;
mod refuses;
mod survives;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::bench::Bench;

type Case = (&'static str, fn(&mut Bench));

#[test]
#[ignore = "heavy zfs"]
fn on_a_real_kernel() {
    let begun = Instant::now();
    let Some(mut bench) = Bench::start() else { return };
    let _ = writeln!(std::io::stderr(), "the guest answers after {} s", begun.elapsed().as_secs());
    let wanted = std::env::var("ZFS_CASE").unwrap_or_default();
    let cases = refuses::CASES.iter().chain(&creates::CASES).chain(&survives::CASES);
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, case) in cases.filter(|(name, _)| name.contains(&wanted)) {
        let begun = Instant::now();
        bench.reset();
        let outcome = catch_unwind(AssertUnwindSafe(|| case(&mut bench)));
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        let _ = writeln!(std::io::stderr(), "{word:6} {name} ({:.1} s)", begun.elapsed().as_secs_f64());
        count += 1;
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    let seconds = begun.elapsed().as_secs();
    let _ = writeln!(
        std::io::stderr(),
        "{count} cases on OpenZFS {} in {seconds} s, boot included",
        bench.version()
    );
    assert!(failed.is_empty(), "{failed:#?}");
}
