//! One look at a node: one script, run here or over one ssh connection, each answer framed by its name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use deadline::Deadline;
use host::{Command, CommandError, Host, Output};

const MARK: &str = "@@anvil ";
/// ssh's own exit code, whatever went wrong before the command ran: ssh(1), EXIT STATUS.
const SSH_FAILED: i32 = 255;

/// Each command has a deadline of its own: what reads /etc/pve hangs when pmxcfs does, and what runs on a peer
/// outlives the ssh that started it.
const SCRIPT: &str = r#"export LC_ALL=C
ask() {
    section=$1; shift
    timeout -k 1 15 "$@" </dev/null 2>&1
    printf '\n@@anvil %s %s\n' "$section" "$?"
}
ask start date +%s.%N
ask name uname -n
ask version pveversion
ask clock timedatectl show --property NTPSynchronized --value
ask conf cat /etc/pve/corosync.conf
ask local_conf cat /etc/corosync/corosync.conf
ask authkey test -e /etc/corosync/authkey
ask members cat /etc/pve/.members
ask guests cat /etc/pve/.vmlist
ask directories ls -1 /etc/pve/nodes
ask local stat -c %A /etc/pve/local
ask firewall cat /etc/pve/firewall/cluster.fw
ask status pvecm status
ask links corosync-cfgtool -s
ask services systemctl is-active pve-cluster corosync pvedaemon pveproxy pvestatd
ask addresses ip -json address show
ask resolved getent ahosts "$(uname -n)"
ask joining pgrep -a -f '[p]vecm add '
ask end date +%s.%N
"#;

/// How a node is reached.
#[derive(Clone, Debug)]
pub enum Way {
    /// It is this machine.
    Here,
    /// As pvecm does: root's own identity and known_hosts, and never a question.
    Ssh { host: String },
    /// The same with the host keys of this file only.
    Pinned { host: String, known_hosts: PathBuf },
}

/// Raw answers by name.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    answers: BTreeMap<String, (i32, String)>,
}

/// Why a node gave no answers.
#[derive(Debug)]
pub enum ProbeError {
    /// ssh does not know the node's host key, or another one; what it said.
    HostKey(String),
    /// The node does not take root's key; what ssh said.
    Auth(String),
    /// No connection; what ssh said.
    Unreachable(String),
    /// The script did not come to its end.
    Command(CommandError),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostKey(said) => write!(f, "its host key is not the known one: {said}"),
            Self::Auth(said) => write!(f, "it does not accept root's key: {said}"),
            Self::Unreachable(said) => write!(f, "no connection: {said}"),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProbeError {}

impl Probe {
    /// Asks a node.
    ///
    /// # Errors
    /// [`ProbeError`]. A command of the script that fails is an answer, not an error.
    pub fn take(host: &Host, way: &Way, deadline: &Deadline) -> Result<Self, ProbeError> {
        let output = host.run(&command(way), deadline).map_err(ProbeError::Command)?;
        let probe = Self::parse(&output.stdout_text());
        if probe.answers.contains_key("end") { Ok(probe) } else { Err(ssh_error(output)) }
    }

    /// Reads what the script printed; a cut-off answer is left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut probe = Self::default();
        let mut answer = Vec::new();
        for line in text.lines() {
            let mark = line.strip_prefix(MARK).and_then(|rest| rest.split_once(' '));
            match mark.and_then(|(name, code)| Some((name, code.parse().ok()?))) {
                Some((name, code)) => {
                    // The mark stands on a line of its own, behind an answer with or without its last line end.
                    let text = std::mem::take(&mut answer).join("\n");
                    probe.answers.insert(name.to_owned(), (code, text.trim_end().to_owned()));
                }
                None => answer.push(line),
            }
        }
        probe
    }

    /// The answer of a command that ended with 0.
    #[must_use]
    pub fn found(&self, name: &str) -> Option<&str> {
        self.answers.get(name).filter(|(code, _)| *code == 0).map(|(_, text)| text.as_str())
    }

    /// The answer of a command, however it ended.
    #[must_use]
    pub fn said(&self, name: &str) -> &str {
        self.answers.get(name).map(|(_, text)| text.as_str()).unwrap_or_default()
    }
}

fn command(way: &Way) -> Command {
    let ssh = |host: &str, options: &[String]| {
        let alive = ["ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];
        Command::new("ssh")
            .args(["-T", "-o", "BatchMode=yes"])
            .args(alive.iter().flat_map(|option| ["-o", option]))
            .args(options.iter().flat_map(|option| ["-o", option]))
            .args(["--", &format!("root@{host}"), "sh -s"])
    };
    let command = match way {
        Way::Here => Command::new("sh").arg("-s"),
        Way::Ssh { host } => ssh(host, &[]),
        Way::Pinned { host, known_hosts } => {
            let file = format!("UserKnownHostsFile={}", known_hosts.display());
            ssh(host, &[file, "GlobalKnownHostsFile=/dev/null".into(), "StrictHostKeyChecking=yes".into()])
        }
    };
    command.stdin(SCRIPT)
}

fn ssh_error(output: Output) -> ProbeError {
    let said = output.stderr_text().trim().to_owned();
    match output.code() {
        Some(SSH_FAILED) if said.contains("Host key verification failed") => ProbeError::HostKey(said),
        Some(SSH_FAILED) if said.contains("Permission denied") => ProbeError::Auth(said),
        Some(SSH_FAILED) => ProbeError::Unreachable(said),
        _ => ProbeError::Command(output.into_failure()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_are_framed() {
        let probe = Probe::parse("a\n\n\n@@anvil x 0\nno end\n@@anvil y 3\n\n@@anvil z 0\ncut off");
        assert_eq!((probe.found("x"), probe.found("y"), probe.said("y")), (Some("a"), None, "no end"));
        assert_eq!((probe.found("z"), probe.found("missing"), probe.said("missing")), (Some(""), None, ""));
    }

    #[test]
    fn this_machine_answers_every_question() {
        let probe =
            Probe::take(&Host::local(), &Way::Here, &Deadline::after(Duration::from_secs(60))).unwrap();
        for line in SCRIPT.lines().filter_map(|line| line.strip_prefix("ask ")) {
            let name = line.split(' ').next().unwrap();
            assert!(probe.answers.contains_key(name), "{name}");
        }
        let seconds: f64 = probe.found("start").unwrap().parse().unwrap();
        assert!(seconds > 1.7e9, "{seconds}");
    }
}
