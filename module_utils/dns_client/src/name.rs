//! Names as text: in lower case, without the dot of the root at the end.

use std::net::IpAddr;

use hickory_proto::rr::Name;

use crate::error::Error;

/// The name under which the PTR record of an address is kept: `21.0.20.10.in-addr.arpa`.
#[must_use]
pub fn reverse_name(address: IpAddr) -> String {
    text(&Name::from(address))
}

pub(crate) fn text(name: &Name) -> String {
    name.to_lowercase().to_ascii().trim_end_matches('.').to_owned()
}

/// # Errors
/// [`Error::Name`] for what no DNS message can carry.
pub(crate) fn parse(text: &str) -> Result<Name, Error> {
    let fault = |why: &dyn std::fmt::Display| Error::Name { name: text.to_owned(), why: why.to_string() };
    let text = text.trim_end_matches('.');
    if text.is_empty() {
        return Err(fault(&"it is empty"));
    }
    let mut name = Name::from_ascii(text).map_err(|why| fault(&why))?;
    name.set_fqdn(true);
    Ok(name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_under_its_reverse_name() {
        assert_eq!(reverse_name("10.20.0.21".parse().unwrap()), "21.0.20.10.in-addr.arpa");
        assert_eq!(
            reverse_name("2001:db8::21".parse().unwrap()),
            "1.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
    }

    #[test]
    fn names_have_one_form() {
        for (given, kept) in [
            ("Web01.Example.NET.", "web01.example.net"),
            ("*.example.net", "*.example.net"),
            ("_acme-challenge.web01.example.net", "_acme-challenge.web01.example.net"),
        ] {
            assert_eq!(text(&parse(given).unwrap()), kept);
        }
        for wrong in ["", ".", "web01..example.net", &"a".repeat(64)] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
