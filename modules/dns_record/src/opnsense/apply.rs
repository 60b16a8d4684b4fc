//! Every write.

use ansible_module::Failure;
use api_options::{Mark, opnsense_apply, opnsense_failure};
use deadline::Deadline;
use opnsense_api::{Error, Opnsense, Service};

use super::observe::Observed;
use super::plan::Action;
use crate::args::Args;

pub(crate) fn apply(
    firewall: &Opnsense,
    mark: &Mark,
    args: &Args,
    action: &Action,
    deadline: &Deadline,
) -> Result<(), Failure> {
    if *action == Action::Apply {
        return opnsense_apply(firewall, Service::Unbound, mark, deadline);
    }
    mark.set()?;
    match action {
        Action::Remove { uuid } => match firewall.del_host_override(uuid, deadline) {
            Err(Error::NotFound { .. }) => Ok(()),
            outcome => outcome,
        },
        Action::Put { uuid: Some(uuid), fields } => firewall.set_host_override(uuid, fields, deadline),
        Action::Put { uuid: None, fields } => add(firewall, args, fields, deadline),
        Action::RemoveAlias { uuid } => match firewall.del_host_alias(uuid, deadline) {
            Err(Error::NotFound { .. }) => Ok(()),
            outcome => outcome,
        },
        Action::PutAlias { uuid: Some(uuid), fields } => firewall.set_host_alias(uuid, fields, deadline),
        Action::PutAlias { uuid: None, fields } => add_alias(firewall, args, fields, deadline),
        Action::Apply => Ok(()),
    }
    .map_err(opnsense_failure)
}

/// An addition whose answer was lost is looked for before it is sent again.
fn add(
    firewall: &Opnsense,
    args: &Args,
    fields: &[(&'static str, String)],
    deadline: &Deadline,
) -> Result<(), Error> {
    let error = match firewall.add_host_override(fields, deadline) {
        Err(error) if error.may_have_happened() => error,
        outcome => return outcome.map(drop),
    };
    let rows = firewall.search_host_overrides(deadline).map_err(|_| error)?;
    let observed = Observed { rows, ..Observed::default() };
    if observed.own(args).is_empty() {
        firewall.add_host_override(fields, deadline)?;
    }
    Ok(())
}

fn add_alias(
    firewall: &Opnsense,
    args: &Args,
    fields: &[(&'static str, String)],
    deadline: &Deadline,
) -> Result<(), Error> {
    let error = match firewall.add_host_alias(fields, deadline) {
        Err(error) if error.may_have_happened() => error,
        outcome => return outcome.map(drop),
    };
    let rows = firewall.search_host_overrides(deadline).map_err(|_| error)?;
    let host = fields.iter().find(|(field, _)| *field == "host").map(|(_, uuid)| uuid.as_str());
    let aliases = firewall.host_aliases(&args.fqdn(), &rows, deadline)?;
    if !aliases.iter().any(|alias| Some(alias.host.as_str()) == host) {
        firewall.add_host_alias(fields, deadline)?;
    }
    Ok(())
}
