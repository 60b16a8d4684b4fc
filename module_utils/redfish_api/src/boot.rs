//! The one-time boot override.

use std::time::Duration;

use deadline::{Deadline, Expired};
use serde_json::{Map, Value, json};

use crate::bmc::{Bmc, Call};
use crate::error::Error;
use crate::power::PowerState;
use crate::resource::{Resource, text};
use crate::system::System;

const TARGET: &str = "BootSourceOverrideTarget";
const ENABLED: &str = "BootSourceOverrideEnabled";
const MODE: &str = "BootSourceOverrideMode";
/// How long an override may take to show up after it was accepted.
const SHOWS_WITHIN: Duration = Duration::from_secs(5);

/// Where to boot from, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootOnce {
    /// In the BMC's own spelling.
    pub target: String,
    /// Only when it is asked for: writing the mode makes some BMCs (iDRAC9) schedule a job with a restart of its own.
    pub mode: Option<String>,
}

/// Whether the request names the boot mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// When it was asked for and is another, or the vendor wants it always.
    AsUsual,
    With,
    Without,
}

/// One PATCH: into the system, or into its settings.
struct Part {
    into_settings: bool,
    body: Value,
}

impl System {
    /// The target in the BMC's spelling.
    ///
    /// # Errors
    /// [`Error::NotOffered`] when the BMC lists its targets and this is not among them, or has no override at all.
    pub fn boot_target(&self, asked: &str) -> Result<String, Error> {
        let refuse = |why: String| Err(Error::NotOffered(format!("system {}: {why}", self.id())));
        if !self.resource.body["Boot"].is_object() && !self.settings_boot().is_object() {
            return refuse("the BMC offers no boot override".to_owned());
        }
        let Some(offered) = self.boot().targets else { return Ok(asked.to_owned()) };
        match offered.iter().find(|one| one.eq_ignore_ascii_case(asked)) {
            Some(target) => Ok(target.clone()),
            None => {
                refuse(format!("the boot target {asked} is not offered; offered: {}", offered.join(", ")))
            }
        }
    }

    /// Whether the override is set as asked, in the system or where it is to be written.
    #[must_use]
    pub fn has_override(&self, request: &BootOnce) -> bool {
        let holds = |boot: &Value| {
            let is = |name: &str, value: &str| text(&boot[name]) == Some(value);
            is(ENABLED, "Once")
                && is(TARGET, &request.target)
                && request.mode.as_ref().is_none_or(|mode| is(MODE, mode))
        };
        holds(&self.resource.body["Boot"]) || holds(self.settings_boot())
    }

    /// The calls that set the override.
    #[must_use]
    pub fn boot_once_calls(&self, request: &BootOnce) -> Vec<Call> {
        let call = |part: Part| {
            let path = self.place(part.into_settings).uri.clone();
            Call { method: "PATCH", path, body: part.body }
        };
        self.parts(request, Naming::AsUsual).into_iter().map(call).collect()
    }

    /// Each property goes to where it is: into the settings when they have it, else into the system (sushy; iDRAC9's
    /// settings have the mode and not the target).
    fn parts(&self, request: &BootOnce, naming: Naming) -> Vec<Part> {
        let mut properties = vec![(TARGET, json!(request.target)), (ENABLED, json!("Once"))];
        properties.extend(self.mode(request, naming).map(|mode| (MODE, json!(mode))));
        let belongs = |name: &str| self.settings_boot().get(name).is_some();
        [true, false]
            .into_iter()
            .filter_map(|into_settings| {
                let own = properties.iter().filter(|(name, _)| belongs(name) == into_settings);
                let boot: Map<String, Value> =
                    own.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
                (!boot.is_empty()).then(|| Part { into_settings, body: json!({ "Boot": boot }) })
            })
            .collect()
    }

    fn mode(&self, request: &BootOnce, naming: Naming) -> Option<String> {
        let now = self.boot().mode;
        let is_there =
            [&self.resource.body["Boot"], self.settings_boot()].iter().any(|boot| boot.get(MODE).is_some());
        let asked = request.mode.clone();
        match naming {
            Naming::Without => None,
            Naming::With => Some(asked.or(now).unwrap_or_else(|| "UEFI".to_owned())),
            Naming::AsUsual if self.wants_mode() && is_there => {
                Some(asked.or(now).unwrap_or_else(|| "UEFI".to_owned()))
            }
            Naming::AsUsual => asked.filter(|asked| now.as_ref() != Some(asked)),
        }
    }

    fn enabled_where_written(&self) -> &str {
        let own = &self.resource.body["Boot"];
        text(self.settings_boot().get(ENABLED).unwrap_or(&own[ENABLED])).unwrap_or_default()
    }

    fn place(&self, into_settings: bool) -> &Resource {
        match &self.settings {
            Some(settings) if into_settings => settings,
            _ => &self.resource,
        }
    }
}

impl Bmc {
    /// Sets the override on a system that is off, and gives it a moment to show up. Whether it did is for the
    /// caller to read: an error answer may have been applied (Dell 13G), and then it is no error; an OK answer may
    /// have been ignored (GB200). Returns what the user should know.
    ///
    /// # Errors
    /// [`Error`]
    pub fn boot_once(
        &self,
        system: &System,
        request: &BootOnce,
        deadline: &Deadline,
    ) -> Result<Option<String>, Error> {
        let usual =
            if system.mode(request, Naming::AsUsual).is_some() { Naming::With } else { Naming::Without };
        let outcome = match self.write(system, request, Naming::AsUsual, deadline) {
            Err(Error::Refused(refusal)) if refusal.names(MODE) && may_change(usual, system, request) => {
                let other = if usual == Naming::With { Naming::Without } else { Naming::With };
                self.write(system, request, other, deadline)
            }
            outcome => outcome,
        };
        let shows = || self.shows(system, request, deadline);
        match outcome {
            Ok(()) => shows().map(|_| None),
            Err(Error::Refused(refusal)) if shows()? => {
                Ok(Some(format!("the BMC set the override although it answered with an error: {refusal}")))
            }
            Err(Error::Http(lost)) if lost.may_have_reached_server && shows()? => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(
        &self,
        system: &System,
        request: &BootOnce,
        naming: Naming,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let still_off = || Ok(self.state(system, deadline)? == PowerState::Off);
        for part in system.parts(request, naming) {
            self.patch(system.place(part.into_settings), &part.body, &still_off, deadline)?;
        }
        Ok(())
    }

    fn shows(&self, system: &System, request: &BootOnce, deadline: &Deadline) -> Result<bool, Error> {
        let shown = deadline.at_most(SHOWS_WITHIN).poll(|| {
            let now = self.again(system, deadline)?;
            Ok(now.has_override(request).then_some(()))
        });
        match shown {
            Ok(()) => Ok(true),
            Err(Error::Expired(Expired::TimedOut { .. })) if deadline.check().is_ok() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes an override back, best effort: one that stuck as `Continuous` would boot from there for ever.
    ///
    /// # Errors
    /// [`Error`]
    pub fn clear_override(&self, system: &System, deadline: &Deadline) -> Result<(), Error> {
        let body = json!({"Boot": {ENABLED: "Disabled"}});
        let into_settings = system.settings_boot().get(ENABLED).is_some();
        let fresh = self.again(system, deadline)?;
        self.patch(fresh.place(into_settings), &body, &|| Ok(true), deadline)
    }

    /// Waits until the firmware has used the override and the BMC shows it as `Disabled`.
    ///
    /// # Errors
    /// [`Error::NotConsumed`]
    pub fn wait_consumed(&self, system: &System, deadline: &Deadline) -> Result<(), Error> {
        let mut found = String::new();
        let outcome = deadline.poll(|| {
            match self.again(system, deadline) {
                Ok(now) => found = now.enabled_where_written().to_owned(),
                Err(Error::Http(_) | Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            Ok((found == "Disabled").then_some(()))
        });
        match outcome {
            Err(Error::Expired(why @ Expired::TimedOut { .. })) => Err(Error::NotConsumed { found, why }),
            outcome => outcome,
        }
    }
}

/// Whether the request may be tried with the mode turned round: a mode that was asked for and is another than the
/// present one cannot be left out.
fn may_change(usual: Naming, system: &System, request: &BootOnce) -> bool {
    usual == Naming::Without || request.mode.is_none() || request.mode == system.boot().mode
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::system;

    fn once(mode: Option<&str>) -> BootOnce {
        BootOnce { target: "Pxe".into(), mode: mode.map(str::to_owned) }
    }

    /// What would be sent, as `PLACE BODY`.
    fn sent(system: &System, mode: Option<&str>) -> Vec<String> {
        let calls = system.boot_once_calls(&once(mode));
        let place = |path: &str| if path.ends_with("Settings") { "settings" } else { "system" };
        calls.iter().map(|call| format!("{} {}", place(&call.path), call.body["Boot"])).collect()
    }

    const PLAIN: &str = r#"system {"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}"#;

    #[test]
    fn the_mode_is_sent_when_asked_and_different() {
        let boot = json!({"Boot": {MODE: "UEFI"}});
        let idrac = system("Dell Inc.", boot.clone(), None);
        assert_eq!(sent(&idrac, None), [PLAIN]);
        assert_eq!(sent(&idrac, Some("UEFI")), [PLAIN]);
        assert!(sent(&idrac, Some("Legacy"))[0].contains(r#""BootSourceOverrideMode":"Legacy""#));
        let supermicro = system("Supermicro", boot, None);
        assert!(sent(&supermicro, None)[0].contains(r#""BootSourceOverrideMode":"UEFI""#));
        let x10 = system("Supermicro", json!({"Boot": {}}), None);
        assert_eq!(sent(&x10, None), [PLAIN]);
        let dgx = system("AMI", json!({"Boot": {MODE: null}}), None);
        assert!(sent(&dgx, None)[0].contains(r#""BootSourceOverrideMode":"UEFI""#));
    }

    #[test]
    fn each_property_goes_to_where_it_is() {
        let own = json!({"Boot": {TARGET: "None", ENABLED: "Disabled", MODE: "UEFI"}});
        let idrac9 = system("Dell", own.clone(), Some(json!({"Boot": {MODE: null, "BootOrder": []}})));
        assert_eq!(sent(&idrac9, Some("Legacy")), [r#"settings {"BootSourceOverrideMode":"Legacy"}"#, PLAIN]);
        assert_eq!(sent(&idrac9, None), [PLAIN]);
        let gb200 = system("NVIDIA", own, Some(json!({"Boot": {TARGET: "None", ENABLED: "Disabled"}})));
        assert_eq!(sent(&gb200, None), [PLAIN.replace("system", "settings")]);
    }

    #[test]
    fn an_override_holds_only_whole() {
        let with = |enabled: &str, target: &str, mode: Option<&str>| {
            system("x", json!({"Boot": {ENABLED: enabled, TARGET: target, MODE: mode}}), None)
        };
        assert!(with("Once", "Pxe", None).has_override(&once(None)));
        assert!(with("Once", "Pxe", Some("UEFI")).has_override(&once(Some("UEFI"))));
        assert!(!with("Continuous", "Pxe", None).has_override(&once(None)));
        assert!(!with("Once", "Hdd", None).has_override(&once(None)));
        assert!(!with("Once", "Pxe", Some("Legacy")).has_override(&once(Some("UEFI"))));
    }

    #[test]
    fn a_target_is_taken_in_the_bmcs_spelling_or_refused_with_the_list() {
        let list =
            json!({"Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "UsbCd"]}});
        let with_list = system("x", list, None);
        assert_eq!(with_list.boot_target("pxe").unwrap(), "Pxe");
        let refused = with_list.boot_target("Cd").unwrap_err().to_string();
        assert_eq!(refused, "system 1: the boot target Cd is not offered; offered: None, Pxe, UsbCd");
        assert_eq!(system("x", json!({"Boot": {}}), None).boot_target("Cd").unwrap(), "Cd");
        assert!(system("x", json!({}), None).boot_target("Pxe").is_err());
    }
}
