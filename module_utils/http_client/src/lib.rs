//! The one HTTP client of the collection: one server, one kept-alive connection, one deadline.
//!
//! # Why rustls
//! A pinned certificate must be judged before anything secret is sent. OpenSSL under reqwest shows the
//! leaf only together with the answer, when the credentials are already gone; rustls asks our own
//! verifier in the middle of the handshake (`tls_backend_preconfigured`). The verifier also lets us take
//! what appliances ship, a self-signed leaf marked as a CA, without giving up the check of name and
//! dates. The price: servers that know only RSA key exchange, or nothing newer than TLS 1.1 (BMCs of
//! 2014), are refused, and the error says so.
//!
//! # What it promises
//! HTTP/1.1 only, never a chunked body, no body and no `Content-Type` on GET and DELETE, no proxy taken
//! from the environment, no redirect followed. The server's reason phrase is kept: Proxmox VE puts its
//! error text there. GETs are tried again after a transport error; writes never are, and
//! [`HttpError::may_have_reached_server`] tells whether the caller must look before repeating one.
//!
//! ```no_run
//! use std::time::Duration;
//! use deadline::Deadline;
//! use http_client::{Auth, Client, ClientConfig, Request, TlsPolicy};
//!
//! # fn main() -> Result<(), http_client::HttpError> {
//! let client = Client::new(ClientConfig {
//!     base_url: "https://pve1.example:8006/api2/json".into(),
//!     tls: TlsPolicy::SystemStore,
//!     auth: Auth::None,
//!     connect_timeout: Duration::from_secs(10),
//!     request_timeout: Duration::from_secs(60),
//! })?;
//! let version = client.send(&Request::get("/version"), &Deadline::after(Duration::from_secs(30)))?.json()?;
//! # Ok(()) }
//! ```

mod client;
mod error;
mod message;
mod percent;
mod tls;

pub use client::{Auth, Client, ClientConfig};
pub use error::{ErrorKind, HttpError};
pub use message::{Body, Method, Request, Response};
pub use percent::{form_encode, percent_encode};
pub use tls::{FingerprintError, TlsPolicy, parse_fingerprint};
