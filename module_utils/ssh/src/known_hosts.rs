//! Files in the form of sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT". Lines that are not ours to change stay as they are.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::address::Address;
use crate::key::HostKey;

/// The text of a known_hosts file.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    lines: Vec<String>,
}

/// A key that the file has for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Counted from 1.
    pub line: usize,
    pub key: HostKey,
    /// Marked `@revoked`: this key must never be accepted.
    pub revoked: bool,
}

/// What a file says about the keys of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The file has nothing about this server.
    Unknown,
    /// At least one key is the known one and none contradicts; `missing` are those not in the file yet.
    Held { missing: Vec<HostKey> },
    /// The server's key is not the one the file has.
    Changed { entry: Entry, offered: HostKey },
    /// The server has a key that the file revokes.
    Revoked { entry: Entry },
}

/// Why a host's keys cannot be replaced by a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReplaced {
    pub line: usize,
    pub why: &'static str,
}

impl fmt::Display for NotReplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} {}: change it by hand", self.line, self.why)
    }
}

impl std::error::Error for NotReplaced {}

/// A line that holds a key.
struct Line<'a> {
    marker: Option<&'a str>,
    hosts: &'a str,
    key: HostKey,
}

impl KnownHosts {
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect() }
    }

    /// The keys of a server, in the order of the file; certificate authorities left out.
    #[must_use]
    pub fn entries(&self, address: &Address) -> Vec<Entry> {
        let name = address.known_as();
        self.keys()
            .filter(|(_, line)| line.marker != Some("@cert-authority") && matches(line.hosts, &name))
            .map(|(number, line)| Entry {
                line: number,
                revoked: line.marker == Some("@revoked"),
                key: line.key,
            })
            .collect()
    }

    /// Compares the keys that a server proved to own with the file.
    #[must_use]
    pub fn judge(&self, address: &Address, offered: &[HostKey]) -> Verdict {
        let (revoked, entries): (Vec<Entry>, Vec<Entry>) =
            self.entries(address).into_iter().partition(|entry| entry.revoked);
        if let Some(entry) = revoked.into_iter().find(|entry| offered.contains(&entry.key)) {
            return Verdict::Revoked { entry };
        }
        let known = |key: &HostKey| entries.iter().any(|entry| entry.key == *key);
        for key in offered.iter().filter(|key| !known(key)) {
            if let Some(entry) = entries.iter().find(|entry| entry.key.kind() == key.kind()) {
                return Verdict::Changed { entry: entry.clone(), offered: key.clone() };
            }
        }
        // A server that shows only kinds that are not in the file proves nothing about being the known one.
        match (entries.first(), offered.iter().any(known), offered.first()) {
            (None, _, _) => Verdict::Unknown,
            (Some(entry), false, Some(key)) => {
                Verdict::Changed { entry: entry.clone(), offered: key.clone() }
            }
            _ => Verdict::Held { missing: offered.iter().filter(|key| !known(key)).cloned().collect() },
        }
    }

    /// Adds keys at the end.
    pub fn add(&mut self, address: &Address, keys: &[HostKey]) {
        let name = address.known_as();
        self.lines.extend(keys.iter().map(|key| format!("{name} {} {}", key.kind(), key.base64())));
    }

    /// Takes a server's keys out; other names of the same line keep theirs, and revoked keys stay revoked.
    ///
    /// # Errors
    /// [`NotReplaced`] when a line covers the server by a pattern, and so others as well.
    pub fn remove(&mut self, address: &Address) -> Result<(), NotReplaced> {
        let name = address.known_as();
        let mut kept = Vec::new();
        for (index, text) in self.lines.iter().enumerate() {
            let ours = parse_line(text).filter(|line| line.marker.is_none() && matches(line.hosts, &name));
            let Some(line) = ours else {
                kept.push(text.clone());
                continue;
            };
            let others: Vec<&str> = line.hosts.split(',').filter(|host| !is_exactly(host, &name)).collect();
            if others.len() == line.hosts.split(',').count() {
                return Err(NotReplaced { line: index + 1, why: "covers the host by a pattern" });
            }
            let others = others.join(",");
            if matches(&others, &name) {
                return Err(NotReplaced { line: index + 1, why: "covers the host by a pattern as well" });
            }
            if !others.is_empty() {
                kept.push(text.replacen(line.hosts, &others, 1));
            }
        }
        self.lines = kept;
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = (usize, Line<'_>)> {
        self.lines.iter().enumerate().filter_map(|(index, text)| Some((index + 1, parse_line(text)?)))
    }
}

impl fmt::Display for KnownHosts {
    /// The whole file, every line ended.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// `[@marker] hosts kind key [comment]`; `None` for comments, blank lines and what has no readable key.
fn parse_line(text: &str) -> Option<Line<'_>> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().filter(|word| !word.starts_with('#'))?;
    let (marker, hosts) = if first.starts_with('@') { (Some(first), words.next()?) } else { (None, first) };
    let kind = words.next()?;
    let key = HostKey::from_base64(words.next()?).filter(|key| key.kind() == kind)?;
    Some(Line { marker, hosts, key })
}

/// Whether a list of names, patterns and hashes covers a name. A matching `!pattern` takes it out again.
fn matches(hosts: &str, name: &str) -> bool {
    let mut covered = false;
    for host in hosts.split(',') {
        if let Some(pattern) = host.strip_prefix('!') {
            if wildcard(pattern.to_ascii_lowercase().as_bytes(), name.as_bytes()) {
                return false;
            }
        } else if is_exactly(host, name) || wildcard(host.to_ascii_lowercase().as_bytes(), name.as_bytes()) {
            covered = true;
        }
    }
    covered
}

/// The name itself, plain or hashed.
fn is_exactly(host: &str, name: &str) -> bool {
    host.eq_ignore_ascii_case(name) || is_hash_of(host, name)
}

/// `|1|salt|hash`: HMAC-SHA1 of the name, keyed with the salt, both in base64.
fn is_hash_of(host: &str, name: &str) -> bool {
    let Some((salt, hash)) = host.strip_prefix("|1|").and_then(|rest| rest.split_once('|')) else {
        return false;
    };
    let (Ok(salt), Ok(hash)) = (STANDARD.decode(salt), STANDARD.decode(hash)) else { return false };
    Hmac::<Sha1>::new_from_slice(&salt)
        .is_ok_and(|mac| mac.chain_update(name.as_bytes()).verify_slice(&hash).is_ok())
}

/// `*` stands for any characters, `?` for one.
fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skipped| wildcard(rest, &text[skipped..])),
        Some((b'?', rest)) => !text.is_empty() && wildcard(rest, &text[1..]),
        Some((byte, rest)) => text.first() == Some(byte) && wildcard(rest, &text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made key: only the name of its kind and its bytes matter here.
    fn key(kind: &str, seed: u8) -> HostKey {
        let mut blob = u32::try_from(kind.len()).unwrap().to_be_bytes().to_vec();
        blob.extend(kind.as_bytes());
        blob.extend([0, 0, 0, 1, seed]);
        HostKey::from_blob(&blob).unwrap()
    }

    fn line(hosts: &str, key: &HostKey) -> String {
        format!("{hosts} {} {}", key.kind(), key.base64())
    }

    fn web() -> Address {
        Address::new("web01", 22)
    }

    fn hashed(name: &str) -> String {
        let salt = [7; 20];
        let mac = Hmac::<Sha1>::new_from_slice(&salt).unwrap().chain_update(name.as_bytes());
        format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(mac.finalize().into_bytes()))
    }

    #[test]
    fn a_host_is_found_by_name_list_pattern_and_hash() {
        let a = key("ssh-ed25519", 1);
        for (hosts, found) in [
            ("web01", true),
            ("WEB01", true),
            ("db01,web01,10.20.0.40", true),
            ("web*", true),
            ("web0?", true),
            ("web?", false),
            ("web*,!web01", false),
            ("!web01,web*", false),
            ("!web02,web*", true),
            ("[web01]:22", false),
            ("[web01]:2222", false),
            ("web010", false),
            (&hashed("web01"), true),
            (&hashed("web02"), false),
            ("|1|broken|hash", false),
        ] {
            let known = KnownHosts::parse(&line(hosts, &a));
            assert_eq!(known.entries(&web()).len(), usize::from(found), "{hosts}");
        }
        let known = KnownHosts::parse(&line("[web01]:2222", &a));
        assert_eq!(known.entries(&Address::new("web01", 2222)).len(), 1);
    }

    #[test]
    fn what_ssh_keygen_hashed_is_found() {
        // Made by `ssh-keygen -H` of a line for 10.20.0.40 with a throw-away key.
        let known = KnownHosts::parse(concat!(
            "|1|8zs99TJts4vb8yXbn8GTUpVD1Sg=|DmWoVmOU7/MrCEliqZiOB8P9qOc= ",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPOOoDQIL+fxfhF70nD41UPP0gFjEyB1hDTgrjtMVMlz"
        ));
        assert_eq!(known.entries(&Address::new("10.20.0.40", 22)).len(), 1);
        assert_eq!(known.entries(&Address::new("10.20.0.41", 22)).len(), 0);
    }

    #[test]
    fn lines_without_a_key_are_no_entries_and_stay() {
        let text = format!(
            "# a comment\n\nweb01 ssh-ed25519 ###\nweb01 ssh-rsa {}\n@cert-authority {}\n",
            key("ssh-ed25519", 1).base64(),
            line("web01", &key("ssh-rsa", 9)),
        );
        let known = KnownHosts::parse(&text);
        assert_eq!(known.entries(&web()), []);
        assert_eq!(known.to_string(), text);
    }

    #[test]
    fn the_keys_of_a_server_are_judged() {
        let (a, b) = (key("ssh-ed25519", 1), key("ssh-ed25519", 2));
        let (rsa, other_rsa) = (key("ssh-rsa", 3), key("ssh-rsa", 4));
        let entry = |line, key: &HostKey| Entry { line, key: key.clone(), revoked: false };
        let judge = |text: &str, offered: &[&HostKey]| {
            let offered: Vec<HostKey> = offered.iter().copied().cloned().collect();
            KnownHosts::parse(text).judge(&web(), &offered)
        };
        let both = format!("{}\n{}\n", line("web01", &a), line("web01", &rsa));
        assert_eq!(judge("", &[&a]), Verdict::Unknown);
        assert_eq!(judge(&line("db01", &b), &[&a]), Verdict::Unknown);
        assert_eq!(judge(&both, &[&a, &rsa]), Verdict::Held { missing: vec![] });
        assert_eq!(judge(&line("web01", &a), &[&a, &rsa]), Verdict::Held { missing: vec![rsa.clone()] });
        assert_eq!(judge(&both, &[&a]), Verdict::Held { missing: vec![] });
        assert_eq!(
            judge(&both, &[&b, &rsa]),
            Verdict::Changed { entry: entry(1, &a), offered: b.clone() },
            "one changed key is enough"
        );
        assert_eq!(
            judge(&both, &[&a, &other_rsa]),
            Verdict::Changed { entry: entry(2, &rsa), offered: other_rsa.clone() }
        );
        assert_eq!(
            judge(&line("web01", &rsa), &[&a]),
            Verdict::Changed { entry: entry(1, &rsa), offered: a.clone() },
            "a server with another kind of key only is not the known one"
        );
        let two = format!("{}\n{}\n", line("web01", &b), line("web01", &a));
        assert_eq!(judge(&two, &[&a]), Verdict::Held { missing: vec![] }, "one of two known keys of a kind");
        let revoked = format!("@revoked {}\n{}\n", line("*", &a), line("web01", &a));
        assert_eq!(
            judge(&revoked, &[&a]),
            Verdict::Revoked { entry: Entry { revoked: true, ..entry(1, &a) } }
        );
    }

    #[test]
    fn replacing_touches_no_other_host() {
        let (old, new) = (key("ssh-ed25519", 1), key("ssh-ed25519", 2));
        let text = format!(
            "# mine\n{}\n{}  with a comment\n{}\n@revoked {}",
            line(&hashed("web01"), &old),
            line("db01,web01,10.20.0.40", &old),
            line("db02", &old),
            line("web01", &key("ssh-ed25519", 3)),
        );
        let mut known = KnownHosts::parse(&text);
        known.remove(&web()).unwrap();
        known.add(&web(), std::slice::from_ref(&new));
        assert_eq!(
            known.to_string(),
            format!(
                "# mine\n{}  with a comment\n{}\n@revoked {}\n{}\n",
                line("db01,10.20.0.40", &old),
                line("db02", &old),
                line("web01", &key("ssh-ed25519", 3)),
                line("web01", &new),
            )
        );
    }

    #[test]
    fn a_pattern_is_left_to_people() {
        let old = key("ssh-ed25519", 1);
        for hosts in ["web*", "web01,web*"] {
            let mut known = KnownHosts::parse(&format!("# c\n{}\n", line(hosts, &old)));
            let error = known.remove(&web()).unwrap_err();
            assert_eq!(error.line, 2);
            assert_eq!(known.to_string(), format!("# c\n{}\n", line(hosts, &old)), "unchanged");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_file_keeps_its_lines(text in "([ -~]{0,30}\n){0,6}") {
            proptest::prop_assert_eq!(KnownHosts::parse(&text).to_string(), text);
        }

        #[test]
        fn what_was_added_is_held_and_what_was_removed_is_unknown(seed: u8, port in 1_u16..) {
            let address = Address::new("web01", port);
            let mut known = KnownHosts::default();
            known.add(&address, &[key("ssh-ed25519", seed)]);
            let offered = [key("ssh-ed25519", seed)];
            let held = Verdict::Held { missing: vec![] };
            proptest::prop_assert_eq!(known.judge(&address, &offered), held);
            known.remove(&address).unwrap();
            proptest::prop_assert_eq!(known.judge(&address, &offered), Verdict::Unknown);
        }
    }
}
