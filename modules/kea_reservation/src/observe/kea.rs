//! Reads on plain Kea.

use std::path::Path;

use ansible_module::Failure;
use api_options::kea_failure;
use deadline::Deadline;
use dhcp_reservations::kea::all;
use kea_api::{ConfigFile, Error, Server};

use super::{Lease, Observed};
use crate::args::Args;
use crate::plan;

const HOST_COMMANDS: [&str; 4] =
    ["reservation-add", "reservation-del", "reservation-get", "reservation-update"];

/// The file that the running server, which must be on this machine, was started with.
pub(crate) fn config_file(
    server: &Server,
    given: Option<&Path>,
    deadline: &Deadline,
) -> Result<ConfigFile, Failure> {
    let pid = server.pid(deadline).map_err(kea_failure)?;
    let found = ConfigFile::of_process(pid).map_err(kea_failure)?;
    match given {
        Some(path) if path != found.path() => Err(Failure::refused(format!(
            "the running Kea (process {pid}) was started with {}, not with {}: what is written there would not outlive a \
             restart",
            found.path().display(),
            path.display()
        ))
        .with("option", "kea_config_file")),
        _ => Ok(found),
    }
}

pub(crate) fn observe(
    server: &Server,
    args: &Args,
    pending: bool,
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    let config = server.config_get(deadline).map_err(kea_failure)?;
    let mut observed = Observed { pending, can_clear_lease: true, ..Observed::of(all(&config)) };
    observed.classes = config.client_classes();
    observed.config = Some(config);
    if plan::writes(args, &observed) {
        let commands = server.list_commands(deadline).map_err(kea_failure)?;
        observed.host_commands = HOST_COMMANDS.iter().all(|name| commands.iter().any(|known| known == name));
    }
    if plan::differs(args, &observed) || args.clear_lease {
        observed.lease = lease(server, args, deadline)?;
    }
    Ok(observed)
}

/// Without the hook lease_cmds nobody can tell.
fn lease(server: &Server, args: &Args, deadline: &Deadline) -> Result<Lease, Failure> {
    let Some(ip) = args.ip else { return Ok(Lease::NotChecked) };
    match server.lease4_get(ip, deadline) {
        Ok(None) => Ok(Lease::Free),
        Ok(Some(lease)) => Ok(Lease::of(lease.mac, lease.client_id.as_ref(), &args.host)),
        Err(Error::Unsupported { .. }) => Ok(Lease::NotChecked),
        Err(error) => Err(kea_failure(error)),
    }
}
