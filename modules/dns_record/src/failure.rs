//! What an error of a DNS server is to Ansible.

use ansible_module::{ErrorCode, Failure};
use dns_client::{Error, Refusal};

pub(crate) fn dns_failure(error: Error) -> Failure {
    let msg = error.to_string();
    match error {
        Error::Expired(expired) => expired.into(),
        Error::Unreachable { .. } => Failure::new(ErrorCode::UNREACHABLE, msg),
        Error::Protocol { .. } => Failure::new(ErrorCode::API_ERROR, msg),
        Error::Overtaken { .. } => Failure::new(ErrorCode::CONFLICT, msg).nothing_sent(),
        Error::NotAuthoritative { .. } => Failure::refused(msg),
        Error::Name { .. } | Error::Key { .. } => Failure::new(ErrorCode::BAD_ARGUMENT, msg),
        Error::Refused { refusal, .. } => match refusal {
            // It may have been carried out: only the answer is not to be trusted.
            Refusal::Unsigned { .. } => Failure::new(ErrorCode::AUTH, msg),
            refusal if refusal.is_of_the_key() => Failure::new(ErrorCode::AUTH, msg).nothing_sent(),
            Refusal::Failed | Refusal::Code(_) => Failure::new(ErrorCode::API_ERROR, msg).nothing_sent(),
            _ => Failure::refused(msg).nothing_sent(),
        },
    }
}
