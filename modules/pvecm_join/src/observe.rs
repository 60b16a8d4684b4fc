//! Every read: this node, the peer over ssh, root's known_hosts.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use ansible_module::{ErrorCode, Failure, Run};
use host::Host;
use pve_cluster::{Node, ProbeError, Way, clock_skew};
use pvecm_options::look;
use ssh::{KnownHosts, Verdict};

use crate::args::Args;

pub(crate) const KNOWN_HOSTS: &str = "/root/.ssh/known_hosts";

/// Both nodes.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) own: Node,
    pub(crate) peer: Result<Node, ProbeError>,
    /// Seconds that the clocks are apart at least.
    pub(crate) skew: Option<f64>,
    /// Root's known_hosts has the peer's keys, and the peer was reached with them as pvecm will.
    pub(crate) pinned: bool,
}

pub(crate) fn observe(args: &Args, host: &Host, own: Node, run: &Run) -> Result<State, Failure> {
    let known = known_hosts(host)?;
    let verdict = known.judge(&args.peer, &args.peer_host_keys);
    let pinned = matches!(&verdict, Verdict::Held { missing } if missing.is_empty());
    let peer_host = args.peer_host.clone();
    // Lives as long as ssh reads it.
    let mut keys = tempfile::NamedTempFile::new().map_err(|error| broken("a temporary file", &error))?;
    let mut only = KnownHosts::default();
    only.add(&args.peer, &args.peer_host_keys);
    keys.write_all(only.to_string().as_bytes()).map_err(|error| broken("a temporary file", &error))?;
    let way = if pinned {
        Way::Ssh { host: peer_host }
    } else {
        Way::Pinned { host: peer_host, known_hosts: keys.path().to_owned() }
    };
    let began = now();
    let peer = match verdict {
        Verdict::Changed { entry, .. } | Verdict::Revoked { entry } => Err(ProbeError::HostKey(format!(
            "{KNOWN_HOSTS} line {} has another key for it than `peer_host_keys`: remove that line if it is outdated",
            entry.line
        ))),
        _ => look(host, &way, run),
    };
    // A run that is over is no news about the peer.
    run.check()?;
    let skew = peer.as_ref().ok().map(|peer| clock_skew((began, now()), peer.clock));
    Ok(State { own, peer, skew, pinned })
}

pub(crate) fn known_hosts(host: &Host) -> Result<KnownHosts, Failure> {
    match host.read(KNOWN_HOSTS) {
        Ok(text) => Ok(KnownHosts::parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(KnownHosts::default()),
        Err(error) => Err(broken(KNOWN_HOSTS, &error)),
    }
}

fn broken(what: &str, error: &io::Error) -> Failure {
    Failure::new(ErrorCode::COMMAND_FAILED, format!("{what}: {error}"))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
