use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use deadline::{Deadline, Expired};
use http_client::percent_encode;
use serde_json::Value;

use crate::config::scalar;
use crate::error::ApiError;
use crate::session::Proxmox;

/// How many lines of a failed task's log go into the error.
const LOG_TAIL: usize = 10;
const LOG_PAGE: usize = 500;
/// A task may not be known for a moment after it was started.
const UNKNOWN_TASK_TRIES: u32 = 5;
/// After the deadline, to tell what the task said last.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The name of a task: `UPID:node:pid:pstart:starttime:type:id:user:` (pve-common `PVE/Tools.pm`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upid {
    text: String,
    /// The node that runs the task.
    pub node: String,
    /// Seconds since 1970, by the node's clock.
    pub started: u32,
    /// `qmclone`, `qmstart`, `resize` ...
    pub kind: String,
    /// What it works on; for a clone the source.
    pub id: String,
    /// `user@realm` or `user@realm!token`.
    pub user: String,
}

impl FromStr for Upid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a UPID (UPID:node:pid:pstart:starttime:type:id:user:)");
        let hex = |part: &str, lengths: &[usize]| {
            (lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(())
        };
        let parts: Vec<&str> = text.split(':').collect();
        let ["UPID", node, pid, pstart, starttime, kind, id, user, ""] = parts[..] else {
            return Err(wrong());
        };
        hex(pid, &[8]).and(hex(pstart, &[8, 9])).ok_or_else(wrong)?;
        let is_node = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if node.is_empty() || !node.chars().all(is_node) || node.starts_with('-') || node.ends_with('-') {
            return Err(wrong());
        }
        let no_space = |part: &str| !part.contains(char::is_whitespace);
        if kind.is_empty() || user.is_empty() || ![kind, id, user].into_iter().all(no_space) {
            return Err(wrong());
        }
        hex(starttime, &[8]).ok_or_else(wrong)?;
        Ok(Self {
            text: text.to_owned(),
            node: node.to_owned(),
            started: u32::from_str_radix(starttime, 16).map_err(|_| wrong())?,
            kind: kind.to_owned(),
            id: id.to_owned(),
            user: user.to_owned(),
        })
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How a task ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskEnd {
    /// The `WARN:` lines of its log, when it ended with `WARNINGS: N`.
    pub warnings: Vec<String>,
}

/// `OK` and `WARNINGS: N` are success, everything else is an error text (pve-common `PVE/Tools.pm`,
/// `upid_status_is_error`).
fn is_success(exitstatus: &str) -> bool {
    let warnings = exitstatus.strip_prefix("WARNINGS: ");
    exitstatus == "OK"
        || warnings.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Proxmox {
    /// Waits for a task to end.
    ///
    /// # Errors
    /// [`ApiError::TaskFailed`] at once when it failed, [`ApiError::StillRunning`] at the deadline.
    pub fn wait(&self, upid: &Upid, deadline: &Deadline) -> Result<TaskEnd, ApiError> {
        let mut unknown = 0;
        let path = task_path(upid, "status");
        let exitstatus = deadline.poll(|| match self.get(&path, deadline) {
            Ok(status) if status["status"] == "running" => Ok(None),
            Ok(status) => {
                Ok(Some(scalar(&status["exitstatus"]).unwrap_or_else(|| "unexpected status".into())))
            }
            Err(ApiError::Refused(refusal))
                if matches!(refusal.status, 400 | 500) && unknown < UNKNOWN_TASK_TRIES =>
            {
                unknown += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        });
        match exitstatus {
            Ok(exitstatus) if exitstatus == "OK" => Ok(TaskEnd::default()),
            Ok(exitstatus) if is_success(&exitstatus) => {
                let log = self.log_tail(upid, deadline).unwrap_or_default();
                let warned = log.into_iter().filter(|line| line.starts_with("WARN"));
                let mut warnings: Vec<String> = warned.filter(|line| !line.starts_with("WARNINGS")).collect();
                if warnings.is_empty() {
                    warnings.push(format!("task {upid} ended with {exitstatus}"));
                }
                Ok(TaskEnd { warnings })
            }
            Ok(exitstatus) => {
                let mut log_tail = self.log_tail(upid, deadline).unwrap_or_default();
                log_tail.drain(..log_tail.len().saturating_sub(LOG_TAIL));
                Err(ApiError::TaskFailed { upid: Box::new(upid.clone()), exitstatus, log_tail })
            }
            Err(error) => Err(self.still_running(upid, error, deadline)),
        }
    }

    /// The deadline's end, with what the task said last.
    fn still_running(&self, upid: &Upid, error: ApiError, deadline: &Deadline) -> ApiError {
        // A request that is cut off by the deadline says so in its own way.
        let Err(why) = deadline.check() else { return error };
        let last_line = match why {
            Expired::TimedOut { .. } => {
                self.log_tail(upid, &Deadline::after(LAST_WORDS)).ok().and_then(|mut log| log.pop())
            }
            Expired::Interrupted => None,
        };
        ApiError::StillRunning { upid: Box::new(upid.clone()), last_line, why }
    }

    /// The last lines of a task's log.
    fn log_tail(&self, upid: &Upid, deadline: &Deadline) -> Result<Vec<String>, ApiError> {
        let page = |start: usize| {
            let path = format!("{}?start={start}&limit={LOG_PAGE}", task_path(upid, "log"));
            self.get_whole(&path, deadline)
        };
        let mut answer = page(0)?;
        let total = usize::try_from(answer["total"].as_u64().unwrap_or_default()).unwrap_or_default();
        if total > LOG_PAGE {
            answer = page(total - LOG_PAGE)?;
        }
        let lines = answer["data"].as_array().into_iter().flatten();
        Ok(lines.filter_map(|line| line["t"].as_str().map(str::to_owned)).collect())
    }

    /// The running task of this kind on this object, if there is one.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn running_task(
        &self,
        node: &str,
        kind: &str,
        id: &str,
        deadline: &Deadline,
    ) -> Result<Option<Upid>, ApiError> {
        // The list can be narrowed to a VMID; a disk on its way from one VM to another has a longer id.
        let of_vm = id.parse::<u32>().map_or_else(|_| String::new(), |vmid| format!("vmid={vmid}&"));
        let path = format!("/nodes/{}/tasks?{of_vm}typefilter={kind}&source=active", percent_encode(node));
        let tasks = self.get(&path, deadline)?;
        let running = |task: &&Value| task.get("endtime").is_none();
        let upids = tasks.as_array().into_iter().flatten().filter(running);
        Ok(upids
            .filter_map(|task| task["upid"].as_str()?.parse::<Upid>().ok())
            .find(|upid| upid.kind == kind && upid.id == id))
    }
}

fn task_path(upid: &Upid, leaf: &str) -> String {
    format!("/nodes/{}/tasks/{}/{leaf}", percent_encode(&upid.node), percent_encode(&upid.text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_upid_is_taken_apart() {
        let text = "UPID:dahu-2:00007323:001036A5:6419CAF8:qmstart:100:root@pam!ci:";
        let upid: Upid = text.parse().unwrap();
        assert_eq!(
            (upid.node.as_str(), upid.kind.as_str(), upid.id.as_str(), upid.user.as_str(), upid.started),
            ("dahu-2", "qmstart", "100", "root@pam!ci", 0x6419_CAF8)
        );
        assert_eq!(upid.to_string(), text);
        assert!("UPID:pve:00000E64:0000B875:5BE97FB7:vzdump::root@pam:".parse::<Upid>().is_ok());
    }

    #[test]
    fn what_is_no_upid_is_refused() {
        for text in [
            "",
            "UPID:pve:00000E64:0000B875:5BE97FB7:vzdump::root@pam",
            "UPID:-pve:00000E64:0000B875:5BE97FB7:vzdump::root@pam:",
            "UPID:pve:E64:0000B875:5BE97FB7:vzdump::root@pam:",
            "UPID:pve:00000E64:0000B875:5BE97FB7:vz dump::root@pam:",
            "UPID:pve:00000E64:0000B875:5BE97FB7:vzdump:::",
            "UPID:pve:+0000E64:0000B875:+BE97FB7:vzdump::root@pam:",
        ] {
            assert!(text.parse::<Upid>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn warnings_are_success() {
        for word in ["OK", "WARNINGS: 1", "WARNINGS: 12"] {
            assert!(is_success(word), "{word}");
        }
        for word in
            ["", "ok", "WARNINGS:", "WARNINGS: ", "WARNINGS: x", "unexpected status", "clone failed: x"]
        {
            assert!(!is_success(word), "{word}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(
            text in "UPID:[a-z][a-z0-9-]{0,8}[a-z0-9]:[0-9A-F]{8}:[0-9A-F]{8,9}:[0-9A-F]{8}:[a-z]{2,10}:[0-9]{0,9}:[a-z]{1,8}@(pam|pve)(![a-z]{1,5})?:"
        ) {
            prop_assert_eq!(text.parse::<Upid>().map(|upid| upid.to_string()), Ok(text));
        }
    }
}
