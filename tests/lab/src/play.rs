//! Runs the project's playbooks against a lab, with the real `ansible-playbook`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::lab::Lab;
use crate::{checkout, pve};

/// One run of `ansible-playbook`, put together.
pub struct Play<'a> {
    lab: &'a Lab,
    playbook: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    wrapper: Vec<OsString>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Everything it printed, stdout and stderr, without colours.
    pub output: String,
    pub success: bool,
    pub took: Duration,
    /// The recap's numbers by host.
    pub recap: BTreeMap<String, Recap>,
}

/// What the recap says of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recap {
    pub ok: u32,
    pub changed: u32,
    pub unreachable: u32,
    pub failed: u32,
    pub skipped: u32,
}

impl Outcome {
    /// The recap of `host`.
    ///
    /// # Panics
    /// When the run never got that far; shows its output.
    #[must_use]
    pub fn of(&self, host: &str) -> Recap {
        *self.recap.get(host).unwrap_or_else(|| panic!("no recap of {host}:\n{}", self.output))
    }

    /// # Panics
    /// When the run failed; shows its output.
    pub fn expect_success(self) -> Self {
        assert!(self.success, "the play failed:\n{}", self.output);
        self
    }

    /// # Panics
    /// When the run did not fail; shows its output.
    pub fn expect_failure(self) -> Self {
        assert!(!self.success, "the play was expected to fail:\n{}", self.output);
        self
    }
}

impl<'a> Play<'a> {
    /// A playbook of this checkout, or any by its absolute path, with the lab's inventory and secrets.
    #[must_use]
    pub fn new(lab: &'a Lab, playbook: &str) -> Self {
        Self {
            lab,
            playbook: checkout().join(playbook),
            arguments: Vec::new(),
            environment: Vec::new(),
            wrapper: Vec::new(),
        }
    }

    /// The whole of `playbooks/site.yml` for one host.
    #[must_use]
    pub fn site(lab: &'a Lab, host: &str) -> Self {
        Self::new(lab, "playbooks/site.yml").args(["--limit", host])
    }

    /// More arguments for `ansible-playbook`.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Runs it under another command, `strace -f ...` for instance.
    #[must_use]
    pub fn under<T: Into<OsString>>(mut self, command: impl IntoIterator<Item = T>) -> Self {
        self.wrapper = command.into_iter().map(Into::into).collect();
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Starts it; its output waits in a file.
    ///
    /// # Errors
    /// When `ansible-playbook` is not there, and how to get it.
    pub fn spawn(self) -> Result<Running> {
        let log = self.lab.directory().join("play.log");
        let output = fs::File::create(&log)?;
        let child = self.command()?.stdout(output.try_clone()?).stderr(output).spawn()?;
        Ok(Running { child, log, began: Instant::now() })
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(self) -> Outcome {
        self.spawn().and_then(Running::wait).unwrap_or_else(|error| panic!("ansible-playbook: {error:#}"))
    }

    /// Runs it to its end and hands on every line as it comes.
    ///
    /// # Errors
    /// When it cannot be started, or what `show` says.
    pub fn run_shown(self, mut show: impl FnMut(&str) -> Result<()>) -> Result<Outcome> {
        let began = Instant::now();
        let mut child = self.command()?.stdout(Stdio::piped()).spawn()?;
        let mut output = String::new();
        for line in BufReader::new(child.stdout.take().context("no stdout")?).lines() {
            let line = line?;
            show(&line)?;
            output.push_str(&line);
            output.push('\n');
        }
        let success = child.wait()?.success();
        Ok(Outcome::new(&output, success, began.elapsed()))
    }

    fn command(&self) -> Result<Command> {
        let program = pve::python()?.with_file_name("ansible-playbook");
        ensure!(program.exists(), "expected {}: run `make setup`", program.display());
        let mut words: Vec<OsString> = self.wrapper.clone();
        words.push(program.into());
        let home = self.lab.directory().join("home");
        fs::create_dir_all(&home)?;
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("--inventory")
            .arg(self.lab.inventory())
            .arg(&self.playbook)
            .args(&self.arguments)
            .current_dir(checkout())
            .stdin(Stdio::null())
            // Nothing of this user's gets in, and nothing of the run stays behind.
            .env("HOME", &home)
            .env("ANSIBLE_CONFIG", checkout().join("ansible.cfg"));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let foreign = ["ANSIBLE_", "PROXMOX_", "OPNSENSE_", "KEA_", "XDG_", "SSH_AUTH_SOCK"];
            if foreign.iter().any(|start| name.starts_with(start)) && name != "ANSIBLE_CONFIG" {
                command.env_remove(name);
            }
        }
        command.envs(self.lab.secrets()).envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// A run that goes on.
pub struct Running {
    child: Child,
    log: PathBuf,
    began: Instant,
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// When its output cannot be read.
    pub fn wait(mut self) -> Result<Outcome> {
        let success = self.child.wait()?.success();
        Ok(Outcome::new(&fs::read_to_string(&self.log)?, success, self.began.elapsed()))
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Outcome {
    fn new(output: &str, success: bool, took: Duration) -> Self {
        let output = without_colours(output);
        let recap = output.lines().filter_map(recap_line).collect();
        Self { output, success, took, recap }
    }
}

/// `web01 : ok=9 changed=0 unreachable=0 failed=0 skipped=2 rescued=0 ignored=0`
fn recap_line(line: &str) -> Option<(String, Recap)> {
    let (host, numbers) = line.split_once(" : ok=").or_else(|| line.split_once(": ok="))?;
    let number = |name: &str| {
        let words = format!("ok={numbers}");
        words.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}="))?.parse().ok())
    };
    let recap = Recap {
        ok: number("ok")?,
        changed: number("changed")?,
        unreachable: number("unreachable")?,
        failed: number("failed")?,
        skipped: number("skipped")?,
    };
    Some((host.trim().to_owned(), recap))
}

fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain
}

/// SIGKILLs a process and everything it started, children of children too.
///
/// # Errors
/// When `kill` cannot be run, or the process is gone.
pub fn kill_tree(pid: u32) -> Result<()> {
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(parent) = tree.get(next).copied() {
        tree.extend(children_of(parent));
        next += 1;
    }
    let pids: Vec<String> = tree.iter().map(ToString::to_string).collect();
    let killed = Command::new("kill").arg("-KILL").args(&pids).stderr(Stdio::null()).status()?;
    if !killed.success() && !Path::new(&format!("/proc/{pid}")).exists() {
        bail!("process {pid} is gone already");
    }
    Ok(())
}

/// SIGKILLs every `ansible-playbook` that this process started, with everything those started.
pub fn kill_plays() {
    for child in children_of(std::process::id()) {
        let command = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains("ansible-playbook") {
            let _ = kill_tree(child);
        }
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recap_is_read_with_and_without_colours() {
        let line = "\u{1b}[0;33mweb01\u{1b}[0m   : \u{1b}[0;32mok=21  \u{1b}[0m changed=6    unreachable=0    failed=0    \
                    skipped=2    rescued=0    ignored=0   ";
        let outcome = Outcome::new(line, true, Duration::ZERO);
        assert_eq!(outcome.of("web01"), Recap { ok: 21, changed: 6, unreachable: 0, failed: 0, skipped: 2 });
        assert!(Outcome::new("web01 | SUCCESS => ok", true, Duration::ZERO).recap.is_empty());
    }
}
