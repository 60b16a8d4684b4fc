//! Values of properties, which ZFS gives back in words of its own.

/// Values that mean the same, by property: what is given, and what some version answers.
/// `xattr=sa` reads back as `on` from 2.3 on, `acltype=posixacl` as `posix` (zfsprops(7)).
const ALIASES: [(&str, &[&str]); 4] = [
    ("xattr", &["sa", "on"]),
    ("acltype", &["posixacl", "posix"]),
    ("acltype", &["noacl", "off"]),
    ("dedup", &["on", "sha256"]),
];

/// Whether a property has the value that was asked for, whatever word or unit ZFS has for it.
#[must_use]
pub fn same_value(property: &str, wanted: &str, found: &str) -> bool {
    let alike = |words: &[&str]| words.contains(&wanted) && words.contains(&found);
    wanted == found
        || ALIASES.iter().any(|(name, words)| *name == property && alike(words))
        || matches!((bytes(wanted), bytes(found)), (Some(wanted), Some(found)) if wanted == found)
}

/// `128K`, `1M`, `131072`: powers of two, as zfs(8) reads sizes.
fn bytes(text: &str) -> Option<u128> {
    let upper = text.to_ascii_uppercase();
    let number = upper.trim_end_matches('B').trim_end_matches('I');
    let power = number.chars().last().and_then(|unit| "KMGTPE".find(unit)).map(|place| place + 1);
    let digits = if power.is_some() { &number[..number.len() - 1] } else { number };
    let digits: u128 = digits.parse().ok()?;
    digits.checked_mul(1 << (10 * power.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_same_in_every_word_that_zfs_has_for_it() {
        for (property, wanted, found) in [
            ("xattr", "sa", "on"),
            ("xattr", "sa", "sa"),
            ("acltype", "posixacl", "posix"),
            ("acltype", "posixacl", "posixacl"),
            ("acltype", "off", "noacl"),
            ("recordsize", "128K", "131072"),
            ("recordsize", "1M", "1048576"),
            ("quota", "10GiB", "10737418240"),
            ("ashift", "12", "12"),
        ] {
            assert!(same_value(property, wanted, found), "{property} {wanted} {found}");
        }
        for (property, wanted, found) in [
            ("xattr", "sa", "off"),
            ("acltype", "posixacl", "off"),
            ("compression", "sa", "on"),
            ("recordsize", "128K", "128000"),
            ("ashift", "12", "0"),
            ("ashift", "12", "9"),
            ("mountpoint", "/tank", "none"),
        ] {
            assert!(!same_value(property, wanted, found), "{property} {wanted} {found}");
        }
    }
}
