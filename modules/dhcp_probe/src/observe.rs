//! The question on the wire.

use std::time::{SystemTime, UNIX_EPOCH};

use ansible_module::{ErrorCode, Failure, Run};
use dhcp_client::{Offer, ProbeError, Segment};

use crate::args::Args;

pub(crate) fn offers(args: &Args, run: &Run) -> Result<Vec<Offer>, Failure> {
    Segment::open(&args.interface)
        .and_then(|mut segment| segment.ask(&args.discover, transaction_id(), args.collect, &run.deadline))
        .map_err(|error| failure(args, error))
}

/// Two probes of one MAC at once must tell their answers apart; nothing here is secret.
fn transaction_id() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.subsec_nanos() ^ std::process::id().rotate_left(16)
}

fn failure(args: &Args, error: ProbeError) -> Failure {
    let (mac, interface) = (args.discover.mac, &args.interface);
    match error {
        ProbeError::Expired(expired) => {
            let failure = Failure::from(expired);
            if failure.code != ErrorCode::TIMEOUT {
                return failure;
            }
            let msg = format!(
                "no DHCP server offered {mac} anything on `{interface}`: {}. Either no server or relay is on this \
                 segment (check the VLAN and the bridge), or the server has no address for it",
                failure.msg
            );
            Failure { msg, ..failure }.with("interface", interface.as_str()).with("mac", mac.to_string())
        }
        ProbeError::NoInterface { .. } => {
            Failure::not_found(error.to_string()).with("interface", interface.as_str())
        }
        ProbeError::Unusable { .. } => {
            Failure::refused(error.to_string()).with("interface", interface.as_str())
        }
        ProbeError::Socket { .. } => {
            Failure::new(ErrorCode::COMMAND_FAILED, error.to_string()).with("interface", interface.as_str())
        }
    }
}
