//! The interface: sending the question, collecting the answers.

use std::fmt;
use std::io;
use std::time::Duration;

use deadline::{Deadline, Expired};
use pnet_datalink::{Channel, Config, DataLinkReceiver, DataLinkSender, NetworkInterface};

use crate::message::{Discover, Offer};

/// How long one read of the socket may block: how fast the deadline and an interrupt are seen.
const TICK: Duration = Duration::from_millis(50);
/// A client repeats its DISCOVER after 4 s, then 8, 16, ... (RFC 2131, section 4.1); a probe is impatient.
const FIRST_REPEAT: Duration = Duration::from_secs(1);

/// Why a probe could not be made, or brought nothing.
#[derive(Debug)]
pub enum ProbeError {
    /// No such interface; the ones there are.
    NoInterface { interface: String, available: Vec<String> },
    /// It is there and cannot be asked through: down, or not Ethernet.
    Unusable { interface: String, why: &'static str },
    /// The kernel refused the packet socket or a packet.
    Socket { interface: String, error: io::Error },
    /// Nobody answered in time.
    Expired(Expired),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface { interface, available } => {
                write!(
                    f,
                    "there is no interface `{interface}` on this machine, only: {}",
                    available.join(", ")
                )
            }
            Self::Unusable { interface, why } => write!(f, "interface `{interface}` {why}"),
            Self::Socket { interface, error } if error.kind() == io::ErrorKind::PermissionDenied => write!(
                f,
                "a raw packet socket on `{interface}` needs root or CAP_NET_RAW (become: true): {error}"
            ),
            Self::Socket { interface, error } => write!(f, "packet socket on `{interface}`: {error}"),
            Self::Expired(expired) => write!(f, "no OFFER came: {expired}"),
        }
    }
}

impl std::error::Error for ProbeError {}

impl From<Expired> for ProbeError {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}

/// A network segment as seen through one interface.
pub struct Segment {
    interface: String,
    mac: [u8; 6],
    sender: Box<dyn DataLinkSender>,
    receiver: Box<dyn DataLinkReceiver>,
}

impl Segment {
    /// Opens a packet socket on an Ethernet interface that is up.
    ///
    /// # Errors
    /// [`ProbeError`]: no such interface, not usable, or no right to a packet socket.
    pub fn open(interface: &str) -> Result<Self, ProbeError> {
        let found = find(interface)?;
        let unusable = |why| ProbeError::Unusable { interface: interface.to_owned(), why };
        let socket = |error| ProbeError::Socket { interface: interface.to_owned(), error };
        if !found.is_up() {
            return Err(unusable("is down: bring it up first (ip link set ... up)"));
        }
        let mac = found.mac.filter(|_| !found.is_loopback()).ok_or_else(|| unusable("is not Ethernet"))?;
        let config = Config { read_timeout: Some(TICK), ..Config::default() };
        match pnet_datalink::channel(&found, config).map_err(socket)? {
            Channel::Ethernet(sender, receiver) => {
                Ok(Self { interface: interface.to_owned(), mac: mac.octets(), sender, receiver })
            }
            _ => Err(unusable("is not Ethernet")),
        }
    }

    /// Asks until a first OFFER comes, repeating the question after 1 s, 2 s, 4 s, ...; then goes on
    /// listening for `collect`, so that a second server on the segment is seen too.
    ///
    /// # Errors
    /// [`ProbeError::Expired`] when nobody answered, [`ProbeError::Socket`].
    pub fn ask(
        &mut self,
        discover: &Discover,
        xid: u32,
        collect: Duration,
        deadline: &Deadline,
    ) -> Result<Vec<Offer>, ProbeError> {
        let frame = discover.frame(self.mac, xid);
        let mut repeat = FIRST_REPEAT;
        let mut offers = loop {
            self.send(&frame)?;
            let wait = deadline.at_most(repeat);
            if let Some(offer) = self.next_offer(discover, xid, &wait)? {
                break vec![offer];
            }
            deadline.check()?;
            repeat *= 2;
        };
        let wait = deadline.at_most(collect);
        while let Some(offer) = self.next_offer(discover, xid, &wait)? {
            if !offers.contains(&offer) {
                offers.push(offer);
            }
        }
        Ok(offers)
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), ProbeError> {
        let sent = self.sender.send_to(frame, None).unwrap_or_else(|| Err(io::ErrorKind::WriteZero.into()));
        sent.map_err(|error| ProbeError::Socket { interface: self.interface.clone(), error })
    }

    /// `None` when `wait` is over; an interrupt is an error.
    fn next_offer(
        &mut self,
        discover: &Discover,
        xid: u32,
        wait: &Deadline,
    ) -> Result<Option<Offer>, ProbeError> {
        loop {
            match wait.check() {
                Ok(()) => {}
                Err(Expired::TimedOut { .. }) => return Ok(None),
                Err(interrupted) => return Err(interrupted.into()),
            }
            match self.receiver.next() {
                Ok(frame) => {
                    if let Some(offer) = Offer::from_frame(frame, xid, discover.mac) {
                        return Ok(Some(offer));
                    }
                }
                Err(error) if is_tick(&error) => {}
                Err(error) => return Err(ProbeError::Socket { interface: self.interface.clone(), error }),
            }
        }
    }
}

fn is_tick(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn find(interface: &str) -> Result<NetworkInterface, ProbeError> {
    let all = pnet_datalink::interfaces();
    let available = all.iter().map(|found| found.name.clone()).collect();
    all.into_iter()
        .find(|found| found.name == interface)
        .ok_or_else(|| ProbeError::NoInterface { interface: interface.to_owned(), available })
}
