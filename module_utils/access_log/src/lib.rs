//! Lines of a web server's log in the format `combined` (nginx's default, Apache's too): who asked for what, when, and
//! what came of it. Pure.
//!
//! ```
//! let line = r#"10.0.0.9 - - [30/Nov/2026:15:51:27 +0000] "GET /keys/ssh/web01.pub HTTP/1.1" 200 92 "-" "curl/8.9""#;
//! let hit = access_log::Hit::parse(line).unwrap();
//! assert_eq!((hit.path.as_str(), hit.status), ("/keys/ssh/web01.pub", 200));
//! assert!(access_log::Pattern::new("/keys/ssh/*.pub").matches(&hit.path));
//! ```

use std::fmt;
use std::net::IpAddr;

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// `$time_local` of nginx (`ngx_http_log_module.c`), `%t` of Apache.
const TIME: &[BorrowedFormatItem<'_>] = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);

/// One request. A server writes it when the answer is sent, so a long download stands behind what was asked meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub client: IpAddr,
    /// Seconds since 1970.
    pub at: i64,
    /// `GET`, `HEAD` ...
    pub method: String,
    /// Without the query.
    pub path: String,
    pub status: u16,
}

impl Hit {
    /// `None` for a line of another format, and for a request that is none (a TLS handshake, nothing at all).
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (client, rest) = line.split_once(' ')?;
        let (_, rest) = rest.split_once('[')?;
        let (at, rest) = rest.split_once("] \"")?;
        // nginx writes a quote in a request as \x22.
        let (request, rest) = rest.split_once('"')?;
        let mut words = request.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let path = target.split('?').next().unwrap_or_default();
        Some(Self {
            // A server that listens on IPv6 writes ::ffff:10.0.0.9.
            client: client.parse::<IpAddr>().ok()?.to_canonical(),
            at: OffsetDateTime::parse(at, TIME).ok()?.unix_timestamp(),
            method: method.to_owned(),
            path: path.to_owned(),
            status: rest.split_whitespace().next()?.parse().ok()?,
        })
    }

    /// It was served.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status) || self.status == 304
    }
}

/// As a person would find it in the log: `GET /keys/ssh/web01.pub (200) at 2026-11-30 15:51:27 UTC`.
impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
        let at = OffsetDateTime::from_unix_timestamp(self.at).ok().and_then(|at| at.format(shown).ok());
        let at = at.unwrap_or_else(|| self.at.to_string());
        write!(f, "{} {} ({}) at {at}", self.method, self.path, self.status)
    }
}

/// A pattern of paths: `*` stands for any characters, also for `/` and for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let mut pieces = self.0.split('*');
        let Some(mut rest) = path.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
        let pieces: Vec<&str> = pieces.collect();
        let Some((last, between)) = pieces.split_last() else { return rest.is_empty() };
        for piece in between {
            match rest.find(piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(line: &str) -> Option<String> {
        Hit::parse(line).map(|hit| format!("{} {hit}", hit.client))
    }

    #[test]
    fn lines_are_read() {
        for (line, said) in [
            (
                r#"10.20.30.21 - - [30/Nov/2026:15:51:27 +0000] "GET /fedora/Packages/b/bash-5.3.rpm HTTP/1.1" 200 1874712 "-" "libdnf""#,
                Some("10.20.30.21 GET /fedora/Packages/b/bash-5.3.rpm (200) at 2026-11-30 15:51:27 UTC"),
            ),
            (
                r#"2001:db8::9 - admin [01/Jan/2027:00:30:00 +0130] "HEAD /a?b=c HTTP/2.0" 404 0 "-" "curl \x22x\x22""#,
                Some("2001:db8::9 HEAD /a (404) at 2026-12-31 23:00:00 UTC"),
            ),
            (
                r#"::ffff:10.0.0.9 - - [30/Nov/2026:15:51:27 +0000] "GET / HTTP/1.1" 304 0 "-" "-""#,
                Some("10.0.0.9 GET / (304) at 2026-11-30 15:51:27 UTC"),
            ),
            (r#"10.0.0.9 - - [30/Nov/2026:15:51:27 +0000] "" 400 0 "-" "-""#, None),
            (r#"10.0.0.9 - - [30/Nov/2026:15:51:27 +0000] "\x16\x03\x01" 400 157 "-" "-""#, None),
            (r#"10.0.0.9 - - [31/Foo/2026:15:51:27 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#, None),
            (r#"host.example - - [30/Nov/2026:15:51:27 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#, None),
            (r#"{"client":"10.0.0.9"}"#, None),
            ("10.0.0.9 - - [30/Nov/2026:15:5", None),
            ("", None),
        ] {
            assert_eq!(shown(line).as_deref(), said, "{line}");
        }
    }

    #[test]
    fn a_refusal_is_no_success() {
        let hit = |status: u16| Hit {
            client: [10, 0, 0, 1].into(),
            at: 0,
            method: "GET".into(),
            path: "/".into(),
            status,
        };
        for status in [200, 206, 304] {
            assert!(hit(status).is_success(), "{status}");
        }
        for status in [301, 403, 404, 499, 500] {
            assert!(!hit(status).is_success(), "{status}");
        }
    }

    #[test]
    fn patterns_match_whole_paths() {
        for (pattern, path, matches) in [
            ("/keys/ssh/*.pub", "/keys/ssh/web01.pub", true),
            ("/keys/ssh/*.pub", "/keys/ssh/.pub", true),
            ("/keys/ssh/*.pub", "/keys/ssh/a/b.pub", true),
            ("/keys/ssh/*.pub", "/x/keys/ssh/web01.pub", false),
            ("*/keys/ssh/*.pub", "/x/keys/ssh/web01.pub", true),
            ("/keys/ssh/*.pub", "/keys/ssh/web01.pub.sig", false),
            ("/done", "/done", true),
            ("/done", "/done/", false),
            ("*", "", true),
            ("*.rpm", "/a.rpm", true),
            ("*.rpm", "/a.rpm.asc", false),
            ("*aba*a", "aba", false),
            ("*a*ab", "/aab", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(path), matches, "{pattern} {path}");
        }
    }

    proptest! {
        #[test]
        fn no_line_breaks_it(line in "\\PC{0,200}") {
            let _ = Hit::parse(&line);
        }

        #[test]
        fn what_is_filled_into_the_stars_matches(parts in proptest::collection::vec("[a-c/.]{0,4}", 1..5), fill in "[a-c/.]{0,5}") {
            let pattern = Pattern::new(parts.join("*"));
            let filled = parts.join(&fill);
            prop_assert!(pattern.matches(&filled));
        }
    }
}
