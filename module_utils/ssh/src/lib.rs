//! An SSH client for checking on machines: every host key of a server, a login with a key, one command.
//!
//! libssh2 underneath. It takes one host key a connection, so [`host_keys`] connects once per kind of key.
//! Nothing here trusts a server by itself: compare the keys with a [`KnownHosts`] before logging in.
//!
//! ```no_run
//! use std::time::Duration;
//! use deadline::Deadline;
//! use ssh::{Address, Identity, KnownHosts, Login, Verdict};
//!
//! let deadline = Deadline::after(Duration::from_secs(30));
//! let address = Address::new("10.20.0.40", 22);
//! let known = KnownHosts::parse(&std::fs::read_to_string("/home/me/.ssh/known_hosts")?);
//! let (keys, connection) = ssh::host_keys(&address, &deadline)?;
//! if let Verdict::Held { .. } = known.judge(&address, &keys) {
//!     let login = Login { user: "admin".into(), identity: Identity::Agent };
//!     let answer = connection.log_in(&login, &deadline)?.run("uname -n", &deadline)?;
//!     assert_eq!(answer.exit_code, 0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod connection;
mod key;
mod known_hosts;

pub use address::Address;
pub use connection::{Answer, Connection, Error, Identity, Login, Session, host_keys};
pub use key::HostKey;
pub use known_hosts::{Entry, KnownHosts, NotReplaced, Verdict};
