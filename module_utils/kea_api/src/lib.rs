//! Kea's control channel for DHCPv4 reservations and leases, 2.2 to 3.x.
//!
//! Three ways in, one set of commands: the control agent over HTTP(S) (up to Kea 3.0), the server's own HTTP
//! socket (3.0 and newer), and the server's UNIX socket. Reservations are written through the configuration
//! (config-get, config-test, config-set, config-write), which every Kea knows; the rest of the configuration
//! stays as it is.
//!
//! ```no_run
//! use std::time::Duration;
//! use deadline::Deadline;
//! use kea_api::{Reservation, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let deadline = Deadline::after(Duration::from_secs(30));
//! let kea = Server::unix("/run/kea/kea4-ctrl-socket");
//! let before = kea.config_get(&deadline)?;
//! let mut reservation = Reservation::new("02:a5:00:00:00:65".parse::<net_types::MacAddress>()?);
//! reservation.set_ip("10.20.0.21".parse()?);
//! let mut after = before.clone();
//! after.put(1, None, reservation)?;
//! kea.replace(&before, &after, &deadline)?;
//! # Ok(()) }
//! ```

mod answer;
mod channel;
mod config;
mod config_file;
mod error;
mod host_commands;
mod reservation;
mod server;

pub use answer::Answer;
pub use config::{ClientClass, Dhcp4Config, Subnet};
pub use config_file::ConfigFile;
pub use error::Error;
pub use host_commands::HostChange;
pub use reservation::Reservation;
pub use server::{Lease, Server};
