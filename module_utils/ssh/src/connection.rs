use std::fmt;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use deadline::{Deadline, Expired};
use secrecy::{ExposeSecret, SecretString};
use ssh2::{ErrorCode, MethodType};

use crate::address::Address;
use crate::key::HostKey;

/// How long one exchange with a server may take, so that an interrupt is seen between two.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(10);
/// Far more than a command and what a login script says before it.
const LONGEST_ANSWER: usize = 1 << 20;
/// Kinds of host keys and the algorithms that prove them, in the order of preference. libssh2 leaves out those it cannot do.
const KINDS: [&str; 5] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512,rsa-sha2-256,ssh-rsa",
];

// libssh2.h
const ERROR_KEX_FAILURE: i32 = -5;
const ERROR_FILE: i32 = -16;
const ERROR_AUTHENTICATION_FAILED: i32 = -18;
const ERROR_PUBLICKEY_UNVERIFIED: i32 = -19;
const ERROR_KEYFILE_AUTH_FAILED: i32 = -48;

/// What kept a server from answering.
#[derive(Debug)]
pub enum Error {
    /// The name has no address.
    Name {
        host: String,
        why: String,
    },
    /// The machine is there (or a firewall says so), but nothing listens on the port.
    Refused(Address),
    /// No machine answers at the address.
    Unreachable {
        address: Address,
        why: String,
    },
    /// Something listens, and it did not speak SSH to the end of the handshake.
    NoSsh {
        address: Address,
        why: String,
    },
    /// The server and this program know no kind of host key in common.
    NoHostKey(Address),
    /// The private key cannot be used: no such file, wrong passphrase, unknown form.
    Identity(String),
    /// The server did not take the key.
    KeyRefused {
        user: String,
        offered: String,
        methods: String,
    },
    /// The connection broke after the login, or the command could not be started.
    Command(String),
    Expired(Expired),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { host, why } => write!(f, "the name {host} cannot be resolved: {why}"),
            Self::Refused(address) => {
                write!(
                    f,
                    "{address} refuses connections: the address answers, but nothing listens on the port"
                )
            }
            Self::Unreachable { address, why } => write!(f, "no answer from {address}: {why}"),
            Self::NoSsh { address, why } => {
                write!(f, "{address} takes the connection but does not complete an SSH handshake: {why}")
            }
            Self::NoHostKey(address) => {
                write!(f, "{address} has no kind of host key that this program knows ({})", KINDS.join(", "))
            }
            Self::Identity(why) => f.write_str(why),
            Self::KeyRefused { user, offered, methods } => {
                write!(f, "the server refused {offered} for the user {user} (it lets in by: {methods})")
            }
            Self::Command(why) => f.write_str(why),
            Self::Expired(expired) => expired.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<Expired> for Error {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}

/// What proves who logs in.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A private key in a file (OpenSSH's form or PEM), with its passphrase if it has one.
    File { path: PathBuf, passphrase: Option<SecretString> },
    /// The keys of the agent that `SSH_AUTH_SOCK` names.
    Agent,
}

#[derive(Clone, Debug)]
pub struct Login {
    pub user: String,
    pub identity: Identity,
}

/// A connection whose handshake is done: the server has proved that it owns its host key.
pub struct Connection {
    session: ssh2::Session,
    peer: SocketAddr,
    host_key: HostKey,
}

impl Connection {
    /// Connects with any kind of host key.
    ///
    /// # Errors
    /// [`Error`], by what is missing: name, machine, listener, SSH.
    pub fn open(address: &Address, deadline: &Deadline) -> Result<Self, Error> {
        Self::negotiate(address, &KINDS.join(","), deadline)?.ok_or_else(|| Error::NoHostKey(address.clone()))
    }

    /// `None` when the server has no host key for these algorithms.
    fn negotiate(address: &Address, algorithms: &str, deadline: &Deadline) -> Result<Option<Self>, Error> {
        let stream = connect(address, deadline)?;
        let no_ssh =
            |error: &dyn fmt::Display| Error::NoSsh { address: address.clone(), why: error.to_string() };
        let peer = stream.peer_addr().map_err(|error| no_ssh(&error))?;
        let mut session = ssh2::Session::new().map_err(|error| no_ssh(&error))?;
        session.method_pref(MethodType::HostKey, algorithms).map_err(|error| no_ssh(&error.message()))?;
        session.set_tcp_stream(stream);
        limit(&session, deadline)?;
        if let Err(error) = session.handshake() {
            return match error.code() {
                ErrorCode::Session(ERROR_KEX_FAILURE) => Ok(None),
                _ => Err(no_ssh(&error.message())),
            };
        }
        let key = session.host_key().and_then(|(blob, _)| HostKey::from_blob(blob));
        let host_key = key.ok_or_else(|| no_ssh(&"the host key cannot be read"))?;
        Ok(Some(Self { session, peer, host_key }))
    }

    /// The key the server proved to own.
    #[must_use]
    pub fn host_key(&self) -> &HostKey {
        &self.host_key
    }

    /// The address that the connection really goes to.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// # Errors
    /// [`Error::Identity`] when there is no usable private key, [`Error::KeyRefused`] when the server does not take it.
    pub fn log_in(self, login: &Login, deadline: &Deadline) -> Result<Session, Error> {
        limit(&self.session, deadline)?;
        match &login.identity {
            Identity::File { path, passphrase } => {
                let offered = format!("the key {}", path.display());
                let passphrase = passphrase.as_ref().map(ExposeSecret::expose_secret);
                self.session
                    .userauth_pubkey_file(&login.user, None, path, passphrase)
                    .map_err(|error| self.login_error(&error, login, offered))?;
            }
            Identity::Agent => self.try_agent(login)?,
        }
        Ok(Session { session: self.session })
    }

    fn try_agent(&self, login: &Login) -> Result<(), Error> {
        let unusable = |error: ssh2::Error| Error::Identity(format!("the SSH agent: {}", error.message()));
        let mut agent = self.session.agent().map_err(unusable)?;
        agent.connect().map_err(unusable)?;
        agent.list_identities().map_err(unusable)?;
        let identities = agent.identities().map_err(unusable)?;
        if identities.is_empty() {
            return Err(Error::Identity("the SSH agent holds no key".into()));
        }
        for identity in &identities {
            match agent.userauth(&login.user, identity) {
                Ok(()) => return Ok(()),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(self.login_error(&error, login, "the agent's keys".into())),
            }
        }
        Err(self.refused(login, format!("each of the {} keys of the SSH agent", identities.len())))
    }

    fn login_error(&self, error: &ssh2::Error, login: &Login, offered: String) -> Error {
        match error.code() {
            _ if is_refusal(error) => self.refused(login, offered),
            ErrorCode::Session(ERROR_FILE | ERROR_KEYFILE_AUTH_FAILED) => {
                Error::Identity(format!("{offered} cannot be used: {}", error.message()))
            }
            _ => Error::Command(format!("the connection broke during the login: {}", error.message())),
        }
    }

    fn refused(&self, login: &Login, offered: String) -> Error {
        let methods = self.session.auth_methods(&login.user).unwrap_or("nothing that it names").to_owned();
        Error::KeyRefused { user: login.user.clone(), offered, methods }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({}, {})", self.peer, self.host_key)
    }
}

fn is_refusal(error: &ssh2::Error) -> bool {
    matches!(error.code(), ErrorCode::Session(ERROR_AUTHENTICATION_FAILED | ERROR_PUBLICKEY_UNVERIFIED))
}

/// Every host key of a server, a connection for each kind, and the connection of the first one, open for a login.
///
/// # Errors
/// [`Error`].
pub fn host_keys(address: &Address, deadline: &Deadline) -> Result<(Vec<HostKey>, Connection), Error> {
    let mut keys = Vec::new();
    let mut first = None;
    for algorithms in KINDS {
        if let Some(connection) = Connection::negotiate(address, algorithms, deadline)? {
            keys.push(connection.host_key.clone());
            first.get_or_insert(connection);
        }
    }
    first.map(|connection| (keys, connection)).ok_or_else(|| Error::NoHostKey(address.clone()))
}

/// A login.
pub struct Session {
    session: ssh2::Session,
}

/// How a command on the server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub exit_code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Session {
    /// Gives a command line to the user's shell on the server and waits for its end.
    ///
    /// # Errors
    /// [`Error::Command`] when the connection breaks or the server starts no command.
    pub fn run(&self, command_line: &str, deadline: &Deadline) -> Result<Answer, Error> {
        limit(&self.session, deadline)?;
        let broken = |why: &dyn fmt::Display| Error::Command(format!("running `{command_line}`: {why}"));
        let mut channel = self.session.channel_session().map_err(|error| broken(&error.message()))?;
        channel.exec(command_line).map_err(|error| broken(&error.message()))?;
        let read = |stream: &mut dyn Read| self.read(stream, deadline, &broken);
        let (stdout, stderr) = (read(&mut channel)?, read(&mut channel.stderr())?);
        channel.wait_close().map_err(|error| broken(&error.message()))?;
        let exit_code = channel.exit_status().map_err(|error| broken(&error.message()))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Answer { exit_code, stdout: text(stdout), stderr: text(stderr) })
    }

    /// To its end, which a login script that goes on talking does not have.
    fn read(
        &self,
        stream: &mut dyn Read,
        deadline: &Deadline,
        broken: &dyn Fn(&dyn fmt::Display) -> Error,
    ) -> Result<Vec<u8>, Error> {
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        loop {
            limit(&self.session, deadline)?;
            // At the deadline the last read ends as one that took too long.
            let read = stream.read(&mut part);
            match read
                .map_err(|error| ended_by(&error, deadline).map_or_else(|| broken(&error), Error::from))?
            {
                0 => return Ok(answer),
                length => answer.extend_from_slice(&part[..length]),
            }
            if answer.len() > LONGEST_ANSWER {
                return Err(broken(&format!("the answer does not end after {LONGEST_ANSWER} bytes")));
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

/// Whether the deadline ended an exchange. libssh2 counts whole seconds, so it may give up one second early.
fn ended_by(error: &io::Error, deadline: &Deadline) -> Option<Expired> {
    let left = deadline.remaining();
    if error.kind() == io::ErrorKind::TimedOut && left <= Duration::from_secs(1) {
        return deadline.pause(left).and_then(|()| deadline.check()).err();
    }
    deadline.check().err()
}

/// Lets the next exchanges wait as long as the deadline leaves.
fn limit(session: &ssh2::Session, deadline: &Deadline) -> Result<(), Expired> {
    deadline.check()?;
    let milliseconds = deadline.remaining().min(LONGEST_EXCHANGE).as_millis();
    // Zero would mean for ever.
    session.set_timeout(u32::try_from(milliseconds).unwrap_or(u32::MAX).max(1));
    Ok(())
}

fn connect(address: &Address, deadline: &Deadline) -> Result<TcpStream, Error> {
    deadline.check()?;
    let unresolved = |why: String| Error::Name { host: address.host().to_owned(), why };
    let name = (address.host().to_owned(), address.port());
    // A name server that does not answer is waited for in libc, which knows no deadline.
    let found = deadline.block_on(move || name.to_socket_addrs().map(Vec::from_iter))?;
    let candidates: Vec<SocketAddr> = found.map_err(|error| unresolved(error.to_string()))?;
    let mut last = unresolved("it has no address".into());
    for candidate in candidates {
        let patience = deadline.remaining().min(LONGEST_EXCHANGE).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&candidate, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last = Error::Refused(address.clone());
            }
            Err(error) => last = Error::Unreachable { address: address.clone(), why: error.to_string() },
        }
        deadline.check()?;
    }
    Err(last)
}
