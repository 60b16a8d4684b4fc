//! The program from outside: an inventory on disk goes in, an identity comes out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod crash;
mod files;
mod inventory;
mod many;
mod refusals;
