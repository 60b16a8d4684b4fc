//! A module's binary, run from outside as Ansible runs it, with a state directory of its own.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::proxy::{Fate, Proxy};

/// A module's binary and the directory it keeps its state in; the state outlives single runs.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    state: Arc<TempDir>,
    environment: Vec<(String, OsString)>,
}

/// What a run answered.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status.
    pub status: i32,
    /// The one JSON object of standard output.
    pub result: Value,
    /// Everything the run printed.
    pub output: String,
}

impl Outcome {
    /// The result of a run that must not have failed.
    ///
    /// # Panics
    /// When it failed.
    #[must_use]
    pub fn done(self) -> Value {
        assert_eq!(self.status, 0, "{}", self.output);
        self.result
    }

    /// The result of a run that must have failed.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    pub fn failed(self) -> Value {
        assert_eq!((self.status, &self.result["failed"]), (1, &json!(true)), "{}", self.output);
        self.result
    }
}

impl Program {
    /// # Panics
    /// There is no room for a temporary directory.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        let state = tempfile::Builder::new().prefix("lab-state-").tempdir().expect("a temporary directory");
        Self { path: path.as_ref().to_owned(), state: Arc::new(state), environment: Vec::new() }
    }

    /// Another binary that keeps its state in the same place, as on one controller.
    #[must_use]
    pub fn beside(&self, path: impl AsRef<Path>) -> Self {
        let environment = self.environment.clone();
        Self { path: path.as_ref().to_owned(), state: Arc::clone(&self.state), environment }
    }

    /// The directory that stands in for `~/.local/state`.
    #[must_use]
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Runs with one more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Runs with `options` on standard input and waits for the answer.
    ///
    /// # Panics
    /// The program cannot be started, or does not answer with one JSON object.
    #[must_use]
    pub fn run(&self, options: &Value) -> Outcome {
        let child = self.start(options);
        outcome(&child.wait_with_output().expect("the module ends"))
    }

    /// Runs with `options` and waits for its end, whatever that is: somebody may kill it.
    pub fn run_to_any_end(&self, options: &Value) {
        let _ = self.start(options).wait_with_output();
    }

    /// The same for somebody who is told the process' id as soon as it runs.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn run_known_to(&self, options: &Value, told: impl FnOnce(u32)) {
        let child = self.start(options);
        told(child.id());
        let _ = child.wait_with_output();
    }

    /// The same in check mode with a diff.
    #[must_use]
    pub fn check(&self, options: &Value) -> Outcome {
        self.run(&with(options, json!({"_ansible_check_mode": true, "_ansible_diff": true})))
    }

    /// Runs, and kills the run when `proxy` sees its request number `request`; the request still gets through.
    /// Returns whether the run got that far.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn run_killed_at(&self, proxy: &Proxy, request: usize, options: &Value) -> bool {
        proxy.forget();
        let pid = Arc::new((Mutex::new(None::<u32>), Condvar::new()));
        let known = Arc::clone(&pid);
        proxy.on_request(request).call(move || {
            let guard = known.0.lock().unwrap_or_else(PoisonError::into_inner);
            let guard =
                known.1.wait_while(guard, |pid| pid.is_none()).unwrap_or_else(PoisonError::into_inner);
            if let Some(pid) = *guard {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
            Fate::Forward
        });
        let mut child = self.start(options);
        *pid.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(child.id());
        pid.1.notify_all();
        let status = child.wait().expect("the module ends");
        proxy.clear_faults();
        status.code().is_none()
    }

    fn start(&self, options: &Value) -> Child {
        let mut child = self.command().spawn().expect("the module starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(options.to_string().as_bytes()).expect("the module reads its arguments");
        child
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("XDG_STATE_HOME", self.state.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Options with others laid over them.
#[must_use]
pub fn with(options: &Value, others: Value) -> Value {
    let mut all: Map<String, Value> = options.as_object().cloned().unwrap_or_default();
    if let Value::Object(others) = others {
        all.extend(others);
    }
    Value::Object(all)
}

fn outcome(output: &Output) -> Outcome {
    let text = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    let result =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("not one JSON object: {text}"));
    Outcome { status: output.status.code().unwrap_or(-1), result, output: text }
}
