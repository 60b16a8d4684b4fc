//! `zpool status -j`, from OpenZFS 2.3 on.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::vdev::{Class, Pool, Vdev, VdevKind};

/// Reads the output of `zpool status -j`, with `--json-int` or without (then numbers are text).
///
/// # Errors
/// What was expected and is not there.
pub fn parse_json_status(text: &str) -> Result<Vec<Pool>, String> {
    let answer: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some(pools) = answer.get("pools") else { return Err("expected `pools`".into()) };
    objects(pools).map(|(name, pool)| parse_pool(name, pool)).collect()
}

fn objects(value: &Value) -> impl Iterator<Item = (&String, &Map<String, Value>)> {
    value.as_object().into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_object()?)))
}

fn parse_pool(name: &str, pool: &Map<String, Value>) -> Result<Pool, String> {
    let state = text(pool, "state").ok_or_else(|| format!("pool `{name}`: expected `state`"))?;
    let mut vdevs = Vec::new();
    for (key, value) in pool {
        if key == "vdevs" {
            // One entry, the root, whose own vdevs are the top level.
            vdevs.extend(objects(value).flat_map(|(_, root)| children(root, None)));
        } else if let Some(class) = Class::of_heading(key) {
            vdevs.extend(objects(value).map(|(name, vdev)| parse_vdev(name, vdev, Some(class))));
        }
    }
    if vdevs.is_empty() {
        return Err(format!("pool `{name}`: expected vdevs"));
    }
    let guid = pool.get("pool_guid").and_then(number);
    Ok(Pool { name: name.to_owned(), state, guid, vdevs })
}

fn children(parent: &Map<String, Value>, class: Option<Class>) -> Vec<Vdev> {
    let vdevs = parent.get("vdevs").unwrap_or(&Value::Null);
    objects(vdevs).map(|(name, vdev)| parse_vdev(name, vdev, class)).collect()
}

fn parse_vdev(name: &str, vdev: &Map<String, Value>, heading: Option<Class>) -> Vdev {
    let kind = match text(vdev, "vdev_type").as_deref() {
        Some("disk" | "file") => VdevKind::Leaf,
        // "raidz" stands for every parity; the name has it.
        Some("mirror" | "raidz" | "draid") | None => VdevKind::of_name(name),
        Some(other) => VdevKind::Other(other.to_owned()),
    };
    let class = heading.unwrap_or(match text(vdev, "class").as_deref() {
        Some("special") => Class::Special,
        Some("dedup") => Class::Dedup,
        Some("log") => Class::Log,
        _ => Class::Normal,
    });
    let path = (kind == VdevKind::Leaf)
        .then(|| text(vdev, "path").or_else(|| text(vdev, "was")).map(PathBuf::from))
        .flatten();
    Vdev {
        name: name.to_owned(),
        kind,
        class,
        state: text(vdev, "state").unwrap_or_default(),
        path,
        children: children(vdev, heading),
    }
}

fn text(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key)?.as_str().map(str::to_owned)
}

/// GUIDs are larger than what a float holds.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}
