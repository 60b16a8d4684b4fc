//! One value to one type, the way AnsibleModule does it.
//!
//! Source: ansible-core `module_utils/common/validation.py` and `module_utils/parsing/convert_bool.py`.
//! Deliberately stricter, because each hides a mistake: a dict or list is no string, a bool is no
//! number, and only finite numbers are numbers.

use std::env;

use serde_json::{Map, Number, Value};

use crate::spec::Kind;

const TRUE_WORDS: [&str; 6] = ["y", "yes", "on", "1", "true", "t"];
const FALSE_WORDS: [&str; 6] = ["n", "no", "off", "0", "false", "f"];

/// Converts `value` to `kind`; the error is a clause that follows "expected ...".
pub(crate) fn coerce(kind: Kind, value: &Value) -> Result<Value, String> {
    match kind {
        Kind::Str => string(value).map(Value::from),
        Kind::Int => integer(value).map(Value::from),
        Kind::Float => float(value),
        Kind::Bool => boolean(value).map(Value::from),
        Kind::Path => string(value).map(|text| Value::from(expand_path(&text, &|name| env::var(name).ok()))),
        Kind::List => list(value).map(Value::from),
        Kind::Dict => dict(value).map(Value::from),
        Kind::Raw => Ok(value.clone()),
        Kind::Json => json_text(value).map(Value::from),
    }
}

/// A value as a user would recognise it: its type, and short values themselves.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing (null)".into(),
        Value::Bool(b) => format!("the boolean {b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) if s.chars().count() <= 80 => format!("`{s}`"),
        Value::String(s) => format!("a text of {} characters", s.chars().count()),
        Value::Array(a) => format!("a list of {}", a.len()),
        Value::Object(o) => format!("a dictionary of {}", o.len()),
    }
}

fn expected(what: &str, value: &Value) -> String {
    format!("expected {what}, found {}", describe(value))
}

fn string(value: &Value) -> Result<String, String> {
    match value {
        Value::String(s) => Ok(s.clone()),
        Value::Bool(true) => Ok("True".into()),
        Value::Bool(false) => Ok("False".into()),
        Value::Number(n) => Ok(python_number(n)),
        _ => Err(expected("a string", value)),
    }
}

/// A number as Python prints it.
fn python_number(number: &Number) -> String {
    match number.as_f64() {
        Some(f) if number.is_f64() => {
            let exponent = if f == 0.0 { 0 } else { f.abs().log10().floor() as i32 };
            if (-4..16).contains(&exponent) {
                format!("{f:?}")
            } else {
                let text = format!("{f:e}");
                let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
                let power: i32 = power.parse().unwrap_or_default();
                format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
            }
        }
        _ => number.to_string(),
    }
}

fn integer(value: &Value) -> Result<i64, String> {
    let error = || expected("a whole number", value);
    match value {
        Value::Number(n) if n.is_f64() => {
            n.as_f64().and_then(|number| whole(number, I64_END)).ok_or_else(error)
        }
        Value::Number(n) => n.as_i64().ok_or_else(error),
        Value::String(s) => {
            let text = s.trim().replace('_', "");
            text.parse()
                .ok()
                .or_else(|| decimal(&text).and_then(|number| whole(number, EXACT_TEXT)))
                .ok_or_else(error)
        }
        _ => Err(error()),
    }
}

/// Up to here a text such as `9007199254740993.0` has one reading as a float.
const EXACT_TEXT: f64 = 9_007_199_254_740_992.0;
/// From here an i64 overflows.
const I64_END: f64 = 9_223_372_036_854_775_808.0;

/// A float with no fraction, of a size below `end`.
fn whole(number: f64, end: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < end).then_some(number as i64)
}

fn decimal(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

fn float(value: &Value) -> Result<Value, String> {
    let number = match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => decimal(&s.trim().replace('_', "")),
        _ => None,
    };
    number.and_then(Number::from_f64).map(Value::Number).ok_or_else(|| expected("a number", value))
}

pub(crate) fn boolean(value: &Value) -> Result<bool, String> {
    let word = match value {
        Value::Bool(b) => return Ok(*b),
        Value::String(s) => s.trim().to_lowercase(),
        Value::Number(n) => match n.as_f64() {
            Some(1.0) => "1".into(),
            Some(0.0) => "0".into(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    if TRUE_WORDS.contains(&word.as_str()) {
        Ok(true)
    } else if FALSE_WORDS.contains(&word.as_str()) {
        Ok(false)
    } else {
        Err(expected("a boolean (yes/no, true/false, on/off, 1/0)", value))
    }
}

fn list(value: &Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(items) => Ok(items.clone()),
        Value::String(s) => Ok(s.split(',').map(Value::from).collect()),
        Value::Number(n) => Ok(vec![Value::from(python_number(n))]),
        _ => Err(expected("a list", value)),
    }
}

fn dict(value: &Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(map) => Ok(map.clone()),
        Value::String(s) if s.starts_with('{') => serde_json::from_str(s)
            .map_err(|error| format!("expected a dictionary, found text that is no JSON object: {error}")),
        Value::String(s) if s.contains('=') => {
            key_values(s).ok_or_else(|| expected("a dictionary (`key=value, key=value`)", value))
        }
        _ => Err(expected("a dictionary", value)),
    }
}

/// `k=v, k2="v with spaces"`: separated by commas or spaces, quotes and backslashes as in a shell.
fn key_values(text: &str) -> Option<Map<String, Value>> {
    let mut fields = vec![String::new()];
    let (mut quote, mut escaped) = (None, false);
    for c in text.trim().chars() {
        let field = fields.last_mut()?;
        match c {
            _ if escaped => {
                field.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '\'' | '"' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            ',' | ' ' if quote.is_none() => fields.push(String::new()),
            _ => field.push(c),
        }
    }
    fields
        .iter()
        .filter(|field| !field.is_empty())
        .map(|field| field.split_once('=').map(|(key, value)| (key.to_owned(), Value::from(value))))
        .collect()
}

fn json_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(s) => Ok(s.trim().to_owned()),
        Value::Array(_) | Value::Object(_) => Ok(value.to_string()),
        _ => Err(expected("a JSON text, a list or a dictionary", value)),
    }
}

/// `$VAR`, `${VAR}` and a leading `~`; what is not set stays as it is (`os.path.expandvars`).
pub(crate) fn expand_path(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let expanded = expand_variables(text, variable);
    match expanded.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => match variable("HOME") {
            Some(home) => format!("{}{rest}", home.trim_end_matches('/')),
            None => expanded,
        },
        _ => expanded,
    }
}

fn expand_variables(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let braced = after.starts_with('{');
        let body = if braced { &after[1..] } else { after };
        let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let end = if braced {
            body.find('}')
        } else {
            Some(body.find(|c| !is_name(c)).unwrap_or(body.len())).filter(|end| *end > 0)
        };
        let found = end.and_then(|end| variable(&body[..end]).map(|value| (value, end)));
        match found {
            Some((value, end)) => {
                out.push_str(&value);
                rest = &body[end + usize::from(braced)..];
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn variable(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/op".into()),
            "SITE" => Some("lab".into()),
            _ => None,
        }
    }

    #[test]
    fn paths_expand_home_and_variables() {
        let table = [
            ("~", "/home/op"),
            ("~/x", "/home/op/x"),
            ("~other/x", "~other/x"),
            ("$SITE/x", "lab/x"),
            ("a${SITE}b", "alabb"),
            ("$UNSET/x", "$UNSET/x"),
            ("${UNSET}/x", "${UNSET}/x"),
            ("${SITE", "${SITE"),
            ("a$", "a$"),
            ("$HOME", "/home/op"),
            ("/x/~", "/x/~"),
        ];
        for (text, expected) in table {
            assert_eq!(expand_path(text, &variable), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_value_is_described() {
        assert_eq!(coerce(Kind::Int, &json!("5.5")).unwrap_err(), "expected a whole number, found `5.5`");
        assert_eq!(
            coerce(Kind::Bool, &json!("maybe")).unwrap_err(),
            "expected a boolean (yes/no, true/false, on/off, 1/0), found `maybe`"
        );
        assert_eq!(coerce(Kind::Str, &json!(["a"])).unwrap_err(), "expected a string, found a list of 1");
        assert_eq!(
            coerce(Kind::Int, &json!(true)).unwrap_err(),
            "expected a whole number, found the boolean true"
        );
        assert!(coerce(Kind::Float, &json!("nan")).is_err());
    }

    proptest! {
        #[test]
        fn every_integer_survives_as_text(number: i64) {
            prop_assert_eq!(coerce(Kind::Int, &json!(number.to_string())).unwrap(), json!(number));
        }

        #[test]
        fn text_without_variables_is_its_own_path(text in "[a-z/._-]{0,20}") {
            prop_assert_eq!(expand_path(&text, &variable), text);
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            for kind in [Kind::Str, Kind::Int, Kind::Float, Kind::Bool, Kind::Path, Kind::List, Kind::Dict, Kind::Json] {
                let _ = coerce(kind, &json!(text));
            }
        }
    }
}
