use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::ValueError;

/// `tags`, a set: Proxmox VE de-duplicates them, and a datacenter setting decides about order and case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(BTreeSet<String>);

impl Tags {
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Tags {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let words = text.split([';', ',', ' ']).filter(|word| !word.is_empty());
        words.map(|word| check(word).map(|()| word.to_ascii_lowercase())).collect::<Result<_, _>>().map(Self)
    }
}

/// pve-common `PVE/JSONSchema.pm`, `pve-tag`.
fn check(word: &str) -> Result<(), ValueError> {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let later = |c: char| first(c) || "-+.".contains(c);
    if word.starts_with(first) && word.chars().all(later) {
        return Ok(());
    }
    Err(ValueError::new("a tag", word, "expected letters, digits and _-+. with a letter, digit or _ first"))
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().collect::<Vec<_>>().join(";"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_are_a_set() {
        for text in ["web;prod", "prod, web", "Web prod;web"] {
            assert_eq!(text.parse::<Tags>().unwrap().to_string(), "prod;web");
        }
        assert!("".parse::<Tags>().unwrap().is_empty());
        for text in ["-x", "a/b", "ä"] {
            assert!(text.parse::<Tags>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(words in proptest::collection::vec("[a-zA-Z0-9_][a-zA-Z0-9_+.-]{0,8}", 0..6)) {
            let tags: Tags = words.join(",").parse().unwrap();
            prop_assert_eq!(tags.to_string().parse::<Tags>(), Ok(tags));
        }
    }
}
