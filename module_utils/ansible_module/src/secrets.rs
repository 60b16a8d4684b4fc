//! Keeps secrets out of everything that leaves the process.
//!
//! Every secret is registered with the forms it may come back in (percent-encoded once or twice, as a
//! form value, JSON- or HTML-escaped, base64 at any alignment). Every outgoing string has all of them
//! replaced, longest first. As in AnsibleModule, a value that is a secret as a whole becomes
//! `VALUE_SPECIFIED_IN_NO_LOG_PARAMETER`, a part becomes `********`.

use std::collections::BTreeSet;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

pub(crate) const MASKED: &str = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER";
const STARS: &str = "********";
/// Encoded forms of shorter secrets are ordinary text (`a%20`, two base64 letters).
const SHORTEST_ENCODED: usize = 4;

// One process is one run; a panic hook and the signal thread must scrub too.
static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Registers a secret and its encoded forms.
pub(crate) fn protect(secret: &str) {
    if secret.is_empty() {
        return;
    }
    if let Ok(mut known) = KNOWN.lock() {
        known.extend(forms(secret));
    }
}

/// Registers every string and number inside a secret option's value.
pub(crate) fn protect_value(value: &Value) {
    match value {
        Value::String(s) => {
            protect(s);
            protect(s.trim());
        }
        Value::Number(n) => protect(&n.to_string()),
        Value::Array(items) => items.iter().for_each(protect_value),
        Value::Object(map) => map.values().for_each(protect_value),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Scrubs all strings, and numbers that are secrets, in place. Keys are names that modules give.
pub(crate) fn scrub(value: &mut Value) {
    let mut needles: Vec<String> =
        KNOWN.lock().map(|known| known.iter().cloned().collect()).unwrap_or_default();
    needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
    if !needles.is_empty() {
        scrub_with(value, &needles);
    }
}

fn scrub_with(value: &mut Value, needles: &[String]) {
    match value {
        Value::String(text) => *text = scrub_text(text, needles),
        Value::Number(number) if needles.contains(&number.to_string()) => *value = Value::from(MASKED),
        Value::Array(items) => items.iter_mut().for_each(|item| scrub_with(item, needles)),
        Value::Object(map) => map.values_mut().for_each(|item| scrub_with(item, needles)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn scrub_text(text: &str, needles: &[String]) -> String {
    if needles.iter().any(|needle| needle == text) {
        return MASKED.to_owned();
    }
    needles.iter().fold(text.to_owned(), |text, needle| {
        if text.contains(needle.as_str()) { text.replace(needle.as_str(), STARS) } else { text }
    })
}

fn forms(secret: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::from([secret.to_owned()]);
    if secret.len() < SHORTEST_ENCODED {
        return forms;
    }
    let once = percent_encode(secret);
    forms.insert(percent_encode(&once));
    forms.insert(once.replace("%20", "+"));
    forms.insert(lowercase_escapes(&once));
    forms.insert(once);
    forms.insert(json_escape(secret));
    forms.insert(json_escape(&json_escape(secret)));
    forms.insert(html_escape(secret));
    for offset in 0..3 {
        forms.extend(base64_core(secret, offset));
    }
    forms.retain(|form| form.len() >= SHORTEST_ENCODED);
    forms
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// `%2F` as `%2f`; the rest as it is.
fn lowercase_escapes(text: &str) -> String {
    let mut escape = 0_u8;
    text.chars()
        .map(|c| {
            let lowered = if escape > 0 { c.to_ascii_lowercase() } else { c };
            escape = if c == '%' { 2 } else { escape.saturating_sub(1) };
            lowered
        })
        .collect()
}

fn json_escape(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// PHP's htmlspecialchars, which OPNsense-like systems run over error texts.
fn html_escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#039;")
}

/// The part of base64 that depends on the secret alone, when `offset` unknown bytes stand before it
/// (`user:secret` in a Basic header).
fn base64_core(secret: &str, offset: usize) -> [String; 2] {
    let mut bytes = vec![0_u8; offset];
    bytes.extend_from_slice(secret.as_bytes());
    let from = (offset * 8).div_ceil(6);
    let to = bytes.len() * 8 / 6;
    [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
        .map(|encoded| encoded.get(from..to).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn scrubbed(secret: &str, text: &str) -> String {
        let mut needles: Vec<String> = forms(secret).into_iter().collect();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        scrub_text(text, &needles)
    }

    #[test]
    fn each_form_is_found() {
        let secret = r#"p<>w"d /ü&'x"#;
        let once = percent_encode(secret);
        for form in [
            secret.to_owned(),
            once.clone(),
            percent_encode(&once),
            once.replace("%20", "+"),
            json!(secret).to_string(),
            html_escape(secret),
        ] {
            let text = scrubbed(secret, &format!("before {form} after"));
            assert!(text.contains(STARS), "{form} was left in {text}");
            assert!(!text.contains(secret), "{text}");
        }
    }

    #[test]
    fn a_basic_header_is_found_at_every_alignment() {
        for user in ["a", "ab", "abc", "root@pam"] {
            let header = STANDARD.encode(format!("{user}:hunter2-and-more"));
            assert!(scrubbed("hunter2-and-more", &header).contains(STARS), "{header}");
        }
    }

    #[test]
    fn a_whole_value_becomes_ansibles_own_word() {
        assert_eq!(scrubbed("hunter2", "hunter2"), MASKED);
        assert_eq!(scrubbed("hunter2", "x hunter2 y"), "x ******** y");
    }

    #[test]
    fn the_longest_secret_goes_first() {
        let needles = ["hunter2hunter2".to_owned(), "hunter2".to_owned()];
        assert_eq!(scrub_text("a hunter2hunter2 b", &needles), "a ******** b");
    }

    #[test]
    fn numbers_that_are_secrets_are_masked() {
        let mut value = json!({"pin": 123_456, "other": 5});
        scrub_with(&mut value, &["123456".to_owned()]);
        assert_eq!(value, json!({"pin": MASKED, "other": 5}));
    }

    proptest! {
        #[test]
        fn no_secret_survives(secret in "[ -~]{4,30}", before in "[a-z ]{0,10}", after in "[a-z ]{0,10}") {
            let text = format!("{before}{secret}{after}");
            let out = scrubbed(&secret, &text);
            prop_assert!(!out.contains(&secret) || STARS.contains(&secret) || MASKED.contains(&secret));
        }
    }
}
