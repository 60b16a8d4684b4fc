use deadline::Deadline;
use serde_json::Value;

use crate::allowable;
use crate::bmc::Bmc;
use crate::error::Error;
use crate::power::PowerState;
use crate::resource::{Resource, link, text};

/// One computer that a BMC manages.
#[derive(Clone, Debug)]
pub struct System {
    pub resource: Resource,
    /// Who made the BMC, as far as the service root and the system tell.
    vendor: String,
    /// What `@Redfish.Settings` points to.
    pub(crate) settings: Option<Resource>,
    reset_info: Option<Value>,
}

/// The boot override as the system shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    pub target: Option<String>,
    pub enabled: Option<String>,
    pub mode: Option<String>,
    /// Allowable targets; `None` where the BMC lists none, which allows nothing and forbids nothing.
    pub targets: Option<Vec<String>>,
}

impl System {
    #[must_use]
    pub fn id(&self) -> &str {
        self.resource.text("Id").unwrap_or_else(|| last_segment(&self.resource.uri))
    }

    #[must_use]
    pub fn power(&self) -> PowerState {
        PowerState::of(&self.resource.body["PowerState"])
    }

    /// What identifies the server, as reported. Dell's SerialNumber is that of the board and its SKU is the service
    /// tag, so both count there; elsewhere SKU is a part number.
    #[must_use]
    pub fn serials(&self) -> Vec<String> {
        let sku = self.is_dell().then_some("SKU");
        let reported = ["SerialNumber"].into_iter().chain(sku);
        reported.filter_map(|name| self.resource.body[name].as_str()).map(str::to_owned).collect()
    }

    #[must_use]
    pub fn is_dell(&self) -> bool {
        self.vendor.contains("dell")
    }

    /// Whether a boot override must name its mode every time: Supermicro falls back to legacy boot without it, AMI
    /// wants the whole object (ironic, `VENDORS_REQUIRING_FULL_BOOT_REQUEST`; DMTF Redfishtool).
    pub(crate) fn wants_mode(&self) -> bool {
        let vendor = self.vendor.as_str();
        let words: Vec<&str> = vendor.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        vendor.contains("american megatrends")
            || words.iter().any(|word| matches!(*word, "ami" | "asrock" | "asrockrack" | "supermicro"))
    }

    /// The override, the allowable targets from the settings where the system has none (iDRAC10), and iLO4's own
    /// name for them.
    #[must_use]
    pub fn boot(&self) -> Boot {
        let own = &self.resource.body["Boot"];
        let value = |name: &str| text(&own[name]).map(str::to_owned);
        let listed = |boot: &Value| {
            allowable::values(&boot["BootSourceOverrideTarget@Redfish.AllowableValues"])
                .or_else(|| allowable::values(&boot["BootSourceOverrideSupported"]))
        };
        Boot {
            target: value("BootSourceOverrideTarget"),
            enabled: value("BootSourceOverrideEnabled"),
            mode: value("BootSourceOverrideMode"),
            targets: listed(own).or_else(|| listed(self.settings_boot())),
        }
    }

    pub(crate) fn settings_boot(&self) -> &Value {
        self.settings.as_ref().map_or(&Value::Null, |settings| &settings.body["Boot"])
    }

    fn reset(&self) -> &Value {
        &self.resource.body["Actions"]["#ComputerSystem.Reset"]
    }

    pub(crate) fn reset_target(&self) -> Result<String, Error> {
        self.reset()["target"].as_str().and_then(crate::resource::path).ok_or_else(|| {
            Error::NotOffered(format!("system {}: the BMC offers no ComputerSystem.Reset", self.id()))
        })
    }

    /// The reset types on offer; `None` where the BMC lists none.
    #[must_use]
    pub fn reset_types(&self) -> Option<Vec<String>> {
        allowable::of_parameter(self.reset(), self.reset_info.as_ref(), "ResetType")
    }

    /// `1 (SerialNumber S1, SKU 0x15D9)`, for a person who has to pick one.
    #[must_use]
    pub fn shown(&self) -> String {
        let facts: Vec<String> = ["SerialNumber", "SKU", "Model"]
            .iter()
            .filter_map(|name| Some(format!("{name} {}", self.resource.text(name)?)))
            .collect();
        let facts = if facts.is_empty() { "no SerialNumber".to_owned() } else { facts.join(", ") };
        format!("{} ({facts})", self.id())
    }
}

impl Bmc {
    /// Every system, with its settings and the description of its reset action.
    ///
    /// # Errors
    /// [`Error`]
    pub fn systems(&self, deadline: &Deadline) -> Result<Vec<System>, Error> {
        let root = self.root(deadline)?.clone();
        let uri = root
            .link("Systems")
            .ok_or(Error::Shape { uri: root.uri.clone(), expected: "a link to Systems" })?;
        let members = self.collection(&uri, deadline)?;
        members.into_iter().map(|resource| self.described(resource, deadline)).collect()
    }

    /// The same system as it is now.
    ///
    /// # Errors
    /// [`Error`]
    pub fn again(&self, system: &System, deadline: &Deadline) -> Result<System, Error> {
        let resource = self.get(&system.resource.uri, deadline)?;
        let settings = match &system.settings {
            Some(settings) => self.get_if_there(&settings.uri, deadline)?,
            None => None,
        };
        Ok(System { resource, settings, ..system.clone() })
    }

    fn described(&self, resource: Resource, deadline: &Deadline) -> Result<System, Error> {
        let kind = resource.text("@odata.type").unwrap_or("#ComputerSystem");
        if !kind.starts_with("#ComputerSystem") {
            return Err(Error::Shape { uri: resource.uri.clone(), expected: "a ComputerSystem" });
        }
        let root = self.root(deadline)?;
        let oem = root.body["Oem"].as_object().into_iter().flat_map(|oem| oem.keys().cloned());
        let vendor: Vec<String> = [root.text("Vendor"), resource.text("Manufacturer")]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .chain(oem)
            .collect();
        let settings = match link(&resource.body["@Redfish.Settings"]["SettingsObject"]) {
            Some(uri) => self.get_if_there(&uri, deadline)?,
            None => None,
        };
        let info = action_info(&resource.body["Actions"]["#ComputerSystem.Reset"]);
        let reset_info = match info {
            Some(uri) => self.get_if_there(&uri, deadline)?.map(|info| info.body),
            None => None,
        };
        Ok(System { vendor: vendor.join(" ").to_ascii_lowercase(), settings, reset_info, resource })
    }
}

/// Where an action is described: a path, by some BMCs wrapped as a link.
pub(crate) fn action_info(action: &Value) -> Option<String> {
    let info = &action["@Redfish.ActionInfo"];
    info.as_str().and_then(crate::resource::path).or_else(|| link(info))
}

/// The one system that is meant: the one that `is_meant`, the one with this `id`, or the only one.
///
/// # Errors
/// [`Error::Choice`] names what is there.
pub fn choose(
    systems: Vec<System>,
    id: Option<&str>,
    is_meant: Option<&dyn Fn(&System) -> bool>,
) -> Result<System, Error> {
    let there = systems.iter().map(System::shown).collect::<Vec<_>>().join(", ");
    let named = |system: &System| {
        id.is_none_or(|id| {
            system.id() == id || system.resource.is_at(id) || last_segment(&system.resource.uri) == id
        })
    };
    let count = systems.len();
    let mut found: Vec<System> = systems.into_iter().filter(named).collect();
    if let (Some(is_meant), 2..) = (is_meant, found.len()) {
        found.retain(is_meant);
    }
    match (found.len(), count) {
        (1, _) => Ok(found.remove(0)),
        (_, 0) => Err(Error::Choice("the BMC lists no system".to_owned())),
        (0, _) => Err(Error::Choice(format!("no system is the one asked for; there are: {there}"))),
        _ => Err(Error::Choice(format!(
            "the BMC manages several systems, and which one is meant is not clear: give its serial or its id; there \
             are: {there}"
        ))),
    }
}

fn last_segment(uri: &str) -> &str {
    uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn system(vendor: &str, body: Value, settings: Option<Value>) -> System {
        let resource =
            |uri: &str, body| Resource { uri: uri.to_owned(), body, etag: None, allow: Vec::new() };
        System {
            resource: resource("/redfish/v1/Systems/1", body),
            vendor: vendor.to_ascii_lowercase(),
            settings: settings.map(|body| resource("/redfish/v1/Systems/1/Settings", body)),
            reset_info: None,
        }
    }

    #[test]
    fn sku_counts_on_dell_only() {
        let body = json!({"SerialNumber": "CN7475", "SKU": "F54P1G3"});
        assert_eq!(system("Dell Inc.", body.clone(), None).serials(), ["CN7475", "F54P1G3"]);
        assert_eq!(system("HPE", body, None).serials(), ["CN7475"]);
        assert_eq!(system("HPE", json!({"SerialNumber": null}), None).serials(), Vec::<String>::new());
    }

    #[test]
    fn allowable_targets_come_from_wherever_they_are() {
        let list = json!({"BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe"]});
        let targets = |own: Value, settings: Option<Value>| {
            let settings = settings.map(|boot| json!({"Boot": boot}));
            system("x", json!({"Boot": own}), settings).boot().targets
        };
        assert_eq!(targets(list.clone(), None).unwrap(), ["Pxe"]);
        assert_eq!(targets(json!({}), Some(list)).unwrap(), ["Pxe"]);
        assert_eq!(
            targets(json!({"BootSourceOverrideSupported": ["Pxe", "Cd"]}), None).unwrap(),
            ["Pxe", "Cd"]
        );
        assert_eq!(targets(json!({}), None), None);
    }

    #[test]
    fn the_mode_is_always_named_to_some() {
        for (vendor, wants) in [
            ("Supermicro", true),
            ("AMI", true),
            ("American Megatrends International LLC.", true),
            ("ASRockRack", true),
            ("Dell Inc.", false),
            ("Miami Computers", false),
            ("", false),
        ] {
            assert_eq!(system(vendor, json!({}), None).wants_mode(), wants, "{vendor}");
        }
    }

    #[test]
    fn one_of_several_must_be_named() {
        let two = || {
            let mut other = system("x", json!({"Id": "B", "SerialNumber": "S2"}), None);
            other.resource.uri = "/redfish/v1/Systems/B".to_owned();
            vec![system("x", json!({"Id": "A"}), None), other]
        };
        let is_s2 = |system: &System| system.serials() == ["S2"];
        let nobody = |_: &System| false;
        assert_eq!(choose(two(), Some("A"), None).unwrap().id(), "A");
        assert_eq!(choose(two(), Some("/redfish/v1/Systems/B/"), None).unwrap().id(), "B");
        assert_eq!(choose(two(), None, Some(&is_s2)).unwrap().id(), "B");
        let unclear = choose(two(), None, None).unwrap_err().to_string();
        assert!(unclear.ends_with("A (no SerialNumber), B (SerialNumber S2)"), "{unclear}");
        for (id, meant) in [(Some("C"), None), (None, Some(&nobody as &dyn Fn(&System) -> bool))] {
            assert!(choose(two(), id, meant).unwrap_err().to_string().starts_with("no system is the one"));
        }
        assert!(choose(Vec::new(), None, None).is_err());
    }
}
