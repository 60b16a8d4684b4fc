//! ZFS pools and the disks under them: `zpool status` in both its forms, labels, pool names, property values, and
//! what proves that a disk is free.
//!
//! ```
//! let pools = zfs::parse_status("  pool: tank\n state: ONLINE\nconfig:\n\n\
//!     \tNAME         STATE     READ WRITE CKSUM\n\
//!     \ttank         ONLINE       0     0     0\n\
//!     \t  /dev/sdb1  ONLINE       0     0     0\n")?;
//! assert_eq!(pools[0].shape(), "stripe");
//! # Ok::<(), String>(())
//! ```

mod findings;
mod json_status;
mod label;
mod layout;
mod machine;
mod name;
mod property;
mod text_status;
mod vdev;

pub use findings::{Contents, Finding, Part};
pub use json_status::parse_json_status;
pub use label::{Label, PoolState, parse_label};
pub use layout::Layout;
pub use machine::{Device, Identity, Machine, ReadError, strip_partition};
pub use name::check_pool_name;
pub use property::same_value;
pub use text_status::parse_status;
pub use vdev::{Class, Pool, Vdev, VdevKind};
