//! The part of the Proxmox VE API that a VM's life needs, usable without Ansible.
//!
//! [`Proxmox`] is a session: it signs in with a token or a ticket, waits out locks, repeats a write only
//! where that is safe or after having looked whether the first try worked, and waits for tasks.
//! [`values`] holds the property strings of a VM's configuration as types: they are compared parsed,
//! never as text, since Proxmox VE prints them anew in its own order and adds what was left out.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use deadline::Deadline;
//! # use http_client::TlsPolicy;
//! # use proxmox_api::{Connection, Credentials, Proxmox};
//! # fn main() -> Result<(), proxmox_api::ApiError> {
//! let proxmox = Proxmox::new(Connection {
//!     host: "pve1.example".into(),
//!     port: 8006,
//!     tls: TlsPolicy::SystemStore,
//!     credentials: Credentials::Token {
//!         user: "anvil@pve".into(), id: "ci".into(), secret: "00000000-...".into(),
//!     },
//!     connect_timeout: Duration::from_secs(10),
//!     request_timeout: Duration::from_secs(60),
//! })?;
//! let deadline = Deadline::after(Duration::from_secs(600));
//! for guest in proxmox.guests(&deadline)? {
//!     println!("{} {}", guest.vmid, guest.node);
//! }
//! # Ok(()) }
//! ```

mod agent;
mod config;
mod describe;
mod error;
mod guests;
mod session;
mod task;
pub mod values;

pub use agent::{GuestAddress, GuestInterface};
pub use config::{PendingConfig, VmConfig};
pub use error::{ApiError, Refusal};
pub use guests::{CloneRequest, GivenDisk, Guest, GuestKind, VmStatus};
pub use session::{Connection, Credentials, Proxmox};
pub use task::{TaskEnd, Upid};
