//! Records: their types, their values, and the sets they come in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::rdata::{A, AAAA, CNAME, PTR, TXT};
use hickory_proto::rr::{self, RData};
use serde::Deserialize;

use crate::name;

/// A TXT record is made of texts of at most this many octets (RFC 1035, 3.3.14).
const LONGEST_TEXT: usize = 255;
/// What one DNS message over UDP with EDNS surely carries; nothing sensible comes near it.
const LONGEST_TXT: usize = 4000;

/// The types of records this client knows.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordType {
    A,
    Aaaa,
    Cname,
    Txt,
    Ptr,
}

impl RecordType {
    pub const ALL: [Self; 5] = [Self::A, Self::Aaaa, Self::Cname, Self::Txt, Self::Ptr];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Cname => "CNAME",
            Self::Txt => "TXT",
            Self::Ptr => "PTR",
        }
    }

    /// Whether its records hold an address.
    #[must_use]
    pub fn is_address(self) -> bool {
        matches!(self, Self::A | Self::Aaaa)
    }

    /// The type that holds such an address.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::A } else { Self::Aaaa }
    }

    pub(crate) fn code(self) -> rr::RecordType {
        match self {
            Self::A => rr::RecordType::A,
            Self::Aaaa => rr::RecordType::AAAA,
            Self::Cname => rr::RecordType::CNAME,
            Self::Txt => rr::RecordType::TXT,
            Self::Ptr => rr::RecordType::PTR,
        }
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The value of one record. Two are equal when they say the same, however it is put into octets.
#[derive(Clone, Debug)]
pub struct RecordData {
    rr: RecordType,
    text: String,
    pub(crate) wire: RData,
}

impl RecordData {
    /// The value that a text stands for: an address, a name (its dot at the end is understood), or any text.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse(rr: RecordType, text: &str) -> Result<Self, String> {
        let expected = |what: &str| format!("expected {what}, found `{text}`");
        let host = || name::parse(text).map_err(|_| expected("a name such as web01.example.net"));
        let wire = match rr {
            RecordType::A => {
                RData::A(A(text.parse::<Ipv4Addr>().map_err(|_| expected("an IPv4 address"))?))
            }
            RecordType::Aaaa => {
                RData::AAAA(AAAA(text.parse::<Ipv6Addr>().map_err(|_| expected("an IPv6 address"))?))
            }
            RecordType::Cname => RData::CNAME(CNAME(host()?)),
            RecordType::Ptr => RData::PTR(PTR(host()?)),
            RecordType::Txt => txt(text)?,
        };
        Self::of_wire(wire).ok_or_else(|| expected("a value"))
    }

    /// The value of a record that holds this address.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        let wire = match address {
            IpAddr::V4(address) => RData::A(A(address)),
            IpAddr::V6(address) => RData::AAAA(AAAA(address)),
        };
        Self { rr: RecordType::of_address(address), text: address.to_string(), wire }
    }

    /// `None` for a type this client does not know.
    pub(crate) fn of_wire(wire: RData) -> Option<Self> {
        let (rr, text) = match &wire {
            RData::A(A(address)) => (RecordType::A, address.to_string()),
            RData::AAAA(AAAA(address)) => (RecordType::Aaaa, address.to_string()),
            RData::CNAME(CNAME(target)) => (RecordType::Cname, name::text(target)),
            RData::PTR(PTR(target)) => (RecordType::Ptr, name::text(target)),
            RData::TXT(TXT { txt_data, .. }) => {
                (RecordType::Txt, String::from_utf8_lossy(&txt_data.concat()).into_owned())
            }
            _ => return None,
        };
        Some(Self { rr, text, wire })
    }

    #[must_use]
    pub fn rr(&self) -> RecordType {
        self.rr
    }

    /// The value in its one form: an address as Rust writes it, a name in lower case without a dot at the end, the
    /// whole text of a TXT record.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The address of an A or AAAA record.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match &self.wire {
            RData::A(A(address)) => Some((*address).into()),
            RData::AAAA(AAAA(address)) => Some((*address).into()),
            _ => None,
        }
    }
}

/// RFC 1035 gives each of its texts one octet for the length, so a long one is cut.
fn txt(text: &str) -> Result<RData, String> {
    if text.is_empty() {
        return Err("expected a text, found an empty one".to_owned());
    }
    if text.len() > LONGEST_TXT {
        return Err(format!("expected at most {LONGEST_TXT} octets, found {}", text.len()));
    }
    Ok(RData::TXT(TXT::from_bytes(text.as_bytes().chunks(LONGEST_TEXT).collect())))
}

impl PartialEq for RecordData {
    fn eq(&self, other: &Self) -> bool {
        (self.rr, &self.text) == (other.rr, &other.text)
    }
}

impl Eq for RecordData {}

impl fmt::Display for RecordData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The records of one name and type; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSet {
    /// Sorted, so that sets compare whatever order a server answers in.
    pub values: Vec<RecordData>,
    /// Seconds that a resolver may keep it; from a resolver, the seconds it still will.
    pub ttl: u32,
}

impl RecordSet {
    pub(crate) fn of(records: impl Iterator<Item = (u32, RecordData)>) -> Option<Self> {
        let (ttls, mut values): (Vec<u32>, Vec<RecordData>) = records.unzip();
        values.sort_by(|one, other| one.text.cmp(&other.text));
        Some(Self { ttl: *ttls.iter().min()?, values })
    }

    /// Whether this is the one value it has.
    #[must_use]
    pub fn is_only(&self, value: &RecordData) -> bool {
        self.values.as_slice() == std::slice::from_ref(value)
    }
}

impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<&str> = self.values.iter().map(RecordData::as_str).collect();
        f.write_str(&values.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_have_one_form() {
        for (rr, given, kept) in [
            (RecordType::A, "10.20.0.21", "10.20.0.21"),
            (RecordType::Aaaa, "2001:DB8:0::21", "2001:db8::21"),
            (RecordType::Cname, "Web01.Example.NET.", "web01.example.net"),
            (RecordType::Ptr, "web01.example.net", "web01.example.net"),
            (RecordType::Txt, "v=spf1 -all", "v=spf1 -all"),
        ] {
            let data = RecordData::parse(rr, given).unwrap();
            assert_eq!((data.rr(), data.as_str()), (rr, kept));
            assert_eq!(RecordData::parse(rr, kept).unwrap(), data);
        }
    }

    #[test]
    fn what_fits_no_type_is_told() {
        let told = |rr, text: &str| RecordData::parse(rr, text).unwrap_err();
        insta::assert_snapshot!(told(RecordType::A, "2001:db8::1"), @"expected an IPv4 address, found `2001:db8::1`");
        insta::assert_snapshot!(told(RecordType::Aaaa, "10.20.0.21"), @"expected an IPv6 address, found `10.20.0.21`");
        insta::assert_snapshot!(told(RecordType::Cname, "a..b"), @"expected a name such as web01.example.net, found `a..b`");
        insta::assert_snapshot!(told(RecordType::Txt, ""), @"expected a text, found an empty one");
        insta::assert_snapshot!(told(RecordType::Txt, &"x".repeat(4001)), @"expected at most 4000 octets, found 4001");
    }

    #[test]
    fn a_text_is_the_same_however_it_is_cut() {
        let cut = RData::TXT(TXT::new(vec!["v=DKIM1; ".into(), "k=rsa".into()]));
        let cut = RecordData::of_wire(cut).unwrap();
        let whole = RecordData::parse(RecordType::Txt, "v=DKIM1; k=rsa").unwrap();
        assert_eq!(cut, whole);
        assert_ne!(cut.wire, whole.wire, "the octets that are there can still be named to a server");
    }

    proptest! {
        #[test]
        fn texts_survive(text in "\\PC{1,900}") {
            let data = RecordData::parse(RecordType::Txt, &text).unwrap();
            prop_assert_eq!(data.as_str(), text.as_str());
            let RData::TXT(txt) = &data.wire else { panic!("a TXT record") };
            prop_assert!(txt.txt_data.iter().all(|part| part.len() <= LONGEST_TEXT));
        }
    }
}
