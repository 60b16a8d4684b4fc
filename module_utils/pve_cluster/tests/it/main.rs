//! What corosync's tools and pmxcfs print, in every state, and what is concluded from it.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

mod node;
mod recorded;
