//! From the JSON that Ansible sent to checked, coerced arguments.
//!
//! The order follows AnsibleModule (ansible-core `module_utils/common/arg_spec.py`): environment
//! fallbacks, aliases, unknown names, types, choices, rules, defaults, sub-options. Unlike there, every
//! fault is reported at once, and null means absent everywhere.

use std::collections::BTreeSet;
use std::env;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::coerce::{boolean, coerce, describe};
use crate::failure::{ErrorCode, Failure};
use crate::secrets;
use crate::spec::{Kind, Opt, Rule, Spec, Table};

/// The `_ansible_*` keys that matter here; all optional, unknown ones ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Internal {
    #[serde(rename = "_ansible_check_mode")]
    pub check_mode: bool,
    #[serde(rename = "_ansible_diff")]
    pub diff: bool,
    #[serde(rename = "_ansible_verbosity")]
    pub verbosity: u64,
    #[serde(rename = "_ansible_no_log")]
    pub no_log: bool,
    #[serde(rename = "_ansible_module_name")]
    pub module_name: Option<String>,
    #[serde(rename = "_ansible_ignore_unknown_opts")]
    pub ignore_unknown_options: bool,
    /// Sent since ansible-core 2.21; before, the invocation is always wanted.
    #[serde(rename = "_ansible_inject_invocation")]
    pub inject_invocation: Option<bool>,
}

impl Internal {
    /// Each key by itself, so that one of an unexpected type does not hide the others.
    pub(crate) fn take_from(raw: &mut Map<String, Value>) -> Self {
        let mut internal = Self::default();
        let keys: Vec<String> = raw.keys().filter(|key| key.starts_with("_ansible_")).cloned().collect();
        for key in keys {
            let Some(value) = raw.remove(&key) else { continue };
            let flag = boolean(&value).ok();
            match key.as_str() {
                // What cannot be understood must neither let a write through nor show anything.
                "_ansible_check_mode" => internal.check_mode = flag.unwrap_or(!value.is_null()),
                "_ansible_diff" => internal.diff = flag.unwrap_or_default(),
                "_ansible_no_log" => internal.no_log = flag.unwrap_or(!value.is_null()),
                "_ansible_ignore_unknown_opts" => internal.ignore_unknown_options = flag.unwrap_or_default(),
                "_ansible_inject_invocation" => internal.inject_invocation = flag,
                "_ansible_verbosity" => internal.verbosity = value.as_u64().unwrap_or_default(),
                "_ansible_module_name" => internal.module_name = value.as_str().map(str::to_owned),
                _ => {}
            }
        }
        internal
    }
}

/// Coerced arguments: only options of the table, defaults filled in, absent options absent.
#[derive(Clone, Debug)]
pub struct Arguments {
    values: Map<String, Value>,
}

impl Arguments {
    /// The arguments as the module's own type. Optional options are `Option` fields; a `no_log` option
    /// is a `secrecy::SecretString`; domain types parse themselves and their error names the option.
    ///
    /// # Errors
    /// `bad_argument` with the path of the option.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_path_to_error::deserialize(Value::Object(self.values.clone())).map_err(|error| {
            let why = error.inner().to_string();
            match error.path().to_string() {
                path if path != "." => Failure::bad_argument(&path, self.in_words(&path, &why)),
                _ => match self.culprit::<T>(&why) {
                    Some(option) => Failure::bad_argument(option, self.in_words(option, &why)),
                    None => Failure::new(ErrorCode::BAD_ARGUMENT, why),
                },
            }
        })
    }

    /// Serde loses the path within flattened structs. It is the option whose value the message quotes, and
    /// without which the message is another one.
    fn culprit<T: DeserializeOwned>(&self, why: &str) -> Option<&str> {
        let is_quoted = |value: &Value| match value {
            Value::String(text) => {
                let text = text.escape_debug();
                why.contains(&format!("\"{text}\"")) || why.contains(&format!("variant `{text}`"))
            }
            other => why.contains(&format!(" `{other}`")),
        };
        let is_cured = |name: &str| {
            let others = self.values.iter().filter(|(other, _)| *other != name);
            let others = others.map(|(name, value)| (name.clone(), value.clone())).collect();
            serde_json::from_value::<T>(Value::Object(others))
                .err()
                .is_none_or(|error| error.to_string() != why)
        };
        self.values
            .iter()
            .filter(|(_, value)| is_quoted(value))
            .map(|(name, _)| name.as_str())
            .find(|name| is_cured(name))
    }

    /// Rust's own messages name Rust's own types, or do not say what was found.
    fn in_words(&self, path: &str, why: &str) -> String {
        let number =
            why.strip_prefix("invalid value: integer `").and_then(|rest| rest.split_once("`, expected "));
        let range = number.and_then(|(_, kind)| match kind {
            "u8" => Some("from 0 to 255"),
            "u16" => Some("from 0 to 65535"),
            "u32" => Some("from 0 to 4294967295"),
            "u64" | "usize" => Some("of 0 or more"),
            _ => None,
        });
        if let (Some((found, _)), Some(range)) = (number, range) {
            return format!("expected a whole number {range}, found {found}");
        }
        if let Some(address) =
            why.strip_prefix("invalid IP").and_then(|rest| rest.strip_suffix(" address syntax"))
        {
            let pointer = format!("/{}", path.replace('[', ".").replace(']', "").replace('.', "/"));
            let values = Value::Object(self.values.clone());
            let found = values.pointer(&pointer).map_or_else(String::new, describe);
            return format!("expected an IP{address} address, found {found}");
        }
        why.to_owned()
    }

    /// Arguments for a module's own tests, coerced and checked as in a run.
    ///
    /// # Errors
    /// `bad_argument`, as in a run.
    pub fn for_tests(spec: &Spec, raw: Value) -> Result<Self, Failure> {
        let Value::Object(raw) = raw else {
            return Err(Failure::new(ErrorCode::INTERNAL, "test arguments must be an object"));
        };
        check(spec, raw, false).map(|checked| checked.arguments)
    }

    pub(crate) fn timeout(&self) -> Result<u64, Failure> {
        match self.values.get("timeout").and_then(Value::as_i64) {
            Some(seconds @ 1..=604_800) => Ok(seconds.unsigned_abs()),
            _ => Err(Failure::bad_argument("timeout", "expected 1 to 604800 seconds")),
        }
    }

    /// What `invocation.module_args` shows: secrets masked, free of values that were not given.
    pub(crate) fn masked(&self, table: &Table) -> Map<String, Value> {
        mask(&self.values, table)
    }
}

fn mask(values: &Map<String, Value>, table: &Table) -> Map<String, Value> {
    let mask_one = |name: &String, value: &Value| {
        let Some(option) = table.options.iter().find(|option| option.name == name) else {
            return value.clone();
        };
        match value {
            _ if option.no_log => Value::from(secrets::MASKED),
            Value::Object(map) => Value::Object(mask(map, &option.sub)),
            Value::Array(items) => items
                .iter()
                .map(|item| {
                    item.as_object().map_or_else(|| item.clone(), |map| Value::Object(mask(map, &option.sub)))
                })
                .collect(),
            _ => value.clone(),
        }
    };
    values.iter().map(|(name, value)| (name.clone(), mask_one(name, value))).collect()
}

/// The result of [`check`].
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) arguments: Arguments,
    pub(crate) warnings: Vec<String>,
}

/// Coerces and checks everything; registers every secret before anything can fail.
pub(crate) fn check(spec: &Spec, raw: Map<String, Value>, ignore_unknown: bool) -> Result<Checked, Failure> {
    let mut checker = Checker { ignore_unknown, module: spec.name, faults: Vec::new(), warnings: Vec::new() };
    let values = checker.level(&spec.full_table(), raw, "");
    match checker.faults.len() {
        0 => Ok(Checked { arguments: Arguments { values }, warnings: checker.warnings }),
        _ => Err(checker.into_failure()),
    }
}

struct Fault {
    option: String,
    msg: String,
}

struct Checker {
    ignore_unknown: bool,
    module: &'static str,
    faults: Vec<Fault>,
    warnings: Vec<String>,
}

impl Checker {
    fn fault(&mut self, option: impl Into<String>, msg: impl Into<String>) {
        self.faults.push(Fault { option: option.into(), msg: msg.into() });
    }

    fn into_failure(self) -> Failure {
        let lines: Vec<String> = self.faults.iter().map(|fault| fault.msg.clone()).collect();
        let options: BTreeSet<&str> = self.faults.iter().map(|fault| fault.option.as_str()).collect();
        let failure = Failure::new(ErrorCode::BAD_ARGUMENT, lines.join("; "))
            .with("option", self.faults[0].option.clone());
        if lines.len() == 1 {
            return failure;
        }
        failure
            .with("options", options.into_iter().map(Value::from).collect::<Vec<_>>())
            .with("errors", lines)
    }

    /// One level of options: the module's own, or those of a dictionary option at `prefix`.
    fn level(&mut self, table: &Table, mut given: Map<String, Value>, prefix: &str) -> Map<String, Value> {
        given.retain(|_, value| !value.is_null());
        self.resolve_aliases(table, &mut given, prefix);
        from_environment(table, &mut given);
        for option in table.options.iter().filter(|option| option.no_log) {
            given.get(option.name).into_iter().for_each(secrets::protect_value);
        }
        self.refuse_unknown(table, &given, prefix);
        let before = self.faults.len();
        let mut values = Map::new();
        for option in &table.options {
            if let Some(value) = given.get(option.name) {
                if let Some(value) = self.value(option, value, &path(prefix, option.name)) {
                    values.insert(option.name.to_owned(), value);
                }
            } else if let Some(default) = &option.default {
                let default = coerce(option.kind, default).unwrap_or_else(|_| default.clone());
                values.insert(option.name.to_owned(), default);
            } else if option.required {
                self.fault(
                    path(prefix, option.name),
                    format!("missing required option `{}`", path(prefix, option.name)),
                );
            }
        }
        if self.faults.len() == before {
            for rule in &table.rules {
                self.apply_rule(rule, &values, &given, prefix);
            }
        }
        values
    }

    fn resolve_aliases(&mut self, table: &Table, given: &mut Map<String, Value>, prefix: &str) {
        for option in &table.options {
            for alias in &option.aliases {
                let Some(value) = given.remove(*alias) else { continue };
                if given.insert(option.name.to_owned(), value).is_some() {
                    self.warnings.push(format!(
                        "Both option {} and its alias {alias} are set.",
                        path(prefix, option.name)
                    ));
                }
            }
        }
    }

    fn refuse_unknown(&mut self, table: &Table, given: &Map<String, Value>, prefix: &str) {
        if self.ignore_unknown {
            return;
        }
        let mut supported: Vec<&str> = table.options.iter().map(|option| option.name).collect();
        supported.sort_unstable();
        for key in given.keys().filter(|key| !supported.contains(&key.as_str())) {
            let msg = format!(
                "Unsupported parameters for (homelab.anvil.{}) module: {}. Supported parameters include: {}.{}",
                self.module,
                path(prefix, key),
                supported.join(", "),
                nearest(key, table).map(|name| format!(" Did you mean `{name}`?")).unwrap_or_default(),
            );
            self.fault(path(prefix, key), msg);
        }
    }

    fn value(&mut self, option: &Opt, value: &Value, at: &str) -> Option<Value> {
        if let Some(what) = option.quoted
            && !value.is_string()
        {
            let hint = if matches!(value, Value::Number(_) | Value::Bool(_)) {
                "; quote it in the YAML"
            } else {
                ""
            };
            self.fault(
                at,
                format!("option `{at}`: expected {what} as text, found {}{hint}", describe(value)),
            );
            return None;
        }
        let coerced = match coerce(option.kind, value) {
            Ok(coerced) => coerced,
            Err(why) => {
                self.fault(at, format!("option `{at}`: {}", hide(option, &why)));
                return None;
            }
        };
        let coerced = match (option.kind, coerced) {
            (Kind::List, Value::Array(items)) => self.elements(option, items, at),
            (Kind::Dict, Value::Object(map)) if !option.sub.is_empty() => {
                Value::Object(self.level(&option.sub, map, at))
            }
            (_, coerced) => coerced,
        };
        self.refuse_other_choices(option, &coerced, at);
        Some(coerced)
    }

    fn elements(&mut self, option: &Opt, items: Vec<Value>, at: &str) -> Value {
        let kind = option.elements.unwrap_or(Kind::Raw);
        let mut elements = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let at = format!("{at}[{index}]");
            match coerce(kind, item) {
                Ok(Value::Object(map)) if !option.sub.is_empty() => {
                    elements.push(Value::Object(self.level(&option.sub, map, &at)));
                }
                Ok(value) => elements.push(value),
                Err(why) => self.fault(at.clone(), format!("option `{at}`: {}", hide(option, &why))),
            }
        }
        Value::Array(elements)
    }

    fn refuse_other_choices(&mut self, option: &Opt, value: &Value, at: &str) {
        if option.choices.is_empty() {
            return;
        }
        let one = std::slice::from_ref(value);
        for value in value.as_array().map_or(one, Vec::as_slice) {
            if !value.as_str().is_some_and(|text| option.choices.contains(&text)) {
                self.fault(
                    at,
                    format!(
                        "option `{at}`: expected one of {}, found {}",
                        option.choices.join(", "),
                        describe(value)
                    ),
                );
            }
        }
    }

    /// `given` tells what the user set, `values` what counts with defaults.
    fn apply_rule(
        &mut self,
        rule: &Rule,
        values: &Map<String, Value>,
        given: &Map<String, Value>,
        prefix: &str,
    ) {
        let set = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|name| given.contains_key(*name)).collect()
        };
        let missing = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|name| !values.contains_key(*name)).collect()
        };
        let place = if prefix.is_empty() { String::new() } else { format!(" in `{prefix}`") };
        match rule {
            Rule::MutuallyExclusive(names) => {
                let set = set(names);
                if set.len() > 1 {
                    self.fault(
                        path(prefix, set[0]),
                        format!("only one of {}{place} may be set", names_of(&set)),
                    );
                }
            }
            Rule::RequiredTogether(names) => {
                let lacking = missing(names);
                if !set(names).is_empty() && !lacking.is_empty() {
                    self.fault(
                        path(prefix, lacking[0]),
                        format!("{}{place} go together; missing: {}", names_of(names), names_of(&lacking)),
                    );
                }
            }
            Rule::RequiredOneOf(names) => {
                if missing(names).len() == names.len() {
                    self.fault(
                        path(prefix, names[0]),
                        format!("one of {}{place} is required", names_of(names)),
                    );
                }
            }
            Rule::RequiredIf { option, value, required, any } => {
                let lacking = missing(required);
                let met = if *any { lacking.len() < required.len() } else { lacking.is_empty() };
                if values.get(*option) == Some(value) && !met {
                    let how = if *any { "one of " } else { "" };
                    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    self.fault(
                        path(prefix, lacking[0]),
                        format!("with `{option}: {shown}`{place}, {how}{} must be set", names_of(&lacking)),
                    );
                }
            }
            Rule::RequiredBy { option, required } => {
                let lacking = missing(required);
                if given.contains_key(*option) && !lacking.is_empty() {
                    self.fault(
                        path(prefix, lacking[0]),
                        format!("`{option}`{place} needs {} as well", names_of(&lacking)),
                    );
                }
            }
        }
    }
}

fn from_environment(table: &Table, given: &mut Map<String, Value>) {
    for option in &table.options {
        if given.contains_key(option.name) {
            continue;
        }
        if let Some(value) = option.env.iter().find_map(|name| env::var(name).ok()) {
            given.insert(option.name.to_owned(), Value::from(value));
        }
    }
}

/// A wrong value of a secret option is not shown, whatever its type; nor is one that should have been a
/// dictionary with a secret in it, which nobody can find in a text.
fn hide(option: &Opt, why: &str) -> String {
    if holds_secret(option) {
        let kind = if option.sub.is_empty() { option.kind.name() } else { "a dictionary" };
        format!("expected {kind}, found something else (not shown: it is a secret, or holds one)")
    } else {
        why.to_owned()
    }
}

fn holds_secret(option: &Opt) -> bool {
    option.no_log || option.sub.options.iter().any(holds_secret)
}

fn nearest(key: &str, table: &Table) -> Option<&'static str> {
    table
        .options
        .iter()
        .flat_map(|option| std::iter::once(option.name).chain(option.aliases.iter().copied()))
        .map(|name| (strsim::jaro_winkler(key, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

fn path(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn names_of(names: &[&'static str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors matter")]
    struct Typed {
        name: String,
        #[serde(default)]
        small: u16,
        #[serde(default)]
        pause: u64,
        peer: Option<std::net::IpAddr>,
        nested: Option<Nested>,
        #[serde(flatten)]
        flat: Flat,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors matter")]
    struct Nested {
        next: Option<std::net::Ipv4Addr>,
        #[serde(default)]
        password: String,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors matter")]
    struct Flat {
        port: u16,
    }

    fn spec() -> Spec {
        let nested = Table::new(vec![Opt::str("next"), Opt::str("password").no_log()]);
        Spec::new("typed", "Of every type").options(Table::new(vec![
            Opt::str("name").default("1"),
            Opt::int("small"),
            Opt::int("pause"),
            Opt::str("peer"),
            Opt::int("port").default(1),
            Opt::dict_of("nested", nested.clone()),
            Opt::list_of("several", nested),
        ]))
    }

    #[test]
    fn a_wrong_value_is_told_with_its_option_in_words_that_are_not_rusts() {
        let errors: String = [
            json!({"small": 70_000}),
            json!({"pause": -1}),
            json!({"peer": "10.0.0.300"}),
            json!({"nested": {"next": "fd00::1"}}),
            json!({"port": 99_999, "name": "99999"}),
            json!({"port": -1}),
        ]
        .into_iter()
        .map(|raw| {
            let failure = Arguments::for_tests(&spec(), raw).unwrap().parse::<Typed>().unwrap_err();
            format!("{}: {}\n", failure.details["option"], failure.msg)
        })
        .collect();
        insta::assert_snapshot!(errors, @r#"
        "small": option `small`: expected a whole number from 0 to 65535, found 70000
        "pause": option `pause`: expected a whole number of 0 or more, found -1
        "peer": option `peer`: expected an IP address, found `10.0.0.300`
        "nested.next": option `nested.next`: expected an IPv4 address, found `fd00::1`
        "port": option `port`: expected a whole number from 0 to 65535, found 99999
        "port": option `port`: expected a whole number from 0 to 65535, found -1
        "#);
    }

    #[test]
    fn a_text_where_a_dictionary_with_a_secret_belongs_is_not_shown() {
        for raw in [
            json!({"nested": "next=10.0.0.1 password=hunter2 oops"}),
            json!({"nested": "hunter2"}),
            json!({"several": ["hunter2"]}),
            json!({"several": "hunter2"}),
        ] {
            let failure = Arguments::for_tests(&spec(), raw).unwrap_err();
            assert!(failure.msg.contains("expected a dictionary"), "{failure}");
            assert!(!failure.msg.contains("hunter2"), "{failure}");
        }
    }

    #[test]
    fn check_mode_is_on_unless_it_is_clearly_off() {
        for (value, on) in [
            (json!(true), true),
            (json!("yes"), true),
            (json!(1), true),
            (json!("perhaps"), true),
            (json!(false), false),
            (json!("no"), false),
            (json!(null), false),
        ] {
            let mut raw = Map::from_iter([("_ansible_check_mode".to_owned(), value.clone())]);
            assert_eq!(Internal::take_from(&mut raw).check_mode, on, "{value}");
        }
    }
}
