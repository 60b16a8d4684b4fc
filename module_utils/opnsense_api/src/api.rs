//! How OPNsense is asked: Basic auth with key and secret, JSON, and two spellings of every endpoint
//! (www/api.php, Mvc/Router.php, Base/ApiControllerBase.php).

use std::cell::Cell;
use std::collections::BTreeMap;

use deadline::Deadline;
use http_client::{Client, Request, percent_encode};
use serde_json::{Value, json};

use crate::error::{Error, Validation, beginning};

/// One firewall.
#[derive(Debug)]
pub struct Opnsense {
    client: Client,
    /// Privileges of 25.1 and older name the endpoints in camelCase, and they are compared as text.
    camel_case: Cell<bool>,
}

/// `module/controller/action[/parameter]`; the action in snake_case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'a> {
    pub(crate) controller: &'static str,
    pub(crate) action: &'static str,
    pub(crate) parameter: Option<&'a str>,
}

pub(crate) fn endpoint(controller: &'static str, action: &'static str) -> Endpoint<'static> {
    Endpoint { controller, action, parameter: None }
}

impl<'a> Endpoint<'a> {
    pub(crate) fn of(self, parameter: &'a str) -> Self {
        Self { parameter: Some(parameter), ..self }
    }

    /// The path below `/api/`.
    pub(crate) fn path(&self, camel_case: bool) -> String {
        let action = if camel_case { to_camel_case(self.action) } else { self.action.to_owned() };
        let parameter = self.parameter.map(|text| format!("/{}", percent_encode(text))).unwrap_or_default();
        format!("{}/{action}{parameter}", self.controller)
    }

    fn has_two_spellings(&self) -> bool {
        self.action.contains('_')
    }
}

/// What a request carries.
#[derive(Clone)]
enum Payload {
    Query(Vec<(String, String)>),
    Document(Value),
}

impl Opnsense {
    /// The client's base URL is the firewall's own, without `/api`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, camel_case: Cell::new(false) }
    }

    /// Requests sent so far, by method.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.client.calls()
    }

    pub(crate) fn get(
        &self,
        endpoint: Endpoint<'_>,
        query: &[(&str, &str)],
        deadline: &Deadline,
    ) -> Result<Value, Error> {
        let query = query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.ask(endpoint, &Payload::Query(query), deadline)
    }

    /// `document` is never empty: an empty JSON body is answered with 400.
    pub(crate) fn post(
        &self,
        endpoint: Endpoint<'_>,
        document: Value,
        deadline: &Deadline,
    ) -> Result<Value, Error> {
        self.ask(endpoint, &Payload::Document(document), deadline)
    }

    /// A POST that takes no data.
    pub(crate) fn act(&self, endpoint: Endpoint<'_>, deadline: &Deadline) -> Result<Value, Error> {
        self.post(endpoint, json!({}), deadline)
    }

    /// A 403 is decided before anything is done, so the other spelling may be tried, also for a write.
    fn ask(&self, endpoint: Endpoint<'_>, payload: &Payload, deadline: &Deadline) -> Result<Value, Error> {
        let spelling = self.camel_case.get();
        match self.ask_spelt(endpoint, spelling, payload, deadline) {
            Err(Error::Forbidden { .. }) if endpoint.has_two_spellings() => {
                let answer = self.ask_spelt(endpoint, !spelling, payload, deadline)?;
                self.camel_case.set(!spelling);
                Ok(answer)
            }
            outcome => outcome,
        }
    }

    fn ask_spelt(
        &self,
        endpoint: Endpoint<'_>,
        camel_case: bool,
        payload: &Payload,
        deadline: &Deadline,
    ) -> Result<Value, Error> {
        let path = endpoint.path(camel_case);
        let url = format!("/api/{path}");
        let request = match payload.clone() {
            Payload::Query(query) if query.is_empty() => Request::get(url),
            Payload::Query(query) => Request::get(url).form(query),
            Payload::Document(document) => Request::post(url).json(document),
        };
        let response = self.client.send(&request, deadline)?;
        let body = serde_json::from_slice(&response.body).ok();
        judge(&path, response.status, body, &response.text())
    }
}

/// For a write that may be carried out twice: once more when the answer was lost.
pub(crate) fn again_if_lost<T>(write: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    match write() {
        Err(error) if error.may_have_happened() => write(),
        outcome => outcome,
    }
}

/// Sorts an answer by its status; what a 200 says is for [`judge_write`].
fn judge(path: &str, status: u16, body: Option<Value>, text: &str) -> Result<Value, Error> {
    let endpoint = path.to_owned();
    match (status, body) {
        (200, Some(body)) => Ok(body),
        (401, _) => Err(Error::Unauthorized),
        (403, _) => Err(Error::Forbidden { endpoint }),
        (404, _) => Err(Error::NoEndpoint { endpoint }),
        (200, None) => Err(Error::Protocol { endpoint, expected: "JSON", found: beginning(text) }),
        (300..=399, _) => {
            let found = format!("a redirect ({status})");
            Err(Error::Protocol { endpoint, expected: "JSON", found })
        }
        (status, body) => {
            let words = body.as_ref().map(server_message).filter(|words| !words.is_empty());
            let message = words.unwrap_or_else(|| beginning(text));
            Err(Error::Server { endpoint, status, message })
        }
    }
}

fn server_message(body: &Value) -> String {
    let words: Vec<String> = ["errorTitle", "errorMessage", "message"]
        .iter()
        .filter_map(|key| body[key].as_str().map(unescape))
        .collect();
    words.join(": ")
}

/// Error bodies went through PHP's htmlspecialchars.
fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#039;", "'")
        .replace("&amp;", "&")
}

/// The answer to add, set and del: `wanted` is the word of success.
pub(crate) fn judge_write(path: &str, wanted: &str, body: &Value) -> Result<(), Error> {
    let endpoint = path.to_owned();
    match body["result"].as_str() {
        Some(word) if word == wanted => Ok(()),
        Some("not found") => Err(Error::NotFound { endpoint }),
        Some("failed") => Err(Error::Refused { endpoint, validations: validations(&body["validations"]) }),
        _ => Err(Error::protocol(endpoint, "a result", body)),
    }
}

/// A field's words are a text, or a list of them when there are several.
fn validations(value: &Value) -> Vec<Validation> {
    let Some(fields) = value.as_object() else { return Vec::new() };
    fields
        .iter()
        .map(|(field, words)| {
            let words: Vec<&str> = match words {
                Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
                one => one.as_str().into_iter().collect(),
            };
            Validation { field: field.clone(), message: words.join(" ") }
        })
        .collect()
}

fn to_camel_case(action: &str) -> String {
    let mut words = action.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_an_endpoint() {
        let call = endpoint("unbound/settings", "search_host_override");
        assert_eq!(call.path(false), "unbound/settings/search_host_override");
        assert_eq!(call.path(true), "unbound/settings/searchHostOverride");
        assert_eq!(
            endpoint("kea/dhcpv4", "set_reservation").of("a/b").path(true),
            "kea/dhcpv4/setReservation/a%2Fb"
        );
        assert!(!endpoint("kea/service", "status").has_two_spellings());
    }

    #[test]
    fn every_kind_of_answer() {
        let shown =
            |status, body: &str| match judge("kea/dhcpv4/get", status, serde_json::from_str(body).ok(), body)
            {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            };
        insta::assert_snapshot!(shown(200, "[]"), @"[]");
        insta::assert_snapshot!(shown(200, "<html>"), @r#"kea/dhcpv4/get: expected JSON, found text that begins "<html>": is this an OPNsense?"#);
        insta::assert_snapshot!(shown(200, ""), @"kea/dhcpv4/get: expected JSON, found nothing: is this an OPNsense?");
        insta::assert_snapshot!(shown(302, ""), @"kea/dhcpv4/get: expected JSON, found a redirect (302): is this an OPNsense?");
        insta::assert_snapshot!(shown(503, "<html>busy"), @r#"OPNsense answers kea/dhcpv4/get with 503: text that begins "<html>busy""#);
        insta::assert_snapshot!(shown(401, r#"{"status":401,"message":"Authentication Failed"}"#), @"OPNsense does not accept the API key and secret (401): check both; a secret is shown only once, when the key is made");
        insta::assert_snapshot!(shown(403, r#"{"status":403,"message":"Forbidden"}"#), @r#"OPNsense forbids kea/dhcpv4/get (403): give the user of the API key the privilege "Services: DHCP: Kea(v4)""#);
        insta::assert_snapshot!(shown(404, r#"{"errorMessage":"Endpoint not found"}"#), @"this OPNsense release has no kea/dhcpv4/get (404)");
        insta::assert_snapshot!(shown(400, r#"{"status":400,"message":"Invalid JSON syntax"}"#), @"OPNsense answers kea/dhcpv4/get with 400: Invalid JSON syntax");
        insta::assert_snapshot!(
            shown(500, r#"{"errorTitle":"An API exception occurred","errorMessage":"it&#039;s &lt;locked&gt;"}"#), @"OPNsense answers kea/dhcpv4/get with 500: An API exception occurred: it's <locked>");
    }

    #[test]
    fn every_result_of_a_write() {
        let shown = |body: Value| match judge_write("kea/dhcpv4/add_reservation", "saved", &body) {
            Ok(()) => "saved".to_owned(),
            Err(error) => error.to_string(),
        };
        insta::assert_snapshot!(shown(json!({"result": "saved", "uuid": "x"})), @"saved");
        insta::assert_snapshot!(shown(json!({"result": "failed"})), @"OPNsense refuses kea/dhcpv4/add_reservation and does not say why");
        insta::assert_snapshot!(shown(json!({"result": "failed", "validations": {
            "reservation.ip_address": "Duplicate entry exists.",
            "reservation.hw_address": ["Invalid.", "Duplicate entry exists."],
        }})), @"OPNsense refuses kea/dhcpv4/add_reservation: reservation.ip_address: Duplicate entry exists.; reservation.hw_address: Invalid. Duplicate entry exists.");
        insta::assert_snapshot!(shown(json!({"result": "not found"})), @"kea/dhcpv4/add_reservation: OPNsense has no such entry any more");
        insta::assert_snapshot!(shown(json!([])), @"kea/dhcpv4/add_reservation: expected a result, found []: is this an OPNsense?");
    }
}
