//! Network cards and disks, for a person who fills in a declaration and for the guard.

use deadline::Deadline;
use serde::Serialize;
use serde_json::Value;

use crate::bmc::Bmc;
use crate::error::Error;
use crate::resource::{Resource, link, text};
use crate::system::System;

/// One network card of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Nic {
    pub id: String,
    /// As the BMC writes it; empty when it does not know.
    pub mac_address: String,
    pub link_status: Option<String>,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    pub id: String,
    pub model: Option<String>,
    pub serial_number: Option<String>,
    pub capacity_bytes: Option<u64>,
    pub media_type: Option<String>,
    pub protocol: Option<String>,
}

impl Bmc {
    /// The network cards that the BMC knows of; empty when it lists none.
    ///
    /// # Errors
    /// [`Error`]
    pub fn nics(&self, system: &System, deadline: &Deadline) -> Result<Vec<Nic>, Error> {
        let Some(uri) = system.resource.link("EthernetInterfaces") else { return Ok(Vec::new()) };
        Ok(self.collection(&uri, deadline)?.iter().map(nic).collect())
    }

    /// The disks below `Storage`, else those of `SimpleStorage` (without serials).
    ///
    /// # Errors
    /// [`Error`]
    pub fn disks(&self, system: &System, deadline: &Deadline) -> Result<Vec<Disk>, Error> {
        let mut disks: Vec<Disk> = Vec::new();
        for storage in self.linked(system, "Storage", deadline)? {
            for uri in drives(&storage) {
                disks.extend(self.get_if_there(&uri, deadline)?.as_ref().map(drive));
            }
        }
        if disks.is_empty() {
            for storage in self.linked(system, "SimpleStorage", deadline)? {
                disks.extend(storage.body["Devices"].as_array().into_iter().flatten().map(device));
            }
        }
        Ok(disks)
    }

    fn linked(&self, system: &System, property: &str, deadline: &Deadline) -> Result<Vec<Resource>, Error> {
        match system.resource.link(property) {
            Some(uri) => self.collection(&uri, deadline),
            None => Ok(Vec::new()),
        }
    }
}

fn nic(card: &Resource) -> Nic {
    let mac = card.text("PermanentMACAddress").or(card.text("MACAddress"));
    Nic {
        id: card.text("Id").unwrap_or_default().to_owned(),
        mac_address: mac.unwrap_or_default().to_owned(),
        link_status: card.text("LinkStatus").map(str::to_owned),
    }
}

fn drives(storage: &Resource) -> Vec<String> {
    [&storage.body["Drives"], &storage.body["Links"]["Drives"]]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(link)
        .collect()
}

fn drive(drive: &Resource) -> Disk {
    let value = |name: &str| drive.text(name).map(str::to_owned);
    Disk {
        id: value("Id").unwrap_or_default(),
        model: value("Model"),
        serial_number: value("SerialNumber"),
        capacity_bytes: drive.body["CapacityBytes"].as_u64(),
        media_type: value("MediaType"),
        protocol: value("Protocol"),
    }
}

fn device(device: &Value) -> Disk {
    let value = |name: &str| text(&device[name]).map(str::to_owned);
    Disk {
        id: value("Name").unwrap_or_default(),
        model: value("Model"),
        serial_number: value("SerialNumber"),
        capacity_bytes: device["CapacityBytes"].as_u64(),
        media_type: value("MediaType"),
        protocol: value("Protocol"),
    }
}
