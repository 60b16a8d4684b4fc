//! Every read.

use ansible_module::Failure;
use api_options::{Mark, opnsense_failure};
use deadline::Deadline;
use opnsense_api::{HostOverrideRow, Opnsense, ReservationRow, Service};

use crate::args::Args;

/// The firewall as it was seen.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub(crate) services: Vec<Seen>,
    pub(crate) reservations: Vec<ReservationRow>,
    pub(crate) records: Vec<HostOverrideRow>,
}

/// One service of the task.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) service: Service,
    /// `running`, `stopped`, `disabled`, `unknown`.
    pub(crate) status: String,
    pub(crate) pending: bool,
}

/// Lists are read only where the batch has entries to look for.
pub(crate) fn observe(
    firewall: &Opnsense,
    args: &Args,
    marks: &[(Service, Mark)],
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    let mut observed = Observed::default();
    if !args.reservations.is_empty() {
        observed.reservations = firewall.search_reservations(deadline).map_err(opnsense_failure)?;
    }
    if !args.records.is_empty() {
        observed.records = firewall.search_host_overrides(deadline).map_err(opnsense_failure)?;
    }
    for (service, mark) in marks {
        let status = firewall.service_status(*service, deadline).map_err(opnsense_failure)?;
        let status = status.as_str().to_owned();
        observed.services.push(Seen { service: *service, status, pending: mark.is_set() });
    }
    Ok(observed)
}
