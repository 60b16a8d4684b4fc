//! Reads on plain Kea.

use ansible_module::Failure;
use api_options::kea_failure;
use deadline::Deadline;
use kea_api::{Error, Server};

use super::{Lease, Observed, Reservation, Subnet};
use crate::args::Args;
use crate::plan;
use crate::values::{Field, Values};

/// Keys of a reservation's user context. Kea itself writes a `comment` there.
pub(crate) const COMMENT: &str = "comment";
pub(crate) const OWNER: &str = "homelab.anvil.owner";

/// Option 66 by its name in Kea.
pub(crate) const TFTP_SERVER_NAME: &str = "tftp-server-name";

pub(crate) fn observe(
    server: &Server,
    args: &Args,
    pending: bool,
    deadline: &Deadline,
) -> Result<Observed, Failure> {
    let config = server.config_get(deadline).map_err(kea_failure)?;
    let mut observed = Observed { pending, can_clear_lease: true, ..Observed::default() };
    for subnet in config.subnets() {
        let key = subnet.id.to_string();
        observed.reservations.extend(subnet.reservations.iter().map(|one| reservation(one, key.clone())));
        observed.subnets.push(Subnet {
            key,
            cidr: subnet.cidr,
            routers: subnet.routers,
            next_server: subnet.next_server,
            forbidden: if subnet.reservations_out_of_pool { subnet.pools } else { Vec::new() },
        });
    }
    let everywhere = config.global_reservations();
    observed.reservations.extend(everywhere.iter().map(|one| reservation(one, String::new())));
    observed.config = Some(config);
    if plan::differs(args, &observed) || args.clear_lease {
        observed.lease = lease(server, args, deadline)?;
    }
    Ok(observed)
}

/// Without the hook lease_cmds nobody can tell.
pub(crate) fn lease(server: &Server, args: &Args, deadline: &Deadline) -> Result<Lease, Failure> {
    let Some(ip) = args.ip else { return Ok(Lease::NotChecked) };
    match server.lease4_get(ip, deadline) {
        Ok(lease) => Ok(Lease::of(lease.map(|lease| lease.mac), args.mac)),
        Err(Error::Unsupported { .. }) => Ok(Lease::NotChecked),
        Err(error) => Err(kea_failure(error)),
    }
}

fn reservation(one: &kea_api::Reservation, subnet: String) -> Reservation {
    let address = |ip: Option<std::net::Ipv4Addr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
    let context = |key: &str| {
        let text = one.user_context().and_then(|context| context.get(key)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    let values: Values = [
        (Field::HwAddress, one.mac().map(|mac| mac.to_string()).unwrap_or_default()),
        (Field::IpAddress, address(one.ip())),
        (Field::Hostname, one.hostname().to_owned()),
        (Field::NextServer, address(one.next_server())),
        (Field::BootFileName, one.boot_file_name().to_owned()),
        (Field::TftpServerName, one.option(TFTP_SERVER_NAME).unwrap_or_default().to_owned()),
        (Field::Description, context(COMMENT)),
        (Field::Owner, context(OWNER)),
    ]
    .into_iter()
    .collect();
    Reservation { uuid: String::new(), subnet, mac: one.mac(), identifier: one.identifier(), values }
}
