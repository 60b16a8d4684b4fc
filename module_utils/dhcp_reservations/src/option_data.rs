//! DHCP options of one host.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One DHCP option, by its name in Kea, its code, or (as read from Kea) both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    pub data: String,
    /// Sent also to a client that does not ask for it.
    pub always_send: bool,
    /// `data` is text as Kea's type of the option wants it; otherwise it is hexadecimal.
    pub csv_format: bool,
}

impl OptionData {
    #[must_use]
    pub fn named(name: &str, data: String) -> Self {
        Self { name: Some(name.to_owned()), code: None, data, always_send: false, csv_format: true }
    }

    /// An entry of Kea's `option-data`.
    #[must_use]
    pub fn from_kea(entry: &Value) -> Self {
        let flag = |key: &str, default: bool| entry.get(key).and_then(Value::as_bool).unwrap_or(default);
        Self {
            name: entry["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            code: entry["code"].as_u64().and_then(|code| code.try_into().ok()),
            data: entry["data"].as_str().unwrap_or_default().to_owned(),
            always_send: flag("always-send", false),
            csv_format: flag("csv-format", true),
        }
    }

    /// The entry of Kea's `option-data`.
    #[must_use]
    pub fn to_kea(&self) -> Value {
        let mut entry = Map::new();
        entry.extend(self.name.as_ref().map(|name| ("name".to_owned(), json!(name))));
        entry.extend(self.code.map(|code| ("code".to_owned(), json!(code))));
        entry.insert("data".to_owned(), json!(self.data));
        entry.insert("always-send".to_owned(), json!(self.always_send));
        entry.insert("csv-format".to_owned(), json!(self.csv_format));
        Value::Object(entry)
    }

    /// A list as the text of a field; no options are an empty text.
    #[must_use]
    pub fn to_text(mut options: Vec<Self>) -> String {
        if options.is_empty() {
            return String::new();
        }
        options.sort_by_key(|option| (option.code, option.name.clone()));
        json!(options).to_string()
    }

    /// The list in the text of a field.
    #[must_use]
    pub fn from_text(text: &str) -> Vec<Self> {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Whether two texts of lists mean the same options.
    #[must_use]
    pub fn same(one: &str, other: &str) -> bool {
        let (one, other) = (Self::from_text(one), Self::from_text(other));
        one.len() == other.len() && one.iter().all(|asked| other.iter().any(|found| asked.is(found)))
    }

    fn is(&self, other: &Self) -> bool {
        let same_code = self.code.is_some() && self.code == other.code;
        let same_name = self.name.is_some() && self.name == other.name;
        (same_code || same_name)
            && self.always_send == other.always_send
            && self.csv_format == other.csv_format
            && self.normal_data() == other.normal_data()
    }

    /// Kea keeps text as it was given, and shows bytes in upper case without separators.
    fn normal_data(&self) -> String {
        if self.csv_format {
            let words: Vec<&str> = self.data.split(',').map(str::trim).collect();
            return words.join(",");
        }
        let digits = self.data.strip_prefix("0x").unwrap_or(&self.data);
        digits.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kea_shows_is_what_was_asked_for() {
        let shown = |entry: Value| OptionData::to_text(vec![OptionData::from_kea(&entry)]);
        let dns = shown(
            json!({"always-send": false, "code": 6, "csv-format": true, "data": "10.0.0.1, 10.0.0.2", "name": "domain-name-servers", "space": "dhcp4"}),
        );
        let asked = |option: Value| json!([option]).to_string();
        let by = |key: &str, value: Value, data: &str| {
            let mut option = json!({"data": data, "always_send": false, "csv_format": true});
            option[key] = value;
            asked(option)
        };
        assert!(OptionData::same(&by("name", json!("domain-name-servers"), "10.0.0.1,10.0.0.2"), &dns));
        assert!(OptionData::same(&by("code", json!(6), "10.0.0.1, 10.0.0.2"), &dns));
        assert!(!OptionData::same(&by("code", json!(6), "10.0.0.1"), &dns));
        assert!(!OptionData::same(&by("name", json!("ntp-servers"), "10.0.0.1,10.0.0.2"), &dns));
        assert!(!OptionData::same("", &dns) && OptionData::same("", ""));
        let bytes = shown(json!({"code": 222, "csv-format": false, "data": "0A0B"}));
        let option = json!({"code": 222, "data": "0a:0b", "always_send": false, "csv_format": false});
        assert!(OptionData::same(&asked(option), &bytes));
    }

    #[test]
    fn an_entry_goes_to_kea_and_back() {
        let entry = json!({"name": "routers", "code": 3, "data": "10.0.0.1", "always-send": true, "csv-format": true});
        assert_eq!(OptionData::from_kea(&entry).to_kea(), entry);
        assert_eq!(OptionData::to_text(Vec::new()), "");
    }
}
