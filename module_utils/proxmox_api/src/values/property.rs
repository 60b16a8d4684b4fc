use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::ValueError;

/// `VALUE,key=value,...`: one value may stand without its key (the format's default key).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyString {
    /// What stands without a key.
    pub bare: Option<String>,
    pub keys: BTreeMap<String, String>,
}

impl PropertyString {
    /// Removes and returns a value, by its key or, for the format's default key, bare.
    pub(crate) fn take_default(&mut self, key: &str) -> Option<String> {
        self.bare.take().or_else(|| self.keys.remove(key))
    }

    pub(crate) fn take<T: FromStr>(&mut self, key: &'static str) -> Result<Option<T>, ValueError>
    where
        T::Err: fmt::Display,
    {
        self.keys
            .remove(key)
            .map(|text| text.parse().map_err(|why: T::Err| ValueError::new(key, &text, why.to_string())))
            .transpose()
    }

    pub(crate) fn take_bool(&mut self, key: &'static str) -> Result<Option<bool>, ValueError> {
        self.keys.remove(key).map(|text| parse_bool(&text)).transpose()
    }
}

/// The words Proxmox VE takes for a boolean (`PVE/JSONSchema.pm`, `parse_boolean`).
///
/// # Errors
/// [`ValueError`] for any other word.
pub fn parse_bool(text: &str) -> Result<bool, ValueError> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err(ValueError::new("a boolean", text, "expected 1 or 0, on or off, yes or no, true or false")),
    }
}

impl FromStr for PropertyString {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |why: String| ValueError::new("a property string", text, why);
        let mut parsed = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let twice = match part.split_once('=') {
                Some((key, value)) => parsed.keys.insert(key.to_owned(), value.to_owned()).is_some(),
                None => parsed.bare.replace(part.to_owned()).is_some(),
            };
            if twice {
                return Err(wrong(format!("{part:?} is given twice")));
            }
        }
        Ok(parsed)
    }
}

impl fmt::Display for PropertyString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyed = self.keys.iter().map(|(key, value)| format!("{key}={value}"));
        f.write_str(&self.bare.iter().cloned().chain(keyed).collect::<Vec<_>>().join(","))
    }
}

/// `smbios1`: no default key; the `uuid` is the machine's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Smbios(pub BTreeMap<String, String>);

impl FromStr for Smbios {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut parsed: PropertyString = text.parse()?;
        if let Some(bare) = &parsed.bare {
            return Err(ValueError::new("an smbios1 value", text, format!("{bare:?} has no key")));
        }
        if let Some(uuid) = parsed.keys.get_mut("uuid") {
            uuid.make_ascii_lowercase();
        }
        Ok(Self(parsed.keys))
    }
}

impl fmt::Display for Smbios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PropertyString { bare: None, keys: self.0.clone() }.fmt(f)
    }
}

/// `startup`: place in the order at boot, and the delays in seconds after start and before stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Startup {
    pub order: Option<u32>,
    pub up: Option<u32>,
    pub down: Option<u32>,
}

impl FromStr for Startup {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut parsed: PropertyString = text.parse()?;
        if let Some(bare) = parsed.bare.take() {
            parsed.keys.insert("order".to_owned(), bare);
        }
        let startup =
            Self { order: parsed.take("order")?, up: parsed.take("up")?, down: parsed.take("down")? };
        match parsed.keys.keys().next() {
            Some(key) => {
                Err(ValueError::new("a startup value", text, format!("{key:?} is not order, up or down")))
            }
            None => Ok(startup),
        }
    }
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("order", self.order), ("down", self.down), ("up", self.up)];
        let shown = parts.iter().filter_map(|(key, value)| value.map(|value| format!("{key}={value}")));
        f.write_str(&shown.collect::<Vec<_>>().join(","))
    }
}

/// `rng0`: a virtio random number generator (qemu-server `PVE/QemuServer/RNG.pm`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RandomSource {
    /// `/dev/urandom`, `/dev/random` or `/dev/hwrng` of the node.
    pub source: Option<String>,
    /// Bytes that the guest gets in each period; 0 for no limit.
    pub max_bytes: Option<u32>,
    /// Milliseconds.
    pub period: Option<u32>,
}

impl RandomSource {
    /// These settings, and for what they leave out those of `base`.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        Self {
            source: self.source.or(base.source),
            max_bytes: self.max_bytes.or(base.max_bytes),
            period: self.period.or(base.period),
        }
    }
}

impl FromStr for RandomSource {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |why: String| ValueError::new("a random number generator", text, why);
        let mut parsed: PropertyString = text.parse()?;
        let source = parsed.take_default("source");
        if let Some(source) = source.as_ref().filter(|source| !Self::SOURCES.contains(&source.as_str())) {
            return Err(wrong(format!("expected {}, found {source:?}", Self::SOURCES.join(", "))));
        }
        let rng = Self { source, max_bytes: parsed.take("max_bytes")?, period: parsed.take("period")? };
        match parsed.keys.keys().next() {
            Some(key) => Err(wrong(format!("{key:?} is not source, max_bytes or period"))),
            None => Ok(rng),
        }
    }
}

impl RandomSource {
    const SOURCES: [&str; 3] = ["/dev/urandom", "/dev/random", "/dev/hwrng"];
}

impl fmt::Display for RandomSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [("max_bytes", self.max_bytes), ("period", self.period)];
        let source = self.source.iter().map(|source| format!("source={source}"));
        let numbers = numbers.iter().filter_map(|(key, value)| value.map(|value| format!("{key}={value}")));
        f.write_str(&source.chain(numbers).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn normal_forms() {
        for (text, normal) in [
            ("", ""),
            ("b=1,a=2", "a=2,b=1"),
            ("x,b=1,a=2", "x,a=2,b=1"),
            ("a==,b", "b,a=="),
            (",a=1,,", "a=1"),
        ] {
            assert_eq!(text.parse::<PropertyString>().unwrap().to_string(), normal);
        }
        assert_eq!(
            "/dev/urandom,period=9".parse::<RandomSource>().unwrap().to_string(),
            "source=/dev/urandom,period=9"
        );
        assert_eq!("3,up=20".parse::<Startup>().unwrap().to_string(), "order=3,up=20");
        assert_eq!("uuid=AB,base64=1".parse::<Smbios>().unwrap().to_string(), "base64=1,uuid=ab");
    }

    #[test]
    fn what_is_no_property_string_is_refused() {
        assert!("a=1,a=2".parse::<PropertyString>().is_err());
        assert!("x,y".parse::<PropertyString>().is_err());
        assert!("order=x".parse::<Startup>().is_err());
        for text in ["/dev/zero", "/dev/urandom,max_bytes=-1", "/dev/random,speed=1", "max_bytes=x"] {
            assert!(text.parse::<RandomSource>().is_err(), "{text}");
        }
        assert!("sideways=1".parse::<Startup>().is_err());
        assert!("1234".parse::<Smbios>().is_err());
        assert!(parse_bool("maybe").is_err());
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(
            bare in proptest::option::of("[a-z0-9:/._-]{1,12}"),
            keys in proptest::collection::btree_map("[a-z_]{1,8}", "[a-zA-Z0-9:=;+/._-]{0,12}", 0..5),
        ) {
            let value = PropertyString { bare, keys };
            prop_assert_eq!(value.to_string().parse::<PropertyString>(), Ok(value));
        }

        #[test]
        fn rng_round_trips(
            source in proptest::option::of("/dev/(u?random|hwrng)"), max_bytes: Option<u32>, period: Option<u32>,
        ) {
            let value = RandomSource { source, max_bytes, period };
            prop_assert_eq!(value.to_string().parse::<RandomSource>(), Ok(value));
        }

        #[test]
        fn smbios_round_trips(
            keys in proptest::collection::btree_map("[a-z0-9]{1,8}", "[a-z0-9+/=-]{0,12}", 0..5),
        ) {
            let value = Smbios(keys);
            prop_assert_eq!(value.to_string().parse::<Smbios>(), Ok(value));
        }

        #[test]
        fn startup_round_trips(order: Option<u32>, up: Option<u32>, down: Option<u32>) {
            let value = Startup { order, up, down };
            prop_assert_eq!(value.to_string().parse::<Startup>(), Ok(value));
        }
    }
}
