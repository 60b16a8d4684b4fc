//! What a BMC shows: resources by path.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The resources of a BMC. Paths have no slash at the end.
#[derive(Clone, Debug, Default)]
pub struct Tree(pub(super) BTreeMap<String, Value>);

pub(super) const IDRAC_SYSTEM: &str = "/redfish/v1/Systems/System.Embedded.1";
pub(super) const SYSTEM: &str = "/redfish/v1/Systems/1";

impl Tree {
    /// Adds a resource or replaces one; `@odata.id` is filled in.
    #[must_use]
    pub fn with(mut self, path: &str, body: Value) -> Self {
        let mut body = body;
        body["@odata.id"] = json!(path);
        self.0.insert(path.to_owned(), body);
        self
    }

    /// Changes one value by its JSON pointer; null removes it.
    ///
    /// # Panics
    /// There is no such resource or no such parent in it.
    #[must_use]
    pub fn set(mut self, path: &str, pointer: &str, value: Value) -> Self {
        let body = self.0.get_mut(path).unwrap_or_else(|| panic!("no resource {path}"));
        let (parent, name) = pointer.rsplit_once('/').expect("a JSON pointer");
        let parent = body.pointer_mut(parent).and_then(Value::as_object_mut).expect("a parent");
        if value.is_null() {
            parent.remove(name);
        } else {
            parent.insert(name.to_owned(), value);
        }
        self
    }

    fn collection(self, path: &str, members: &[&str]) -> Self {
        let links: Vec<Value> =
            members.iter().map(|name| json!({"@odata.id": format!("{path}/{name}")})).collect();
        self.with(path, json!({"Members": links, "Members@odata.count": members.len()}))
    }

    /// A recorded tree: `DIRECTORY/redfish/v1/.../index.json`.
    ///
    /// # Errors
    /// A file cannot be read or is no JSON.
    pub fn recorded(directory: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.record(directory, "/redfish/v1")?;
        Ok(tree)
    }

    fn record(&mut self, directory: &Path, path: &str) -> Result<()> {
        let here = directory.join(path.trim_start_matches('/'));
        let index = here.join("index.json");
        if index.is_file() {
            let text = std::fs::read(&index)?;
            let body = serde_json::from_slice(&text).with_context(|| index.display().to_string())?;
            self.0.insert(path.to_owned(), body);
        }
        for entry in std::fs::read_dir(&here)?.filter_map(Result::ok) {
            if entry.path().is_dir() {
                self.record(directory, &format!("{path}/{}", entry.file_name().to_string_lossy()))?;
            }
        }
        Ok(())
    }

    /// A Dell of the 13th generation: iDRAC8 2.43, Redfish 1.0.2. No GracefulShutdown, a virtual CD without actions,
    /// the service tag in SKU.
    #[must_use]
    pub fn idrac8() -> Self {
        let manager = "/redfish/v1/Managers/iDRAC.Embedded.1";
        let nics = format!("{IDRAC_SYSTEM}/EthernetInterfaces");
        let storage = format!("{IDRAC_SYSTEM}/Storage/Controllers");
        let mut tree = Self::default()
            .with("/redfish/v1", json!({
                "@odata.type": "#ServiceRoot.v1_0_2.ServiceRoot", "RedfishVersion": "1.0.2",
                "Name": "Root Service",
                "Systems": {"@odata.id": "/redfish/v1/Systems"},
                "Managers": {"@odata.id": "/redfish/v1/Managers"},
                "Links": {"Sessions": {"@odata.id": "/redfish/v1/Sessions"}},
            }))
            .collection("/redfish/v1/Systems", &["System.Embedded.1"])
            .with(IDRAC_SYSTEM, json!({
                "@odata.type": "#ComputerSystem.v1_1_0.ComputerSystem",
                "Id": "System.Embedded.1", "Manufacturer": "Dell Inc.", "Model": "PowerEdge R630",
                "SerialNumber": "CN7475158B0123", "SKU": "TAG1234", "PowerState": "Off",
                "BiosVersion": "2.4.3",
                "Boot": {
                    "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI",
                    "BootSourceOverrideTarget": "None",
                    "BootSourceOverrideTarget@Redfish.AllowableValues":
                        ["None", "Pxe", "Floppy", "Cd", "Hdd", "BiosSetup", "Utilities", "UefiTarget", "SDCard"],
                    "UefiTargetBootSourceOverride": "",
                },
                "Actions": {"#ComputerSystem.Reset": {
                    "target": format!("{IDRAC_SYSTEM}/Actions/ComputerSystem.Reset"),
                    "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulRestart", "PushPowerButton", "Nmi"],
                }},
                "EthernetInterfaces": {"@odata.id": nics},
                "SimpleStorage": {"@odata.id": storage},
                "Links": {"ManagedBy": [{"@odata.id": manager}], "ManagedBy@odata.count": 1},
            }))
            .collection(&nics, &["NIC.Integrated.1-1-1", "NIC.Integrated.1-2-1"])
            .collection(&storage, &["RAID.Integrated.1-1"])
            .with(&format!("{storage}/RAID.Integrated.1-1"), json!({
                "Id": "RAID.Integrated.1-1", "Name": "PERC H730 Mini",
                "Devices": [
                    {"Name": "Physical Disk 0:1:0", "Model": "ST1000NX0423", "Manufacturer": "SEAGATE"},
                    {"Name": "Physical Disk 0:1:1", "Model": "ST1000NX0423", "Manufacturer": "SEAGATE"},
                ],
            }))
            .collection("/redfish/v1/Managers", &["iDRAC.Embedded.1"])
            .with(manager, json!({
                "Id": "iDRAC.Embedded.1", "ManagerType": "BMC", "FirmwareVersion": "2.43.43.43",
                "VirtualMedia": {"@odata.id": format!("{manager}/VirtualMedia")},
            }))
            .collection(&format!("{manager}/VirtualMedia"), &["CD", "RemovableDisk"]);
        for (name, mac) in
            [("NIC.Integrated.1-1-1", "24:6E:96:00:00:10"), ("NIC.Integrated.1-2-1", "24:6E:96:00:00:11")]
        {
            tree = tree.with(&format!("{nics}/{name}"), json!({"Id": name, "MACAddress": mac}));
        }
        for (name, types) in [("CD", json!(["CD", "DVD"])), ("RemovableDisk", json!(["USBStick"]))] {
            tree = tree.with(
                &format!("{manager}/VirtualMedia/{name}"),
                json!({"Id": name, "MediaTypes": types, "Inserted": false, "Image": null, "ConnectedVia": "NotConnected"}),
            );
        }
        tree
    }

    /// A server of no particular make with everything that Redfish knows: both reset lists, a virtual CD that takes
    /// images, disks with serials.
    #[must_use]
    pub fn plain() -> Self {
        let manager = "/redfish/v1/Managers/1";
        let cd = format!("{manager}/VirtualMedia/2");
        Self::default()
            .with("/redfish/v1", json!({
                "@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot", "RedfishVersion": "1.11.0", "Vendor": "Contoso",
                "Systems": {"@odata.id": "/redfish/v1/Systems"},
                "Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}},
            }))
            .collection("/redfish/v1/Systems", &["1"])
            .with(SYSTEM, json!({
                "@odata.type": "#ComputerSystem.v1_16_0.ComputerSystem",
                "Id": "1", "Manufacturer": "Contoso", "Model": "3500", "SerialNumber": "SN123456  ", "SKU": "P38411-B21",
                "PowerState": "Off",
                "Boot": {
                    "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI",
                    "BootSourceOverrideTarget": "None",
                    "BootSourceOverrideTarget@Redfish.AllowableValues":
                        ["None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "UefiHttp"],
                },
                "Actions": {"#ComputerSystem.Reset": {
                    "target": format!("{SYSTEM}/Actions/ComputerSystem.Reset"),
                    "@Redfish.ActionInfo": format!("{SYSTEM}/ResetActionInfo"),
                }},
                "EthernetInterfaces": {"@odata.id": format!("{SYSTEM}/EthernetInterfaces")},
                "Storage": {"@odata.id": format!("{SYSTEM}/Storage")},
                "Links": {"ManagedBy": [{"@odata.id": manager}]},
            }))
            .with(&format!("{SYSTEM}/ResetActionInfo"), json!({"Id": "ResetActionInfo", "Parameters": [{
                "Name": "ResetType", "Required": true,
                "AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi", "PushPowerButton"],
            }]}))
            .collection(&format!("{SYSTEM}/EthernetInterfaces"), &["1"])
            .with(&format!("{SYSTEM}/EthernetInterfaces/1"), json!({
                "Id": "1", "MACAddress": "a0:36:9f:00:00:01", "LinkStatus": "LinkUp",
            }))
            .collection(&format!("{SYSTEM}/Storage"), &["1"])
            .with(&format!("{SYSTEM}/Storage/1"), json!({
                "Id": "1", "Drives": [{"@odata.id": format!("{SYSTEM}/Storage/1/Drives/0")}],
            }))
            .with(&format!("{SYSTEM}/Storage/1/Drives/0"), json!({
                "Id": "0", "Model": "MZ7LH960", "SerialNumber": "S45NNA0M1", "CapacityBytes": 960_197_124_096_u64,
                "MediaType": "SSD", "Protocol": "SATA",
            }))
            .with(manager, json!({
                "Id": "1", "ManagerType": "BMC", "VirtualMedia": {"@odata.id": format!("{manager}/VirtualMedia")},
            }))
            .collection(&format!("{manager}/VirtualMedia"), &["1", "2"])
            .with(&format!("{manager}/VirtualMedia/1"), json!({
                "Id": "1", "MediaTypes": ["Floppy", "USBStick"], "Inserted": false, "Image": "",
                "Actions": {
                    "#VirtualMedia.InsertMedia": {"target": format!("{manager}/VirtualMedia/1/Actions/VirtualMedia.InsertMedia")},
                    "#VirtualMedia.EjectMedia": {"target": format!("{manager}/VirtualMedia/1/Actions/VirtualMedia.EjectMedia")},
                },
            }))
            .with(&cd, json!({
                "Id": "2", "MediaTypes": ["CD", "DVD"], "Inserted": false, "Image": "", "WriteProtected": true,
                "Actions": {
                    "#VirtualMedia.InsertMedia": {"target": format!("{cd}/Actions/VirtualMedia.InsertMedia")},
                    "#VirtualMedia.EjectMedia": {"target": format!("{cd}/Actions/VirtualMedia.EjectMedia")},
                },
            }))
    }

    /// Two systems: the host, without a serial, and a board of accelerators that has one.
    #[must_use]
    pub fn two_systems() -> Self {
        let board = "/redfish/v1/Systems/HGX_Baseboard_0";
        Self::plain()
            .collection("/redfish/v1/Systems", &["1", "HGX_Baseboard_0"])
            .set(SYSTEM, "/SerialNumber", Value::Null)
            .with(
                board,
                json!({
                    "@odata.type": "#ComputerSystem.v1_16_0.ComputerSystem", "Id": "HGX_Baseboard_0",
                    "SerialNumber": "1643024000315", "PowerState": "On",
                }),
            )
    }
}
