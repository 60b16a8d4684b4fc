//! The pool as a storage of Proxmox VE: `/etc/pve/storage.cfg`, which a cluster shares, and `pvesm`. Pure.

use std::collections::BTreeSet;

use ansible_module::Change;
use serde::Deserialize;
use serde_json::Value;
use sha1::{Digest, Sha1};

const CONTENT: &str = "images,rootdir";

/// What is declared of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) id: String,
    /// Sorted, with commas.
    content: Option<String>,
    sparse: Option<bool>,
    blocksize: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    id: Option<String>,
    content: Option<Value>,
    sparse: Option<bool>,
    blocksize: Option<Value>,
}

impl Storage {
    /// `true`, `false` or a dictionary.
    pub(crate) fn check(value: &Value, pool: &str) -> Result<Option<Self>, String> {
        let raw = match value {
            Value::Null => return Ok(None),
            Value::Bool(false) => return Ok(None),
            Value::Bool(true) => Raw { id: None, content: None, sparse: None, blocksize: None },
            Value::String(word) if ["false", "no"].contains(&word.to_lowercase().as_str()) => {
                return Ok(None);
            }
            Value::String(word) if ["true", "yes"].contains(&word.to_lowercase().as_str()) => {
                return Self::check(&Value::Bool(true), pool);
            }
            Value::Object(_) => serde_json::from_value(value.clone())
                .map_err(|error| format!("expected id, content, sparse, blocksize: {error}"))?,
            other => return Err(format!("expected true, false or a dictionary, found {other}")),
        };
        let id = raw.id.unwrap_or_else(|| pool.to_owned());
        check_id(&id)?;
        Ok(Some(Self {
            id,
            content: raw.content.as_ref().map(content).transpose()?,
            sparse: raw.sparse,
            blocksize: raw.blocksize.as_ref().map(blocksize).transpose()?,
        }))
    }
}

/// `pve-storage-id` of PVE/JSONSchema.pm.
fn check_id(id: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = id.len() > 1
        && id.chars().all(plain)
        && id.starts_with(|c: char| c.is_ascii_alphabetic())
        && id.ends_with(|c: char| c.is_ascii_alphanumeric());
    good.then_some(()).ok_or_else(|| {
        format!("id: expected a letter, then letters, digits, `-`, `_` and `.`, a letter or digit at the end, found `{id}`")
    })
}

/// A zfspool stores nothing else (PVE/Storage/ZFSPoolPlugin.pm, plugindata).
fn content(value: &Value) -> Result<String, String> {
    let words: Vec<String> = match value {
        Value::String(text) => text.split(',').map(|word| word.trim().to_owned()).collect(),
        Value::Array(words) => {
            words.iter().map(|word| word.as_str().unwrap_or_default().to_owned()).collect()
        }
        _ => Vec::new(),
    };
    let words: BTreeSet<String> = words.into_iter().collect();
    if words.is_empty() || !words.iter().all(|word| ["images", "rootdir"].contains(&word.as_str())) {
        return Err(format!("content: expected images, rootdir or both, found {value}"));
    }
    Ok(words.into_iter().collect::<Vec<_>>().join(","))
}

fn blocksize(value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M']);
    let good =
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && text.len() - digits.len() <= 1;
    good.then_some(text.clone())
        .ok_or_else(|| format!("blocksize: expected a size such as 16k, found `{text}`"))
}

/// `storage.cfg` as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) sections: Vec<Section>,
    /// What pvesm compares before it writes: SHA-1 of the file (PVE/SectionConfig.pm, parse_config).
    pub(crate) digest: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: String,
    pub(crate) id: String,
    fields: Vec<(String, String)>,
}

impl Section {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// None: every node.
    pub(crate) fn nodes(&self) -> Option<BTreeSet<&str>> {
        self.field("nodes").map(|nodes| nodes.split(',').map(str::trim).collect())
    }

    fn is_set(&self, name: &str) -> bool {
        self.field(name).is_some_and(|value| !matches!(value, "0" | "no" | "off" | "false"))
    }
}

impl Config {
    pub(crate) fn parse(text: &str) -> Self {
        let mut sections: Vec<Section> = Vec::new();
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            if line.starts_with([' ', '\t']) {
                let (key, value) = line.trim().split_once([' ', '\t']).unwrap_or((line.trim(), "1"));
                if let Some(section) = sections.last_mut().filter(|_| !key.is_empty()) {
                    section.fields.push((key.to_owned(), value.trim().to_owned()));
                }
            } else if let Some((kind, id)) = line.split_once(':') {
                sections.push(Section { kind: kind.trim().into(), id: id.trim().into(), fields: Vec::new() });
            }
        }
        let digest = Sha1::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { sections, digest }
    }

    pub(crate) fn section(&self, id: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.id == id)
    }
}

/// One call of pvesm: its arguments, and what they change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) arguments: Vec<String>,
    pub(crate) changes: Vec<Change>,
}

/// What is missing until this node has the storage; nothing when it has it.
///
/// # Errors
/// The storage exists and is another one, or somebody disabled it.
pub(crate) fn call(
    wanted: &Storage,
    pool: &str,
    node: &str,
    config: &Config,
) -> Result<Option<Call>, String> {
    let field = |name: &str| format!("storage.{}.{name}", wanted.id);
    let status = Change::new(field("status"), Value::Null, "active");
    let options = [
        ("sparse", wanted.sparse.map(|on| String::from(if on { "1" } else { "0" }))),
        ("blocksize", wanted.blocksize.clone()),
    ];
    let Some(section) = config.section(&wanted.id) else {
        let content = wanted.content.as_deref().unwrap_or(CONTENT);
        let mut arguments: Vec<String> =
            ["add", "zfspool", &wanted.id, "--pool", pool, "--content", content, "--nodes", node]
                .map(String::from)
                .to_vec();
        let mut changes = vec![
            Change::new(field("pool"), Value::Null, pool),
            Change::new(field("content"), Value::Null, content),
            Change::new(field("nodes"), Value::Null, node),
        ];
        for (name, value) in options {
            let Some(value) = value else { continue };
            arguments.extend([format!("--{name}"), value.clone()]);
            changes.push(Change::new(field(name), Value::Null, value));
        }
        changes.push(status);
        return Ok(Some(Call { arguments, changes }));
    };
    check_section(section, wanted, pool)?;
    let mut arguments = Vec::new();
    let mut changes = Vec::new();
    if let Some(nodes) = section.nodes().filter(|nodes| !nodes.contains(node)) {
        let before = nodes.iter().copied().collect::<Vec<_>>().join(",");
        let after = nodes
            .into_iter()
            .chain([node])
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(",");
        arguments.extend(["--nodes".to_owned(), after.clone()]);
        changes.extend([Change::new(field("nodes"), before, after), status]);
    }
    let found_content =
        section.field("content").map(|text| content(&text.into()).unwrap_or_else(|_| text.to_owned()));
    let declared = [("content", wanted.content.clone(), found_content)].into_iter().chain(
        options.into_iter().map(|(name, value)| (name, value, section.field(name).map(str::to_owned))),
    );
    for (name, value, found) in declared {
        // PVE leaves out what is off.
        let is_same = value == found || (found.is_none() && value.as_deref() == Some("0"));
        let Some(value) = value.filter(|_| !is_same) else { continue };
        arguments.extend([format!("--{name}"), value.clone()]);
        changes.push(Change::new(field(name), found.map_or(Value::Null, Value::from), value));
    }
    if changes.is_empty() {
        return Ok(None);
    }
    let head = ["set", &wanted.id].map(String::from).into_iter();
    let tail = ["--digest".to_owned(), config.digest.clone()];
    Ok(Some(Call { arguments: head.chain(arguments).chain(tail).collect(), changes }))
}

fn check_section(section: &Section, wanted: &Storage, pool: &str) -> Result<(), String> {
    let id = &wanted.id;
    if section.kind != "zfspool" {
        return Err(format!(
            "the storage {id} exists and is a {}: choose another `proxmox_storage.id`",
            section.kind
        ));
    }
    let found = section.field("pool").unwrap_or_default();
    if found != pool {
        return Err(format!(
            "the storage {id} exists and is on the pool {found}, which cannot be changed: choose another `proxmox_storage.id`"
        ));
    }
    if section.is_set("disable") {
        return Err(format!(
            "the storage {id} is disabled: enable it (`pvesm set {id} --disable 0`) or leave it out"
        ));
    }
    Ok(())
}

/// The state in `pvesm status --storage ID`: `active`, `inactive`, `disabled`.
pub(crate) fn parse_status(text: &str, id: &str) -> Option<String> {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&id))
        .and_then(|words| words.get(2).map(|word| (*word).to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONFIG: &str = "dir: local\n\tpath /var/lib/vz\n\tcontent iso,vztmpl,backup\n\nzfspool: tank\n\tpool tank\n\t\
                          content rootdir,images\n\tmountpoint /tank\n\tnodes pve2,pve1\n\nzfspool: everywhere\n\tpool vmdata\n\tsparse\n";

    fn wanted(value: Value) -> Storage {
        Storage::check(&value, "tank").unwrap().unwrap()
    }

    fn arguments(value: Value, pool: &str, node: &str) -> Result<Option<String>, String> {
        let config = Config::parse(CONFIG);
        let call = call(&wanted(value), pool, node, &config)?;
        Ok(call.map(|call| call.arguments.join(" ").replace(&config.digest, "DIGEST")))
    }

    #[test]
    fn a_node_is_added_and_no_other_one_is_dropped() {
        assert_eq!(arguments(json!(true), "tank", "pve1"), Ok(None));
        assert_eq!(
            arguments(json!(true), "tank", "pve3"),
            Ok(Some("set tank --nodes pve1,pve2,pve3 --digest DIGEST".into()))
        );
        // Without `nodes` it is every node's.
        assert_eq!(arguments(json!({"id": "everywhere", "sparse": true}), "vmdata", "pve1"), Ok(None));
        assert_eq!(
            arguments(json!({"id": "new"}), "tank", "pve1"),
            Ok(Some("add zfspool new --pool tank --content images,rootdir --nodes pve1".into()))
        );
        assert_eq!(
            arguments(
                json!({"id": "tank", "content": ["images"], "sparse": false, "blocksize": "16k"}),
                "tank",
                "pve1"
            ),
            Ok(Some("set tank --content images --blocksize 16k --digest DIGEST".into()))
        );
    }

    #[test]
    fn another_storage_of_that_name_stays_what_it_is() {
        for (value, pool, part) in [
            (json!({"id": "local"}), "tank", "is a dir"),
            (json!({"id": "everywhere"}), "tank", "is on the pool vmdata"),
        ] {
            let error = arguments(value, pool, "pve1").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let disabled = Config::parse("zfspool: tank\n\tpool tank\n\tdisable\n");
        assert!(call(&wanted(json!(true)), "tank", "pve1", &disabled).unwrap_err().contains("is disabled"));
    }

    #[test]
    fn what_is_no_storage_is_refused() {
        assert_eq!(Storage::check(&json!(false), "tank"), Ok(None));
        for bad in [
            json!({"id": "1"}),
            json!({"id": "a/b"}),
            json!({"content": "iso"}),
            json!({"content": []}),
            json!({"blocksize": "big"}),
            json!({"nodes": "a"}),
            json!([1]),
            json!("perhaps"),
        ] {
            assert!(Storage::check(&bad, "tank").is_err(), "{bad}");
        }
    }

    #[test]
    fn the_digest_is_the_files() {
        assert_eq!(Config::parse("").digest, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }

    #[test]
    fn the_state_of_one_storage_is_read() {
        let text = "Name        Type     Status           Total            Used       Available        %\n\
                    tank     zfspool     active          507904             444          507460    0.09%\n";
        assert_eq!(parse_status(text, "tank").as_deref(), Some("active"));
        assert_eq!(parse_status(text, "tan"), None);
    }
}
