//! What every step of a run may know: check mode, the deadline, the secrets, the warnings.

use std::cell::RefCell;

use deadline::Deadline;

use crate::arguments::Internal;
use crate::failure::Failure;
use crate::secrets;

/// The run's surroundings. One of them lives as long as the run.
#[derive(Debug)]
pub struct Run {
    /// Only reads may be sent.
    pub check_mode: bool,
    /// The user asked for a diff.
    pub diff: bool,
    /// The count of `-v`.
    pub verbosity: u64,
    /// The one deadline of the run (`timeout`); it also carries the interrupt.
    pub deadline: Deadline,
    warnings: RefCell<Vec<String>>,
}

impl Run {
    pub(crate) fn new(internal: &Internal, deadline: Deadline) -> Self {
        Self {
            check_mode: internal.check_mode,
            diff: internal.diff,
            verbosity: internal.verbosity,
            deadline,
            warnings: RefCell::default(),
        }
    }

    /// A run for a module's own tests: not in check mode, a minute to go.
    #[must_use]
    pub fn for_tests() -> Self {
        Self::new(&Internal::default(), Deadline::after(std::time::Duration::from_secs(60)))
    }

    /// Tells the user something that is no failure; said once each.
    pub fn warn(&self, warning: impl Into<String>) {
        let warning = warning.into();
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Keeps a secret that was not an argument (a ticket, a session token) out of everything returned.
    pub fn protect(&self, secret: &str) {
        secrets::protect(secret);
    }

    /// # Errors
    /// `timeout` or `interrupted`.
    pub fn check(&self) -> Result<(), Failure> {
        Ok(self.deadline.check()?)
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }
}
