use std::fmt;
use std::str::FromStr;

use super::ValueError;

const WHAT: &str = "a size";
const UNITS: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// A disk size, compared in bytes. Units are powers of 1024; no unit means bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// `None` above 16 EiB.
    #[must_use]
    pub const fn from_gib(gib: u64) -> Option<Self> {
        match gib.checked_mul(1 << 30) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }

    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The size as the GiB number of a `STORAGE:SIZE` allocation, where that is exact.
    #[must_use]
    pub fn whole_gib(self) -> Option<u64> {
        self.0.is_multiple_of(1 << 30).then_some(self.0 >> 30)
    }
}

impl FromStr for Size {
    type Err = ValueError;

    /// Reads `32G`, `2252M`, `1.5T` or a number of bytes.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |why| ValueError::new(WHAT, text, why);
        let unit = UNITS.iter().find(|(letter, _)| text.ends_with(letter));
        let (number, factor) =
            unit.map_or((text, 1), |(letter, factor)| (text.trim_end_matches(letter), *factor));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || text.len() - number.len() > 1 {
            return Err(wrong("expected a number with K, M, G or T behind it"));
        }
        let whole: u64 = whole.parse().map_err(|_| wrong("it is too large"))?;
        let bytes = whole.checked_mul(factor).ok_or_else(|| wrong("it is too large"))?;
        bytes.checked_add(fraction_of(fraction, factor)).map(Self).ok_or_else(|| wrong("it is too large"))
    }
}

/// `0.FRACTION` of `factor`, rounded down.
fn fraction_of(fraction: &str, factor: u64) -> u64 {
    let shown = &fraction[..fraction.len().min(6)];
    let digits: u128 = shown.parse().unwrap_or_default();
    let scale = 10_u128.pow(u32::try_from(shown.len()).unwrap_or_default());
    u64::try_from(u128::from(factor) * digits / scale).unwrap_or_default()
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor)) {
            Some((letter, factor)) => write!(f, "{}{letter}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_sizes_are_equal_whatever_the_unit() {
        for (text, normal) in [
            ("8192M", "8G"),
            ("8G", "8G"),
            ("2252M", "2252M"),
            ("528K", "528K"),
            ("1024G", "1T"),
            ("1.5G", "1536M"),
            ("0", "0"),
            ("512", "512"),
        ] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), normal, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "8GB", "8 G", "-8G", "+8G", "8GG", "8.G", ".5G", "8g", "99999999T"] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(bytes: u64) {
            let size = Size::from_bytes(bytes);
            prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
        }

        #[test]
        fn gib_round_trip(gib in 0_u64..1_000_000) {
            let size = Size::from_gib(gib).unwrap();
            prop_assert_eq!(size.whole_gib(), Some(gib));
            prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
        }
    }
}
