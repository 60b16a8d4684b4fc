//! A Proxmox VE virtual machine as the modules see it: what a task declares of its hardware, its settings
//! as comparable fields, and whose a VMID is.

mod devices;
mod fields;
mod identity;
mod mark;
mod options;
mod wanted;

pub use devices::{bootable, check_boot_order, check_disks};
pub use fields::{changes, form, is_pending, object, predicted, read, strings, unreadable};
pub use identity::{Holder, Place, Vm, described, find, observe};
pub use mark::{AWAITS_INSTALL, Mark};
pub use options::{
    Disk, Hardware, Net, boot_order_option, check_numbered, hardware_options, refuse_twice, required_text,
    size, text, within,
};
pub use wanted::Wanted;
