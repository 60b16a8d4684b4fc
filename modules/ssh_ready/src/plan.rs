//! Is the guest the declared one, and which host keys are to be pinned? Pure.

use ansible_module::{Change, ErrorCode, Failure, Plan};
use serde_json::{Value, json};
use ssh::{Address, HostKey, Verdict};

use crate::args::Expected;
use crate::guest::Deviation;
use crate::observe::State;

/// The one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Adds these keys.
    Pin(Vec<HostKey>),
    /// Takes every key of the host out and adds these.
    Replace(Vec<HostKey>),
}

/// # Errors
/// `read_back_mismatch` for a guest that is something else than declared.
pub(crate) fn plan(address: &Address, expected: &Expected, state: &State) -> Result<Plan<Action>, Failure> {
    let guest = &state.guest;
    let mut deviations = expected.deviations(&guest.facts);
    if let Some(wanted) = expected.address.filter(|wanted| *wanted != guest.address) {
        deviations.insert(
            0,
            Deviation {
                field: "address",
                expected: wanted.to_string(),
                found: guest.address.to_string(),
                hint: "the name leads to another address than the one reserved for the guest",
            },
        );
    }
    if !deviations.is_empty() {
        return Err(not_as_declared(address, &deviations));
    }
    let mut plan = Plan::new();
    match state.known_hosts.judge(address, &guest.host_keys) {
        Verdict::Held { missing } if missing.is_empty() => {}
        Verdict::Held { missing } => {
            let changes = missing.iter().map(|key| pinned(key, Value::Null)).collect();
            plan.step(Action::Pin(missing), changes);
        }
        Verdict::Unknown => {
            let changes = guest.host_keys.iter().map(|key| pinned(key, Value::Null)).collect();
            plan.step(Action::Pin(guest.host_keys.clone()), changes);
        }
        // Refused while observing, unless they are to be replaced.
        Verdict::Changed { .. } | Verdict::Revoked { .. } => {
            plan.step(Action::Replace(guest.host_keys.clone()), replaced(address, state));
        }
    }
    Ok(plan)
}

fn pinned(key: &HostKey, before: Value) -> Change {
    Change::new(field(key.kind()), before, key.fingerprint())
}

/// Every kind the host had or has.
fn replaced(address: &Address, state: &State) -> Vec<Change> {
    let entries = state.known_hosts.entries(address);
    let before = |kind: &str| {
        let known = entries.iter().find(|entry| !entry.revoked && entry.key.kind() == kind);
        known.map_or(Value::Null, |entry| entry.key.fingerprint().into())
    };
    let keys = &state.guest.host_keys;
    let mut changes: Vec<Change> = keys.iter().map(|key| pinned(key, before(key.kind()))).collect();
    for entry in entries.iter().filter(|entry| !entry.revoked) {
        let kind = entry.key.kind();
        if !changes.iter().any(|change| change.field == field(kind)) {
            changes.push(Change::new(field(kind), entry.key.fingerprint(), Value::Null));
        }
    }
    changes.retain(|change| change.before != change.after);
    changes
}

pub(crate) fn field(kind: &str) -> String {
    format!("known_hosts.{kind}")
}

fn not_as_declared(address: &Address, deviations: &[Deviation]) -> Failure {
    let sentences: Vec<String> = deviations
        .iter()
        .map(|d| format!("`{}`: declared {}, found {} ({})", d.field, d.expected, d.found, d.hint))
        .collect();
    let objects: Vec<Value> = deviations
        .iter()
        .map(|d| json!({"field": d.field, "expected": d.expected, "found": d.found}))
        .collect();
    let first = &deviations[0];
    Failure::new(
        ErrorCode::READ_BACK_MISMATCH,
        format!("{address} answers, and is not the declared guest: {}", sentences.join("; ")),
    )
    .with("field", first.field)
    .with("expected", first.expected.clone())
    .with("found", first.found.clone())
    .with("mismatches", objects)
}

#[cfg(test)]
mod tests {
    use ssh::KnownHosts;

    use super::*;
    use crate::args::RootSize;
    use crate::guest::Facts;
    use crate::observe::Guest;

    fn address() -> Address {
        Address::new("10.20.0.40", 22)
    }

    /// A made key: only its kind and its bytes matter here.
    fn key(kind: &str, seed: u8) -> HostKey {
        let mut blob = u32::try_from(kind.len()).unwrap().to_be_bytes().to_vec();
        blob.extend(kind.as_bytes());
        blob.extend([0, 0, 0, 1, seed]);
        HostKey::from_blob(&blob).unwrap()
    }

    fn state(known: &[HostKey], offered: &[HostKey]) -> State {
        let mut known_hosts = KnownHosts::default();
        known_hosts.add(&address(), known);
        let facts = Facts { hostname: "web01".into(), root_size_gib: 62.7 };
        let guest = Guest { address: "10.20.0.40".parse().unwrap(), host_keys: offered.to_vec(), facts };
        State { guest, known_hosts }
    }

    fn planned(state: &State) -> Plan<Action> {
        plan(&address(), &Expected::default(), state).unwrap()
    }

    fn fields(plan: &Plan<Action>) -> Vec<(String, bool, bool)> {
        plan.changes().map(|c| (c.field.clone(), c.before.is_null(), c.after.is_null())).collect()
    }

    #[test]
    fn a_new_guest_is_pinned_with_all_its_keys() {
        let keys = [key("ssh-ed25519", 1), key("ssh-rsa", 2)];
        let plan = planned(&state(&[], &keys));
        assert_eq!(plan.steps().next().unwrap().action, Action::Pin(keys.to_vec()));
        let expected = [("known_hosts.ssh-ed25519", true, false), ("known_hosts.ssh-rsa", true, false)];
        assert_eq!(fields(&plan), expected.map(|(f, b, a)| (f.to_owned(), b, a)));
    }

    #[test]
    fn a_known_guest_needs_nothing_and_a_further_key_is_added() {
        let (ed, rsa) = (key("ssh-ed25519", 1), key("ssh-rsa", 2));
        let both = [ed.clone(), rsa.clone()];
        assert!(planned(&state(&both, &both)).is_empty());
        assert!(planned(&state(&both, std::slice::from_ref(&ed))).is_empty(), "a key it has no longer stays");
        let plan = planned(&state(&[ed], &both));
        assert_eq!(plan.steps().next().unwrap().action, Action::Pin(vec![rsa]));
    }

    #[test]
    fn a_rebuilt_guest_loses_every_old_key() {
        let (old, old_rsa, new) = (key("ssh-ed25519", 1), key("ssh-rsa", 2), key("ssh-ed25519", 3));
        let plan = planned(&state(&[old.clone(), old_rsa], std::slice::from_ref(&new)));
        assert_eq!(plan.steps().next().unwrap().action, Action::Replace(vec![new.clone()]));
        let expected = [("known_hosts.ssh-ed25519", false, false), ("known_hosts.ssh-rsa", false, true)];
        assert_eq!(fields(&plan), expected.map(|(f, b, a)| (f.to_owned(), b, a)));
        let first = plan.changes().next().unwrap();
        assert_eq!(first.before, json!(old.fingerprint()));
        assert_eq!(first.after, json!(new.fingerprint()));
    }

    #[test]
    fn every_deviation_is_named_before_anything_is_written() {
        let expected = Expected {
            address: Some("10.20.0.41".parse().unwrap()),
            hostname: Some("db01".parse().unwrap()),
            root: Some(RootSize { declared: 128.0, tolerance: 8.0 }),
        };
        let failure = plan(&address(), &expected, &state(&[], &[key("ssh-ed25519", 1)])).unwrap_err();
        assert_eq!(failure.code, ErrorCode::READ_BACK_MISMATCH);
        assert_eq!(failure.details["field"], "address");
        assert_eq!(
            failure.msg,
            "10.20.0.40:22 answers, and is not the declared guest: \
             `address`: declared 10.20.0.41, found 10.20.0.40 \
             (the name leads to another address than the one reserved for the guest); \
             `hostname`: declared db01, found web01 \
             (another guest answers at this address, or cloud-init did not set the name); \
             `root_size_gib`: declared 128 (at least 120.00), found 62.7 \
             (the disk may have grown while growpart or the file system's resize did not run in the guest)"
        );
        let fields: Vec<&Value> =
            failure.details["mismatches"].as_array().unwrap().iter().map(|m| &m["field"]).collect();
        assert_eq!(fields, ["address", "hostname", "root_size_gib"]);
    }
}
