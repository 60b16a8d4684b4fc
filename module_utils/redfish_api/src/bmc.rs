use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use deadline::Deadline;
use http_client::{Auth, Client, ClientConfig, Method, Request, Response, TlsPolicy};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Refusal};
use crate::resource::{Resource, members, path};

const ROOT: &str = "/redfish/v1/";
/// A BMC that is busy or starting answers so; reading again may help.
const PASSING: [u16; 4] = [500, 502, 503, 504];
const READS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// No collection that matters here has more pages; one that links to itself must not keep us.
const MOST_PAGES: usize = 50;
/// What closing a session may take when the run is over already.
const LOGOUT: Duration = Duration::from_secs(10);

/// Who signs in.
#[derive(Clone)]
pub struct Credentials {
    pub user: String,
    pub password: SecretString,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ user: {:?} }}", self.user)
    }
}

/// How a BMC is reached.
#[derive(Clone, Debug)]
pub struct Connection {
    /// `https://HOST:PORT`
    pub base_url: String,
    pub tls: TlsPolicy,
    pub credentials: Credentials,
    /// Sign in once and send a token, instead of HTTP Basic with every request. A BMC has few sessions (iDRAC:
    /// four to eight), so this is not the default; it is closed when the [`Bmc`] is dropped. A BMC that refuses
    /// to open one is spoken to with HTTP Basic.
    pub session: bool,
    /// Refuse everything but GET. A session would be a POST, so HTTP Basic is used then.
    pub read_only: bool,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
}

/// A write as it is told to the user.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub method: &'static str,
    pub path: String,
    pub body: Value,
}

/// One BMC.
#[derive(Debug)]
pub struct Bmc {
    http: Client,
    credentials: Credentials,
    wants_session: bool,
    read_only: bool,
    session: OnceCell<Option<Session>>,
    root: OnceCell<Resource>,
    made: RefCell<Vec<Call>>,
}

#[derive(Debug)]
struct Session {
    uri: Option<String>,
    token: SecretString,
}

impl Drop for Bmc {
    /// A session left behind blocks one of the few that a BMC has.
    fn drop(&mut self) {
        if let Some(Session { uri: Some(uri), .. }) = self.session.get().and_then(Option::as_ref) {
            let _ = self.send(Method::Delete, &uri.clone(), None, None, &Deadline::after(LOGOUT));
        }
    }
}

impl Bmc {
    /// Prepares the connection; nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Http`] when the CA file or the URL cannot be used.
    pub fn new(connection: Connection) -> Result<Self, Error> {
        let http = Client::new(ClientConfig {
            base_url: connection.base_url,
            tls: connection.tls,
            // The service root is read without credentials, everything else with a header of its own.
            auth: Auth::None,
            connect_timeout: connection.connect_timeout,
            request_timeout: connection.request_timeout,
        })?;
        Ok(Self {
            http,
            credentials: connection.credentials,
            wants_session: connection.session && !connection.read_only,
            read_only: connection.read_only,
            session: OnceCell::new(),
            root: OnceCell::new(),
            made: RefCell::default(),
        })
    }

    /// Requests sent so far, by method.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.http.calls()
    }

    /// The writes made so far, in order. Tries of one write count once.
    #[must_use]
    pub fn made(&self) -> Vec<Call> {
        self.made.borrow().clone()
    }

    pub(crate) fn note(&self, call: Call) {
        self.made.borrow_mut().push(call);
    }

    /// The service root (`/redfish/v1/`), read once.
    ///
    /// # Errors
    /// [`Error`]
    pub fn root(&self, deadline: &Deadline) -> Result<&Resource, Error> {
        if let Some(root) = self.root.get() {
            return Ok(root);
        }
        let root = self.read_root(deadline)?;
        if root.link("Systems").is_none() {
            return Err(Error::Shape { uri: root.uri, expected: "a service root with a link to Systems" });
        }
        Ok(self.root.get_or_init(|| root))
    }

    /// Without credentials, as the protocol wants it; some BMCs ask for them, or know it without the slash only.
    fn read_root(&self, deadline: &Deadline) -> Result<Resource, Error> {
        let mut last = None;
        for uri in [ROOT, ROOT.trim_end_matches('/')] {
            let mut answer = self.plain(Method::Get, uri, None, Vec::new(), deadline)?;
            if answer.status == 401 {
                answer = self.read(uri, deadline)?;
            }
            match self.resource(uri, &answer) {
                Err(Error::Refused(refusal)) if [301, 302, 307, 308, 404].contains(&refusal.status) => {
                    last = Some(Error::Refused(refusal));
                }
                outcome => return outcome,
            }
        }
        Err(last.unwrap_or(Error::Shape { uri: ROOT.to_owned(), expected: "a service root" }))
    }

    /// Reads one resource.
    ///
    /// # Errors
    /// [`Error`]
    pub fn get(&self, uri: &str, deadline: &Deadline) -> Result<Resource, Error> {
        let answer = self.read(uri, deadline)?;
        self.resource(uri, &answer)
    }

    /// Reads a resource that need not exist.
    pub(crate) fn get_if_there(&self, uri: &str, deadline: &Deadline) -> Result<Option<Resource>, Error> {
        match self.get(uri, deadline) {
            Ok(resource) => Ok(Some(resource)),
            Err(Error::Refused(refusal)) if matches!(refusal.status, 404 | 405 | 410) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The resources of a collection, page by page. Members that are announced and not there are left out.
    pub(crate) fn collection(&self, uri: &str, deadline: &Deadline) -> Result<Vec<Resource>, Error> {
        let mut found: Vec<Resource> = Vec::new();
        for link in self.links(uri, deadline)? {
            found.extend(self.get_if_there(&link, deadline)?);
        }
        Ok(found)
    }

    fn links(&self, uri: &str, deadline: &Deadline) -> Result<Vec<String>, Error> {
        let mut links: Vec<String> = Vec::new();
        let mut page = Some(uri.to_owned());
        for _ in 0..MOST_PAGES {
            let Some(uri) = page.take() else { break };
            let Some(collection) = self.get_if_there(&uri, deadline)? else { break };
            for link in members(&collection)? {
                if !links.contains(&link) {
                    links.push(link);
                }
            }
            page = collection.body["Members@odata.nextLink"].as_str().and_then(path);
        }
        Ok(links)
    }

    /// A GET that is tried again while the BMC is busy.
    pub(crate) fn read(&self, uri: &str, deadline: &Deadline) -> Result<Response, Error> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..READS {
            let answer = self.send(Method::Get, uri, None, None, deadline)?;
            if !PASSING.contains(&answer.status) || deadline.pause(pause).is_err() {
                return Ok(answer);
            }
            pause *= 2;
        }
        self.send(Method::Get, uri, None, None, deadline)
    }

    fn resource(&self, uri: &str, answer: &Response) -> Result<Resource, Error> {
        if !answer.is_success() {
            return Err(refused(Method::Get, uri, answer));
        }
        let body = answer.json()?;
        if !body.is_object() {
            return Err(Error::Shape { uri: uri.to_owned(), expected: "a JSON object" });
        }
        let etag = answer.header("etag").or(body["@odata.etag"].as_str()).map(str::trim);
        let allow = answer.header("allow").unwrap_or_default();
        Ok(Resource {
            uri: uri.to_owned(),
            etag: etag.filter(|etag| !etag.is_empty()).map(str::to_owned),
            allow: allow.split(',').map(|method| method.trim().to_ascii_uppercase()).collect(),
            body,
        })
    }

    /// One request, signed in. The answer may have any status.
    pub(crate) fn send(
        &self,
        method: Method,
        uri: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
        deadline: &Deadline,
    ) -> Result<Response, Error> {
        if self.read_only && method != Method::Get {
            return Err(Error::ReadOnly { method, uri: uri.to_owned() });
        }
        let mut headers = vec![self.authorization(deadline)?];
        headers.extend(if_match.map(|tag| ("If-Match", tag.to_owned().into())));
        self.plain(method, uri, body, headers, deadline)
    }

    fn plain(
        &self,
        method: Method,
        uri: &str,
        body: Option<&Value>,
        headers: Vec<(&str, SecretString)>,
        deadline: &Deadline,
    ) -> Result<Response, Error> {
        let mut request = Request::new(method, uri)
            .header("Accept", "application/json".to_owned().into())
            .header("OData-Version", "4.0".to_owned().into());
        if let Some(body) = body {
            request = request.json(body.clone());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Ok(self.http.send(&request, deadline)?)
    }

    fn authorization(&self, deadline: &Deadline) -> Result<(&'static str, SecretString), Error> {
        if self.wants_session && self.session.get().is_none() {
            let session = self.sign_in(deadline)?;
            let _ = self.session.set(session);
        }
        Ok(match self.session.get() {
            Some(Some(session)) => ("X-Auth-Token", session.token.clone()),
            _ => ("Authorization", self.basic()),
        })
    }

    fn basic(&self) -> SecretString {
        let Credentials { user, password } = &self.credentials;
        format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.expose_secret()))).into()
    }

    /// `None` when the BMC opens no session, for whatever reason but wrong credentials.
    fn sign_in(&self, deadline: &Deadline) -> Result<Option<Session>, Error> {
        let root = self.root(deadline)?;
        let Some(uri) = crate::resource::link(&root.body["Links"]["Sessions"]) else { return Ok(None) };
        let Credentials { user, password } = &self.credentials;
        let login = json!({"UserName": user, "Password": password.expose_secret()});
        let answer = self.plain(Method::Post, &uri, Some(&login), Vec::new(), deadline)?;
        if answer.status == 401 {
            return Err(refused(Method::Post, &uri, &answer));
        }
        let Some(token) = answer.header("x-auth-token").filter(|_| answer.is_success()) else {
            return Ok(None);
        };
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let place = answer.header("location").and_then(path).or_else(|| crate::resource::link(&body));
        Ok(Some(Session { uri: place, token: token.to_owned().into() }))
    }
}

pub(crate) fn refused(method: Method, uri: &str, answer: &Response) -> Error {
    let refusal = Refusal::new(method, uri, answer);
    match answer.status {
        401 | 403 => Error::Auth(refusal),
        _ => Error::Refused(refusal),
    }
}
