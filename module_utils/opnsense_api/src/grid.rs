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
    let wrong = |expected, found: &Value| Error::protocol(endpoint.to_owned(), expected, found);
    let rows = answer["rows"].as_array().ok_or_else(|| wrong("rows", answer))?;
    let total = scalar(&answer["total"]).parse().unwrap_or(rows.len() as u64);
    if (rows.len() as u64) < total {
        return Err(Error::Partial { endpoint: endpoint.to_owned(), rows: rows.len() as u64, total });
    }
    let row = |row: &Value| row.as_object().cloned().map(Row).ok_or_else(|| wrong("a row of fields", row));
    rows.iter().map(row).collect()
}

/// The rows of a model's grid. Each has a UUID: without one, a write would go to another entry or make a new one.
///
/// # Errors
/// As [`rows`].
pub(crate) fn entries(endpoint: &str, answer: &Value) -> Result<Vec<Row>, Error> {
    let rows = rows(endpoint, answer)?;
    match rows.iter().find(|row| row.text("uuid").is_empty()) {
        None => Ok(rows),
        Some(row) => {
            Err(Error::protocol(endpoint.to_owned(), "a row with a uuid", &Value::Object(row.0.clone())))
        }
    }
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
    fn a_total_that_is_a_text_counts_too() {
        let answer = json!({"rows": [{}], "rowCount": "1", "total": "2"});
        assert_eq!(
            rows("x", &answer).unwrap_err().to_string(),
            "x gave 1 of 2 rows: nothing can be concluded from a part"
        );
    }

    #[test]
    fn what_are_no_rows_is_an_error() {
        let told = |answer| entries("x", &answer).unwrap_err().to_string();
        insta::assert_snapshot!(told(json!([])), @"x: expected rows, found []: is this an OPNsense?");
        insta::assert_snapshot!(told(json!({"rows": ["web01"]})), @r#"x: expected a row of fields, found "web01": is this an OPNsense?"#);
        insta::assert_snapshot!(told(json!({"rows": [{"uuid": "u-1"}, {"hostname": "web01"}]})), @r#"x: expected a row with a uuid, found {"hostname":"web01"}: is this an OPNsense?"#);
    }
}
