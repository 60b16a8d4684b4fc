//! The way of a module to its target and back, with real ansible-playbook, real sshd and real sudo.
//!
//! The tests need root: they give their programs namespaces with own users and mounts.

#![expect(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

mod cache;
mod core;
mod matrix;
mod secrets;
mod site;
mod trouble;
