use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// One DNS server, by its address.
#[derive(Debug)]
pub struct Server {
    pub(crate) address: SocketAddr,
    calls: Mutex<BTreeMap<String, u64>>,
}

impl Server {
    /// `host` is an address or a name, which is looked up here and now.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the name has no address.
    pub fn new(host: &str, port: u16) -> Result<Self, Error> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = (bare, port).to_socket_addrs().map(|mut addresses| addresses.next());
        match found {
            Ok(Some(address)) => Ok(Self { address, calls: Mutex::default() }),
            _ => {
                Err(Error::Unreachable { server: host.to_owned(), why: "its name has no address".to_owned() })
            }
        }
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Messages sent so far, by kind (`QUERY`, `UPDATE`); each try counts.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn count(&self, kind: &str) {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(kind.to_owned()).or_default() += 1;
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
