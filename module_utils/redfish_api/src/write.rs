//! PATCH and POST with what BMCs make of them.

use std::time::Duration;

use deadline::{Deadline, Expired};
use http_client::{Method, Response};
use serde_json::Value;

use crate::bmc::{Bmc, Call, refused};
use crate::error::{Error, Refusal};
use crate::resource::Resource;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Pauses while a system runs its power-on self-test.
struct Patience {
    pause: Duration,
}

impl Patience {
    fn new() -> Self {
        Self { pause: FIRST_PAUSE }
    }

    fn wait(&mut self, refusal: Refusal, deadline: &Deadline) -> Result<(), Error> {
        deadline.pause(self.pause).map_err(|why| match why {
            Expired::Interrupted => Error::Expired(why),
            Expired::TimedOut { .. } => Error::StillBusy { refusal, why },
        })?;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// The next thing to put into `If-Match` after a 412: a weak tag made strong, then none at all (sushy's connector).
fn weaker(tag: Option<&str>) -> Option<Option<String>> {
    let tag = tag?;
    Some(tag.strip_prefix("W/").map(str::to_owned))
}

impl Bmc {
    /// Changes a resource. Before every further try it is read again, and written to only while it `may_be_written`.
    pub(crate) fn patch(
        &self,
        resource: &Resource,
        body: &Value,
        may_be_written: &dyn Fn() -> Result<bool, Error>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let uri = &resource.uri;
        let reread = || {
            if !may_be_written()? {
                return Err(Error::Changed { uri: uri.clone() });
            }
            Ok(self.get(uri, deadline)?.etag)
        };
        self.note(Call { method: "PATCH", path: uri.clone(), body: body.clone() });
        let mut tag = resource.etag.clone();
        let mut is_fresh = false;
        let mut patience = Patience::new();
        loop {
            let answer = self.send(Method::Patch, uri, Some(body), tag.as_deref(), deadline)?;
            match answer.status {
                202 => return self.follow(&answer, deadline),
                200..=299 => return Ok(()),
                412 if !is_fresh => {
                    tag = reread()?;
                    is_fresh = true;
                }
                412 => match weaker(tag.as_deref()) {
                    Some(next) => tag = next,
                    None => return Err(refused(Method::Patch, uri, &answer)),
                },
                428 if tag.is_none() => tag = Some(reread()?.unwrap_or_else(|| "*".to_owned())),
                _ => {
                    patience.wait(busy(Method::Patch, uri, &answer)?, deadline)?;
                    tag = reread()?;
                }
            }
        }
    }

    /// Calls an action. While the system runs its power-on self-test it is tried again, as long as it `may_be_called`.
    pub(crate) fn post(
        &self,
        uri: &str,
        body: &Value,
        may_be_called: &dyn Fn() -> Result<bool, Error>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        self.note(Call { method: "POST", path: uri.to_owned(), body: body.clone() });
        let mut patience = Patience::new();
        loop {
            let answer = self.send(Method::Post, uri, Some(body), None, deadline)?;
            match answer.status {
                202 => return self.follow(&answer, deadline),
                200..=299 => return Ok(()),
                _ => patience.wait(busy(Method::Post, uri, &answer)?, deadline)?,
            }
            if !may_be_called()? {
                return Err(Error::Changed { uri: uri.to_owned() });
            }
        }
    }
}

/// The refusal of a system in its self-test; any other is the error.
fn busy(method: Method, uri: &str, answer: &Response) -> Result<Refusal, Error> {
    match refused(method, uri, answer) {
        Error::Refused(refusal) if refusal.is_post_in_progress() => Ok(refusal),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_tag_is_weakened_step_by_step() {
        assert_eq!(weaker(Some("W/\"5\"")), Some(Some("\"5\"".to_owned())));
        assert_eq!(weaker(Some("\"5\"")), Some(None));
        assert_eq!(weaker(None), None);
    }
}
