//! One entry as `get_*` gives it: what an edit form needs.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The fields of an entry, and, without an entry, of an empty one: the fields this release knows.
///
/// Names of nested fields are joined with a dot (`option_data.boot_file_name`). A field with choices holds the
/// keys of the chosen ones, joined with commas, as it is written. Empty lists and objects, which PHP writes as
/// `[]`, are empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    fields: BTreeMap<String, String>,
    choices: BTreeMap<String, Vec<Choice>>,
}

/// One choice of a field: a subnet by its UUID, a record type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub key: String,
    /// What the page shows, such as the subnet's prefix.
    pub label: String,
    pub selected: bool,
}

impl Form {
    pub(crate) fn parse(value: &Value) -> Self {
        let mut form = Self::default();
        if let Value::Object(fields) = value {
            form.read(fields, "");
        }
        form
    }

    /// Whether this release stores the field.
    #[must_use]
    pub fn knows(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// The field's value; empty when it is empty or unknown.
    #[must_use]
    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }

    /// What the field may be set to, if it is one with choices.
    #[must_use]
    pub fn choices(&self, field: &str) -> &[Choice] {
        self.choices.get(field).map_or(&[], Vec::as_slice)
    }

    fn read(&mut self, fields: &Map<String, Value>, prefix: &str) {
        for (name, value) in fields {
            let name = format!("{prefix}{name}");
            match value {
                Value::Object(options) if is_choice_list(options) => self.read_choices(name, options),
                Value::Object(nested) => self.read(nested, &format!("{name}.")),
                _ => drop(self.fields.insert(name, scalar(value))),
            }
        }
    }

    fn read_choices(&mut self, name: String, options: &Map<String, Value>) {
        let choices: Vec<Choice> = options
            .iter()
            .map(|(key, option)| Choice {
                key: key.clone(),
                label: scalar(&option["value"]),
                selected: matches!(scalar(&option["selected"]).as_str(), "1" | "true"),
            })
            .collect();
        let chosen: Vec<&str> =
            choices.iter().filter(|one| one.selected).map(|one| one.key.as_str()).collect();
        self.fields.insert(name.clone(), chosen.join(","));
        self.choices.insert(name, choices);
    }
}

fn is_choice_list(options: &Map<String, Value>) -> bool {
    !options.is_empty() && options.values().all(|option| option.get("selected").is_some())
}

/// Scalars are texts in OPNsense; some releases give numbers and booleans here and there.
pub(crate) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => u8::from(*flag).to_string(),
        _ => String::new(),
    }
}

/// `[("option_data.boot_file_name", "x")]` as the nested object that a write sends.
pub(crate) fn nest(fields: &[(&str, String)]) -> Value {
    let mut root = Map::new();
    for (name, value) in fields {
        let mut names = name.split('.').rev();
        let last = names.next().unwrap_or_default();
        let place = names.rev().fold(&mut root, |map, name| {
            let nested = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
            nested.as_object_mut().expect("a field has either a value or fields of its own")
        });
        place.insert(last.to_owned(), Value::String(value.clone()));
    }
    Value::Object(root)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reservation_of_26_1_is_flattened() {
        let form = Form::parse(&json!({
            "subnet": {"u-1": {"value": "10.20.0.0/24", "selected": 1}, "u-2": {"value": "10.30.0.0/24", "selected": 0}},
            "ip_address": "10.20.0.21", "next_server": "",
            "option_data": {
                "domain_name_servers": {"": {"value": "", "selected": 1}},
                "routers": {"10.20.0.1": {"value": "10.20.0.1", "selected": 1}, "10.20.0.2": {"value": "10.20.0.2", "selected": "1"}},
                "boot_file_name": "grubx64.efi",
            },
            "option": [],
        }));
        assert_eq!(form.text("subnet"), "u-1");
        assert_eq!(form.choices("subnet")[1].label, "10.30.0.0/24");
        assert_eq!(form.text("option_data.domain_name_servers"), "");
        assert_eq!(form.text("option_data.routers"), "10.20.0.1,10.20.0.2");
        assert_eq!(form.text("option_data.boot_file_name"), "grubx64.efi");
        assert!(form.knows("next_server") && form.knows("option"));
        assert!(!form.knows("client_id"));
    }

    #[test]
    fn a_firewall_without_subnets_gives_a_list() {
        let form = Form::parse(&json!({"subnet": []}));
        assert!(form.knows("subnet"));
        assert!(form.choices("subnet").is_empty());
    }

    #[test]
    fn a_write_nests_what_a_read_flattened() {
        let fields = [
            ("hostname", "web01".to_owned()),
            ("option_data.boot_file_name", "a".to_owned()),
            ("option_data.tftp_server_name", "b".to_owned()),
        ];
        assert_eq!(
            nest(&fields),
            json!({"hostname": "web01", "option_data": {"boot_file_name": "a", "tftp_server_name": "b"}})
        );
    }
}
