//! Putting what OPNsense stores in effect, with the mark that tells a later run when that did not happen.

use std::time::Duration;

use ansible_module::{ErrorCode, Failure};
use deadline::Deadline;
use opnsense_api::{Opnsense, Service};
use pending_apply::Pending;

use crate::opnsense::{OpnsenseOptions, opnsense_failure};

/// How long a service may take to be seen running after a reconfigure.
const START: Duration = Duration::from_secs(15);

/// The mark of stored and not applied changes of one server, as a module uses it.
#[derive(Clone, Debug)]
pub struct Mark(Pending);

impl Mark {
    /// The mark of a service of a firewall; every module that writes for it uses this one.
    #[must_use]
    pub fn of_opnsense(options: &OpnsenseOptions, service: Service) -> Self {
        Self::of(&format!("{} {}", options.lock(), service.name()))
    }

    /// The mark of any server.
    #[must_use]
    pub fn of(server: &str) -> Self {
        Self(Pending::of(server))
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.is_set()
    }

    /// To be called before the first write: should this run die, the next one knows that it has to apply.
    ///
    /// # Errors
    /// `internal` when it cannot be written.
    pub fn set(&self) -> Result<(), Failure> {
        self.0.set().map_err(|error| failure("set", &error))
    }

    /// # Errors
    /// `internal` when it cannot be removed.
    pub fn clear(&self) -> Result<(), Failure> {
        self.0.clear().map_err(|error| failure("cleared", &error))
    }
}

fn failure(what: &str, error: &std::io::Error) -> Failure {
    let msg = format!("the mark of a change that is not applied yet cannot be {what}: {error}");
    Failure::new(ErrorCode::INTERNAL, msg)
}

/// Makes a service read what is stored, and waits for it to run. That it does not is no error here: a read-back says
/// so. The mark goes only when it is seen running, as a service that died of a change has not taken it.
///
/// # Errors
/// As OPNsense answers.
pub fn opnsense_apply(
    firewall: &Opnsense,
    service: Service,
    mark: &Mark,
    deadline: &Deadline,
) -> Result<(), Failure> {
    mark.set()?;
    firewall.reconfigure(service, deadline).map_err(opnsense_failure)?;
    if firewall.wait_until_running(service, &deadline.at_most(START)).map_err(opnsense_failure)? {
        mark.clear()?;
    }
    Ok(())
}
