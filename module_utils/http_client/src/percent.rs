use std::fmt::Write as _;

/// Encodes every byte that is not unreserved (RFC 3986: letters, digits, `-._~`), for one path segment,
/// one form name or one form value. A space becomes `%20`, never `+`.
///
/// Encoding less is not enough for Proxmox VE: pve-http-server splits bodies and queries on `;` as well
/// as on `&` (PVE/APIServer/AnyEvent.pm).
#[must_use]
pub fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        encoded
    })
}

/// The pairs as an `application/x-www-form-urlencoded` body or query string.
#[must_use]
pub fn form_encode(pairs: &[(String, String)]) -> String {
    pairs
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
        .collect::<Vec<_>>()
        .join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_characters_stay() {
        assert_eq!(percent_encode("AZaz09-._~"), "AZaz09-._~");
        assert_eq!(percent_encode("order=scsi0;net0"), "order%3Dscsi0%3Bnet0");
        assert_eq!(percent_encode("a b+c&d/é%"), "a%20b%2Bc%26d%2F%C3%A9%25");
    }

    #[test]
    fn a_form_keeps_its_order() {
        let pairs = [("b".to_owned(), "1;2".to_owned()), ("a".to_owned(), String::new())];
        assert_eq!(form_encode(&pairs), "b=1%3B2&a=");
    }
}
