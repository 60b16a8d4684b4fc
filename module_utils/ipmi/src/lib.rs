//! Plain IPMI through the real `ipmitool`: power, the boot flags for the next start, and the serial in the FRU.
//!
//! `ipmitool` ends with 0 after some failures (a refused `bootdev`), so every answer is judged by what it says. The
//! password goes through the environment. What switches a server hard off or resets it does not exist here.
//!
//! ```no_run
//! use std::time::Duration;
//! use deadline::Deadline;
//! use host::Host;
//! use ipmi::{Connection, Ipmitool};
//!
//! # fn main() -> Result<(), ipmi::Error> {
//! let bmc = Ipmitool::new(Host::local(), Connection {
//!     host: "bmc1.example".into(),
//!     port: 623,
//!     user: "admin".into(),
//!     password: "secret".into(),
//!     cipher_suite: None,
//! });
//! let deadline = Deadline::after(Duration::from_secs(60));
//! let (power, serial) = (bmc.power(&deadline)?, bmc.product_serial(&deadline)?);
//! # Ok(()) }
//! ```

mod boot;
mod error;
mod tool;

pub use boot::{BootDevice, BootFlags};
pub use error::Error;
pub use tool::{Connection, Ipmitool, Power};
