//! The contract from outside: the process (`contract`), and coercion beside the real AnsibleModule.
#![allow(clippy::unwrap_used)]

mod coercions;
mod contract;
