//! Every read.

use std::net::IpAddr;

use ansible_module::Failure;
use api_options::opnsense_failure;
use deadline::Deadline;
use opnsense_api::{HostOverrideRow, Opnsense, Service};

use crate::args::Args;

/// The firewall as it was seen.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Every host override, in the order in which Unbound gets them.
    pub(crate) rows: Vec<HostOverrideRow>,
    /// Whether a host override can go without a PTR record (26.1.3 and newer).
    pub(crate) knows_addptr: bool,
    /// What OPNsense says of Unbound; `None` when it was not asked.
    pub(crate) service: Option<String>,
    /// A change is stored and not in effect.
    pub(crate) pending: bool,
}

impl Observed {
    /// The rows of the record: one at most, unless somebody made duplicates. The first is the one to keep.
    pub(crate) fn own(&self, args: &Args) -> Vec<&HostOverrideRow> {
        let mut own: Vec<_> = self.rows.iter().filter(|row| is_own(row, args)).collect();
        own.sort_by_key(|row| (args.value.is_some() && row.server != args.value, !row.enabled));
        own
    }

    /// The name that the PTR record of an address gives: the first that asks for one.
    pub(crate) fn ptr_name(&self, address: IpAddr) -> Option<String> {
        let named = |row: &&HostOverrideRow| {
            row.enabled
                && row.addptr != Some(false)
                && row.server == Some(address)
                && matches!(row.rr.as_str(), "A" | "AAAA")
        };
        self.rows.iter().find(named).map(HostOverrideRow::name)
    }
}

fn is_own(row: &HostOverrideRow, args: &Args) -> bool {
    row.rr == args.rr.as_str() && row.name() == args.fqdn()
}

pub(crate) fn observe(
    firewall: &Opnsense,
    args: &Args,
    pending: bool,
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    let rows = firewall.search_host_overrides(deadline).map_err(opnsense_failure)?;
    let knows_addptr = match rows.first() {
        Some(row) => row.addptr.is_some(),
        None => firewall
            .get_host_override(None, deadline)
            .map_err(opnsense_failure)?
            .is_some_and(|form| form.knows("addptr")),
    };
    let service = if args.apply {
        let status = firewall.service_status(Service::Unbound, deadline).map_err(opnsense_failure)?;
        Some(status.as_str().to_owned())
    } else {
        None
    };
    Ok(Observed { rows, knows_addptr, service, pending })
}
