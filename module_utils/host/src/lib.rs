//! The machine a module runs on: commands, block devices, mounts, files that are replaced whole, locks.
//!
//! Everything goes through a [`Host`]: the real one, or one with another root directory and other
//! commands, so that whatever reads a machine can be tried on a made one.
//!
//! ```
//! use std::time::Duration;
//! use deadline::Deadline;
//! use host::{Command, Host};
//!
//! let deadline = Deadline::after(Duration::from_secs(5));
//! let said = Host::local().run(&Command::new("echo").arg("hello"), &deadline)?.ok()?;
//! assert_eq!(said.stdout_text(), "hello\n");
//! # Ok::<(), host::CommandError>(())
//! ```

mod block;
mod command;
mod files;
mod machine;
mod mounts;

pub use block::{BlockDevice, BlockError, ByIdLink, Probe, Signature};
pub use command::{Command, CommandError, Output};
pub use files::{
    Attributes, FileLock, New, WriteError, lock_directory, lock_file, write_atomic, write_exactly,
};
pub use machine::Host;
pub use mounts::{Mount, parse_mountinfo, parse_swaps};
