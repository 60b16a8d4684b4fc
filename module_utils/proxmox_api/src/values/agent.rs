use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::ValueError;
use super::property::{PropertyString, parse_bool};

/// `agent`: whether the guest agent is expected, and how it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    pub enabled: bool,
    pub options: BTreeMap<String, String>,
}

impl FromStr for Agent {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut parsed: PropertyString = text.parse()?;
        let enabled = parsed.take_default("enabled").as_deref().map_or(Ok(false), parse_bool)?;
        for (key, value) in &mut parsed.keys {
            if key != "type" {
                *value = u8::from(parse_bool(value)?).to_string();
            }
        }
        Ok(Self { enabled, options: parsed.keys })
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = Some(u8::from(self.enabled).to_string());
        PropertyString { bare, keys: self.options.clone() }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn normal_forms() {
        for (text, normal) in [
            ("1", "1"),
            ("enabled=1", "1"),
            ("enabled=on,type=virtio,fstrim_cloned_disks=yes", "1,fstrim_cloned_disks=1,type=virtio"),
            ("0", "0"),
            ("", "0"),
        ] {
            assert_eq!(text.parse::<Agent>().unwrap().to_string(), normal);
        }
        assert!("perhaps".parse::<Agent>().is_err());
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(enabled: bool, fstrim: Option<bool>) {
            let options = fstrim.map(|on| ("fstrim_cloned_disks".to_owned(), u8::from(on).to_string()));
            let agent = Agent { enabled, options: options.into_iter().collect() };
            prop_assert_eq!(agent.to_string().parse::<Agent>(), Ok(agent));
        }
    }
}
