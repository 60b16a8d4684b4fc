//! Every write.

pub(crate) mod kea;
pub(crate) mod opnsense;

use ansible_module::{ErrorCode, Failure};
use pending_apply::Pending;

/// Before the first write: should this run die, the next one knows that it has to apply.
pub(crate) fn mark_pending(mark: &Pending) -> Result<(), Failure> {
    mark.set().map_err(|error| mark_failure("set", &error))
}

pub(crate) fn clear_pending(mark: &Pending) -> Result<(), Failure> {
    mark.clear().map_err(|error| mark_failure("cleared", &error))
}

fn mark_failure(what: &str, error: &std::io::Error) -> Failure {
    let msg = format!("the mark of a change that is not applied yet cannot be {what}: {error}");
    Failure::new(ErrorCode::INTERNAL, msg)
}
