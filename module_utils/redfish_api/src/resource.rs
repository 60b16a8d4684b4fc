use serde_json::Value;

use crate::error::Error;

/// One Redfish resource as it was read.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its path on the BMC.
    pub uri: String,
    pub body: Value,
    /// The header `ETag` as it came, else `@odata.etag`.
    pub(crate) etag: Option<String>,
    /// The methods of the header `Allow`.
    pub(crate) allow: Vec<String>,
}

impl Resource {
    /// The path that the property links to.
    #[must_use]
    pub fn link(&self, property: &str) -> Option<String> {
        link(&self.body[property])
    }

    /// A text that is there and not blank.
    #[must_use]
    pub fn text(&self, property: &str) -> Option<&str> {
        text(&self.body[property])
    }

    /// Whether both are the same resource; a slash at the end makes no difference.
    #[must_use]
    pub fn is_at(&self, uri: &str) -> bool {
        self.uri.trim_end_matches('/') == uri.trim_end_matches('/')
    }
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty())
}

/// The path of `{"@odata.id": PATH}`. A fragment points into a resource, which is read as a whole.
pub(crate) fn link(value: &Value) -> Option<String> {
    path(value["@odata.id"].as_str()?)
}

/// The path on this BMC that a link or a `Location` header means: absolute, or a whole URL.
///
/// The BMC is never left: the host of a URL does not count.
pub(crate) fn path(text: &str) -> Option<String> {
    let text = text.split('#').next().unwrap_or_default();
    let path = match text.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/')?..],
        None => text,
    };
    let sound = path.starts_with('/') && !path.starts_with("//");
    (sound && path.bytes().all(|byte| byte.is_ascii_graphic())).then(|| path.to_owned())
}

/// The links in a collection's `Members`.
pub(crate) fn members(collection: &Resource) -> Result<Vec<String>, Error> {
    let shape = |expected| Error::Shape { uri: collection.uri.clone(), expected };
    match &collection.body["Members"] {
        Value::Array(members) => {
            Ok(members.iter().filter_map(link).filter(|uri| !collection.is_at(uri)).collect())
        }
        // Supermicro X10 and early Lenovo XCC: a collection without the property is an empty one.
        Value::Null => Ok(Vec::new()),
        _ => Err(shape("a list in Members")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_never_leaves_the_bmc() {
        for (text, expected) in [
            ("/redfish/v1/Systems/1", Some("/redfish/v1/Systems/1")),
            ("/redfish/v1/Systems/1#/Boot", Some("/redfish/v1/Systems/1")),
            ("https://evil.example/redfish/v1/TaskMonitors/7?x=1", Some("/redfish/v1/TaskMonitors/7?x=1")),
            ("//evil.example/redfish", None),
            ("redfish/v1", None),
            ("https://evil.example", None),
            ("/redfish/v1/a b", None),
            ("/redfish\r\nX: y", None),
            ("", None),
        ] {
            assert_eq!(path(text).as_deref(), expected, "{text:?}");
        }
    }
}
