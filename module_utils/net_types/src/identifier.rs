use std::fmt;
use std::str::FromStr;

use crate::invalid::{Invalid, serde_as_text};
use crate::mac::MacAddress;

const CLIENT_ID: &str = "a client identifier";
const CLIENT_ID_FORM: &str = "2 to 255 bytes in hexadecimal, type byte first (like 01:02:a5:00:00:00:64)";

/// A DHCP client identifier, option 61, with its type byte (RFC 2132, 9.14); printed in lower case with colons.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Vec<u8>);

impl ClientId {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for ClientId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = |found: String| Invalid::new(text, CLIENT_ID, CLIENT_ID_FORM, found);
        let digits: Vec<char> = text.chars().filter(|letter| !":-".contains(*letter)).collect();
        if let Some(bad) = digits.iter().find(|letter| !letter.is_ascii_hexdigit()) {
            return Err(refuse(format!("the character {bad:?}")));
        }
        if digits.len() % 2 == 1 {
            return Err(refuse(format!("{} digits", digits.len())));
        }
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).ok();
        let bytes: Vec<u8> = digits.chunks(2).filter_map(byte).collect();
        match bytes.len() {
            2..=255 => Ok(Self(bytes)),
            1 => Err(refuse("1 byte".to_owned())),
            length => Err(refuse(format!("{length} bytes"))),
        }
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

serde_as_text!(ClientId, CLIENT_ID);

/// What a DHCP server knows a host by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostIdentifier {
    Mac(MacAddress),
    ClientId(ClientId),
}

impl From<MacAddress> for HostIdentifier {
    fn from(mac: MacAddress) -> Self {
        Self::Mac(mac)
    }
}

impl From<ClientId> for HostIdentifier {
    fn from(client_id: ClientId) -> Self {
        Self::ClientId(client_id)
    }
}

impl fmt::Display for HostIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => mac.fmt(f),
            Self::ClientId(client_id) => write!(f, "client-id {client_id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_way_of_writing_gives_the_same_bytes() {
        for text in ["01:02:A5:00:00:00:64", "01-02-a5-00-00-00-64", "0102a500000064"] {
            let client_id: ClientId = text.parse().unwrap();
            assert_eq!(client_id.to_string(), "01:02:a5:00:00:00:64");
            assert_eq!(client_id.bytes(), [1, 2, 0xa5, 0, 0, 0, 0x64]);
        }
    }

    #[test]
    fn what_is_no_client_identifier_is_refused_in_words() {
        let long = "00".repeat(256);
        for (text, found) in [
            ("", "0 bytes"),
            ("01", "1 byte"),
            ("01:2", "3 digits"),
            ("0g:11", "the character 'g'"),
            ("é1", "the character 'é'"),
            (long.as_str(), "256 bytes"),
        ] {
            let error = text.parse::<ClientId>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("expected {CLIENT_ID_FORM}, found {found}")), "{error}");
        }
    }

    #[test]
    fn an_identifier_says_which_it_is() {
        assert_eq!(
            HostIdentifier::from(MacAddress::new([2, 0xa5, 0, 0, 0, 0x64])).to_string(),
            "02:a5:00:00:00:64"
        );
        let client_id: ClientId = "01:02".parse().unwrap();
        assert_eq!(HostIdentifier::from(client_id).to_string(), "client-id 01:02");
    }

    proptest! {
        #[test]
        fn printing_and_parsing_gives_the_same(bytes in proptest::collection::vec(any::<u8>(), 2..=255)) {
            let client_id = ClientId(bytes);
            prop_assert_eq!(client_id.to_string().parse::<ClientId>().unwrap(), client_id);
        }
    }
}
