//! The published API schema of Proxmox VE as an oracle: would the real server take this request?
//!
//! The schemas lie beside the checkout and are not the project's to ship; without them there is nothing to ask.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use crate::proxy::Exchange;

/// Complaints about requests, from the schemas of Proxmox VE 8.4 and 9.1. Says so where a schema is missing.
///
/// # Panics
/// A schema is there and cannot be read.
#[must_use]
pub fn complaints(log: &[Exchange]) -> Vec<String> {
    let data = crate::checkout().join("../shared/data");
    let mut complaints = Vec::new();
    for name in ["pve-api-8.4.5-flat.json", "pve-api-9.1.3-vmclone.json"] {
        let Ok(text) = std::fs::read_to_string(data.join(name)) else {
            let _ = writeln!(std::io::stderr(), "skipped: no {name} to check requests against");
            continue;
        };
        let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
        complaints.extend(
            log.iter().filter_map(|one| Some(format!("{name}: {one}: {}", complaint(&schema, one)?))),
        );
    }
    complaints
}

fn complaint(schema: &Value, request: &Exchange) -> Option<String> {
    let path = request.path.strip_prefix("/api2/json").unwrap_or(&request.path);
    let Some((template, mut given)) = schema
        .as_object()?
        .keys()
        .find_map(|template| matches(template, path).map(|parameters| (template, parameters)))
    else {
        return Some("no such path".into());
    };
    let method = &schema[template][&request.method];
    if method.is_null() {
        return Some(format!("{template} has no such method"));
    }
    if request.method == "DELETE" && !request.body.is_empty() {
        return Some("a body".into());
    }
    for text in [&request.query, &request.body] {
        given.extend(pairs(text));
    }
    let known = method["parameters"]["properties"].as_object().cloned().unwrap_or_default();
    for (name, value) in &given {
        let numbered = format!("{}[n]", name.trim_end_matches(|c: char| c.is_ascii_digit()));
        let Some(rule) = known.get(name).or_else(|| known.get(&numbered)) else {
            return Some(format!("unknown parameter {name}"));
        };
        if let Some(why) = wrong(rule, value) {
            return Some(format!("{name}={value}: {why}"));
        }
    }
    let missing = known
        .iter()
        .find(|(name, rule)| rule["optional"] != 1 && !name.contains('[') && !given.contains_key(*name));
    missing.map(|(name, _)| format!("{name} is missing"))
}

/// The values of a template's parts.
fn matches(template: &str, path: &str) -> Option<BTreeMap<String, String>> {
    let (template, path): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
    if template.len() != path.len() {
        return None;
    }
    let mut values = BTreeMap::new();
    for (expected, found) in template.iter().zip(path) {
        match expected.strip_prefix('{') {
            Some(name) => drop(values.insert(name.trim_end_matches('}').to_owned(), decoded(found))),
            None if *expected == found => {}
            None => return None,
        }
    }
    Some(values)
}

/// As the real server splits: at `;` too.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split(['&', ';']).filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn wrong(rule: &Value, value: &str) -> Option<String> {
    let limit = |name: &str| rule[name].as_f64().or_else(|| rule[name].as_str()?.parse().ok());
    let number = value.parse::<f64>().ok();
    match rule["type"].as_str() {
        Some("integer") if value.parse::<i64>().is_err() => return Some("not an integer".into()),
        Some("number") if number.is_none() => return Some("not a number".into()),
        Some("boolean") if !matches!(value, "0" | "1") => return Some("not 0 or 1".into()),
        _ => {}
    }
    if limit("minimum").zip(number).is_some_and(|(least, found)| found < least)
        || limit("maximum").zip(number).is_some_and(|(most, found)| found > most)
    {
        return Some("out of range".into());
    }
    if limit("maxLength").is_some_and(|most| value.len() as f64 > most) {
        return Some("too long".into());
    }
    let choices = rule["enum"].as_array()?;
    (!choices.iter().any(|choice| choice == value)).then(|| "not one of the choices".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(method: &str, path: &str, body: &str) -> Exchange {
        Exchange {
            number: 1,
            connection: 1,
            method: method.into(),
            path: format!("/api2/json{path}"),
            query: String::new(),
            body: body.into(),
            status: None,
            answer: String::new(),
        }
    }

    #[test]
    fn a_request_is_judged_by_path_method_names_and_types() {
        let schema = json!({"/nodes/{node}/qemu/{vmid}/config": {"PUT": {"parameters": {"properties": {
            "node": {"type": "string"},
            "vmid": {"type": "integer", "minimum": 100},
            "cores": {"type": "integer", "minimum": "1", "optional": 1},
            "onboot": {"type": "boolean", "optional": 1},
            "net[n]": {"type": "string", "optional": 1},
            "bios": {"type": "string", "enum": ["ovmf"], "optional": 1},
            "needed": {"type": "string"},
        }}}}});
        let judge = |method: &str, path: &str, body: &str| complaint(&schema, &request(method, path, body));
        let config = "/nodes/pve1/qemu/101/config";
        assert_eq!(judge("PUT", config, "needed=x&cores=2&net1=virtio%3D02%3Aa5&onboot=1&bios=ovmf"), None);
        for (method, path, body, why) in [
            ("PUT", "/nodes/pve1/qemu", "", "no such path"),
            ("POST", config, "", "/nodes/{node}/qemu/{vmid}/config has no such method"),
            ("PUT", config, "needed=x&core=2", "unknown parameter core"),
            ("PUT", config, "needed=x&cores=0", "cores=0: out of range"),
            ("PUT", config, "needed=x&cores=two", "cores=two: not an integer"),
            ("PUT", config, "needed=x&onboot=true", "onboot=true: not 0 or 1"),
            ("PUT", config, "needed=x&bios=seabios", "bios=seabios: not one of the choices"),
            ("PUT", config, "cores=2", "needed is missing"),
            ("PUT", "/nodes/pve1/qemu/7/config", "needed=x", "vmid=7: out of range"),
        ] {
            assert_eq!(judge(method, path, body).as_deref(), Some(why));
        }
    }
}
