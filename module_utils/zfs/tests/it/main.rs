//! Both forms of `zpool status`, written by hand, recorded and made up; and what is found on a machine's disks.

#![allow(clippy::unwrap_used)]

mod disks;
mod status;
mod trees;
