//! The one JSON object on standard output: built, scrubbed, written once.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::plan::Change;
use crate::secrets;

static EMITTED: AtomicBool = AtomicBool::new(false);
/// Whoever ends a run from outside of it (a panic, a signal that has to cut) knows nothing else of it.
static WRITING: AtomicBool = AtomicBool::new(false);

/// From here on something may be changed.
pub(crate) fn writing_begins() {
    WRITING.store(true, Ordering::SeqCst);
}

pub(crate) fn has_written() -> bool {
    WRITING.load(Ordering::SeqCst)
}

/// Writes the result, unless one was written already. The only place that prints. False when nobody can read it
/// (standard output is closed or full).
pub(crate) fn emit(result: Map<String, Value>) -> bool {
    if EMITTED.swap(true, Ordering::SeqCst) {
        return true;
    }
    let mut value = Value::Object(result);
    secrets::scrub(&mut value);
    let mut text = value.to_string();
    text.push('\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// The keys of a failure; the module's own facts never replace the fixed ones.
pub(crate) fn failed(failure: &Failure) -> Map<String, Value> {
    let mut result = failure.details.clone();
    result.insert("failed".into(), true.into());
    result.entry("changed").or_insert(false.into());
    result.insert("msg".into(), failure.msg.clone().into());
    result.insert("error_code".into(), failure.code.as_str().into());
    result
}

/// Before/after texts, one line a field, in the plan's order.
pub(crate) fn diff<'a>(subject: &str, changes: impl Iterator<Item = &'a Change>) -> Value {
    let (mut before, mut after) = (String::new(), String::new());
    for change in changes {
        line(&mut before, &change.field, &change.before);
        line(&mut after, &change.field, &change.after);
    }
    json!({
        "before_header": subject,
        "after_header": subject,
        "before": before,
        "after": after,
    })
}

fn line(text: &mut String, field: &str, value: &Value) {
    let shown = match value {
        Value::Null => return,
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    text.push_str(&format!("{field}: {shown}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_has_no_line() {
        let changes = [Change::new("mac", Value::Null, "02:00"), Change::new("cores", 1, 2)];
        assert_eq!(
            diff("vm 101", changes.iter()),
            json!({
                "before_header": "vm 101", "after_header": "vm 101",
                "before": "cores: 1\n",
                "after": "mac: 02:00\ncores: 2\n",
            })
        );
    }
}
