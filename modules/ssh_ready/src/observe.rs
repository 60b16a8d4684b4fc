//! Waiting for the guest, and every read.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ansible_module::{ErrorCode, Failure, Run};
use api_options::opnsense_failure;
use deadline::Deadline;
use opnsense_api::Opnsense;
use serde_json::json;
use ssh::{Address, Connection, Entry, Error, HostKey, KnownHosts, Verdict, host_keys};

use crate::args::Args;
use crate::guest::{Facts, QUESTION};

/// Between two logins while the key is refused: since 9.8 sshd shuts out an address that fails more often.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(4);
/// Between two looks at the leases while nothing answers.
const BETWEEN_LEASES: Duration = Duration::from_secs(5);
/// What the other address gets to answer in.
const OTHER_ADDRESS: Duration = Duration::from_secs(3);

pub(crate) const HOST_KEY_MISMATCH: ErrorCode = ErrorCode::custom("host_key_mismatch");
pub(crate) const WRONG_ADDRESS: ErrorCode = ErrorCode::custom("wrong_address");

/// A guest that answered.
#[derive(Clone, Debug)]
pub struct Guest {
    pub address: IpAddr,
    pub host_keys: Vec<HostKey>,
    pub facts: Facts,
}

/// The guest, and what the known_hosts file says.
#[derive(Clone, Debug)]
pub struct State {
    pub guest: Guest,
    pub known_hosts: KnownHosts,
}

/// Reads the file; one that does not exist knows nobody.
pub(crate) fn known_hosts(args: &Args) -> Result<KnownHosts, Failure> {
    match std::fs::read(&args.known_hosts) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(KnownHosts::parse(&text)),
            Err(_) => Err(Failure::refused(format!(
                "{} is no text: it is not a known_hosts file",
                args.known_hosts.display()
            ))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(KnownHosts::default()),
        Err(error) => Err(Failure::bad_argument(
            "known_hosts",
            format!("{} cannot be read: {error}", args.known_hosts.display()),
        )),
    }
}

/// Waits until the guest lets the key in and has settled.
pub(crate) fn wait_for_guest(args: &Args, known: &KnownHosts, run: &Run) -> Result<Guest, Failure> {
    let mut wait = Wait {
        args,
        known,
        run,
        host_keys: Vec::new(),
        answered: None,
        reason: None,
        deviating: None,
        leases: Leases::new(args)?,
    };
    let waited = run.deadline.poll(|| wait.look());
    match (waited, wait.deviating.take()) {
        (Err(failure), Some(guest)) if failure.code == ErrorCode::TIMEOUT => Ok(guest),
        (Err(failure), None) if failure.code == ErrorCode::TIMEOUT => Err(wait.timed_out(failure)),
        (waited, _) => waited,
    }
}

struct Wait<'a> {
    args: &'a Args,
    known: &'a KnownHosts,
    run: &'a Run,
    /// All that the guest has; empty until it answered.
    host_keys: Vec<HostKey>,
    /// When the guest answered for the first time.
    answered: Option<Instant>,
    /// What was in the way at the last look.
    reason: Option<Error>,
    /// The guest as it last was, not as declared.
    deviating: Option<Guest>,
    leases: Option<Leases>,
}

impl Wait<'_> {
    fn deadline(&self) -> &Deadline {
        &self.run.deadline
    }

    /// One look: the guest, nothing yet, or a failure that waiting does not cure.
    fn look(&mut self) -> Result<Option<Guest>, Failure> {
        match self.try_login() {
            Ok(guest) => Ok(guest),
            Err(Reason::Final(failure)) => Err(failure),
            Err(Reason::Ssh(error)) => {
                self.wait_on(error)?;
                Ok(None)
            }
        }
    }

    fn try_login(&mut self) -> Result<Option<Guest>, Reason> {
        let connection = self.connect()?;
        self.judge_host_keys()?;
        let address = connection.peer().ip();
        let session = connection.log_in(&self.args.login, self.deadline())?;
        let answer = session.run(QUESTION, self.deadline())?;
        let facts = Facts::parse(&answer.stdout).ok_or_else(|| {
            let said = format!("{}{}", answer.stdout, answer.stderr);
            Failure::new(
                ErrorCode::COMMAND_FAILED,
                format!(
                    "{} let the user {} in, but its shell does not answer `{QUESTION}`: {}",
                    self.args.address,
                    self.args.login.user,
                    said.trim()
                ),
            )
        })?;
        let right = self.args.expected.deviations(&facts).is_empty();
        let guest = Guest { address, host_keys: self.host_keys.clone(), facts };
        if right || self.has_settled() {
            return Ok(Some(guest));
        }
        self.deviating = Some(guest);
        Ok(None)
    }

    /// At first all host keys are asked for; later the guest only shows that it is still the same one.
    fn connect(&mut self) -> Result<Connection, Error> {
        if !self.host_keys.is_empty() {
            let connection = Connection::open(&self.args.address, self.deadline())?;
            if self.host_keys.contains(connection.host_key()) {
                return Ok(connection);
            }
            // It has made itself new keys in the meantime: a first boot.
        }
        let (keys, connection) = host_keys(&self.args.address, self.deadline())?;
        self.host_keys = keys;
        self.answered.get_or_insert_with(Instant::now);
        Ok(connection)
    }

    /// Before any login: nothing is said to a machine that is not the known one.
    fn judge_host_keys(&self) -> Result<(), Failure> {
        match self.known.judge(&self.args.address, &self.host_keys) {
            Verdict::Unknown | Verdict::Held { .. } => Ok(()),
            Verdict::Changed { .. } if self.args.replace_host_key => Ok(()),
            Verdict::Changed { entry, offered } => Err(changed_key(self.args, &entry, &offered)),
            Verdict::Revoked { entry } => Err(revoked_key(self.args, &entry)),
        }
    }

    fn has_settled(&self) -> bool {
        self.answered.is_some_and(|since| since.elapsed() >= self.args.settle)
    }

    fn wait_on(&mut self, error: Error) -> Result<(), Failure> {
        match error {
            Error::Expired(expired) => return Err(expired.into()),
            Error::Identity(why) => return Err(Failure::bad_argument("private_key_file", why)),
            _ => {}
        }
        let refused = matches!(error, Error::KeyRefused { .. });
        // A refusal stays the reason when the server then shuts the door: that is because of it.
        if refused || !matches!(self.reason, Some(Error::KeyRefused { .. })) {
            self.reason = Some(error);
        }
        self.look_for_other_address()?;
        if refused {
            if self.has_settled() {
                return Err(self.key_refused());
            }
            self.deadline().pause(BETWEEN_REFUSALS)?;
        }
        Ok(())
    }

    fn look_for_other_address(&mut self) -> Result<(), Failure> {
        let Some(leases) = &mut self.leases else { return Ok(()) };
        leases.look(self.args, self.run);
        match leases.elsewhere {
            Some(other) if answers_ssh(other, self.args, &self.run.deadline) => {
                Err(wrong_address(self.args, other, "and answers SSH there"))
            }
            _ => Ok(()),
        }
    }

    fn key_refused(&self) -> Failure {
        let reason = self.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        Failure::new(
            ErrorCode::AUTH,
            format!(
                "{} is up and speaks SSH, but {reason}. Did the guest get the key (cloud-init `sshkeys`, the installer's \
                 key fetch), and is this the user it was made for?",
                self.args.address
            ),
        )
        .with("user", self.args.login.user.clone())
    }

    fn timed_out(&self, failure: Failure) -> Failure {
        if matches!(self.reason, Some(Error::KeyRefused { .. })) {
            return self.key_refused();
        }
        if let Some(other) = self.leases.as_ref().and_then(|leases| leases.elsewhere) {
            return wrong_address(self.args, other, "although nothing answers SSH there either");
        }
        let address = &self.args.address;
        let reason =
            self.reason.as_ref().map_or_else(|| "it was never asked".to_owned(), ToString::to_string);
        Failure::new(
            failure.code,
            format!("{address} did not get ready: {}; at the last try, {reason}", failure.msg),
        )
        .with("last_reason", reason)
    }
}

enum Reason {
    /// Waiting may cure it.
    Ssh(Error),
    Final(Failure),
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self::Ssh(error)
    }
}

impl From<Failure> for Reason {
    fn from(failure: Failure) -> Self {
        Self::Final(failure)
    }
}

fn changed_key(args: &Args, entry: &Entry, offered: &HostKey) -> Failure {
    let file = args.known_hosts.display();
    Failure::new(
        HOST_KEY_MISMATCH,
        format!(
            "{} is not the machine that {file} knows: line {} has {}, the machine has {offered}. If it was rebuilt, set \
             `replace_host_key: true` for this run; if not, find out who answers at this address",
            args.address, entry.line, entry.key
        ),
    )
    .with("known_host", json!({"type": entry.key.kind(), "sha256": entry.key.fingerprint(), "line": entry.line}))
    .with("offered", json!({"type": offered.kind(), "sha256": offered.fingerprint()}))
}

fn revoked_key(args: &Args, entry: &Entry) -> Failure {
    let file = args.known_hosts.display();
    Failure::new(
        HOST_KEY_MISMATCH,
        format!(
            "{} has the host key {}, which {file} revokes in line {}",
            args.address, entry.key, entry.line
        ),
    )
    .with(
        "known_host",
        json!({"type": entry.key.kind(), "sha256": entry.key.fingerprint(), "line": entry.line}),
    )
    .with("offered", json!({"type": entry.key.kind(), "sha256": entry.key.fingerprint()}))
}

fn wrong_address(args: &Args, other: Ipv4Addr, and: &str) -> Failure {
    let mac = args.leases.as_ref().map(|(mac, _)| mac.to_string()).unwrap_or_default();
    Failure::new(
        WRONG_ADDRESS,
        format!(
            "the guest with the MAC address {mac} is not on {}: it holds a lease of {other}, {and}. It took an address out \
             of the pool: its reservation was missing, or not applied, when it booted. Apply the reservation and restart \
             the guest",
            args.address
        ),
    )
    .with("expected", args.address.host())
    .with("lease_address", other.to_string())
}

fn answers_ssh(other: Ipv4Addr, args: &Args, deadline: &Deadline) -> bool {
    let address = Address::new(other.to_string(), args.address.port());
    Connection::open(&address, &deadline.at_most(OTHER_ADDRESS)).is_ok()
}

/// The address the guest is meant to have; none when only a name was given.
fn reserved(args: &Args) -> Option<Ipv4Addr> {
    match args.expected.address {
        Some(IpAddr::V4(address)) => Some(address),
        Some(IpAddr::V6(_)) => None,
        None => args.address.host().parse().ok(),
    }
}

/// The leases of the guest's card on the firewall.
struct Leases {
    firewall: Opnsense,
    mac: net_types::MacAddress,
    last_look: Option<Instant>,
    /// Another address than the one that was asked for.
    elsewhere: Option<Ipv4Addr>,
}

impl Leases {
    fn new(args: &Args) -> Result<Option<Self>, Failure> {
        let Some((mac, opnsense)) = &args.leases else { return Ok(None) };
        Ok(Some(Self { firewall: opnsense.connect()?, mac: *mac, last_look: None, elsewhere: None }))
    }

    /// A firewall that does not answer is no reason to stop waiting for the guest.
    fn look(&mut self, args: &Args, run: &Run) {
        if self.last_look.is_some_and(|at| at.elapsed() < BETWEEN_LEASES) {
            return;
        }
        self.last_look = Some(Instant::now());
        match self.firewall.leases_of_mac(self.mac, &run.deadline) {
            Ok(leases) => {
                let here = reserved(args);
                let active: Vec<Ipv4Addr> =
                    leases.into_iter().filter(|lease| lease.active).map(|lease| lease.address).collect();
                let is_here = active.iter().any(|address| Some(*address) == here);
                self.elsewhere = active.first().copied().filter(|_| here.is_some() && !is_here);
            }
            Err(error) => run.warn(format!(
                "the leases of {} could not be read, so a guest on another address cannot be told from one that is down: {}",
                self.mac,
                opnsense_failure(error).msg
            )),
        }
    }
}
