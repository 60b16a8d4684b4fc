//! The connection options that modules share, and what an API crate's error is to Ansible.
//!
//! Each API has a table of options for a module's [`Spec`](ansible_module::Spec), a struct to parse them into
//! (flatten it into the module's own), and a function that turns the API's errors into
//! [`Failure`](ansible_module::Failure)s.

mod apply;
mod bmc;
mod ipmi;
mod kea;
mod opnsense;
mod proxmox;
mod redfish;
mod tls;

pub use apply::{Mark, opnsense_apply};
pub use bmc::{GuardOptions, guard_failure, guard_table};
pub use ipmi::{IpmiTarget, ipmi_failure, ipmi_table};
pub use kea::{KeaOptions, kea_failure, kea_table};
pub use opnsense::{OpnsenseOptions, opnsense_failure, opnsense_table};
pub use proxmox::{ProxmoxOptions, proxmox_failure, proxmox_table};
pub use redfish::{RedfishOptions, RedfishTarget, redfish_failure, redfish_table, system_value};
pub use tls::{TlsOptions, http_failure};
