//! The state behind the double, and its answers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tree::Tree;
use super::{Logged, PASSWORD, Quirk, USER};

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    pub(super) token: Option<String>,
    pub(super) if_match: Option<String>,
    pub(super) body: Value,
}

#[derive(Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Value,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body }
    }

    fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    fn error(status: u16, id: &str, text: &str, arguments: &[&str]) -> Self {
        let info = json!([{"MessageId": id, "Message": text, "MessageArgs": arguments, "Severity": "Critical",
            "Resolution": "See the manual."}]);
        let error = json!({"code": "Base.1.8.GeneralError", "message": "A general error has occurred.",
            "@Message.ExtendedInfo": info});
        Self { status, headers: Vec::new(), body: json!({ "error": error }) }
    }
}

/// A power state on its way: how many more reads show `now`.
struct Passing {
    now: &'static str,
    then: &'static str,
    reads: usize,
}

pub(super) struct Machine {
    pub(super) tree: BTreeMap<String, Value>,
    quirks: Vec<Quirk>,
    pub(super) log: Vec<Logged>,
    /// Bumped by every write: the ETag of everything.
    generation: u64,
    /// How often a quirk that counts has struck.
    strikes: BTreeMap<&'static str, usize>,
    passing: Option<Passing>,
    /// What it booted from, one entry a power-on.
    pub(super) boots: Vec<String>,
    pub(super) sessions: BTreeMap<String, String>,
    opened: usize,
    read_only: bool,
}

impl Machine {
    pub(super) fn new(tree: Tree, quirks: Vec<Quirk>, read_only: bool) -> Self {
        Self {
            tree: tree.0,
            quirks,
            log: Vec::new(),
            generation: 1,
            strikes: BTreeMap::new(),
            passing: None,
            boots: Vec::new(),
            sessions: BTreeMap::new(),
            opened: 0,
            read_only,
        }
    }

    pub(super) fn answer(&mut self, request: &Request) -> Reply {
        let reply = self.route(request);
        let by = match (&request.authorization, &request.token) {
            (_, Some(_)) => "session",
            (Some(_), None) => "basic",
            (None, None) => "nobody",
        };
        let mut body = request.body.clone();
        if body.get("Password").is_some() {
            body["Password"] = json!("(hidden)");
        }
        self.log.push(Logged {
            method: request.method.clone(),
            path: request.path.clone(),
            if_match: request.if_match.clone(),
            by,
            body,
            status: reply.status,
        });
        reply
    }

    fn route(&mut self, request: &Request) -> Reply {
        let path = request.path.trim_end_matches('/').to_owned();
        let public = path == "/redfish/v1" || self.is_login(request, &path);
        if !public && !self.is_signed_in(request) {
            return Reply::error(401, "Base.1.8.NoValidSession", "There is no valid session.", &[]);
        }
        if self.has(&Quirk::NoSlash) && path == "/redfish/v1" && request.path.ends_with('/') {
            return Reply::empty(404);
        }
        match request.method.as_str() {
            "GET" => self.get(&path),
            _ if self.read_only => Reply::empty(405),
            "PATCH" => self.patch(&path, request),
            "POST" => self.post(&path, request),
            "DELETE" => self.sign_out(&path),
            _ => Reply::empty(405),
        }
    }

    fn has(&self, quirk: &Quirk) -> bool {
        self.quirks.contains(quirk)
    }

    /// Whether a quirk that lasts `times` strikes once more.
    fn strikes(&mut self, name: &'static str, find: impl Fn(&Quirk) -> Option<usize>) -> bool {
        let Some(times) = self.quirks.iter().find_map(find) else { return false };
        let so_far = self.strikes.entry(name).or_default();
        *so_far += 1;
        *so_far <= times
    }

    fn is_login(&self, request: &Request, path: &str) -> bool {
        let sessions = &self.tree["/redfish/v1"]["Links"]["Sessions"]["@odata.id"];
        request.method == "POST" && sessions.as_str() == Some(path)
    }

    fn is_signed_in(&self, request: &Request) -> bool {
        use base64::Engine as _;
        if let Some(token) = &request.token {
            return self.sessions.values().any(|known| known == token);
        }
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
        request.authorization.as_deref() == Some(&format!("Basic {pair}"))
    }

    // ---- reading

    fn get(&mut self, path: &str) -> Reply {
        if self.strikes("busy", |quirk| match quirk {
            Quirk::BusyReads(times) if path != "/redfish/v1" => Some(*times),
            _ => None,
        }) {
            return Reply::error(503, "Base.1.8.ServiceTemporarilyUnavailable", "The service is busy.", &[]);
        }
        if path.starts_with("/redfish/v1/TaskMonitors/") {
            return self.monitor();
        }
        if self.is_system(path) {
            self.pass();
        }
        let Some(body) = self.tree.get(path) else {
            return Reply::error(404, "Base.1.8.ResourceMissingAtURI", "The resource is missing.", &[path]);
        };
        let mut reply = Reply::ok(body.clone());
        if !self.has(&Quirk::NoEtag) && !self.read_only {
            reply.headers.push(("ETag", self.etag()));
        }
        let patchable = self.has(&Quirk::MediaByPatch) && path.contains("/VirtualMedia/");
        reply
            .headers
            .push(("Allow", if patchable { "GET, HEAD, PATCH".into() } else { "GET, HEAD".to_owned() }));
        reply
    }

    fn etag(&self) -> String {
        let weak = if self.has(&Quirk::WeakTagRefused) { "W/" } else { "" };
        format!("{weak}\"{}\"", self.generation)
    }

    fn monitor(&mut self) -> Reply {
        if self.has(&Quirk::TaskFails) {
            let messages =
                json!([{"MessageId": "T.1.0.Failed", "Message": "The job was refused by the firmware."}]);
            return Reply::ok(
                json!({"TaskState": "Exception", "TaskStatus": "Critical", "Messages": messages}),
            );
        }
        if self.strikes("task", |quirk| matches!(quirk, Quirk::Tasks).then_some(2)) {
            return Reply { status: 202, headers: Vec::new(), body: json!({"TaskState": "Running"}) };
        }
        Reply::empty(204)
    }

    fn is_system(&self, path: &str) -> bool {
        self.tree.get(path).is_some_and(|body| body.get("PowerState").is_some())
    }

    // ---- power

    fn system(&mut self) -> &mut Value {
        self.tree
            .values_mut()
            .find(|body| body.get("PowerState").is_some() && body.get("Boot").is_some())
            .expect("a system that can be booted")
    }

    pub(super) fn power(&mut self) -> String {
        self.system()["PowerState"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn set_power(&mut self, state: &str) {
        self.passing = None;
        self.system()["PowerState"] = json!(state);
    }

    /// One read of the system goes by.
    fn pass(&mut self) {
        let Some(passing) = &mut self.passing else { return };
        if passing.reads > 0 {
            passing.reads -= 1;
            let now = passing.now;
            self.system()["PowerState"] = json!(now);
            return;
        }
        let then = passing.then;
        self.passing = None;
        self.system()["PowerState"] = json!(then);
        if then == "On" {
            self.boot();
        }
    }

    fn start(&mut self, now: &'static str, then: &'static str) {
        let late = self.quirks.iter().find_map(|quirk| match quirk {
            Quirk::LatePower(reads) => Some(*reads),
            Quirk::StuckPower => Some(usize::MAX),
            _ => None,
        });
        self.passing = Some(Passing { now, then, reads: late.unwrap_or(1) });
    }

    /// The firmware looks where to boot from, and uses up an override for once.
    fn boot(&mut self) {
        let keeps = self.has(&Quirk::OverrideNotConsumed);
        let settings = self.settings_path();
        let system = self.system();
        let mut from = use_up(&mut system["Boot"], keeps);
        if let (None, Some(path)) = (&from, settings) {
            from = self.tree.get_mut(&path).and_then(|settings| use_up(&mut settings["Boot"], keeps));
        }
        self.boots.push(from.unwrap_or_else(|| "default".to_owned()));
    }

    fn settings_path(&mut self) -> Option<String> {
        self.system()["@Redfish.Settings"]["SettingsObject"]["@odata.id"].as_str().map(str::to_owned)
    }

    fn reset(&mut self, kind: &str) -> Reply {
        let offered = self.tree.values().any(|body| {
            let list = &body["Parameters"][0]["AllowableValues"];
            let inline = &body["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"];
            [list, inline].iter().any(|list| list.as_array().is_some_and(|list| list.contains(&json!(kind))))
        });
        if !offered {
            let text = format!("The value '{kind}' for the parameter ResetType is not allowed.");
            return Reply::error(400, "Base.1.8.ActionParameterNotSupported", &text, &["ResetType", "Reset"]);
        }
        if self.has(&Quirk::AlreadyOn) && kind == "On" {
            self.set_power("On");
        }
        if self.strikes("race", |quirk| match quirk {
            Quirk::PowerOnRace(times) if kind == "On" => Some(*times),
            _ => None,
        }) {
            let text = "The parameter On conflicts with the present state.";
            return Reply::error(409, "Base.1.8.ActionParameterValueConflict", text, &["ResetType"]);
        }
        match (kind, self.power().as_str()) {
            ("On" | "PushPowerButton", "Off") => self.start("PoweringOn", "On"),
            ("On", _) => {
                return Reply::error(409, "IDRAC.1.6.PSU501", "The server is already powered on.", &[]);
            }
            ("GracefulShutdown" | "PushPowerButton", "On") if self.has(&Quirk::StaysOn) => {}
            ("GracefulShutdown" | "PushPowerButton", "On") => self.start("On", "Off"),
            _ => return Reply::error(409, "IDRAC.1.6.PSU501", "The server is not in the right state.", &[]),
        }
        self.accepted()
    }

    fn accepted(&mut self) -> Reply {
        self.generation += 1;
        if self.has(&Quirk::Tasks) || self.has(&Quirk::TaskFails) {
            self.strikes.remove("task");
            let place = "https://bmc.example/redfish/v1/TaskMonitors/7".to_owned();
            return Reply {
                status: 202,
                headers: vec![("Location", place)],
                body: json!({"TaskState": "New"}),
            };
        }
        Reply::empty(204)
    }

    // ---- writing

    fn in_self_test(&mut self) -> Option<Reply> {
        let strikes = self.strikes("post", |quirk| match quirk {
            Quirk::PostInProgress(times) => Some(*times),
            _ => None,
        });
        strikes.then(|| {
            let mut reply = Reply::error(400, "iLO.2.14.UnableToModifyDuringSystemPOST", "", &[]);
            if let Some(info) = reply.body["error"]["@Message.ExtendedInfo"][0].as_object_mut() {
                info.remove("Message");
            }
            reply
        })
    }

    fn patch(&mut self, path: &str, request: &Request) -> Reply {
        if !self.tree.contains_key(path) {
            return Reply::empty(404);
        }
        if let Some(refusal) = self.precondition(request.if_match.as_deref()).or_else(|| self.in_self_test())
        {
            return refusal;
        }
        if path.contains("/VirtualMedia/") {
            return self.patch_media(path, &request.body);
        }
        let Some(asked) = request.body["Boot"].as_object().cloned() else {
            return Reply::error(400, "Base.1.8.PropertyUnknown", "Only Boot can be written.", &[]);
        };
        if let Some(refusal) = self.refuse_boot(path, &asked) {
            return refusal;
        }
        if self.has(&Quirk::OverrideIgnored) {
            return Reply::ok(json!({}));
        }
        let sticks = self.has(&Quirk::OverrideSticks);
        let boot = &mut self.tree.get_mut(path).expect("looked at above")["Boot"];
        for (name, value) in asked {
            let sticky = sticks && name == "BootSourceOverrideEnabled" && value == "Once";
            boot[&name] = if sticky { json!("Continuous") } else { value };
        }
        if self.has(&Quirk::ErrorThoughApplied) {
            self.generation += 1;
            return Reply::error(400, "IDRAC.1.6.SYS444", "Unable to create a configuration job.", &[]);
        }
        self.accepted()
    }

    fn refuse_boot(&mut self, path: &str, asked: &serde_json::Map<String, Value>) -> Option<Reply> {
        const MODE: &str = "BootSourceOverrideMode";
        let switches_off = asked.get("BootSourceOverrideEnabled") == Some(&json!("Disabled"));
        if self.has(&Quirk::ModeRequired) && !asked.contains_key(MODE) && !switches_off {
            return Some(Reply::error(
                400,
                "Base.1.8.PropertyMissing",
                "A property is missing: %1.",
                &[MODE],
            ));
        }
        if self.has(&Quirk::ModeForbidden) && asked.contains_key(MODE) {
            let text = "The property %1 is read-only.";
            return Some(Reply::error(400, "Base.1.8.PropertyNotWritable", text, &[MODE]));
        }
        let list = "BootSourceOverrideTarget@Redfish.AllowableValues";
        let listed = self.tree[path]["Boot"][list].as_array().cloned();
        let target = asked.get("BootSourceOverrideTarget")?;
        listed.filter(|list| !list.contains(target)).map(|_| {
            let text = "The value %1 for the property %2 is not in the list of acceptable values.";
            let name = target.as_str().unwrap_or_default();
            Reply::error(400, "Base.1.8.PropertyValueNotInList", text, &[name, "BootSourceOverrideTarget"])
        })
    }

    fn precondition(&mut self, if_match: Option<&str>) -> Option<Reply> {
        let failed =
            || Some(Reply::error(412, "Base.1.8.PreconditionFailed", "The ETag did not match.", &[]));
        if self.has(&Quirk::IfMatchRequired) && if_match.is_none() {
            return Some(Reply::error(428, "Base.1.8.PreconditionRequired", "If-Match is required.", &[]));
        }
        let tag = if_match?;
        if self.has(&Quirk::IfMatchRefused) {
            return failed();
        }
        if self.strikes("stale", |quirk| matches!(quirk, Quirk::StaleTag).then_some(1)) {
            self.generation += 1;
        }
        if self.has(&Quirk::TurnsOnMeanwhile) {
            self.set_power("On");
            return failed();
        }
        let good = tag == "*" || tag == format!("\"{}\"", self.generation);
        if good { None } else { failed() }
    }

    fn post(&mut self, path: &str, request: &Request) -> Reply {
        if self.tree["/redfish/v1"]["Links"]["Sessions"]["@odata.id"].as_str() == Some(path) {
            return self.sign_in(&request.body);
        }
        if let Some(refusal) = self.in_self_test() {
            return refusal;
        }
        if path.ends_with("ComputerSystem.Reset") {
            return self.reset(request.body["ResetType"].as_str().unwrap_or_default());
        }
        let Some((slot, action)) = path.split_once("/Actions/VirtualMedia.") else {
            return Reply::empty(404);
        };
        match action {
            "InsertMedia" => self.insert(slot, &request.body),
            "EjectMedia" => self.eject(slot),
            _ => Reply::empty(404),
        }
    }

    // ---- sessions

    fn sign_in(&mut self, body: &Value) -> Reply {
        if self.has(&Quirk::SessionLimit) {
            let text = "The maximum number of user sessions is reached.";
            return Reply::error(503, "IDRAC.1.6.RAC0218", text, &[]);
        }
        if body["UserName"] != USER || body["Password"] != PASSWORD {
            return Reply::error(401, "Base.1.8.ResourceAtUriUnauthorized", "Wrong user or password.", &[]);
        }
        self.opened += 1;
        let path = format!("/redfish/v1/Sessions/{}", self.opened);
        let token = format!("token-{}", self.opened);
        self.sessions.insert(path.clone(), token.clone());
        let headers = vec![("Location", path.clone()), ("X-Auth-Token", token)];
        Reply { status: 201, headers, body: json!({"@odata.id": path}) }
    }

    fn sign_out(&mut self, path: &str) -> Reply {
        Reply::empty(if self.sessions.remove(path).is_some() { 204 } else { 404 })
    }

    // ---- virtual media

    fn insert(&mut self, slot: &str, body: &Value) -> Reply {
        let wanted = self.quirks.iter().find_map(|quirk| match quirk {
            Quirk::InsertNeeds(name) if body.get(name).is_none() => Some(*name),
            _ => None,
        });
        if let Some(name) = wanted {
            return Reply::error(400, "Base.1.8.ActionParameterMissing", "", &["InsertMedia", name]);
        }
        let Some(media) = self.tree.get_mut(slot) else { return Reply::empty(404) };
        if media["Inserted"] == true {
            return Reply::error(500, "IDRAC.1.6.VRM0012", "Virtual media is attached already.", &[]);
        }
        if !self.quirks.contains(&Quirk::ImageIgnored) {
            media["Inserted"] = json!(true);
            let renamed = self.quirks.contains(&Quirk::ImageRenamed);
            media["Image"] = if renamed { json!("cdrom.img") } else { body["Image"].clone() };
        }
        self.accepted()
    }

    fn eject(&mut self, slot: &str) -> Reply {
        let Some(media) = self.tree.get_mut(slot) else { return Reply::empty(404) };
        let is_stale = self.quirks.contains(&Quirk::EjectOfNothing);
        let was_inserted = media["Inserted"] == true;
        media["Inserted"] = json!(false);
        media["Image"] = json!("");
        if is_stale || !was_inserted {
            return Reply::error(400, "IDRAC.1.6.VRM0009", "No virtual media is attached.", &[]);
        }
        self.accepted()
    }

    fn patch_media(&mut self, slot: &str, body: &Value) -> Reply {
        if !self.has(&Quirk::MediaByPatch) {
            return Reply::empty(405);
        }
        let media = self.tree.get_mut(slot).expect("looked at before");
        media["Inserted"] = body["Inserted"].clone();
        media["Image"] = body["Image"].clone();
        self.accepted()
    }
}

/// Where an override in `boot` says to boot from; one for once is used up.
fn use_up(boot: &mut Value, keeps: bool) -> Option<String> {
    let enabled = boot["BootSourceOverrideEnabled"].as_str()?.to_owned();
    let target = boot["BootSourceOverrideTarget"].as_str().map(str::to_owned);
    if enabled == "Once" && !keeps {
        boot["BootSourceOverrideEnabled"] = json!("Disabled");
        boot["BootSourceOverrideTarget"] = json!("None");
    }
    target.filter(|_| enabled != "Disabled")
}
