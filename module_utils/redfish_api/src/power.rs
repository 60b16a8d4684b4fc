//! Power: on, and off without force. There is no other.

use std::fmt;
use std::time::Duration;

use deadline::{Deadline, Expired};
use serde_json::{Value, json};

use crate::bmc::{Bmc, Call};
use crate::error::Error;
use crate::system::System;

/// How long a BMC may refuse a power-on right after a power-off (iDRAC10: 409 ActionParameterValueConflict).
const RACE: Duration = Duration::from_secs(90);

/// A system's `PowerState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    On,
    Off,
    PoweringOn,
    PoweringOff,
    Paused,
    /// Missing, null or a word that Redfish does not have.
    Unknown,
}

impl PowerState {
    pub(crate) fn of(value: &Value) -> Self {
        match value.as_str() {
            Some("On") => Self::On,
            Some("Off") => Self::Off,
            Some("PoweringOn") => Self::PoweringOn,
            Some("PoweringOff") => Self::PoweringOff,
            Some("Paused") => Self::Paused,
            _ => Self::Unknown,
        }
    }

    /// On its way from one state to another.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::PoweringOn | Self::PoweringOff)
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "On",
            Self::Off => "Off",
            Self::PoweringOn => "PoweringOn",
            Self::PoweringOff => "PoweringOff",
            Self::Paused => "Paused",
            Self::Unknown => "unknown",
        })
    }
}

/// How a running system is asked to go down. The operating system decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    GracefulShutdown,
    /// A press is a toggle: it is only sent right after a read that says `On`.
    PushPowerButton,
}

impl Off {
    fn word(self) -> &'static str {
        match self {
            Self::GracefulShutdown => "GracefulShutdown",
            Self::PushPowerButton => "PushPowerButton",
        }
    }
}

impl System {
    /// The gentlest way down that is on offer.
    ///
    /// # Errors
    /// [`Error::NotOffered`] when there is none.
    pub fn way_down(&self) -> Result<Off, Error> {
        let Some(offered) = self.reset_types() else { return Ok(Off::GracefulShutdown) };
        [Off::GracefulShutdown, Off::PushPowerButton]
            .into_iter()
            .find(|way| offered.iter().any(|one| one == way.word()))
            .ok_or_else(|| {
                let offered = offered.join(", ");
                let why = "neither GracefulShutdown nor PushPowerButton is offered, and nothing is forced";
                Error::NotOffered(format!("system {}: {why}; offered: {offered}", self.id()))
            })
    }

    /// Whether the BMC offers to switch the system on.
    ///
    /// # Errors
    /// [`Error::NotOffered`]
    pub fn can_power_on(&self) -> Result<(), Error> {
        match self.reset_types() {
            Some(offered) if !offered.iter().any(|one| one == "On") => Err(Error::NotOffered(format!(
                "system {}: the BMC does not offer the reset type On; offered: {}",
                self.id(),
                offered.join(", ")
            ))),
            _ => self.reset_target().map(drop),
        }
    }

    /// The call that switches the system on.
    ///
    /// # Errors
    /// [`Error::NotOffered`]
    pub fn power_on_call(&self) -> Result<Call, Error> {
        Ok(reset(self.reset_target()?, "On"))
    }

    /// The call that asks the system to go down.
    ///
    /// # Errors
    /// [`Error::NotOffered`]
    pub fn power_off_call(&self, way: Off) -> Result<Call, Error> {
        Ok(reset(self.reset_target()?, way.word()))
    }
}

fn reset(path: String, kind: &str) -> Call {
    Call { method: "POST", path, body: json!({ "ResetType": kind }) }
}

impl Bmc {
    /// Switches on a system that is off, and waits until it is on. One that is on already is left alone.
    ///
    /// # Errors
    /// [`Error`]; [`Error::PowerStuck`] when it was accepted and did not happen in time.
    pub fn power_on(&self, system: &System, deadline: &Deadline) -> Result<(), Error> {
        let call = system.power_on_call()?;
        let still_off = || Ok(self.state(system, deadline)? == PowerState::Off);
        let mut refused = None;
        let outcome = deadline.at_most(RACE).poll(|| {
            if self.state(system, deadline)? != PowerState::Off {
                return Ok(Some(()));
            }
            match self.post(&call.path, &call.body, &still_off, deadline) {
                Ok(()) | Err(Error::Changed { .. }) => Ok(Some(())),
                Err(Error::Http(error)) if error.may_have_reached_server => Ok(Some(())),
                // "Already on" and "not yet off for good" look the same; the state tells them apart.
                Err(Error::Refused(refusal)) if matches!(refusal.status, 400 | 409) => {
                    let is_off = self.state(system, deadline)? == PowerState::Off;
                    if is_off && refusal.status == 400 {
                        return Err(Error::Refused(refusal));
                    }
                    refused = Some(refusal);
                    Ok((!is_off).then_some(()))
                }
                Err(error) => Err(error),
            }
        });
        match (outcome, refused) {
            (Err(Error::Expired(why @ Expired::TimedOut { .. })), Some(refusal)) => {
                Err(Error::StillBusy { refusal, why })
            }
            (Err(error), _) => Err(error),
            (Ok(()), _) => self.wait_for(system, PowerState::On, deadline),
        }
    }

    /// Asks a running system to go down, and waits until it is off. Nothing is forced.
    ///
    /// # Errors
    /// [`Error`]; [`Error::PowerStuck`] when it was accepted and did not happen in time.
    pub fn power_off(&self, system: &System, way: Off, deadline: &Deadline) -> Result<(), Error> {
        let call = system.power_off_call(way)?;
        let still_on = || Ok(self.state(system, deadline)? == PowerState::On);
        if still_on()? {
            match self.post(&call.path, &call.body, &still_on, deadline) {
                Ok(()) | Err(Error::Changed { .. }) => {}
                Err(Error::Http(error)) if error.may_have_reached_server => {}
                Err(Error::Refused(refusal)) if matches!(refusal.status, 400 | 409) => {
                    if still_on()? {
                        return Err(Error::Refused(refusal));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.wait_for(system, PowerState::Off, deadline)
    }

    /// Waits until the system is in this state; a BMC that does not answer for a while is waited for as well.
    ///
    /// # Errors
    /// [`Error::PowerStuck`] with the last state seen.
    pub fn wait_for(&self, system: &System, wanted: PowerState, deadline: &Deadline) -> Result<(), Error> {
        self.wait_until(system, wanted, |state| state == wanted, deadline).map(drop)
    }

    /// Waits until the system is neither powering on nor powering off.
    ///
    /// # Errors
    /// [`Error::PowerStuck`] with the last state seen.
    pub fn settled(&self, system: &System, deadline: &Deadline) -> Result<PowerState, Error> {
        let wanted = match system.power() {
            PowerState::PoweringOff => PowerState::Off,
            _ => PowerState::On,
        };
        self.wait_until(system, wanted, |state| !state.is_passing(), deadline)
    }

    fn wait_until(
        &self,
        system: &System,
        wanted: PowerState,
        is_good: impl Fn(PowerState) -> bool,
        deadline: &Deadline,
    ) -> Result<PowerState, Error> {
        let mut found = system.power();
        let outcome = deadline.poll(|| {
            match self.state(system, deadline) {
                Ok(state) => found = state,
                Err(Error::Http(_) | Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            Ok(is_good(found).then_some(found))
        });
        match outcome {
            Err(Error::Expired(why @ Expired::TimedOut { .. })) => {
                Err(Error::PowerStuck { wanted, found, why })
            }
            outcome => outcome,
        }
    }

    pub(crate) fn state(&self, system: &System, deadline: &Deadline) -> Result<PowerState, Error> {
        Ok(PowerState::of(&self.get(&system.resource.uri, deadline)?.body["PowerState"]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::system;

    fn offering(types: &Value) -> System {
        let reset = json!({"target": "/reset", "ResetType@Redfish.AllowableValues": types});
        system("x", json!({"Id": "1", "Actions": {"#ComputerSystem.Reset": reset}}), None)
    }

    #[test]
    fn the_way_down_is_never_forced() {
        for (types, expected) in [
            (json!(["On", "ForceOff", "GracefulShutdown", "PushPowerButton"]), Some(Off::GracefulShutdown)),
            (
                json!(["On", "ForceOff", "GracefulRestart", "PushPowerButton", "Nmi"]),
                Some(Off::PushPowerButton),
            ),
            (json!(["GracefulShutdownGracefulRestart"]), Some(Off::GracefulShutdown)),
            (json!(["On", "ForceOff", "ForceRestart"]), None),
            (json!([]), None),
            (json!(null), Some(Off::GracefulShutdown)),
        ] {
            assert_eq!(offering(&types).way_down().ok(), expected, "{types}");
        }
    }

    #[test]
    fn only_on_switches_on() {
        assert!(offering(&json!(["ForceOn", "PushPowerButton"])).can_power_on().is_err());
        assert!(offering(&json!(["On"])).can_power_on().is_ok());
        assert!(offering(&json!(null)).can_power_on().is_ok());
        assert!(system("x", json!({}), None).can_power_on().is_err());
    }
}
