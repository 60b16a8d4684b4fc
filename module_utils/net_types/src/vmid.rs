use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::invalid::Invalid;

const WHAT: &str = "a VMID";
const FORM: &str = "a whole number from 100 to 999999999";

/// The number of a guest in a Proxmox cluster, 100 to 999999999 (pve-common `PVE/JSONSchema.pm`, `pve-vmid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Vmid(u32);

impl Vmid {
    pub const FIRST: Self = Self(100);
    pub const LAST: Self = Self(999_999_999);

    /// # Errors
    /// [`Invalid`] outside of 100 to 999999999; zero, which stands for "not assigned", included.
    pub fn new(number: u32) -> Result<Self, Invalid> {
        let vmid = Self(number);
        if (Self::FIRST..=Self::LAST).contains(&vmid) {
            return Ok(vmid);
        }
        let found = if number == 0 { "0, which means not assigned".into() } else { number.to_string() };
        Err(Invalid::new(number, WHAT, FORM, found))
    }

    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl FromStr for Vmid {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = |found: &str| Invalid::new(text, WHAT, FORM, found);
        if text.is_empty() {
            return Err(refuse("nothing"));
        }
        if !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse("something else than digits"));
        }
        if text.len() > 1 && text.starts_with('0') {
            return Err(refuse("a leading zero"));
        }
        text.parse().map_err(|_| refuse("a larger one")).and_then(Self::new)
    }
}

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Vmid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Vmid;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{WHAT}: {FORM}")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Vmid, E> {
                let small = u32::try_from(number)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))?;
                Vmid::new(small).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Vmid, E> {
                let positive =
                    u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))?;
                self.visit_u64(positive)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Vmid, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ends_of_the_range_are_inside() {
        assert_eq!("100".parse(), Ok(Vmid::FIRST));
        assert_eq!("999999999".parse(), Ok(Vmid::LAST));
    }

    #[test]
    fn what_is_no_vmid_is_refused_in_words() {
        for (text, found) in [
            ("", "nothing"),
            ("0", "0, which means not assigned"),
            ("99", "99"),
            ("0100", "a leading zero"),
            ("-100", "something else than digits"),
            ("+100", "something else than digits"),
            ("100 ", "something else than digits"),
            ("1000000000", "1000000000"),
            ("99999999999", "a larger one"),
        ] {
            let error = text.parse::<Vmid>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("\"{text}\" is not {WHAT}: expected {FORM}, found {found}")
            );
        }
    }

    #[test]
    fn json_may_hold_a_number_or_its_digits() {
        for json in ["140", "\"140\""] {
            assert_eq!(serde_json::from_str::<Vmid>(json).unwrap(), Vmid(140));
        }
        for json in ["99", "\"99\"", "-140", "140.5", "true", "null", "5000000000", "[140]"] {
            let error = serde_json::from_str::<Vmid>(json).unwrap_err().to_string();
            assert!(error.contains(FORM), "{json}: {error}");
        }
    }

    proptest! {
        #[test]
        fn vmids_survive_text_and_json(number in 100_u32..=999_999_999) {
            let vmid = Vmid::new(number).unwrap();
            prop_assert_eq!(vmid.to_string().parse(), Ok(vmid));
            let json = serde_json::to_string(&vmid).unwrap();
            prop_assert_eq!(&json, &number.to_string());
            prop_assert_eq!(serde_json::from_str::<Vmid>(&json).unwrap(), vmid);
        }
    }
}
