//! OPNsense's API for Kea reservations and Unbound host overrides, 25.1 to 26.7.
//!
//! OPNsense answers 200 to almost every refusal, drops fields it does not know, changed the shape of its rows
//! twice, and says `ok` when a service did not start. This crate turns refusals into errors and gives every shape
//! the same face; whether a write took is for the caller to read back.
//!
//! ```no_run
//! use std::time::Duration;
//! use deadline::Deadline;
//! use http_client::{Auth, Client, ClientConfig, TlsPolicy};
//! use opnsense_api::{Opnsense, Service};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let deadline = Deadline::after(Duration::from_secs(60));
//! let firewall = Opnsense::new(Client::new(ClientConfig {
//!     base_url: "https://fw.example".into(),
//!     tls: TlsPolicy::SystemStore,
//!     auth: Auth::Basic { user: "key".into(), password: "secret".to_owned().into() },
//!     connect_timeout: Duration::from_secs(10),
//!     request_timeout: Duration::from_secs(60),
//! })?);
//! for row in firewall.search_reservations(&deadline)? {
//!     println!("{:?} {:?}", row.mac, row.ip_address);
//! }
//! firewall.reconfigure(Service::Kea, &deadline)?;
//! assert!(firewall.service_status(Service::Kea, &deadline)?.is_running());
//! # Ok(()) }
//! ```

mod api;
mod error;
mod form;
mod grid;
mod kea;
mod service;
mod unbound;

pub use api::Opnsense;
pub use error::{Error, Validation};
pub use form::{Choice, Form};
pub use kea::{KeaGeneral, Lease, OPTIONS, ReservationRow};
pub use service::{Service, Status};
pub use unbound::{HostAlias, HostOverrideRow};
