use std::fmt;
use std::str::FromStr;

use crate::invalid::{Invalid, serde_as_text};
use crate::vmid::Vmid;

const MAC: &str = "a MAC address";
const MAC_FORM: &str = "6 bytes of two hex digits each (like 02:a5:00:00:00:64)";
const PREFIX: &str = "a MAC prefix";
const PREFIX_FORM: &str = "3 bytes of two hex digits each (like 02:a5:00)";

/// The largest VMID that fits behind a three-byte prefix.
const LARGEST_IN_24_BITS: u32 = 0x00ff_ffff;

/// An Ethernet address; compared as six bytes, printed in lower case with colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    #[must_use]
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// Addressed to a group (broadcast included): no single card may own it.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 0x01 != 0
    }

    /// Set by an administrator rather than by the maker of the card.
    #[must_use]
    pub const fn is_locally_administered(self) -> bool {
        self.0[0] & 0x02 != 0
    }

    /// The address that belongs to a VMID at a site: the site's prefix, then the VMID as 24 bits.
    ///
    /// # Errors
    /// [`Invalid`] when the VMID is above 16777215 and so does not fit into 24 bits.
    pub fn from_vmid(prefix: MacPrefix, vmid: Vmid) -> Result<Self, Invalid> {
        if vmid.get() > LARGEST_IN_24_BITS {
            return Err(Invalid::new(
                vmid,
                "a VMID that a MAC address can hold",
                format!("at most {LARGEST_IN_24_BITS} (24 bits behind the prefix {prefix})"),
                vmid.to_string(),
            ));
        }
        let [a, b, c] = prefix.0;
        let [_, x, y, z] = vmid.get().to_be_bytes();
        Ok(Self([a, b, c, x, y, z]))
    }

    /// The VMID that [`from_vmid`](Self::from_vmid) made this address of, if it did with this prefix.
    #[must_use]
    pub fn vmid_of(self, prefix: MacPrefix) -> Option<Vmid> {
        let [a, b, c, x, y, z] = self.0;
        if [a, b, c] != prefix.0 {
            return None;
        }
        Vmid::new(u32::from_be_bytes([0, x, y, z])).ok()
    }
}

impl FromStr for MacAddress {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse_bytes(text, MAC, MAC_FORM).map(Self)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bytes(&self.0, f)
    }
}

serde_as_text!(MacAddress, MAC);

/// The first three bytes of the addresses of a site: locally administered, unicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacPrefix([u8; 3]);

impl MacPrefix {
    /// # Errors
    /// [`Invalid`] when the prefix belongs to groups (multicast) or to a maker of network cards.
    pub fn new(bytes: [u8; 3]) -> Result<Self, Invalid> {
        let refuse = |found: &str| {
            let text = Self(bytes).to_string();
            let expected =
                "a locally administered unicast prefix (second hex digit 2, 6, a or e, like 02:a5:00)";
            Err(Invalid::new(text, "a MAC prefix of a site", expected, found))
        };
        if bytes[0] & 0x01 != 0 {
            return refuse("a multicast prefix");
        }
        if bytes[0] & 0x02 == 0 {
            return refuse("the prefix of a maker of network cards");
        }
        Ok(Self(bytes))
    }

    #[must_use]
    pub const fn bytes(self) -> [u8; 3] {
        self.0
    }
}

impl FromStr for MacPrefix {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::new(parse_bytes(text, PREFIX, PREFIX_FORM)?)
    }
}

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bytes(&self.0, f)
    }
}

serde_as_text!(MacPrefix, PREFIX);

fn write_bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 {
            f.write_str(":")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// Reads `02:a5:00`, `02-a5-00`, `02a5.0064.0001` or bare hex digits.
fn parse_bytes<const N: usize>(text: &str, what: &'static str, form: &str) -> Result<[u8; N], Invalid> {
    let refuse = |found: String| Invalid::new(text, what, form, found);
    let (separator, digits_a_group) = match text.chars().find(|c| ":-.".contains(*c)) {
        Some('.') => (Some('.'), 4),
        Some(separator) => (Some(separator), 2),
        None => (None, text.len()),
    };
    let groups: Vec<&str> = separator.map_or_else(|| vec![text], |s| text.split(s).collect());
    if text.is_empty() {
        return Err(refuse("nothing".into()));
    }
    if let Some(bad) = groups.iter().flat_map(|group| group.chars()).find(|c| !c.is_ascii_hexdigit()) {
        return Err(refuse(format!("the character {bad:?}")));
    }
    if let Some(group) = groups.iter().find(|group| group.len() != digits_a_group) {
        return Err(refuse(format!("a group of {} digits (\"{group}\")", group.len())));
    }
    let digits = groups.concat();
    if digits.len() != 2 * N {
        let half = if digits.len() % 2 == 1 { " and a half" } else { "" };
        return Err(refuse(format!("{} bytes{half}", digits.len() / 2)));
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|e| refuse(e.to_string()))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mac(text: &str) -> MacAddress {
        text.parse().unwrap()
    }

    #[test]
    fn every_way_of_writing_gives_the_same_bytes() {
        let bytes = MacAddress::new([0x02, 0xa5, 0x00, 0x00, 0x00, 0x64]);
        for text in
            ["02:a5:00:00:00:64", "02:A5:00:00:00:64", "02-A5-00-00-00-64", "02a5.0000.0064", "02A500000064"]
        {
            assert_eq!(text.parse(), Ok(bytes), "{text}");
        }
        assert_eq!(bytes.to_string(), "02:a5:00:00:00:64");
    }

    #[test]
    fn what_is_no_mac_address_is_refused_in_words() {
        for (text, found) in [
            ("", "nothing"),
            ("02:a5:00:00:00", "5 bytes"),
            ("02:a5:00:00:00:00:64", "7 bytes"),
            ("02:a5:00:00:00:00:00:64", "8 bytes"),
            ("02a50000006", "5 bytes and a half"),
            ("02a5.0000", "4 bytes"),
            ("2:a5:0:0:0:64", "a group of 1 digits (\"2\")"),
            ("02:a5-00:00:00:64", "the character '-'"),
            ("02:a5:00:00:00:6g", "the character 'g'"),
            ("02:a5:00:00:00:64 ", "the character ' '"),
            ("02:a5:00:00::64", "a group of 0 digits (\"\")"),
            ("é2a500000064", "the character 'é'"),
        ] {
            let error = text.parse::<MacAddress>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("\"{text}\" is not a MAC address: expected {MAC_FORM}, found {found}")
            );
        }
    }

    #[test]
    fn groups_and_local_administration_are_seen() {
        assert!(mac("ff:ff:ff:ff:ff:ff").is_multicast());
        assert!(mac("01:00:5e:00:00:01").is_multicast());
        assert!(!mac("02:a5:00:00:00:64").is_multicast());
        assert!(mac("02:a5:00:00:00:64").is_locally_administered());
        assert!(!mac("bc:24:11:00:00:64").is_locally_administered());
    }

    #[test]
    fn a_site_prefix_must_be_local_and_unicast() {
        assert_eq!("02:A5:00".parse::<MacPrefix>().unwrap().to_string(), "02:a5:00");
        assert_eq!("02a500".parse::<MacPrefix>().unwrap().bytes(), [2, 0xa5, 0]);
        for (text, found) in [
            ("bc:24:11", "the prefix of a maker of network cards"),
            ("03:a5:00", "a multicast prefix"),
            ("02:a5", "2 bytes"),
        ] {
            let error = text.parse::<MacPrefix>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("found {found}")), "{error}");
        }
    }

    #[test]
    fn a_vmid_and_its_address_name_each_other() {
        let prefix: MacPrefix = "02:a5:00".parse().unwrap();
        let largest = Vmid::new(16_777_215).unwrap();
        assert_eq!(MacAddress::from_vmid(prefix, Vmid::new(100).unwrap()).unwrap(), mac("02:a5:00:00:00:64"));
        assert_eq!(MacAddress::from_vmid(prefix, largest).unwrap(), mac("02:a5:00:ff:ff:ff"));
        assert_eq!(mac("02:a5:00:ff:ff:ff").vmid_of(prefix), Some(largest));
        assert_eq!(mac("02:a5:01:00:00:64").vmid_of(prefix), None, "another prefix");
        assert_eq!(mac("02:a5:00:00:00:63").vmid_of(prefix), None, "below the first VMID");
        assert_eq!(
            MacAddress::from_vmid(prefix, Vmid::new(16_777_216).unwrap()).unwrap_err().to_string(),
            "\"16777216\" is not a VMID that a MAC address can hold: \
             expected at most 16777215 (24 bits behind the prefix 02:a5:00), found 16777216"
        );
    }

    #[test]
    fn a_number_in_json_asks_for_quotes() {
        let error = serde_json::from_str::<MacAddress>("20000000064").unwrap_err().to_string();
        assert!(
            error.starts_with("invalid type: integer `20000000064`, expected a MAC address as quoted text"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn addresses_survive_text_and_json(bytes: [u8; 6]) {
            let mac = MacAddress::new(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            let json = serde_json::to_string(&mac).unwrap();
            prop_assert_eq!(serde_json::from_str::<MacAddress>(&json).unwrap(), mac);
        }

        #[test]
        fn any_text_parses_to_its_normal_form_or_not_at_all(text in "[0-9a-fA-F:.-]{0,20}|\\PC{0,20}") {
            if let Ok(mac) = text.parse::<MacAddress>() {
                prop_assert_eq!(mac.to_string().parse(), Ok(mac));
                let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
                prop_assert_eq!(mac.to_string().replace(':', ""), digits.to_lowercase());
            }
        }

        #[test]
        fn vmids_survive_the_address(vmid in 100_u32..=16_777_215, low: [u8; 2]) {
            let prefix = MacPrefix::new([0x02, low[0], low[1]]).unwrap();
            let vmid = Vmid::new(vmid).unwrap();
            prop_assert_eq!(MacAddress::from_vmid(prefix, vmid).unwrap().vmid_of(prefix), Some(vmid));
        }
    }
}
