//! The corners of PHP that OPNsense's API lets its clients see.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

/// What a PHP `(string)` cast makes of a JSON scalar; `None` for null, which `isset` calls absent.
///
/// # Errors
/// A list or an object, which cannot be cast.
pub(super) fn scalar(value: &Value) -> Result<Option<String>, ()> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(true) => Ok(Some("1".into())),
        Value::Bool(false) => Ok(Some(String::new())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Array(_) | Value::Object(_) => Err(()),
    }
}

/// `empty()` of a string.
pub(super) fn empty(text: &str) -> bool {
    text.is_empty() || text == "0"
}

/// `FILTER_VALIDATE_MAC`: six pairs with one of `:` and `-`, or three groups of four with `.`.
pub(super) fn is_mac(text: &str) -> bool {
    [(':', 6, 2), ('-', 6, 2), ('.', 3, 4)].iter().any(|&(separator, count, digits)| {
        let mut groups = 0;
        text.split(separator).all(|group| {
            groups += 1;
            group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        }) && groups == count
    })
}

/// `FILTER_VALIDATE_IP` with `FILTER_FLAG_IPV4`.
pub(super) fn is_ipv4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
}

/// `FILTER_VALIDATE_IP`.
pub(super) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// `FILTER_VALIDATE_DOMAIN`, without `FILTER_FLAG_HOSTNAME` unless `strict`.
pub(super) fn is_domain(text: &str, strict: bool) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let fits = !name.is_empty() && name.len() <= 253;
    fits && name.split('.').all(|label| {
        let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let strictly = plain && ends(label.bytes().next()) && ends(label.bytes().last());
        !label.is_empty() && label.len() <= 63 && (!strict || strictly)
    })
}

/// `strnatcasecmp`: numbers by value, unless one begins with a zero, which is compared as a fraction is.
pub(super) fn natural(left: &str, right: &str) -> Ordering {
    let (left, right) = (left.to_uppercase(), right.to_uppercase());
    let (mut left, mut right) = (without_leading_zeros(&left), without_leading_zeros(&right));
    loop {
        let ((left_run, left_rest), (right_run, right_rest)) = (split_digits(left), split_digits(right));
        let order = match (left_run, right_run) {
            ("", _) | (_, "") => match (left.chars().next(), right.chars().next()) {
                (None, None) => return Ordering::Equal,
                (one, other) if one != other => one.cmp(&other),
                (one, _) => {
                    let width = one.map_or(0, char::len_utf8);
                    (left, right) = (&left[width..], &right[width..]);
                    continue;
                }
            },
            (one, other) if one.starts_with('0') || other.starts_with('0') => one.cmp(other),
            (one, other) => one.len().cmp(&other.len()).then_with(|| one.cmp(other)),
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len()))
}

/// Zeros at the very beginning of a text do not count, if a digit follows.
fn without_leading_zeros(text: &str) -> &str {
    let (digits, _) = split_digits(text);
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    &text[zeros.min(digits.len().saturating_sub(1))..]
}

/// `urldecode`: what a query parameter says.
pub(super) fn url_decode(text: &str) -> String {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::new();
    while let [first, tail @ ..] = rest {
        let pair = tail.get(..2).filter(|_| *first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        let (byte, taken) = match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => (byte, 2),
            None => (if *first == b'+' { b' ' } else { *first }, 0),
        };
        decoded.push(byte);
        rest = &tail[taken..];
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// What `htmlspecialchars(…, ENT_NOQUOTES)` makes of an error message.
pub(super) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mac_filter_takes_three_notations_and_no_mixture() {
        for good in ["52:54:00:ab:cd:ef", "52-54-00-AB-CD-EF", "5254.00ab.cdef", "52:54:00:AB:cd:ef"] {
            assert!(is_mac(good), "{good}");
        }
        for bad in [
            "",
            "52:54:00:ab:cd",
            "52:54-00:ab:cd:ef",
            "525400abcdef",
            "52:54:00:ab:cd:eg",
            "5254.00ab.cde",
            "5254-00ab-cdef",
        ] {
            assert!(!is_mac(bad), "{bad}");
        }
    }

    #[test]
    fn domain_filter_is_loose_without_the_hostname_flag() {
        let label = "a".repeat(64);
        for (name, loose, strict) in [
            ("n1", true, true),
            ("a.b", true, true),
            ("a.b.", true, true),
            ("a_b", true, false),
            ("-a", true, false),
            ("a..b", false, false),
            (".a", false, false),
            ("", false, false),
            (label.as_str(), false, false),
        ] {
            assert_eq!((is_domain(name, false), is_domain(name, true)), (loose, strict), "{name}");
        }
    }

    #[test]
    fn scalars_are_cast_as_php_does() {
        let cast = [json!(null), json!(true), json!(false), json!(5), json!("x")]
            .map(|value| scalar(&value).unwrap());
        assert_eq!(cast, [None, Some("1".into()), Some(String::new()), Some("5".into()), Some("x".into())]);
        assert_eq!(scalar(&json!([])), Err(()));
    }

    #[test]
    fn queries_are_decoded() {
        for (query, text) in
            [("10.0.0.1", "10.0.0.1"), ("a+b%20c", "a b c"), ("%C3%A4", "ä"), ("5%", "5%"), ("%zz", "%zz")]
        {
            assert_eq!(url_decode(query), text);
        }
    }

    #[test]
    fn natural_order_counts() {
        // As PHP 8.2 sorts them with SORT_NATURAL | SORT_FLAG_CASE.
        let sorted = [
            "00:1b",
            "10.0.0.9",
            "10.0.0.20",
            "10.0.0.100",
            "52:54:00:0a",
            "52:54:00:00",
            "52:54:00:01",
            "52:54:00:1",
            "ab",
            "a_b",
            "n1",
            "N2",
            "n10",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|left, right| natural(left, right));
        assert_eq!(names, sorted);
    }
}
