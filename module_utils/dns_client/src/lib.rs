//! A client of one DNS server: it asks for record sets, and changes them by dynamic update (RFC 2136) signed with
//! a shared key (TSIG, RFC 8945).
//!
//! Messages are hickory's (`hickory-proto`); sending them is a socket's work, blocking under a [`Deadline`].
//! Questions go over UDP, and over TCP when the answer is cut; updates go over TCP, since one that is lost on the
//! way would have to be sent again without knowing.
//!
//! ```no_run
//! use std::time::Duration;
//! use deadline::Deadline;
//! use dns_client::{Ask, RecordType, Server};
//!
//! # fn main() -> Result<(), dns_client::Error> {
//! let deadline = Deadline::after(Duration::from_secs(10));
//! let resolver = Server::new("10.20.0.1", 53)?;
//! let answer = resolver.query("web01.example.net", RecordType::A, Ask::Recursive, &deadline)?;
//! println!("{:?}", answer.set("web01.example.net", RecordType::A));
//! # Ok(()) }
//! ```

mod data;
mod error;
mod key;
mod name;
mod query;
mod server;
mod update;
mod wire;

pub use data::{RecordData, RecordSet, RecordType};
pub use error::{Error, Refusal};
pub use key::{Algorithm, Key};
pub use name::reverse_name;
pub use query::{Answer, Ask};
pub use server::Server;
pub use update::Update;
