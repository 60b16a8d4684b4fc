use std::fmt;
use std::io;

use deadline::Expired;

/// Why a question or an update came to nothing.
#[derive(Debug)]
pub enum Error {
    /// The server's name has no address, or it does not answer.
    Unreachable {
        server: String,
        why: String,
    },
    /// It answers something that is no answer to what was asked.
    Protocol {
        server: String,
        why: String,
    },
    /// It answers no.
    Refused {
        server: String,
        what: String,
        refusal: Refusal,
    },
    /// What an update took for granted is no longer so: another writer was faster. Nothing was changed.
    Overtaken {
        server: String,
        what: String,
        code: String,
    },
    /// It is not the server that keeps this name.
    NotAuthoritative {
        server: String,
        name: String,
    },
    /// A name that no DNS message can carry.
    Name {
        name: String,
        why: String,
    },
    /// The key cannot be used.
    Key {
        why: &'static str,
    },
    Expired(Expired),
}

/// A server's no, by what has to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// TSIG BADKEY: no key of that name and algorithm.
    UnknownKey { key: String, algorithm: &'static str },
    /// TSIG BADSIG: another secret, or another algorithm of the same name.
    WrongSecret { key: String },
    /// TSIG BADTIME: the clocks are too far apart. The server's, in seconds since 1970, where it says so.
    WrongClock { ours: u64, theirs: Option<u64> },
    /// An answer to a signed update without a sound signature.
    Unsigned { key: String, why: String },
    /// REFUSED: the key may not change this name, or the zone takes no updates.
    NotAllowed,
    /// NOTAUTH without a fault of the key: it does not keep this zone, or only as a secondary.
    NotPrimary { zone: String },
    /// NOTZONE: the name is not in this zone.
    NotInZone { zone: String },
    /// NOTIMP: it knows no updates.
    NoUpdates,
    /// SERVFAIL: it could not do it.
    Failed,
    /// Any other code.
    Code(String),
}

impl Refusal {
    /// Whether the key, not what it is used for, is the fault.
    #[must_use]
    pub fn is_of_the_key(&self) -> bool {
        matches!(
            self,
            Self::UnknownKey { .. }
                | Self::WrongSecret { .. }
                | Self::WrongClock { .. }
                | Self::Unsigned { .. }
                | Self::NotAllowed
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key, algorithm } => write!(
                f,
                "it knows no key `{key}` with {algorithm} (NOTAUTH, BADKEY): both must be as in its configuration"
            ),
            Self::WrongSecret { key } => write!(
                f,
                "the key `{key}` has another secret there (NOTAUTH, BADSIG): give the one of its configuration"
            ),
            Self::WrongClock { ours, theirs: Some(theirs) } => write!(
                f,
                "the clocks are {} s apart (NOTAUTH, BADTIME): it has {theirs} s since 1970, this machine {ours} s; set \
                 the wrong one",
                ours.abs_diff(*theirs)
            ),
            Self::WrongClock { .. } => {
                f.write_str("its clock and this machine's are too far apart (NOTAUTH, BADTIME): set the wrong one")
            }
            Self::Unsigned { key, why } => {
                write!(f, "its answer does not bear a sound signature of the key `{key}`: {why}")
            }
            Self::NotAllowed => f.write_str(
                "it does not allow this (REFUSED): the key needs the right to change this name and type there \
                 (BIND: update-policy or allow-update of the zone; Knot: an acl with the action update; PowerDNS: \
                 dnsupdate, TSIG-ALLOW-DNSUPDATE)",
            ),
            Self::NotPrimary { zone } => write!(
                f,
                "it is not the primary server of the zone {zone} (NOTAUTH): updates go to the primary"
            ),
            Self::NotInZone { zone } => {
                write!(f, "the name is not in the zone {zone} (NOTZONE): leave `zone` out to have it found")
            }
            Self::NoUpdates => f.write_str("it takes no dynamic updates (NOTIMP)"),
            Self::Failed => f.write_str(
                "it could not do it (SERVFAIL), and its log says why; a BIND must be able to write the zone's journal \
                 (on Debian below /var/lib/bind, not /etc/bind)",
            ),
            Self::Code(code) => write!(f, "it answers {code}"),
        }
    }
}

impl Error {
    /// Whether it happened on the way: the server may have done what it was told.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Protocol { .. } | Self::Expired(_))
    }

    pub(crate) fn unreachable(server: &str, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => "nothing listens there (connection refused)".to_owned(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer".to_owned(),
            io::ErrorKind::UnexpectedEof => "it closed the connection without an answer".to_owned(),
            _ => error.to_string(),
        };
        Self::Unreachable { server: server.to_owned(), why }
    }

    pub(crate) fn protocol(server: &str, why: impl fmt::Display) -> Self {
        Self::Protocol { server: server.to_owned(), why: why.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { server, why } => write!(f, "DNS server {server}: {why}"),
            Self::Protocol { server, why } => write!(f, "DNS server {server}: not an answer: {why}"),
            Self::Refused { server, what, refusal } => write!(f, "DNS server {server}, {what}: {refusal}"),
            Self::Overtaken { server, what, code } => write!(
                f,
                "DNS server {server}, {what}: somebody else changed it since it was read ({code}); nothing was changed: run \
                 it again"
            ),
            Self::NotAuthoritative { server, name } => write!(
                f,
                "DNS server {server} keeps no zone that {name} is in: updates go to the primary server of the zone"
            ),
            Self::Name { name, why } => write!(f, "{name:?} cannot be a name in DNS: {why}"),
            Self::Key { why } => write!(f, "the key cannot be used: {why}"),
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
