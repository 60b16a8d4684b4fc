//! Services: what runs, and making it read its configuration (Base/ApiMutableServiceControllerBase.php).

use std::fmt;
use std::time::{Duration, Instant};

use deadline::{Deadline, Expired};
use serde_json::Value;

use crate::api::{Opnsense, again_if_lost, endpoint};
use crate::error::Error;

/// How long a service that was just started must not be seen stopped.
const STEADY: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A service of the firewall that this crate writes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Kea,
    Unbound,
}

impl Service {
    /// Its name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kea => "kea",
            Self::Unbound => "unbound",
        }
    }

    fn controller(self) -> &'static str {
        match self {
            Self::Kea => "kea/service",
            Self::Unbound => "unbound/service",
        }
    }
}

/// What `service/status` says: `running`, `stopped`, `disabled` or `unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status(String);

impl Status {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0 == "running"
    }

    /// Switched off in its settings: a reconfigure only stops it.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.0 == "disabled"
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Opnsense {
    /// # Errors
    /// As OPNsense answers.
    pub fn service_status(&self, service: Service, deadline: &Deadline) -> Result<Status, Error> {
        let answer = self.get(endpoint(service.controller(), "status"), &[], deadline)?;
        match answer["status"].as_str() {
            Some(word) => Ok(Status(word.to_owned())),
            None => Err(not_a_status(service, "status", &answer)),
        }
    }

    /// Waits for the service to be seen running without a break for half a second, at most until `within` is over. Its
    /// status only says that there is a process, which there also is while it reads a file that it is about to refuse.
    ///
    /// # Errors
    /// As OPNsense answers; an interrupt.
    pub fn wait_until_running(&self, service: Service, within: &Deadline) -> Result<bool, Error> {
        match self.wait_until_steady(service, within) {
            Ok(()) => Ok(true),
            Err(Error::Expired(Expired::TimedOut { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn wait_until_steady(&self, service: Service, within: &Deadline) -> Result<(), Error> {
        loop {
            within
                .poll(|| Ok::<_, Error>(self.service_status(service, within)?.is_running().then_some(())))?;
            let seen = Instant::now();
            while self.service_status(service, within)?.is_running() {
                if seen.elapsed() >= STEADY {
                    return Ok(());
                }
                within.pause(LOOK_AGAIN)?;
            }
            within.pause(LOOK_AGAIN)?;
        }
    }

    /// Stops the service, writes its files and starts it. The answer is `ok` also when the service then does not
    /// start: ask for [`service_status`](Self::service_status) afterwards. It is sent again when the answer is lost.
    ///
    /// # Errors
    /// As OPNsense answers.
    pub fn reconfigure(&self, service: Service, deadline: &Deadline) -> Result<(), Error> {
        let reconfigure = endpoint(service.controller(), "reconfigure");
        let answer = again_if_lost(|| self.act(reconfigure, deadline))?;
        if answer["status"] == "ok" { Ok(()) } else { Err(not_a_status(service, "reconfigure", &answer)) }
    }
}

fn not_a_status(service: Service, action: &'static str, answer: &Value) -> Error {
    let path = endpoint(service.controller(), action).path(false);
    Error::protocol(path, "a status", answer)
}
