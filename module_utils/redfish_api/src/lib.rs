//! DMTF Redfish as far as a safe network boot needs it: which systems a BMC has, their power, their one-time boot
//! override, their virtual CD.
//!
//! Everything is found by links, nothing by a path that some vendor happens to use. What can be written is four
//! things ([`Bmc::boot_once`], [`Bmc::power_on`], [`Bmc::power_off`], [`Bmc::insert`] and [`Bmc::eject`]); a reset
//! that takes the power away or restarts a running system does not exist here.
//!
//! ```no_run
//! use std::time::Duration;
//! use deadline::Deadline;
//! use http_client::TlsPolicy;
//! use redfish_api::{Bmc, Connection, Credentials};
//!
//! # fn main() -> Result<(), redfish_api::Error> {
//! let deadline = Deadline::after(Duration::from_secs(60));
//! let bmc = Bmc::new(Connection {
//!     base_url: "https://bmc1.example".into(),
//!     tls: TlsPolicy::SystemStore,
//!     credentials: Credentials { user: "root".into(), password: "calvin".into() },
//!     session: false,
//!     read_only: true,
//!     connect_timeout: Duration::from_secs(10),
//!     request_timeout: Duration::from_secs(60),
//! })?;
//! for system in bmc.systems(&deadline)? {
//!     let _ = (system.id(), system.power());
//! }
//! # Ok(()) }
//! ```

mod allowable;
mod bmc;
mod boot;
mod error;
mod inventory;
mod media;
mod messages;
mod power;
mod resource;
mod system;
mod task;
mod write;

pub use bmc::{Bmc, Call, Connection, Credentials};
pub use boot::BootOnce;
pub use error::{Error, Refusal};
pub use inventory::{Disk, Nic};
pub use media::{InsertOffer, MediaState, NoMedia, Slot, check_image, choose_slot};
pub use messages::Message;
pub use power::{Off, PowerState};
pub use resource::Resource;
pub use system::{Boot, System, choose};
