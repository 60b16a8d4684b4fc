//! Commands: an argument vector, never a shell; a deadline that ends them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use deadline::{Deadline, Expired};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::machine::Host;

/// How often a running command is looked at: at first, and at most.
const TICKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// What a command gets to end by itself after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long output is waited for after the command's end: something it left behind may hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A command to run. Arguments are shown in errors, the environment and the input never are:
/// what is secret goes through one of those two.
#[derive(Clone)]
pub struct Command {
    program: String,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Vec<u8>,
}

impl Command {
    /// A program by name (looked up on the host) or by absolute path.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), environment: Vec::new(), input: Vec::new() }
    }

    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds a variable to the environment that this process has itself.
    #[must_use]
    pub fn env(mut self, variable: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((variable.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// What the command reads from its standard input; nothing unless given.
    #[must_use]
    pub fn stdin(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }
}

impl fmt::Display for Command {
    /// As one would type it, the arguments quoted where a shell would need it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        for argument in &self.arguments {
            let text = argument.to_string_lossy();
            let plain = !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c));
            if plain { write!(f, " {text}")? } else { write!(f, " '{}'", text.replace('\'', r"'\''"))? }
        }
        Ok(())
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({self})")
    }
}

/// How a command ended and what it said.
#[derive(Clone, Debug)]
pub struct Output {
    /// The command, as one would type it.
    pub command: String,
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Output {
    /// The exit code; none when a signal ended the command.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The output of a command that must end with 0.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with what the command said.
    pub fn ok(self) -> Result<Self, CommandError> {
        if self.status.success() { Ok(self) } else { Err(self.into_failure()) }
    }

    /// This end of the command as the failure it is (an exit code that the caller did not expect).
    #[must_use]
    pub fn into_failure(self) -> CommandError {
        let said = match self.stderr_text().trim() {
            "" => self.stdout_text().trim().to_owned(),
            stderr => stderr.to_owned(),
        };
        CommandError::Failed { command: self.command, status: self.status, said }
    }
}

/// Why a command gave no (good) answer.
#[derive(Debug)]
pub enum CommandError {
    /// No such program on the host.
    NotFound { program: String, searched: Vec<PathBuf> },
    /// It could not be started or talked to.
    Io { command: String, error: io::Error },
    /// It ran past the deadline, or a signal ended the run, and was stopped.
    Stopped { command: String, why: Expired, said: String },
    /// It ended with something else than 0, and said this.
    Failed { command: String, status: ExitStatus, said: String },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { program, searched } => {
                let searched: Vec<_> = searched.iter().map(|path| path.to_string_lossy()).collect();
                write!(f, "the program `{program}` is not installed (looked in {})", searched.join(", "))
            }
            Self::Io { command, error } => write!(f, "`{command}` could not be run: {error}"),
            Self::Stopped { command, why, said } => {
                write!(f, "`{command}` was stopped: {why}; it last said: {}", or_nothing(said))
            }
            Self::Failed { command, status, said } => {
                let end = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("exit code {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => status.to_string(),
                };
                write!(f, "`{command}` failed with {end}: {}", or_nothing(said))
            }
        }
    }
}

impl std::error::Error for CommandError {}

fn or_nothing(said: &str) -> &str {
    if said.is_empty() { "(nothing)" } else { said }
}

impl Host {
    /// Runs a command to its end. Its messages are in English (`LC_ALL=C`), and it is the leader of a
    /// process group, which SIGTERM and then SIGKILL end when the deadline or an interrupt comes first.
    ///
    /// # Errors
    /// [`CommandError`]; an exit code other than 0 is none ([`Output::ok`] makes one of it).
    pub fn run(&self, command: &Command, deadline: &Deadline) -> Result<Output, CommandError> {
        let text = command.to_string();
        let io_error = |error| CommandError::Io { command: text.clone(), error };
        let program = self.find(&command.program).ok_or_else(|| CommandError::NotFound {
            program: command.program.clone(),
            searched: self.search_path(),
        })?;
        let mut child = std::process::Command::new(program)
            .args(&command.arguments)
            .env("LC_ALL", "C")
            .envs(command.environment.iter().map(|(variable, value)| (variable, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(io_error)?;
        feed(&mut child, command.input.clone());
        let stdout = Collector::start(child.stdout.take());
        let stderr = Collector::start(child.stderr.take());
        let ended = wait(&mut child, deadline).map_err(io_error)?;
        let (stdout, stderr) = (stdout.finish(), stderr.finish());
        match ended {
            Ok(status) => Ok(Output { command: text, status, stdout, stderr }),
            Err(why) => {
                let said = if stderr.is_empty() { stdout } else { stderr };
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                Err(CommandError::Stopped { command: text, why, said })
            }
        }
    }
}

/// Writes the input beside the reading of the output, so that neither can block the other.
fn feed(child: &mut Child, input: Vec<u8>) {
    if let Some(mut stdin) = child.stdin.take()
        && !input.is_empty()
    {
        // A command that ends without reading all of its input is judged by its exit code.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
}

fn wait(child: &mut Child, deadline: &Deadline) -> io::Result<Result<ExitStatus, Expired>> {
    let mut tick = TICKS.0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        if let Err(expired) = deadline.check() {
            stop(child)?;
            return Ok(Err(expired));
        }
        thread::sleep(tick);
        tick = (tick * 2).min(TICKS.1);
    }
}

fn stop(child: &mut Child) -> io::Result<()> {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return child.kill();
    };
    // The group may be gone already: then there is nobody left to signal.
    let _ = kill_process_group(group, Signal::TERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if child.try_wait()?.is_some() {
            break;
        }
        thread::sleep(TICKS.1);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().map(drop)
}

/// Reads a pipe in a thread of its own.
struct Collector {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Collector {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut chunk = [0; 8192];
            loop {
                match pipe.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(n) => {
                        sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..n])
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        Self { bytes, reader }
    }

    fn finish(self) -> Vec<u8> {
        let until = Instant::now() + LAST_OUTPUT;
        while !self.reader.is_finished() && Instant::now() < until {
            thread::sleep(TICKS.0);
        }
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    fn sh(script: &str) -> Command {
        Command::new("sh").args(["-c", script])
    }

    #[test]
    fn output_and_exit_code_come_back_apart() {
        let output = Host::local().run(&sh("echo out; echo err >&2; exit 3"), &minute()).unwrap();
        assert_eq!((output.stdout_text(), output.stderr_text()), ("out\n".into(), "err\n".into()));
        assert_eq!(output.code(), Some(3));
        assert_eq!(
            output.ok().unwrap_err().to_string(),
            "`sh -c 'echo out; echo err >&2; exit 3'` failed with exit code 3: err"
        );
    }

    #[test]
    fn arguments_are_no_shell_words() {
        let output = Host::local().run(&Command::new("printf").args(["%s|", "$HOME", "a b", "*"]), &minute());
        assert_eq!(output.unwrap().stdout_text(), "$HOME|a b|*|");
    }

    #[test]
    fn input_and_output_larger_than_a_pipe_pass() {
        let input = vec![b'x'; 1 << 20];
        let output = Host::local().run(&Command::new("cat").stdin(input.clone()), &minute()).unwrap();
        assert!(output.stdout == input);
    }

    #[test]
    fn input_that_nobody_reads_is_no_failure() {
        let output = Host::local().run(&Command::new("true").stdin(vec![b'x'; 1 << 20]), &minute()).unwrap();
        assert!(output.status.success());
    }

    #[test]
    fn without_input_the_command_reads_an_end_of_file() {
        assert_eq!(Host::local().run(&Command::new("cat"), &minute()).unwrap().stdout, b"");
    }

    #[test]
    fn secrets_travel_in_the_environment_or_the_input_and_are_never_shown() {
        let command = sh("cat; printf \"$PASSWORD\"; exit 1").env("PASSWORD", "hunter2").stdin("sesame");
        let output = Host::local().run(&command, &minute()).unwrap();
        assert_eq!(output.stdout_text(), "sesamehunter2");
        for shown in [format!("{command:?}"), command.to_string(), output.command] {
            assert!(!shown.contains("hunter2") && !shown.contains("sesame"), "{shown}");
        }
    }

    #[test]
    fn the_deadline_ends_the_command_and_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let pid_file = directory.path().join("pid");
        let script = format!("echo begun >&2; sleep 600 & echo $! > '{}'; wait", pid_file.display());
        let error =
            Host::local().run(&sh(&script), &Deadline::after(Duration::from_millis(500))).unwrap_err();
        assert!(
            error.to_string().ends_with("was stopped: not done within 0.5 s; it last said: begun"),
            "{error}"
        );
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "the child still runs: {stat}");
    }

    #[test]
    fn an_interrupt_ends_the_command() {
        let deadline = minute();
        deadline.interrupt_flag().store(true, std::sync::atomic::Ordering::Relaxed);
        let error = Host::local().run(&Command::new("sleep").arg("600"), &deadline).unwrap_err();
        assert!(matches!(error, CommandError::Stopped { why: Expired::Interrupted, .. }), "{error}");
    }

    #[test]
    fn a_left_over_child_that_holds_the_pipe_does_not_hold_the_run() {
        let output = Host::local().run(&sh("setsid sleep 2 & echo done"), &minute()).unwrap();
        assert_eq!(output.stdout_text(), "done\n");
    }

    #[test]
    fn a_signal_is_told_from_an_exit_code() {
        let error = Host::local().run(&sh("kill -9 $$"), &minute()).unwrap().ok().unwrap_err().to_string();
        assert!(error.ends_with("failed with signal 9: (nothing)"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_with_the_places_looked_in() {
        let host = Host::rooted("/", vec!["/nowhere/bin".into()]);
        assert_eq!(
            host.run(&Command::new("mkfs.ext4"), &minute()).unwrap_err().to_string(),
            "the program `mkfs.ext4` is not installed (looked in /nowhere/bin)"
        );
    }
}
