//! The proof that clients get: a resolver is asked until it answers what is stored.

use ansible_module::{ErrorCode, Failure};
use deadline::{Deadline, Expired};
use dns_client::{Answer, Ask, Error, RecordData, RecordType, Server};
use serde_json::{Value, json};

use crate::failure::dns_failure;

/// What a resolver has to answer for one name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) name: String,
    pub(crate) rr: RecordType,
    pub(crate) wanted: Wanted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// These values and no other; none at all when empty.
    Only(Vec<RecordData>),
    /// Anything but these values.
    Without(Vec<RecordData>),
}

impl Wanted {
    fn is_met(&self, found: &[RecordData]) -> bool {
        match self {
            Self::Only(values) => values == found,
            Self::Without(values) => !found.iter().any(|value| values.contains(value)),
        }
    }

    fn told(&self) -> String {
        match self {
            Self::Only(values) if values.is_empty() => "nothing".to_owned(),
            Self::Only(values) => joined(values),
            Self::Without(values) => format!("anything but {}", joined(values)),
        }
    }
}

/// Asks until every expectation is met, and returns what the resolver answered.
///
/// # Errors
/// `read_back_mismatch` when it goes on to answer something else until the deadline, `unreachable` when it gives no
/// answer.
pub(crate) fn confirm(server: &Server, expected: &[Expected], deadline: &Deadline) -> Result<Value, Failure> {
    let mut answers = Vec::new();
    for one in expected {
        answers.push(confirm_one(server, one, deadline)?);
    }
    Ok(json!({"address": server.to_string(), "answers": answers}))
}

fn confirm_one(server: &Server, expected: &Expected, deadline: &Deadline) -> Result<Value, Failure> {
    let mut last = None;
    let outcome = deadline.poll(|| {
        let answer = match server.query(&expected.name, expected.rr, Ask::Recursive, deadline) {
            Err(Error::Expired(expired)) => return Err(expired),
            // A resolver that restarts refuses connections for a moment.
            Err(error) => {
                last = Some(dns_failure(error));
                return Ok(None);
            }
            Ok(answer) => answer,
        };
        let found = values(&answer, expected);
        if expected.wanted.is_met(&found) {
            return Ok(Some(found));
        }
        last = Some(mismatch(server, expected, &answer, &found));
        Ok(None)
    });
    match outcome {
        Ok(found) => Ok(json!({
            "name": expected.name, "type": expected.rr.as_str(),
            "answer": found.iter().map(RecordData::as_str).collect::<Vec<_>>(),
        })),
        Err(expired @ Expired::TimedOut { .. }) => Err(last.unwrap_or_else(|| expired.into())),
        Err(interrupted) => Err(interrupted.into()),
    }
}

fn values(answer: &Answer, expected: &Expected) -> Vec<RecordData> {
    answer.set(&expected.name, expected.rr).map_or_else(Vec::new, |set| set.values)
}

fn mismatch(server: &Server, expected: &Expected, answer: &Answer, found: &[RecordData]) -> Failure {
    let (name, rr) = (&expected.name, expected.rr);
    let answered = if found.is_empty() { "nothing".to_owned() } else { joined(found) };
    let cached = match answer.set(name, rr) {
        Some(set) => format!(", and may keep that for {} s more", set.ttl),
        None => String::new(),
    };
    let msg = format!(
        "what was asked for is stored, but the resolver {server} does not answer it: {name} {rr}: asked for {}, it answers \
         {answered}{cached}",
        expected.wanted.told()
    );
    Failure::new(ErrorCode::READ_BACK_MISMATCH, msg)
        .with("field", format!("resolver {name} {rr}"))
        .with("expected", expected.wanted.told())
        .with("found", answered)
}

fn joined(values: &[RecordData]) -> String {
    values.iter().map(RecordData::as_str).collect::<Vec<_>>().join(", ")
}
