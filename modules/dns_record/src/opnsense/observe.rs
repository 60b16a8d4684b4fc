//! Every read.

use std::net::IpAddr;

use ansible_module::Failure;
use api_options::opnsense_failure;
use deadline::Deadline;
use dns_client::{RecordData, RecordType};
use opnsense_api::{Error, HostAlias, HostOverrideRow, Opnsense, Service};

use super::alias;
use crate::args::{Args, State};

/// The firewall as it was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Every host override, in the order in which Unbound gets them.
    pub(crate) rows: Vec<HostOverrideRow>,
    /// The aliases of the record's name, when it is one or is to be added.
    pub(crate) aliases: Vec<HostAlias>,
    /// Whether a host override can go without a PTR record (26.1.3 and newer).
    pub(crate) knows_addptr: bool,
    /// Whether a host override can be a text (25.7.4 and newer); only looked at for one.
    pub(crate) knows_text: bool,
    /// What OPNsense says of Unbound; `None` when it was not asked.
    pub(crate) service: Option<String>,
    /// A change is stored and not in effect.
    pub(crate) pending: bool,
}

impl Observed {
    /// The rows of the record: one at most, unless somebody made duplicates. The first is the one to keep.
    pub(crate) fn own(&self, args: &Args) -> Vec<&HostOverrideRow> {
        let mut own: Vec<_> = self.rows.iter().filter(|row| is_own(row, args)).collect();
        own.sort_by_key(|row| (args.value.is_some() && value(row) != args.value, !row.enabled));
        own
    }

    /// What Unbound answers for the name.
    pub(crate) fn values(&self, args: &Args) -> Vec<RecordData> {
        if args.rr == RecordType::Cname {
            return alias::values(self);
        }
        self.own(args).into_iter().filter(|row| row.enabled).filter_map(value).collect()
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

/// What a row says, whatever its type claims: an address decides its family.
pub(super) fn value(row: &HostOverrideRow) -> Option<RecordData> {
    match row.rr.as_str() {
        "TXT" => RecordData::parse(RecordType::Txt, &row.text).ok(),
        _ => row.server.map(RecordData::of_address),
    }
}

pub(crate) fn observe(
    firewall: &Opnsense,
    args: &Args,
    pending: bool,
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    read(firewall, args, pending, deadline).map_err(opnsense_failure)
}

fn read(firewall: &Opnsense, args: &Args, pending: bool, deadline: &Deadline) -> Result<Observed, Error> {
    let rows = firewall.search_host_overrides(deadline)?;
    let mut observed = Observed { rows, pending, ..Observed::default() };
    let form = match observed.rows.first() {
        Some(_) if args.rr != RecordType::Txt => None,
        _ => firewall.get_host_override(None, deadline)?,
    };
    let known = observed.rows.first().map(|row| row.addptr.is_some());
    observed.knows_addptr = known.unwrap_or_else(|| form.as_ref().is_some_and(|form| form.knows("addptr")));
    observed.knows_text = form.is_some_and(|form| form.knows("txtdata"));
    let is_new = args.state == State::Present && observed.own(args).is_empty();
    if args.rr == RecordType::Cname || is_new {
        observed.aliases = firewall.host_aliases(&args.fqdn(), &observed.rows, deadline)?;
    }
    if args.apply {
        observed.service = Some(firewall.service_status(Service::Unbound, deadline)?.as_str().to_owned());
    }
    Ok(observed)
}
