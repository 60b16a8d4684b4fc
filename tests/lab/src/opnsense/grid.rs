//! Searches: rows of items, filtered, sorted and cut into pages.
//!
//! Sources: opnsense/core library/OPNsense/Base/UIModelGrid.php, ApiControllerBase::searchRecordsetBase.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::model::{Field, Item, Kind, Table, fields};
use super::php;
use super::release::Release;
use super::store::Store;

/// What a search asked for.
#[derive(Debug)]
pub(super) struct Query {
    /// `-1`: all rows.
    pub(super) row_count: i64,
    pub(super) current: i64,
    pub(super) phrase: String,
    pub(super) sort: Vec<String>,
    pub(super) descending: bool,
}

type Row = Map<String, Value>;

/// The answer to a search of `table`.
pub(super) fn search(table: Table, store: &Store, release: Release, query: &Query) -> Value {
    let fields = fields(table, release);
    let mut items: Vec<&Item> = store.table(table).iter().collect();
    items.sort_by(|left, right| compare(left, right, &fields, store, query));
    let tokens = tokens(query, release);
    let rows = items.iter().map(|item| row(table, item, &fields, store, release));
    let rows: Vec<Row> =
        rows.filter(|row| tokens.iter().all(|token| matches(row, token, &fields, release))).collect();
    page(rows, query)
}

/// The answer to a search of records that are no items (leases).
pub(super) fn search_records(mut rows: Vec<Row>, query: &Query) -> Value {
    let key = query.sort.first().map_or("address", String::as_str);
    let text = |row: &Row| row.get(key).map(plain).unwrap_or_default();
    rows.sort_by(|left, right| directed(php::natural(&text(left), &text(right)), query));
    rows.retain(|row| {
        query.phrase.split_whitespace().all(|token| row.values().any(|value| contains(&plain(value), token)))
    });
    page(rows, query)
}

fn page(rows: Vec<Row>, query: &Query) -> Value {
    let total = rows.len();
    let rows: Vec<Row> = match usize::try_from(query.row_count) {
        Ok(size) => {
            let skipped = size.saturating_mul(usize::try_from(query.current - 1).unwrap_or(0));
            rows.into_iter().skip(skipped).take(size).collect()
        }
        Err(_) => rows,
    };
    json!({"rows": rows, "rowCount": rows.len(), "total": total, "current": query.current})
}

fn tokens(query: &Query, release: Release) -> Vec<&str> {
    let tokens = query.phrase.split_whitespace();
    tokens.filter(|token| release < Release::V26_1_3 || !php::empty(token)).collect()
}

/// Until 25.1 a row holds descriptions, and containers as `""`; then keys, with `%` descriptions where they differ,
/// and containers flattened.
fn row(table: Table, item: &Item, fields: &[Field], store: &Store, release: Release) -> Row {
    let mut row = Row::from_iter([("uuid".to_owned(), json!(item.uuid))]);
    for field in fields {
        let value = item.get(field.name);
        let description = field.description(value, store);
        if release >= Release::V25_7 {
            row.insert(field.name.to_owned(), json!(value));
            if value != description {
                row.insert(format!("%{}", field.name), json!(description));
            }
        } else if let Some((container, _)) = field.name.split_once('.') {
            row.insert(container.to_owned(), json!(""));
        } else {
            row.insert(field.name.to_owned(), json!(description));
        }
    }
    if table == Table::Hosts && release >= Release::V26_1_6 {
        add_aliases(&mut row, item, store);
    }
    row
}

fn add_aliases(row: &mut Row, host: &Item, store: &Store) {
    let mut child = row.clone();
    row.insert("aliases".into(), json!(store.alias_names(host)));
    row.insert("isAlias".into(), json!(false));
    child.insert("isAlias".into(), json!(true));
    let children: Vec<Value> = store
        .table(Table::Aliases)
        .iter()
        .filter(|alias| alias.get("host") == host.uuid)
        .map(|alias| {
            let mut child = child.clone();
            child.insert("uuid".into(), json!(alias.uuid));
            for field in ["enabled", "hostname", "domain", "description"] {
                child.insert(field.into(), json!(alias.get(field)));
            }
            child.into()
        })
        .collect();
    if !children.is_empty() {
        row.insert("_children".into(), children.into());
    }
}

/// A search looks at descriptions, where there are any. Containers are searched since 26.1.8, UUIDs since 26.1.3 if the
/// phrase holds one.
fn matches(row: &Row, token: &str, fields: &[Field], release: Release) -> bool {
    let text =
        |name: &str| row.get(&format!("%{name}")).or_else(|| row.get(name)).map(plain).unwrap_or_default();
    let uuid = release >= Release::V26_1_3 && super::api::is_uuid(token);
    let names = fields
        .iter()
        .map(|field| field.name)
        .filter(|name| release >= Release::V26_1_8 || !name.contains('.'));
    names.chain(uuid.then_some("uuid")).any(|name| {
        let text = text(name);
        (release < Release::V25_7 || !php::empty(&text)) && contains(&text, token)
    })
}

fn contains(text: &str, token: &str) -> bool {
    text.to_lowercase().contains(&token.to_lowercase())
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn compare(left: &Item, right: &Item, fields: &[Field], store: &Store, query: &Query) -> Ordering {
    let chosen = query.sort.iter().filter_map(|name| fields.iter().find(|field| field.name == name));
    let keys = chosen.filter(|field| !matches!(field.kind, Kind::RelationToNothing));
    let order = keys.fold(Ordering::Equal, |order, field| {
        let text = |item: &Item| field.description(item.get(field.name), store);
        order.then_with(|| php::natural(&text(left), &text(right)))
    });
    directed(order, query)
}

fn directed(order: Ordering, query: &Query) -> Ordering {
    if query.descending { order.reverse() } else { order }
}
