//! Network boot with GRUB: the names a machine's file may be asked for under, who a file belongs to, the scripts.
//!
//! ```
//! let mac = "02:a5:00:00:03:e9".parse()?;
//! assert_eq!(netboot::file_names(mac)[1], "grub.cfg-02:a5:00:00:03:e9");
//! # Ok::<(), net_types::Invalid>(())
//! ```

mod boot_server;
pub mod chain;
mod dispatcher;
pub mod log;
mod mac_file;
mod script;

pub use boot_server::{Syntax, check_script, no_directory};
pub use dispatcher::{BrokenMarks, FIRST_MENU, Menu, block, menu, with_block, without_block};
pub use mac_file::{FILE_PREFIX, Mode, Ownership, file_names};
pub use script::{Entry, GrubPath, ScriptError, kernel_arguments, relative_path};
