//! When a guest may be stopped, by what the log says. A stop in the middle of an installation fails here.

use access_log::Pattern;

use crate::window::{Rules, Sight, judge};

const GUEST: &str = "10.20.30.21";
/// 2026-11-30 15:00:00 UTC.
const START: i64 = 1_796_050_800;

fn rules() -> Rules {
    Rules {
        client: GUEST.parse().unwrap(),
        completion: Pattern::new("/keys/ssh/*.pub"),
        packages: vec![Pattern::new("*.rpm")],
        settle: 10,
    }
}

/// A request of the guest at 15:MM:SS.
fn line(at: &str, request: &str, status: u16) -> String {
    by(GUEST, at, request, status)
}

fn by(client: &str, at: &str, request: &str, status: u16) -> String {
    format!(r#"{client} - - [30/Nov/2026:15:{at} +0000] "{request} HTTP/1.1" {status} 512 "-" "libdnf""#)
}

fn seconds(at: &str) -> i64 {
    let (minute, second) = at.split_once(':').unwrap();
    START + minute.parse::<i64>().unwrap() * 60 + second.parse::<i64>().unwrap()
}

/// What is seen at 15:`now` of a guest whose QEMU was started at 15:`started`.
fn seen(lines: &[String], started: &str, now: &str) -> Sight {
    judge(lines.iter().map(String::as_str), &rules(), seconds(started), seconds(now))
}

const KICKSTART: &str = "GET /ks/web01.ks";
const STAGE2: &str = "GET /fedora/images/install.img";
const METADATA: &str = "GET /fedora/repodata/repomd.xml";
const KEY: &str = "GET /keys/ssh/web01.pub";

/// One round of an installation that nobody stops: what is asked for in the order of time.
fn round(minute: u32) -> Vec<String> {
    let at = |second: u32| format!("{minute:02}:{second:02}");
    let mut lines =
        vec![line(&at(0), KICKSTART, 200), line(&at(1), STAGE2, 200), line(&at(5), METADATA, 200)];
    lines.extend(
        (10..30).map(|second| line(&at(second), &format!("GET /fedora/Packages/p{second}.rpm"), 200)),
    );
    lines.push(line(&at(40), KEY, 200));
    lines
}

#[test]
fn in_two_whole_rounds_only_the_end_of_each_is_open() {
    let lines = [round(1), round(3)].concat();
    let open: Vec<usize> = (0..=lines.len())
        .filter(|seen_so_far| {
            // Looked at when the last of them is old enough: time alone opens nothing.
            let sight =
                judge(lines.iter().take(*seen_so_far).map(String::as_str), &rules(), START, seconds("59:59"));
            sight.is_open()
        })
        .collect();
    assert_eq!(open, [round(1).len(), lines.len()]);
}

#[test]
fn the_window_opens_after_the_guest_wrote_out_and_closes_with_the_next_request() {
    let first = round(1);
    let both = [round(1), round(3)].concat();
    for (lines, now, said) in [
        (&first[..], "01:40", "an installation of 20 packages complete since 0 seconds, still writing out"),
        (&first[..], "01:49", "an installation of 20 packages complete since 9 seconds, still writing out"),
        (&first[..], "01:50", "an installation of 20 packages complete, and no request since"),
        (&first[..], "02:59", "an installation of 20 packages complete, and no request since"),
        (
            &both[..first.len() + 1],
            "03:00",
            "an installation complete, and then the next round begun: GET /ks/web01.ks (200) at 2026-11-30 15:03:00 UTC",
        ),
    ] {
        assert_eq!(seen(lines, "00:00", now).to_string(), said, "at {now}");
    }
}

#[test]
fn one_look_says_what_is_going_on() {
    let package = |at: &str| line(at, "GET /fedora/Packages/a.rpm", 200);
    let cases: Vec<(&str, Vec<String>, &str)> = vec![
        ("nothing", vec![], "no request of the guest since it was started"),
        (
            "another guest is done",
            vec![
                by("10.20.30.22", "01:00", "GET /fedora/Packages/a.rpm", 200),
                by("10.20.30.22", "01:10", KEY, 200),
            ],
            "no request of the guest since it was started",
        ),
        (
            "the other guest's key among this guest's packages",
            vec![package("01:00"), by("10.20.30.22", "01:10", KEY, 200)],
            "an installation under way, 1 packages so far; the last request is GET /fedora/Packages/a.rpm (200) at 2026-11-30 15:01:00 UTC",
        ),
        (
            "the kickstart only",
            vec![line("01:00", KICKSTART, 200)],
            "an installation under way, 0 packages so far; the last request is GET /ks/web01.ks (200) at 2026-11-30 15:01:00 UTC",
        ),
        (
            "a package behind the key: another transaction in %post",
            vec![package("01:00"), line("01:10", KEY, 200), package("01:11")],
            "an installation under way, 1 packages so far; the last request is GET /fedora/Packages/a.rpm (200) at 2026-11-30 15:01:11 UTC",
        ),
        (
            "a key without a package",
            vec![line("01:00", KICKSTART, 200), line("01:10", KEY, 200)],
            "GET /keys/ssh/web01.pub (200) at 2026-11-30 15:01:10 UTC, and not one package before it, so it says nothing about an installation",
        ),
        (
            "the key is fetched at the beginning of a round too",
            vec![
                package("01:00"),
                line("01:10", KEY, 200),
                line("02:00", KICKSTART, 200),
                line("02:10", KEY, 200),
            ],
            "GET /keys/ssh/web01.pub (200) at 2026-11-30 15:02:10 UTC, and not one package before it, so it says nothing about an installation",
        ),
        (
            "the key is missing",
            vec![package("01:00"), line("01:10", KEY, 404)],
            "the completion URL refused after 1 packages: GET /keys/ssh/web01.pub (404) at 2026-11-30 15:01:10 UTC. The installation may be fine, but what it fetches there is missing",
        ),
        (
            "the key comes at the second try",
            vec![package("01:00"), line("01:10", KEY, 503), line("01:12", KEY, 200)],
            "an installation of 1 packages complete, and no request since",
        ),
        (
            "the key was missing in one round, and the next has begun",
            vec![
                package("01:00"),
                line("01:10", KEY, 404),
                line("02:00", KICKSTART, 200),
                line("02:10", KEY, 200),
            ],
            "GET /keys/ssh/web01.pub (200) at 2026-11-30 15:02:10 UTC, and not one package before it, so it says nothing about an installation",
        ),
        (
            "several keys",
            vec![package("01:00"), line("01:10", KEY, 200), line("01:11", "GET /keys/ssh/ops.pub", 304)],
            "an installation of 1 packages complete, and no request since",
        ),
        (
            "a key is only looked at",
            vec![package("01:00"), line("01:10", "HEAD /keys/ssh/web01.pub", 200)],
            "an installation under way, 1 packages so far; the last request is HEAD /keys/ssh/web01.pub (200) at 2026-11-30 15:01:10 UTC",
        ),
        (
            "a package that failed is a sign of writing too",
            vec![package("01:00"), line("01:10", KEY, 200), line("01:11", "GET /fedora/Packages/b.rpm", 404)],
            "an installation under way, 1 packages so far; the last request is GET /fedora/Packages/b.rpm (404) at 2026-11-30 15:01:11 UTC",
        ),
        (
            "lines that are none",
            vec![
                "garbage".into(),
                package("01:00"),
                String::new(),
                line("01:10", KEY, 200),
                "\u{fffd}".into(),
            ],
            "an installation of 1 packages complete, and no request since",
        ),
    ];
    for (name, lines, said) in cases {
        assert_eq!(seen(&lines, "00:00", "30:00").to_string(), said, "{name}");
    }
}

#[test]
fn another_life_of_the_guest_does_not_count() {
    let lines = round(1);
    assert!(seen(&lines, "00:59", "05:00").is_open());
    // It was started anew and has asked for nothing yet: the firmware is fetching its boot files over TFTP.
    assert_eq!(seen(&lines, "02:00", "05:00").to_string(), "no request of the guest since it was started");
    // Started in the middle of its own lines: packages of before do not make a completion.
    assert!(!seen(&lines, "01:35", "05:00").is_open());
}

#[test]
fn a_clock_that_is_behind_opens_nothing() {
    assert!(!seen(&round(1), "00:00", "01:00").is_open());
}
