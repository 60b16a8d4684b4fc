//! The virtual CD.

use std::time::Duration;

use deadline::{Deadline, Expired};
use http_client::{Method, percent_encode};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::allowable;
use crate::bmc::{Bmc, Call};
use crate::error::{Error, Refusal};
use crate::resource::{Resource, link, path};
use crate::system::{System, action_info};

const INSERT: &str = "#VirtualMedia.InsertMedia";
const EJECT: &str = "#VirtualMedia.EjectMedia";
/// How long an image may take to be there after it was accepted (Lenovo answers before it is mounted).
const SHOWS_WITHIN: Duration = Duration::from_secs(60);

/// A slot for virtual media.
#[derive(Clone, Debug)]
pub struct Slot {
    pub resource: Resource,
    insert_info: Option<Value>,
}

/// What is in a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MediaState {
    pub id: String,
    pub media_types: Vec<String>,
    pub inserted: bool,
    /// As the BMC shows it: some leave out the scheme.
    pub image: Option<String>,
    pub can_insert: bool,
    pub can_eject: bool,
}

/// How a slot takes an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertOffer {
    Action(String),
    /// Lenovo XCC: no actions, the slot itself is written to.
    Patch,
}

/// Why no slot serves, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoMedia(pub String);

impl Slot {
    #[must_use]
    pub fn state(&self) -> MediaState {
        let body = &self.resource.body;
        let image = self.resource.text("Image").map(str::to_owned);
        MediaState {
            id: self.resource.text("Id").unwrap_or_default().to_owned(),
            media_types: allowable::values(&body["MediaTypes"]).unwrap_or_default(),
            // Without the property (OpenBMC's older builds), an image is the sign.
            inserted: body["Inserted"].as_bool().unwrap_or(image.is_some()),
            image,
            can_insert: self.insert_offer().is_some(),
            can_eject: self.eject_target().is_some() || self.takes_patch(),
        }
    }

    #[must_use]
    pub fn is_cd(&self) -> bool {
        // Cisco UCS X has slots that name DVD only.
        self.state().media_types.iter().any(|one| one == "CD" || one == "DVD")
    }

    /// Whether this image is inserted. A BMC may show it without `http://`.
    #[must_use]
    pub fn holds(&self, image: &str) -> bool {
        let bare = |url: &str| url.split_once("://").map_or(url, |(_, rest)| rest).to_owned();
        let state = self.state();
        state.inserted && state.image.is_some_and(|found| found == image || bare(&found) == bare(image))
    }

    fn takes_patch(&self) -> bool {
        self.resource.allow.iter().any(|method| method == "PATCH")
    }

    fn target(&self, action: &str) -> Option<String> {
        self.resource.body["Actions"][action]["target"].as_str().and_then(path)
    }

    fn eject_target(&self) -> Option<String> {
        self.target(EJECT).or_else(|| {
            // Supermicro X13 shows EjectMedia only while something is inserted: next to InsertMedia it will be there.
            let insert = self.target(INSERT)?;
            Some(format!("{}EjectMedia", insert.strip_suffix("InsertMedia")?))
        })
    }

    #[must_use]
    pub fn insert_offer(&self) -> Option<InsertOffer> {
        match self.target(INSERT) {
            Some(target) => Some(InsertOffer::Action(target)),
            None => self.takes_patch().then_some(InsertOffer::Patch),
        }
    }

    fn parameter(&self, name: &str) -> Option<Vec<String>> {
        let action = &self.resource.body["Actions"][INSERT];
        allowable::of_parameter(action, self.insert_info.as_ref(), name)
    }

    fn requires(&self, name: &str) -> bool {
        let parameters = self.insert_info.as_ref().and_then(|info| info["Parameters"].as_array());
        parameters.into_iter().flatten().any(|one| one["Name"] == name && one["Required"] == true)
    }

    /// Whether the image can come by the protocol that its URL names.
    ///
    /// # Errors
    /// [`NoMedia`]
    pub fn takes(&self, image: &str) -> Result<(), NoMedia> {
        let id = self.state().id;
        if self.insert_offer().is_none() {
            return Err(NoMedia(format!("slot {id} offers neither InsertMedia nor PATCH")));
        }
        let protocol = protocol(image);
        match self.parameter("TransferProtocolType") {
            Some(offered) if !offered.contains(&protocol) => Err(NoMedia(format!(
                "slot {id} does not offer the transfer protocol {protocol}; offered: {}",
                offered.join(", ")
            ))),
            _ => Ok(()),
        }
    }

    /// The call that inserts the image.
    #[must_use]
    pub fn insert_call(&self, image: &str) -> Option<Call> {
        Some(match self.insert_offer()? {
            InsertOffer::Action(path) => {
                let mut body = Map::from_iter([("Image".to_owned(), json!(image))]);
                let required = extras(image).into_iter().filter(|(name, _)| self.requires(name));
                body.extend(required.map(|(name, value)| (name.to_owned(), value)));
                Call { method: "POST", path, body: body.into() }
            }
            InsertOffer::Patch => Call {
                method: "PATCH",
                path: self.resource.uri.clone(),
                body: json!({"Image": image, "Inserted": true}),
            },
        })
    }

    /// The call that ejects what is inserted.
    #[must_use]
    pub fn eject_call(&self) -> Option<Call> {
        if let Some(path) = self.eject_target() {
            return Some(Call { method: "POST", path, body: json!({}) });
        }
        let body = json!({"Image": null, "Inserted": false});
        self.takes_patch().then(|| Call { method: "PATCH", path: self.resource.uri.clone(), body })
    }
}

/// What some BMCs want besides the image (Nokia, DGX), in the order it is added.
fn extras(image: &str) -> [(&'static str, Value); 4] {
    [
        ("Inserted", json!(true)),
        ("WriteProtected", json!(true)),
        ("TransferProtocolType", json!(protocol(image))),
        ("TransferMethod", json!("Stream")),
    ]
}

fn protocol(image: &str) -> String {
    image.split("://").next().unwrap_or_default().to_ascii_uppercase()
}

/// The body with what a refusal asks for; `None` when it asks for nothing new.
fn with_what_is_missing(body: &Value, image: &str, refusal: &Refusal) -> Option<Value> {
    let mut fuller = body.as_object()?.clone();
    for (name, value) in extras(image) {
        if refusal.names(name) && !fuller.contains_key(name) {
            fuller.insert(name.to_owned(), value);
        }
    }
    (Value::Object(fuller.clone()) != *body).then_some(fuller.into())
}

impl Bmc {
    /// The slots of a system: its own, and those of the managers that manage it.
    ///
    /// # Errors
    /// [`Error`]
    pub fn slots(&self, system: &System, deadline: &Deadline) -> Result<Vec<Slot>, Error> {
        let mut places: Vec<String> = system.resource.link("VirtualMedia").into_iter().collect();
        let managers = system.resource.body["Links"]["ManagedBy"].as_array().into_iter().flatten();
        for manager in managers.filter_map(link).collect::<Vec<_>>() {
            let manager = self.get_if_there(&manager, deadline)?;
            places.extend(manager.and_then(|manager| manager.link("VirtualMedia")));
        }
        let mut slots: Vec<Slot> = Vec::new();
        for (index, place) in places.iter().enumerate() {
            if places[..index].contains(place) {
                continue;
            }
            for resource in self.collection(place, deadline)? {
                slots.push(self.slot(resource, deadline)?);
            }
        }
        Ok(slots)
    }

    fn slot(&self, resource: Resource, deadline: &Deadline) -> Result<Slot, Error> {
        let insert_info = match action_info(&resource.body["Actions"][INSERT]) {
            Some(uri) => self.get_if_there(&uri, deadline)?.map(|info| info.body),
            None => None,
        };
        Ok(Slot { resource, insert_info })
    }

    /// The same slot as it is now.
    ///
    /// # Errors
    /// [`Error`]
    pub fn slot_again(&self, slot: &Slot, deadline: &Deadline) -> Result<Slot, Error> {
        Ok(Slot { resource: self.get(&slot.resource.uri, deadline)?, insert_info: slot.insert_info.clone() })
    }

    /// Inserts an image into an empty slot, and gives the BMC time to have it there.
    ///
    /// # Errors
    /// [`Error`]
    pub fn insert(&self, slot: &Slot, image: &str, deadline: &Deadline) -> Result<(), Error> {
        let nothing = || Error::NotOffered(format!("slot {}: nothing can be inserted", slot.state().id));
        let mut call = slot.insert_call(image).ok_or_else(nothing)?;
        loop {
            match self.media_write(slot, &call, deadline) {
                Err(Error::Refused(refusal)) => match with_what_is_missing(&call.body, image, &refusal) {
                    Some(body) => call.body = body,
                    None if self.slot_again(slot, deadline)?.holds(image) => break,
                    None => return Err(Error::Refused(refusal)),
                },
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        self.media_shows(slot, |slot| slot.holds(image), deadline)
    }

    /// Ejects what is inserted. Nothing inserted is no error.
    ///
    /// # Errors
    /// [`Error`]
    pub fn eject(&self, slot: &Slot, deadline: &Deadline) -> Result<(), Error> {
        let nothing = || Error::NotOffered(format!("slot {}: nothing can be ejected", slot.state().id));
        let call = slot.eject_call().ok_or_else(nothing)?;
        match self.media_write(slot, &call, deadline) {
            Err(Error::Refused(refusal)) if self.slot_again(slot, deadline)?.state().inserted => {
                return Err(Error::Refused(refusal));
            }
            Ok(()) | Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        self.media_shows(slot, |slot| !slot.state().inserted, deadline)
    }

    fn media_write(&self, slot: &Slot, call: &Call, deadline: &Deadline) -> Result<(), Error> {
        let always = || Ok(true);
        if call.method == Method::Patch.as_str() {
            return self.patch(&slot.resource, &call.body, &always, deadline);
        }
        self.post(&call.path, &call.body, &always, deadline)
    }

    fn media_shows(
        &self,
        slot: &Slot,
        is_good: impl Fn(&Slot) -> bool,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let shown = deadline.at_most(SHOWS_WITHIN).poll(|| {
            let now = self.slot_again(slot, deadline)?;
            Ok::<_, Error>(is_good(&now).then_some(()))
        });
        match shown {
            // What it shows instead is for the caller to read.
            Err(Error::Expired(Expired::TimedOut { .. })) if deadline.check().is_ok() => Ok(()),
            outcome => outcome,
        }
    }
}

/// The first slot that takes the image as a CD, the system's own slots before those of its managers; by `id` when one
/// is asked for.
///
/// # Errors
/// [`NoMedia`] with what is wrong with each slot.
pub fn choose_slot(slots: Vec<Slot>, id: Option<&str>, image: &str) -> Result<Slot, NoMedia> {
    let ids = slots.iter().map(|slot| slot.state().id).collect::<Vec<_>>().join(", ");
    let named: Vec<Slot> =
        slots.into_iter().filter(|slot| id.is_none_or(|id| slot.state().id == id)).collect();
    let mut reasons = Vec::new();
    // One that has the image already comes before an empty one, and that before one with something else in it.
    let mut good: Vec<Slot> = Vec::new();
    for slot in named {
        let fits = if id.is_none() && !slot.is_cd() {
            Err(NoMedia(format!("slot {} is not for CDs", slot.state().id)))
        } else {
            slot.takes(image)
        };
        match fits {
            Ok(()) => good.push(slot),
            Err(NoMedia(why)) => reasons.push(why),
        }
    }
    good.sort_by_key(|slot| if slot.holds(image) { 0 } else { 1 + u8::from(slot.state().inserted) });
    match (good.is_empty(), id) {
        (false, _) => Ok(good.swap_remove(0)),
        (true, Some(id)) if reasons.is_empty() => {
            Err(NoMedia(format!("there is no slot {id}; there are: {ids}")))
        }
        (true, _) if reasons.is_empty() => Err(NoMedia("the BMC has no slot for virtual media".to_owned())),
        _ => Err(NoMedia(reasons.join("; "))),
    }
}

/// Whether the text is an image's URL that a BMC can be given.
///
/// # Errors
/// What is wrong with it.
pub fn check_image(image: &str) -> Result<(), String> {
    let expected = "expected http://HOST/PATH.iso or https://HOST/PATH.iso";
    let Some((scheme, rest)) = image.split_once("://") else {
        return Err(format!("{expected}, found `{image}`"));
    };
    if !matches!(scheme, "http" | "https") || rest.starts_with('/') || !rest.contains('/') {
        return Err(format!("{expected}, found `{image}`"));
    }
    if rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
        return Err(
            "a user and password in the URL would be shown by the BMC to everybody; serve it without"
                .to_owned(),
        );
    }
    // Supermicro X12 refuses a query.
    if let Some(bad) = image.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#')) {
        let encoded = percent_encode(&bad.to_string());
        return Err(format!("{bad:?} cannot be part of it; {encoded} could"));
    }
    Ok(())
}
