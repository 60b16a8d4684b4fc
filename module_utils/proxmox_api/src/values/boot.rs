use std::fmt;
use std::str::FromStr;

use super::ValueError;
use super::property::PropertyString;

/// `boot`: the devices to try, first one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootOrder {
    Devices(Vec<String>),
    /// The old letters (`cdn`), which go with the key `bootdisk`.
    Legacy(String),
}

impl FromStr for BootOrder {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |why: &str| ValueError::new("a boot order", text, why);
        let mut parsed: PropertyString = text.parse()?;
        if let Some(order) = parsed.keys.remove("order") {
            let devices = order.split(';').filter(|device| !device.is_empty());
            return Ok(Self::Devices(devices.map(str::to_owned).collect()));
        }
        let letters =
            parsed.take_default("legacy").ok_or_else(|| wrong("it has neither order nor letters"))?;
        if letters.is_empty() || letters.len() > 4 || !letters.bytes().all(|byte| b"acdn".contains(&byte)) {
            return Err(wrong("expected order=DEVICE;DEVICE or one to four of the letters a, c, d, n"));
        }
        Ok(Self::Legacy(letters))
    }
}

impl fmt::Display for BootOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Devices(devices) => write!(f, "order={}", devices.join(";")),
            Self::Legacy(letters) => f.write_str(letters),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn normal_forms() {
        for (text, normal) in [
            ("order=scsi0;net0", "order=scsi0;net0"),
            ("order=", "order="),
            ("legacy=cdn", "cdn"),
            ("c", "c"),
        ] {
            assert_eq!(text.parse::<BootOrder>().unwrap().to_string(), normal);
        }
        for text in ["", "xyz", "cdnac", "first=scsi0"] {
            assert!(text.parse::<BootOrder>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(devices in proptest::collection::vec("(scsi|net|ide)[0-9]", 0..5)) {
            let order = BootOrder::Devices(devices);
            prop_assert_eq!(order.to_string().parse::<BootOrder>(), Ok(order));
        }
    }
}
