//! The API: authentication, and what each endpoint does and answers.
//!
//! Sources: opnsense/core controllers/OPNsense/Base/Api*.php, controllers/OPNsense/{Kea,Unbound}/Api, www/api.php.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::firewall::Firewall;
use super::model::{Field, Item, Kind, Table, Values, fields, kea_general, unbound_general};
use super::route::{Daemon, Endpoint, Job, Verb, resolve};
use super::user::User;
use super::{Fault, grid, php, rules};
use crate::opnsense::Release;

/// A request as it came in.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query as the client wrote them.
    pub(super) uri: String,
    pub(super) content_type: String,
    pub(super) authorization: Option<String>,
    pub(super) body: Vec<u8>,
}

/// A status and a JSON body; no body at all for `None`.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Option<Value>,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self { status: 200, body: Some(body) }
    }

    fn refused(status: u16, message: &str) -> Self {
        Self { status, body: Some(json!({"status": status, "message": message})) }
    }

    fn error(status: u16, message: &str) -> Self {
        Self { status, body: Some(json!({"errorMessage": php::escape_html(message)})) }
    }

    /// A `UserException`.
    fn exception(message: &str, title: &str) -> Self {
        let (message, title) = (php::escape_html(message), php::escape_html(title));
        Self { status: 500, body: Some(json!({"errorMessage": message, "errorTitle": title})) }
    }

    fn unexpected() -> Self {
        Self::error(500, "Unexpected error, check log for details")
    }
}

/// A call that got past authentication.
struct Call<'a> {
    post: bool,
    get: bool,
    uri: &'a str,
    parameters: Vec<&'a str>,
    /// `$_POST`.
    body: Map<String, Value>,
    read_only: bool,
    key: String,
}

impl Call<'_> {
    /// `$_REQUEST[name]`.
    fn parameter(&self, name: &str) -> Option<Value> {
        self.body.get(name).cloned().or_else(|| {
            let (_, query) = self.uri.split_once('?')?;
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|pair| pair.0 == name).map(|(_, value)| json!(php::url_decode(value)))
        })
    }

    fn text(&self, name: &str) -> Option<String> {
        php::scalar(&self.parameter(name)?).ok().flatten()
    }

    fn number(&self, name: &str, default: i64) -> i64 {
        self.text(name).map_or(default, |text| text.parse().unwrap_or(0))
    }

    fn query(&self, default_sort: &str, default_rows: i64) -> grid::Query {
        let sort = self.body.get("sort").and_then(Value::as_object).filter(|sort| !sort.is_empty());
        let default_sort = Some(default_sort).filter(|name| !name.is_empty()).map(str::to_owned);
        grid::Query {
            row_count: self.number("rowCount", default_rows),
            current: self.number("current", 1),
            phrase: self.text("searchPhrase").unwrap_or_default(),
            sort: sort
                .map_or_else(|| default_sort.into_iter().collect(), |sort| sort.keys().cloned().collect()),
            descending: sort.and_then(|sort| sort.values().next()).is_some_and(|order| order == "desc"),
        }
    }

    /// The posted item, if the request is a POST that holds one.
    fn posted(&self, root: &str) -> Option<&Value> {
        self.body.get(root).filter(|value| self.post && !value.is_null())
    }
}

/// What the request calls, if anything.
pub(super) fn endpoint(request: &Request, release: Release) -> Option<(Endpoint, Vec<&str>)> {
    resolve(request.uri.split('?').next().unwrap_or_default(), release)
}

/// Answers one request.
pub(super) fn answer(firewall: &mut Firewall, request: &Request) -> Reply {
    match admit(firewall, request) {
        Ok((endpoint, call)) => dispatch(firewall, endpoint, &call).unwrap_or_else(|reply| reply),
        Err(reply) => reply,
    }
}

/// The order is the dispatcher's: an unknown endpoint is a 404 even without a key, a bad body is seen last.
fn admit<'a>(firewall: &Firewall, request: &'a Request) -> Result<(Endpoint, Call<'a>), Reply> {
    let (endpoint, parameters) =
        endpoint(request, firewall.release).ok_or_else(|| Reply::error(404, "Endpoint not found"))?;
    let (user, key) = authenticate(firewall, request)?;
    if !user.may(&request.uri, firewall.release) {
        return Err(Reply::refused(403, "Forbidden"));
    }
    let call = Call {
        post: request.method == "POST",
        get: request.method == "GET",
        uri: &request.uri,
        parameters,
        body: parse_body(request)?,
        read_only: user.read_only,
        key,
    };
    Ok((endpoint, call))
}

fn authenticate<'a>(firewall: &'a Firewall, request: &Request) -> Result<(&'a User, String), Reply> {
    // Without the header it is a browser without a session: 401, and no body.
    let header = request.authorization.as_deref().ok_or(Reply { status: 401, body: None })?;
    let pair = header.split(' ').nth(1).and_then(|pair| STANDARD.decode(pair).ok());
    let pair = pair.and_then(|pair| String::from_utf8(pair).ok()).unwrap_or_default();
    let mut parts = pair.split(':');
    let (key, secret) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let user = firewall.users.iter().find(|user| user.is(key, secret));
    user.map(|user| (user, key.to_owned())).ok_or_else(|| Reply::refused(401, "Authentication Failed"))
}

/// Only two spellings of the JSON type are read; any other body counts as none.
fn parse_body(request: &Request) -> Result<Map<String, Value>, Reply> {
    let content_type = request.content_type.replace(' ', "").to_lowercase();
    if !matches!(content_type.as_str(), "application/json" | "application/json;charset=utf-8") {
        return Ok(Map::new());
    }
    if request.body.is_empty() {
        return Err(Reply::refused(400, "Invalid JSON syntax"));
    }
    Ok(serde_json::from_slice(&request.body).unwrap_or_default())
}

fn dispatch(firewall: &mut Firewall, endpoint: Endpoint, call: &Call<'_>) -> Result<Reply, Reply> {
    let body = match endpoint {
        Endpoint::GetSettings(_) if !call.get => json!([]),
        Endpoint::GetSettings(Daemon::Kea) => kea_settings(firewall),
        Endpoint::GetSettings(Daemon::Unbound) => unbound_settings(firewall),
        Endpoint::SetSettings(daemon) => set_settings(firewall, daemon, call)?,
        Endpoint::Table(Verb::Search, table) => search(firewall, table, call),
        Endpoint::Table(Verb::Get, table) => get(firewall, table, call),
        Endpoint::Table(Verb::Add, table) => add(firewall, table, call)?,
        Endpoint::Table(Verb::Set, table) => set(firewall, table, call)?,
        Endpoint::Table(Verb::Del, table) => del(firewall, table, call)?,
        Endpoint::Table(Verb::Toggle, table) => toggle(firewall, table, call)?,
        Endpoint::Service(job, daemon) => service(firewall, job, daemon, call),
        Endpoint::SearchLeases => search_leases(firewall, call),
        Endpoint::DelLease => del_lease(firewall, call)?,
        Endpoint::Nothing => return Ok(Reply { status: 200, body: None }),
    };
    Ok(Reply::ok(body))
}

fn failed() -> Value {
    json!({"result": "failed"})
}

fn search(firewall: &Firewall, table: Table, call: &Call<'_>) -> Value {
    let sort = match table {
        Table::Subnets => "subnet",
        Table::Reservations => "hw_address",
        Table::Hosts | Table::Aliases => "",
    };
    grid::search(table, &firewall.store, firewall.release, &call.query(sort, -1))
}

fn get(firewall: &mut Firewall, table: Table, call: &Call<'_>) -> Value {
    let item = match call.parameters.first() {
        Some(uuid) => firewall.store.find(table, uuid).cloned(),
        None => Some(firewall.store.clone().blank(table, firewall.release, None)),
    };
    item.map_or_else(|| json!([]), |item| json!({table.root(): item_nodes(firewall, table, &item)}))
}

fn item_nodes(firewall: &Firewall, table: Table, item: &Item) -> Value {
    let mut nodes = nodes(firewall, &fields(table, firewall.release), &item.values);
    if table == Table::Hosts && firewall.release >= Release::V26_1_6 {
        let names = firewall.store.alias_names(item);
        let shown = names.split(',').map(|name| (name.to_owned(), json!({"value": name, "selected": 1})));
        nodes["aliases"] = shown.collect::<Map<_, _>>().into();
    }
    nodes
}

/// Fields as `getNodes` nests and shows them.
fn nodes(firewall: &Firewall, fields: &[Field], values: &Values) -> Value {
    let mut nodes = Map::new();
    for field in fields {
        let value = values.get(field.name).map_or(field.default, String::as_str);
        let data = field.node_data(value, &firewall.store);
        match field.name.split_once('.') {
            None => nodes.insert(field.name.to_owned(), data),
            Some((container, name)) => {
                let container = nodes.entry(container).or_insert_with(|| json!({}));
                container.as_object_mut().and_then(|container| container.insert(name.to_owned(), data))
            }
        };
    }
    nodes.into()
}

fn add(firewall: &mut Firewall, table: Table, call: &Call<'_>) -> Result<Value, Reply> {
    let Some(data) = call.posted(table.root()) else { return Ok(failed()) };
    let mut item = firewall.store.blank(table, firewall.release, None);
    assign(firewall, table, &mut item.values, data)?;
    let uuid = item.uuid.clone();
    Ok(match save(firewall, table, item, call)? {
        None => json!({"result": "saved", "uuid": uuid}),
        Some(refusal) => refusal,
    })
}

/// An upsert: a UUID that is not there is created, if it is one of version 4.
fn set(firewall: &mut Firewall, table: Table, call: &Call<'_>) -> Result<Value, Reply> {
    let (Some(data), Some(uuid)) = (call.posted(table.root()), call.parameters.first()) else {
        return Ok(failed());
    };
    let mut item = match firewall.store.find(table, uuid) {
        Some(item) => item.clone(),
        None if is_uuid(uuid) => firewall.store.blank(table, firewall.release, Some(uuid)),
        None => return Ok(failed()),
    };
    assign(firewall, table, &mut item.values, data)?;
    Ok(save(firewall, table, item, call)?.unwrap_or_else(|| json!({"result": "saved"})))
}

/// Stores `item` unless something is wrong with it; the answer then says what.
fn save(firewall: &mut Firewall, table: Table, item: Item, call: &Call<'_>) -> Result<Option<Value>, Reply> {
    let problems = rules::problems(table, &item, &firewall.store, firewall.release);
    if !problems.is_empty() {
        return Ok(Some(refusal(table.root(), problems)));
    }
    writable(call)?;
    if !firewall.faults.contains(&Fault::ForgetsWrites) {
        firewall.store.put(table, item);
    }
    Ok(None)
}

fn writable(call: &Call<'_>) -> Result<(), Reply> {
    if !call.read_only {
        return Ok(());
    }
    let message = format!("User {} denied for write access (user-config-readonly set)", call.key);
    Err(Reply::exception(&message, "General access"))
}

/// One message for a field is a text, several are a list without repetition.
fn refusal(root: &str, problems: Vec<rules::Problem>) -> Value {
    let mut validations = Map::new();
    for (field, message) in problems {
        let key = format!("{root}.{field}");
        let known = validations.remove(&key);
        let value = match known {
            None => json!(message),
            Some(Value::Array(messages)) if messages.contains(&json!(message)) => messages.into(),
            Some(Value::Array(mut messages)) => {
                messages.push(json!(message));
                messages.into()
            }
            Some(first) if first == message.as_str() => json!([first]),
            Some(first) => json!([first, message]),
        };
        validations.insert(key, value);
    }
    json!({"result": "failed", "validations": validations})
}

/// `setNodes`: known fields that were sent are set, everything else is ignored without a word.
fn assign(firewall: &Firewall, table: Table, values: &mut Values, data: &Value) -> Result<(), Reply> {
    let ignored = |name: &str| {
        firewall.faults.iter().any(|fault| matches!(fault, Fault::IgnoresField(field) if *field == name))
    };
    let fields = fields(table, firewall.release);
    assign_fields(fields.iter().filter(|field| !ignored(field.name)), values, data, firewall.release)
}

fn assign_fields<'a>(
    fields: impl Iterator<Item = &'a Field>,
    values: &mut Values,
    data: &Value,
    release: Release,
) -> Result<(), Reply> {
    for field in fields {
        let sent = match field.name.split_once('.') {
            None => data.get(field.name),
            Some((container, name)) => match data.get(container) {
                Some(Value::String(_) | Value::Number(_) | Value::Bool(_)) if release >= Release::V26_7 => {
                    return Err(Reply::unexpected());
                }
                nested => nested.and_then(|nested| nested.get(name)),
            },
        };
        let Some(sent) = sent else { continue };
        if let Some(text) = php::scalar(sent).map_err(|()| Reply::unexpected())? {
            let nothing = matches!(field.kind, Kind::RelationToNothing) && text.is_empty();
            if !nothing {
                values.insert(field.name.to_owned(), field.normal_form(&text));
            }
        }
    }
    Ok(())
}

fn del(firewall: &mut Firewall, table: Table, call: &Call<'_>) -> Result<Value, Reply> {
    if !call.post {
        return Ok(failed());
    }
    let mut result = "failed";
    for uuid in call.parameters.first().into_iter().flat_map(|uuids| uuids.split(',')) {
        refuse_while_used(firewall, table, uuid)?;
        writable(call)?;
        let found = firewall.store.find(table, uuid).is_some();
        result = if found { "deleted" } else { "not found" };
        if !firewall.faults.contains(&Fault::ForgetsWrites) {
            firewall.store.table_mut(table).retain(|item| item.uuid != uuid);
        }
        if table == Table::Hosts {
            firewall.store.table_mut(Table::Aliases).retain(|alias| alias.get("host") != uuid);
        }
    }
    Ok(json!({"result": result}))
}

fn refuse_while_used(firewall: &Firewall, table: Table, uuid: &str) -> Result<(), Reply> {
    if table != Table::Subnets || firewall.release < Release::V26_1_8 {
        return Ok(());
    }
    let users = firewall.store.table(Table::Reservations).iter().filter(|item| item.get("subnet") == uuid);
    let lines: String = users
        .map(|item| {
            format!("dhcp4 - {} {{dhcp4.reservations.reservation.{}}}\n", item.get("description"), item.uuid)
        })
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    let description = firewall.store.find(table, uuid).map_or("", |item| item.get("description"));
    let name = if description.is_empty() { uuid } else { description };
    Err(Reply::exception(&lines, &format!("Item {} {{{name}}} in use by:", table.path())))
}

fn toggle(firewall: &mut Firewall, table: Table, call: &Call<'_>) -> Result<Value, Reply> {
    if !call.post {
        return Ok(failed());
    }
    let uuid = call.parameters.first().copied().unwrap_or_default();
    let Some(mut item) = firewall.store.find(table, uuid).cloned() else {
        // Since it takes lists it trips over its own result for what is not there.
        return if firewall.release >= Release::V26_1_3 { Err(Reply::unexpected()) } else { Ok(failed()) };
    };
    let was = item.get("enabled") == "1";
    let wanted = match call.parameters.get(1).copied() {
        None => !was,
        Some("0") => false,
        Some("1") => true,
        Some(_) => return Ok(json!({"result": "failed", "changed": false})),
    };
    let changed = call.parameters.get(1).is_none() || was != wanted;
    if changed {
        writable(call)?;
        item.values.insert("enabled".into(), if wanted { "1" } else { "0" }.into());
        firewall.store.put(table, item);
    }
    Ok(json!({"result": if wanted { "Enabled" } else { "Disabled" }, "changed": changed}))
}

fn kea_settings(firewall: &Firewall) -> Value {
    let general = nodes(firewall, &kea_general(firewall.release), &firewall.store.kea_general);
    json!({"dhcpv4": {
        "general": general,
        "lexpire": {"hold_reclaimed_time": "", "reclaim_timer_wait_time": "", "flush_reclaimed_timer_wait_time": "",
                    "max_reclaim_time": "", "max_reclaim_leases": "", "unwarned_reclaim_cycles": ""},
        "ha": {"enabled": "0", "this_server_name": "", "max_unacked_clients": "2", "%this_server_name": "OPNsense"},
    }})
}

fn unbound_settings(firewall: &Firewall) -> Value {
    let all = |table: Table| {
        let items = firewall.store.table(table).iter();
        let map: Map<_, _> =
            items.map(|item| (item.uuid.clone(), item_nodes(firewall, table, item))).collect();
        if map.is_empty() { json!([]) } else { map.into() }
    };
    json!({"unbound": {
        "general": nodes(firewall, &unbound_general(), &firewall.store.unbound_general),
        "hosts": {"host": all(Table::Hosts)},
        "aliases": {"alias": all(Table::Aliases)},
    }})
}

fn set_settings(firewall: &mut Firewall, daemon: Daemon, call: &Call<'_>) -> Result<Value, Reply> {
    if !call.post {
        return Ok(failed());
    }
    let (root, fields, mut values) = match daemon {
        Daemon::Kea => ("dhcpv4", kea_general(firewall.release), firewall.store.kea_general.clone()),
        Daemon::Unbound => ("unbound", unbound_general(), firewall.store.unbound_general.clone()),
    };
    if let Some(general) = call.body.get(root).and_then(|root| root.get("general")) {
        assign_fields(fields.iter(), &mut values, general, firewall.release)?;
    }
    let problems = rules::setting_problems(&fields, &values, &firewall.store, firewall.release);
    if !problems.is_empty() {
        return Ok(refusal(&format!("{root}.general"), problems));
    }
    writable(call)?;
    match daemon {
        Daemon::Kea => {
            firewall.store.kea_general = values;
            firewall.collect_options();
        }
        Daemon::Unbound => firewall.store.unbound_general = values,
    }
    Ok(json!({"result": "saved"}))
}

fn service(firewall: &mut Firewall, job: Job, daemon: Daemon, call: &Call<'_>) -> Value {
    match (job, call.post) {
        (Job::Status, _) => {
            let widget =
                json!({"caption_restart": "Restart", "caption_start": "Start", "caption_stop": "Stop"});
            json!({"status": firewall.status(daemon), "widget": widget})
        }
        (Job::Reconfigure, false) => json!({"status": "failed"}),
        (Job::Start | Job::Stop | Job::Restart, false) => json!({"response": []}),
        (Job::Reconfigure, true) => {
            firewall.restart(daemon);
            json!({"status": "ok"})
        }
        (Job::Start | Job::Restart, true) => {
            firewall.restart(daemon);
            json!({"response": "OK"})
        }
        (Job::Stop, true) => {
            firewall.stop(daemon);
            json!({"response": "OK"})
        }
    }
}

fn search_leases(firewall: &Firewall, call: &Call<'_>) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let leases = if firewall.store.live.kea_running { firewall.store.leases.as_slice() } else { &[] };
    let wanted = call.parameter("selected_interfaces");
    let wanted = wanted.as_ref().and_then(Value::as_array).filter(|wanted| !wanted.is_empty());
    let shown = wanted.is_none_or(|wanted| wanted.contains(&json!("lan")));
    let rows = leases.iter().filter(|_| shown).map(|lease| {
        let reserved = firewall.live_host(&lease.hwaddr).is_some();
        let row = json!({
            "address": lease.address, "prefix_len": 128, "type": "", "hwaddr": lease.hwaddr, "duid": "", "client_id": "",
            "iaid": "", "valid_lifetime": 4000, "expire": now + 4000, "hostname": lease.hostname, "state": lease.state,
            "if": "vtnet0", "if_descr": "LAN", "is_reserved": if reserved { json!(["hwaddr"]) } else { json!([]) },
            "if_name": "lan", "mac_info": "",
        });
        row.as_object().cloned().unwrap_or_default()
    });
    let active = leases.iter().filter(|lease| lease.state == 0).count();
    let mut answer = grid::search_records(rows.collect(), &call.query("address", 9999));
    answer["stats"] = json!({"active": active, "inactive": leases.len() - active, "total": leases.len()});
    answer["interfaces"] = if leases.is_empty() { json!([]) } else { json!({"lan": "LAN"}) };
    answer
}

fn del_lease(firewall: &mut Firewall, call: &Call<'_>) -> Result<Value, Reply> {
    if !call.post {
        return Ok(json!({"status": "error", "message": "Invalid request method"}));
    }
    let Some(addresses) = call.parameters.first() else {
        return Ok(json!({"status": "error", "message": "Missing lease IP parameter"}));
    };
    if !firewall.store.live.kea_running {
        return Err(Reply::exception("Invalid backend response", ""));
    }
    let mut failed = Vec::new();
    for address in addresses.split(',') {
        let before = firewall.store.leases.len();
        firewall.store.leases.retain(|lease| lease.address != address);
        if firewall.store.leases.len() == before {
            failed.push(format!("{address}: IPv4 lease not found."));
        }
    }
    if failed.is_empty() {
        return Ok(json!({"status": "ok"}));
    }
    Err(Reply::exception(&format!("Failed to delete lease(s): {}", failed.join(", ")), ""))
}

/// `Type::isUUID`: lower case, version 4, the RFC's variant.
pub(super) fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    lengths == [8, 4, 4, 4, 12]
        && groups.iter().all(|group| hex(group))
        && groups[2].starts_with('4')
        && groups[3].starts_with(['8', '9', 'a', 'b'])
}
