use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use deadline::Expired;
use http_client::{HttpError, Response};
use serde_json::Value;

use crate::task::Upid;

/// Why a call gave no usable result.
#[derive(Clone, Debug)]
pub enum ApiError {
    /// No complete answer came.
    Transport(HttpError),
    /// The server answered with an error.
    Refused(Refusal),
    /// A task ended with something else than `OK` or `WARNINGS: N`.
    TaskFailed { upid: Box<Upid>, exitstatus: String, log_tail: Vec<String> },
    /// The deadline came before a task ended; the task goes on.
    StillRunning { upid: Box<Upid>, last_line: Option<String>, why: Expired },
    /// The deadline came during another wait, which `waiting_for` names.
    Expired { waiting_for: String, why: Expired },
    /// The answer does not have the shape that the API documents.
    Shape { endpoint: String, what: String },
    /// The user may not sign in this way.
    SignIn(String),
}

/// An answer with an error status. Old servers put the text into the reason phrase alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `POST /nodes/pve1/qemu/8000/clone`.
    pub endpoint: String,
    pub status: u16,
    /// The first line of the text.
    pub reason: String,
    /// The whole text, where the server sends it in the body.
    pub message: Option<String>,
    /// What is wrong with which parameter.
    pub errors: BTreeMap<String, String>,
    /// What to check, where the server's words do not tell.
    pub cure: Option<Box<str>>,
}

impl Refusal {
    pub(crate) fn of(endpoint: String, response: &Response) -> Self {
        let body = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
        let text = |value: &Value| value.as_str().map(|text| text.trim().to_owned());
        let errors = body["errors"].as_object().into_iter().flatten();
        Self {
            endpoint,
            status: response.status,
            reason: response.reason.clone(),
            message: text(&body["message"]).filter(|message| !message.is_empty()),
            errors: errors
                .map(|(name, why)| (name.clone(), text(why).unwrap_or_else(|| why.to_string())))
                .collect(),
            cure: None,
        }
    }

    /// The server does not know this path: it is older than the call (pve-http-server
    /// `PVE/APIServer/AnyEvent.pm`).
    #[must_use]
    pub fn is_not_implemented(&self) -> bool {
        self.status == 501
    }

    /// Proxmox VE's own words.
    #[must_use]
    pub fn text(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.reason)
    }

    /// Whether the server, or the one behind it, may have begun what was asked: a broken proxy
    /// connection (596 and up, pve-http-server `PVE/APIServer/AnyEvent.pm`), or a worker that did not
    /// report back.
    #[must_use]
    pub fn may_have_begun(&self) -> bool {
        (596..=599).contains(&self.status) || self.text().contains("got no worker upid")
    }

    /// There is no such VM (any more), as far as this node and this user can tell.
    #[must_use]
    pub fn is_missing_vm(&self) -> bool {
        let text = self.text();
        text.contains("does not exist") && text.contains("onfiguration file")
            || text.contains("unable to find configuration file")
    }

    /// The configuration is not the one whose digest was sent.
    #[must_use]
    pub fn is_checksum_mismatch(&self) -> bool {
        self.text().contains("checksum mismatch")
    }

    /// The VMID is taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        let taken = |text: &str| text.contains("already exists");
        taken(self.text()) || self.errors.values().any(|why| taken(why))
    }
}

/// A VM is locked by another task (`VM is locked (backup)`), or a lock file was held for longer than the
/// server waits. Nothing was done.
fn is_lock(text: &str) -> bool {
    text.contains("is locked (") || (text.contains("can't lock file") && text.contains("got timeout"))
}

/// NFS shows a new volume late.
fn is_late_volume(text: &str) -> bool {
    text.contains("volume '") && text.contains("does not exist")
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.endpoint, self.status, self.text())?;
        for (name, why) in &self.errors {
            write!(f, "; {name}: {why}")?;
        }
        if self.status == 403
            && let Some((path, privilege)) = self.missing_privilege()
        {
            write!(
                f,
                ". Grant {privilege} on {path} (to the user, and to the token when its privileges are separated)"
            )?;
        }
        match &self.cure {
            Some(cure) => write!(f, ". {cure}"),
            None => Ok(()),
        }
    }
}

impl Refusal {
    /// `Permission check failed (/vms/105, VM.Allocate)`: path and privilege.
    #[must_use]
    pub fn missing_privilege(&self) -> Option<(&str, &str)> {
        let (_, inner) = self.text().split_once('(')?;
        inner.trim_end_matches(')').split_once(", ").filter(|(path, _)| path.starts_with('/'))
    }
}

impl ApiError {
    /// Whether what was asked may be under way or done although no success was reported.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        match self {
            Self::Transport(error) => {
                error.may_have_reached_server && error.kind != http_client::ErrorKind::Interrupted
            }
            Self::Refused(refusal) => refusal.may_have_begun(),
            _ => false,
        }
    }

    /// Nothing was done because something held a lock; it can be sent again.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        match self {
            Self::Refused(refusal) => is_lock(refusal.text()),
            Self::TaskFailed { exitstatus, .. } => is_lock(exitstatus) || is_late_volume(exitstatus),
            _ => false,
        }
    }

    /// Nothing was done because the request did not get to its goal.
    #[must_use]
    pub fn is_unreached(&self) -> bool {
        match self {
            Self::Transport(error) => {
                !error.may_have_reached_server && error.kind == http_client::ErrorKind::Unreachable
            }
            Self::Refused(refusal) => refusal.status == 595,
            _ => false,
        }
    }

    /// The server's refusal, if that is what it is.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub(crate) fn shape(endpoint: &str, what: impl Into<String>) -> Self {
        Self::Shape { endpoint: endpoint.to_owned(), what: what.into() }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::TaskFailed { upid, exitstatus, log_tail } => {
                write!(f, "task {upid} failed: {exitstatus}")?;
                if log_tail.is_empty() {
                    return Ok(());
                }
                write!(f, ". End of its log: {}", log_tail.join(" | "))
            }
            Self::StillRunning { upid, last_line, why } => {
                write!(f, "task {upid} is still running ({why}) and goes on")?;
                match last_line {
                    Some(line) => write!(f, ". Its last words: {line}"),
                    None => Ok(()),
                }
            }
            Self::Expired { waiting_for, why } => write!(f, "{why}, waiting for {waiting_for}"),
            Self::Shape { endpoint, what } => write!(f, "{endpoint}: unexpected answer: {what}"),
            Self::SignIn(why) => f.write_str(why),
        }
    }
}

impl Error for ApiError {}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> Self {
        Self::Transport(error)
    }
}

impl From<Expired> for ApiError {
    fn from(why: Expired) -> Self {
        Self::Expired { waiting_for: "Proxmox VE".to_owned(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, reason: &str) -> Refusal {
        Refusal {
            endpoint: "PUT /nodes/pve/qemu/104/config".into(),
            status,
            reason: reason.into(),
            message: None,
            errors: BTreeMap::new(),
            cure: None,
        }
    }

    #[test]
    fn what_may_be_repeated_is_told_from_what_may_not() {
        let lock = refusal(500, "can't lock file '/var/lock/qemu-server/lock-104.conf' - got timeout");
        let proxy = refusal(596, "Broken pipe");
        let no_worker = refusal(500, "got no worker upid - start worker failed");
        let unreachable = refusal(595, "No route to host");
        let said_no = refusal(500, "no options specified");
        let other_task = refusal(500, "VM is locked (backup)");
        for (refusal, locked, unreached, unknown) in [
            (lock, true, false, false),
            (other_task, true, false, false),
            (unreachable, false, true, false),
            (proxy, false, false, true),
            (no_worker, false, false, true),
            (said_no, false, false, false),
        ] {
            let error = ApiError::Refused(refusal);
            let found = (error.is_locked(), error.is_unreached(), error.outcome_is_unknown());
            assert_eq!(found, (locked, unreached, unknown), "{error}");
        }
    }

    #[test]
    fn a_missing_vm_is_recognised() {
        for text in [
            "Configuration file 'nodes/pve/qemu-server/104.conf' does not exist",
            "unable to find configuration file for VM 104 on node 'pve'",
        ] {
            assert!(refusal(500, text).is_missing_vm());
        }
        assert!(!refusal(500, "storage 'x' does not exist").is_missing_vm());
    }

    #[test]
    fn a_missing_privilege_says_what_to_grant() {
        let text = refusal(403, "Permission check failed (/vms/105, VM.Allocate)").to_string();
        assert!(text.contains("Grant VM.Allocate on /vms/105"), "{text}");
        assert!(!refusal(403, "Permission check failed").to_string().contains("Grant"));
    }
}
