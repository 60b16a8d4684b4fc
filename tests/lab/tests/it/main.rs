//! The lab's own tests: a double that lies is worse than none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "some tests show what they measured")]

mod cluster;
mod consumer;
mod corosync;
mod guests;
mod lab;
mod netboot;
mod proxy;
mod pve;
mod secrets;
mod site;
mod targets;
mod wrong_inputs;
