//! 202 Accepted: the answer's `Location` is a task monitor (DSP0266, "asynchronous operations").

use deadline::Deadline;
use http_client::{Method, Response};
use serde_json::Value;

use crate::bmc::{Bmc, refused};
use crate::error::Error;
use crate::messages;
use crate::resource::{link, path};

enum Progress {
    Running,
    Done,
    Failed { state: String, said: String },
}

impl Bmc {
    /// Waits until the task behind a 202 is over. One that only begins at the next start (`Pending`) is not waited
    /// for: reading back tells.
    pub(crate) fn follow(&self, accepted: &Response, deadline: &Deadline) -> Result<(), Error> {
        let body: Value = serde_json::from_slice(&accepted.body).unwrap_or_default();
        let Some(monitor) = accepted.header("location").and_then(path).or_else(|| link(&body)) else {
            return Ok(());
        };
        deadline.poll(|| {
            let answer = self.read(&monitor, deadline)?;
            match answer.status {
                200..=299 => {}
                // A monitor goes away once it was read, or with the task.
                404 | 410 => return Ok(Some(())),
                _ => return Err(refused(Method::Get, &monitor, &answer)),
            }
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            match progress(answer.status, &body) {
                Progress::Running => Ok(None),
                Progress::Done => Ok(Some(())),
                Progress::Failed { state, said } => {
                    Err(Error::Task { monitor: monitor.clone(), state, said })
                }
            }
        })
    }
}

fn progress(status: u16, body: &Value) -> Progress {
    let state = body["TaskState"].as_str().unwrap_or_default();
    match state {
        "Exception" | "Killed" | "Cancelled" => {
            Progress::Failed { state: state.to_owned(), said: messages::short(&messages::of(body)) }
        }
        "Completed" if body["TaskStatus"] == "Critical" => {
            Progress::Failed { state: "Critical".to_owned(), said: messages::short(&messages::of(body)) }
        }
        "New" | "Starting" | "Running" | "Stopping" | "Cancelling" => Progress::Running,
        "" if status == 202 => Progress::Running,
        _ => Progress::Done,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tasks_state_is_judged() {
        let word = |status, body| match progress(status, &body) {
            Progress::Running => "running".to_owned(),
            Progress::Done => "done".to_owned(),
            Progress::Failed { state, said } => format!("{state}: {said}"),
        };
        assert_eq!(word(202, json!({"TaskState": "Running"})), "running");
        assert_eq!(word(202, json!(null)), "running");
        assert_eq!(word(200, json!({"TaskState": "New"})), "running");
        assert_eq!(word(200, json!({"TaskState": "Completed", "TaskStatus": "OK"})), "done");
        assert_eq!(word(200, json!({"TaskState": "Pending"})), "done");
        assert_eq!(word(204, json!(null)), "done");
        let failed = json!({"TaskState": "Exception", "Messages": [{"MessageId": "T.1", "Message": "No."}]});
        assert_eq!(word(200, failed), "Exception: No.");
        assert_eq!(word(200, json!({"TaskState": "Completed", "TaskStatus": "Critical"})), "Critical: ");
    }
}
