//! The rows of `search_*` (Base/UIModelGrid.php), in every shape that was ever sent.

use serde_json::{Map, Value};

use crate::error::Error;
use crate::form::scalar;

/// For leases: all rows. Grids of a model give all when nothing is said, on every release; there a query would
/// even keep restricted users out, since it is part of the text their privileges are compared with
/// (Core/ACL.php).
pub(crate) const ALL: [(&str, &str); 2] = [("current", "1"), ("rowCount", "-1")];

/// One row. Up to 25.1 a field with choices holds what the page shows; from 25.7 on it holds the key, and
/// `%field` what the page shows (`$field` for some weeks in between).
#[derive(Clone, Debug)]
pub(crate) struct Row(Map<String, Value>);

impl Row {
    pub(crate) fn text(&self, field: &str) -> String {
        self.0.get(field).map(scalar).unwrap_or_default()
    }

    /// What the page shows for a field with choices.
    pub(crate) fn label(&self, field: &str) -> String {
        ["%", "$"]
            .iter()
            .find_map(|mark| self.0.get(&format!("{mark}{field}")))
            .map_or_else(|| self.text(field), scalar)
    }

    /// The text of a field, or `None` when the row has no such field.
    pub(crate) fn known(&self, field: &str) -> Option<String> {
        self.0.get(field).map(scalar)
    }

    pub(crate) fn flag(&self, field: &str) -> bool {
        self.text(field) == "1"
    }

    pub(crate) fn value(&self, field: &str) -> &Value {
        self.0.get(field).unwrap_or(&Value::Null)
    }
}

/// # Errors
/// [`Error::Partial`] when rows are missing: what is not shown may be the one that is looked for.
pub(crate) fn rows(endpoint: &str, answer: &Value) -> Result<Vec<Row>, Error> {
    let Some(rows) = answer["rows"].as_array() else {
        let found = answer.to_string().chars().take(120).collect();
        return Err(Error::Protocol { endpoint: endpoint.to_owned(), expected: "rows", found });
    };
    let total = answer["total"].as_u64().unwrap_or(rows.len() as u64);
    if (rows.len() as u64) < total {
        return Err(Error::Partial { endpoint: endpoint.to_owned(), rows: rows.len() as u64, total });
    }
    Ok(rows.iter().filter_map(|row| row.as_object().cloned().map(Row)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_label_is_found_in_every_shape() {
        for row in [
            json!({"subnet": "10.20.0.0/24"}),
            json!({"subnet": "u-1", "%subnet": "10.20.0.0/24"}),
            json!({"subnet": "u-1", "$subnet": "10.20.0.0/24"}),
        ] {
            let answer = json!({"rows": [row], "rowCount": 1, "total": 1, "current": 1});
            assert_eq!(rows("x", &answer).unwrap()[0].label("subnet"), "10.20.0.0/24");
        }
    }

    #[test]
    fn a_part_of_the_rows_is_an_error() {
        let answer = json!({"rows": [{}, {}], "rowCount": 2, "total": 3, "current": 1});
        assert_eq!(
            rows("kea/dhcpv4/search_reservation", &answer).unwrap_err().to_string(),
            "kea/dhcpv4/search_reservation gave 2 of 3 rows: nothing can be concluded from a part"
        );
    }

    #[test]
    fn no_rows_is_an_error() {
        let error = rows("x", &json!([])).unwrap_err().to_string();
        assert_eq!(error, "x: expected rows, found []: is this an OPNsense?");
    }
}
