use std::fmt;
use std::str::FromStr;

use crate::invalid::{Invalid, serde_as_text};

const HOST: &str = "a host name";
const HOST_FORM: &str = "1 to 63 letters, digits and hyphens, no hyphen at either end (RFC 1123)";
const DOMAIN: &str = "a domain name";
const DOMAIN_FORM: &str =
    "labels of letters, digits and hyphens with dots between them, at most 253 characters";
const FQDN: &str = "a fully qualified domain name";
const FQDN_FORM: &str = "a host name and a domain with a dot between them (like web01.example.net)";

const LONGEST_LABEL: usize = 63;
/// The longest name in text form: 255 octets on the wire (RFC 1035) less the length bytes at both ends.
const LONGEST_NAME: usize = 253;

/// One label of a name: what a host calls itself. Kept in lower case, as DNS compares without case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// This host in a domain.
    ///
    /// # Errors
    /// [`Invalid`] when the two together are longer than a name may be.
    pub fn in_domain(&self, domain: &DomainName) -> Result<Fqdn, Invalid> {
        format!("{self}.{domain}").parse()
    }
}

impl FromStr for HostName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match fault_of_label(text) {
            Some(fault) => Err(Invalid::new(text, HOST, HOST_FORM, fault)),
            None => Ok(Self(text.to_ascii_lowercase())),
        }
    }
}

/// One or more labels. Kept in lower case and without the dot of the root at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainName(String);

impl DomainName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DomainName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse_labels(text, DOMAIN, DOMAIN_FORM).map(Self)
    }
}

/// A host in its domain: at least two labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fqdn(HostName, DomainName);

impl Fqdn {
    #[must_use]
    pub fn host(&self) -> &HostName {
        &self.0
    }

    #[must_use]
    pub fn domain(&self) -> &DomainName {
        &self.1
    }
}

impl FromStr for Fqdn {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let name = parse_labels(text, FQDN, FQDN_FORM)?;
        match name.split_once('.') {
            Some((host, domain)) => Ok(Self(HostName(host.into()), DomainName(domain.into()))),
            None => Err(Invalid::new(text, FQDN, FQDN_FORM, "one label without a domain")),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Fqdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

serde_as_text!(HostName, HOST);
serde_as_text!(DomainName, DOMAIN);
serde_as_text!(Fqdn, FQDN);

fn parse_labels(text: &str, what: &'static str, form: &str) -> Result<String, Invalid> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if name.len() > LONGEST_NAME {
        return Err(Invalid::new(text, what, form, format!("{} characters", name.len())));
    }
    // RFC 1123, 2.1: the last label of a name is alphabetic, so that no name looks like an address.
    let like_an_address = name
        .rsplit('.')
        .next()
        .filter(|last| !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
        .map(|last| format!("only digits in the last label (\"{last}\")"));
    match name.split('.').find_map(fault_of_label).or(like_an_address) {
        Some(fault) => Err(Invalid::new(text, what, form, fault)),
        None => Ok(name),
    }
}

fn fault_of_label(label: &str) -> Option<String> {
    if label.is_empty() {
        return Some("an empty label".into());
    }
    if let Some(bad) = label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
        return Some(format!("the character {bad:?}"));
    }
    if label.len() > LONGEST_LABEL {
        return Some(format!("a label of {} characters", label.len()));
    }
    (label.starts_with('-') || label.ends_with('-')).then(|| "a hyphen at an end".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_kept_in_lower_case() {
        assert_eq!("Web01".parse::<HostName>().unwrap().as_str(), "web01");
        assert_eq!("3com".parse::<HostName>().unwrap().as_str(), "3com");
        assert_eq!("Lab.Example.NET.".parse::<DomainName>().unwrap().as_str(), "lab.example.net");
        assert_eq!("local".parse::<DomainName>().unwrap().as_str(), "local");
    }

    #[test]
    fn a_fqdn_is_a_host_in_a_domain() {
        let fqdn: Fqdn = "WEB01.lab.example.net".parse().unwrap();
        assert_eq!((fqdn.host().as_str(), fqdn.domain().as_str()), ("web01", "lab.example.net"));
        assert_eq!(fqdn.host().in_domain(fqdn.domain()), Ok(fqdn));
    }

    #[test]
    fn what_is_no_name_is_refused_in_words() {
        let long = "a".repeat(64);
        for (text, found) in [
            ("", "an empty label"),
            ("web_01", "the character '_'"),
            ("web01.lab", "the character '.'"),
            ("-web", "a hyphen at an end"),
            ("web-", "a hyphen at an end"),
            ("wéb", "the character 'é'"),
            (&long, "a label of 64 characters"),
        ] {
            let error = text.parse::<HostName>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("\"{text}\" is not {HOST}: expected {HOST_FORM}, found {found}")
            );
        }
        let long = ["abcdefghi"; 26].join(".");
        for (text, found) in [
            ("", "an empty label"),
            ("..", "an empty label"),
            ("lab..net", "an empty label"),
            (".net", "an empty label"),
            ("*.net", "the character '*'"),
            (&long, "259 characters"),
            ("10.20.0.1", "only digits in the last label (\"1\")"),
        ] {
            let error = text.parse::<DomainName>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("\"{text}\" is not {DOMAIN}: expected {DOMAIN_FORM}, found {found}")
            );
        }
        let error = "web01.".parse::<Fqdn>().unwrap_err().to_string();
        assert!(error.ends_with("found one label without a domain"), "{error}");
    }

    #[test]
    fn a_host_may_be_too_long_for_its_domain() {
        let domain: DomainName = ["abcdefghi"; 25].join(".").parse().unwrap();
        assert!("h".repeat(3).parse::<HostName>().unwrap().in_domain(&domain).is_ok());
        assert!("h".repeat(4).parse::<HostName>().unwrap().in_domain(&domain).is_err());
    }

    proptest! {
        #[test]
        fn names_survive_text_and_json(text in "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?") {
            let host: HostName = text.parse().unwrap();
            prop_assert_eq!(host.to_string(), text.to_lowercase());
            prop_assert_eq!(host.to_string().parse(), Ok(host.clone()));
            let json = serde_json::to_string(&host).unwrap();
            prop_assert_eq!(serde_json::from_str::<HostName>(&json).unwrap(), host);
        }

        #[test]
        fn domains_parse_to_their_normal_form_or_not_at_all(text in "([a-zA-Z0-9.-]|\\PC){0,30}") {
            if let Ok(domain) = text.parse::<DomainName>() {
                prop_assert_eq!(domain.to_string(), text.strip_suffix('.').unwrap_or(&text).to_lowercase());
                prop_assert_eq!(domain.to_string().parse(), Ok(domain));
            }
            if let Ok(fqdn) = text.parse::<Fqdn>() {
                prop_assert_eq!(fqdn.to_string().parse(), Ok(fqdn));
            }
        }
    }
}
