//! Documentation from the option table: Ansible's DOCUMENTATION, EXAMPLES and RETURN, and `--options`.

use serde_json::{Map, Value, json};

use crate::spec::{Kind, Opt, Spec, Table};

/// What the runner returns for every module.
const COMMON_RETURNS: &str = "\
error_code:
  description:
    - The stable name of what went wrong, to branch on.
    - Among them V(bad_argument), V(refused), V(not_found), V(conflict), V(timeout), V(auth), V(tls),
      V(unreachable), V(api_error), V(command_failed), V(read_back_mismatch), V(interrupted) and V(internal).
  returned: failure
  type: str
  sample: refused
field:
  description: The first field that did not take, in the system's own words.
  returned: when RV(error_code) is V(read_back_mismatch)
  type: str
expected:
  description: What was asked for in RV(field).
  returned: when RV(error_code) is V(read_back_mismatch)
  type: raw
found:
  description: What the system says of RV(field).
  returned: when RV(error_code) is V(read_back_mismatch)
  type: raw
mismatches:
  description: Every field that did not take.
  returned: when RV(error_code) is V(read_back_mismatch)
  type: list
  elements: dict
written:
  description: The fields that were written before the run failed; run again to repair.
  returned: failure after the first write
  type: list
  elements: str
read_back:
  description:
    - The proof of each change. C(held) lists the fields that read back as asked.
    - C(pending) gives for each field that is stored and not in effect yet the reason.
    - C(unreadable) gives for each field that the system does not show the reason.
  returned: changed
  type: dict
api_calls:
  description: The number of requests by method.
  returned: at verbosity 2 and above, by modules that talk to an API
  type: dict
";

/// The DOCUMENTATION block as YAML.
#[must_use]
pub fn documentation(spec: &Spec) -> String {
    let mut document = json!({
        "module": spec.name,
        "short_description": spec.short_description,
        "version_added": "0.1.0",
        "author": ["homelab.anvil maintainers (@homelab-anvil)"],
        "description": spec.description,
    });
    for (key, texts) in [("requirements", &spec.requirements), ("notes", &spec.notes)] {
        if !texts.is_empty() {
            document[key] = json!(texts);
        }
    }
    if !spec.seealso.is_empty() {
        document["seealso"] = spec.seealso.iter().map(|module| json!({ "module": module })).collect();
    }
    document["attributes"] = attributes(spec);
    document["options"] = table(&spec.full_table()).into();
    yaml(&document)
}

/// The EXAMPLES block as it was written.
#[must_use]
pub fn examples(spec: &Spec) -> String {
    spec.examples.trim_start_matches('\n').to_owned()
}

/// The RETURN block: the module's own keys, then what every module returns.
#[must_use]
pub fn returns(spec: &Spec) -> String {
    format!("{}{COMMON_RETURNS}", spec.returns.trim_start_matches('\n'))
}

/// `--options`: the whole table for programs.
pub(crate) fn options(spec: &Spec) -> Map<String, Value> {
    let mut result = Map::new();
    result.insert("module".into(), spec.name.into());
    result.insert("options".into(), table(&spec.full_table()).into());
    result
}

fn attributes(spec: &Spec) -> Value {
    let idempotent = if spec.idempotent { "full" } else { "none" };
    json!({
        "check_mode": {
            "description": "Sends only reads in check mode and predicts the result.",
            "support": "full",
        },
        "diff_mode": {
            "description": "Returns the changed fields before and after in diff mode.",
            "support": "full",
        },
        "idempotent": {
            "description": "A second run finds nothing to do and answers C(changed=false).",
            "support": idempotent,
        },
        "platform": {
            "description": "Where the module itself runs.",
            "support": "full",
            "platforms": spec.platform,
        },
    })
}

fn table(table: &Table) -> Map<String, Value> {
    table.options.iter().map(|option| (option.name.to_owned(), one(option))).collect()
}

fn one(option: &Opt) -> Value {
    let mut entry = Map::new();
    let mut description: Vec<String> = option.doc.clone();
    if let [variable, rest @ ..] = option.env.as_slice() {
        let others: String = rest.iter().map(|name| format!(", then E({name})")).collect();
        description.push(format!("When not set, the environment variable E({variable}){others} is used."));
    }
    entry.insert("description".into(), description.into());
    entry.insert("type".into(), option.kind.name().into());
    if let Some(elements) = option.elements {
        entry.insert("elements".into(), elements.name().into());
    }
    if option.required {
        entry.insert("required".into(), true.into());
    }
    if let Some(default) = &option.default {
        entry.insert("default".into(), default.clone());
    }
    if !option.choices.is_empty() {
        entry.insert("choices".into(), option.choices.clone().into());
    }
    if !option.aliases.is_empty() {
        entry.insert("aliases".into(), option.aliases.clone().into());
    }
    if matches!(option.kind, Kind::Dict | Kind::List) && !option.sub.is_empty() {
        entry.insert("suboptions".into(), table(&option.sub).into());
    }
    entry.into()
}

fn yaml(document: &Value) -> String {
    let text = serde_norway::to_string(document).unwrap_or_else(|_| document.to_string());
    let folded: String = text.lines().map(|line| fold(&quote_boolean(line))).collect();
    // Folding must not change a word; a text that it would change stays as it is.
    match serde_norway::from_str::<Value>(&folded) {
        Ok(read) if read == *document => folded,
        _ => text,
    }
}

/// Ansible reads YAML 1.1, where these words are booleans; the writer leaves them bare, as YAML 1.2 does.
fn quote_boolean(line: &str) -> String {
    const BOOLEANS: [&str; 6] = ["on", "off", "yes", "no", "y", "n"];
    match line.rsplit_once(' ') {
        Some((head, word))
            if head.ends_with(['-', ':']) && BOOLEANS.contains(&word.to_ascii_lowercase().as_str()) =>
        {
            format!("{head} '{word}'")
        }
        _ => line.to_owned(),
    }
}

/// Folds a long plain or quoted scalar over several lines; ansible-test allows 160 characters a line.
fn fold(line: &str) -> String {
    const WIDTH: usize = 110;
    let indent = line.len() - line.trim_start().len();
    let mut folded = String::new();
    let mut length = 0;
    for (index, word) in line.split(' ').enumerate() {
        // Only in front of a letter: `#`, `-` and the like mean something at the beginning of a line.
        let may_break = index > indent + 1 && word.starts_with(|c: char| c.is_ascii_alphanumeric());
        if length + word.len() > WIDTH && may_break {
            folded.push_str(&format!("\n{:1$}", "", indent + 4));
            length = indent + 4;
        } else if index > 0 {
            folded.push(' ');
            length += 1;
        }
        folded.push_str(word);
        length += word.len();
    }
    folded + "\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec_with(text: &str) -> Spec {
        Spec::new("probe", "Shows the contract").describe(text).options(Table::new(vec![
            Opt::str("say").doc(text).env(&["PROBE_SAY"]),
            Opt::dict_of("more", Table::new(vec![Opt::list("items", Kind::Str).doc(text)])),
        ]))
    }

    #[test]
    fn long_texts_are_folded_and_read_back_the_same() {
        let text =
            "Beginning: of a text that 'is' long, with O(option=value), C(- dash) and # hash. ".repeat(5);
        let yaml = documentation(&spec_with(text.trim()));
        assert!(yaml.lines().all(|line| line.len() <= 140), "{yaml}");
        let read: Value = serde_norway::from_str(&yaml).unwrap();
        assert_eq!(read["description"][0], text.trim());
        assert_eq!(read["options"]["more"]["suboptions"]["items"]["description"][0], text.trim());
    }

    #[test]
    fn words_that_yaml_1_1_takes_for_booleans_are_quoted() {
        let state = Opt::str("state").choices(&["on", "off", "onwards"]).default("off").doc("Is it on");
        let yaml = documentation(&Spec::new("probe", "yes").options(Table::new(vec![state])));
        for line in [
            "short_description: 'yes'",
            "    - 'on'",
            "    - 'off'",
            "    - onwards",
            "    default: 'off'",
            "    - Is it on",
        ] {
            assert!(yaml.lines().any(|one| one == line), "{line}: {yaml}");
        }
    }

    proptest! {
        #[test]
        fn folding_never_changes_a_word(text in "[ -~]{1,400}") {
            let read: Value = serde_norway::from_str(&documentation(&spec_with(&text))).unwrap();
            prop_assert_eq!(read["description"][0].as_str(), Some(text.as_str()));
        }
    }
}
