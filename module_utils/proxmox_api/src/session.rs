use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use deadline::Deadline;
use http_client::{Auth, Body, Client, ClientConfig, Method, Request, Response, TlsPolicy};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::error::{ApiError, Refusal};
use crate::task::{TaskEnd, Upid};

/// How often a write of unknown outcome is looked after and sent again.
const UNKNOWN_TRIES: u32 = 5;
/// How often a request that a broken connection between the nodes kept from its goal is sent again:
/// some five seconds.
const PROXY_TRIES: u32 = 6;

/// Who signs in.
#[derive(Clone)]
pub enum Credentials {
    /// `user` with its realm, `id` the part behind the `!`.
    Token { user: String, id: String, secret: SecretString },
    /// A ticket is fetched with the first request.
    Password { user: String, password: SecretString },
}

impl Credentials {
    /// What to check when they are refused.
    fn cure(&self) -> String {
        match self {
            Self::Token { user, id, .. } => format!(
                "The API token {user}!{id} was refused: check that it exists (`pveum user token list {user}`), that \
                 neither it nor {user} is disabled or expired, and that the secret is this token's own: it is shown \
                 once, when the token is made, and is not the user's password"
            ),
            Self::Password { user, .. } => format!(
                "The password of {user} was refused: check it, the realm behind the @, and that {user} is neither \
                 disabled nor expired"
            ),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { user, id, .. } => write!(f, "Token({user}!{id})"),
            Self::Password { user, .. } => write!(f, "Password({user})"),
        }
    }
}

/// Where the API is and how to reach it.
#[derive(Clone, Debug)]
pub struct Connection {
    pub host: String,
    pub port: u16,
    pub tls: TlsPolicy,
    pub credentials: Credentials,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
}

/// A session with one Proxmox VE API; any node of a cluster answers for all.
#[derive(Debug)]
pub struct Proxmox {
    http: Client,
    credentials: Credentials,
    ticket: OnceCell<Ticket>,
}

#[derive(Debug)]
struct Ticket {
    cookie: SecretString,
    csrf: SecretString,
}

impl Proxmox {
    /// Prepares a session; nothing is sent yet.
    ///
    /// # Errors
    /// When the CA file or the credentials cannot be used.
    pub fn new(connection: Connection) -> Result<Self, ApiError> {
        let Connection { host, port, tls, credentials, connect_timeout, request_timeout } = connection;
        let auth = match &credentials {
            Credentials::Token { user, id, secret } => Auth::Header {
                name: "Authorization".into(),
                value: format!("PVEAPIToken={user}!{id}={}", secret.expose_secret()).into(),
            },
            Credentials::Password { .. } => Auth::None,
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let base_url = format!("https://{host}:{port}/api2/json");
        let http = Client::new(ClientConfig { base_url, tls, auth, connect_timeout, request_timeout })?;
        Ok(Self { http, credentials, ticket: OnceCell::new() })
    }

    /// Requests sent so far, by method.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.http.calls()
    }

    /// The `data` of a GET. `path` starts behind `/api2/json`.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn get(&self, path: &str, deadline: &Deadline) -> Result<Value, ApiError> {
        self.get_whole(path, deadline).map(data)
    }

    /// The whole body of a GET: some lists have a `total` beside `data`.
    pub(crate) fn get_whole(&self, path: &str, deadline: &Deadline) -> Result<Value, ApiError> {
        let request = Request::get(path);
        let mut left = PROXY_TRIES;
        let broken_proxy = |error: &ApiError| error.refusal().is_some_and(|refusal| refusal.status >= 595);
        patiently(
            deadline,
            || self.exchange(&request, deadline),
            |error| broken_proxy(error) && count_down(&mut left),
        )
    }

    /// Sends a write. Locks are waited out, also that of another task (`VM is locked (backup)`).
    ///
    /// # Errors
    /// Any [`ApiError`]; where [`ApiError::outcome_is_unknown`], look before sending it again.
    pub fn write(
        &self,
        method: Method,
        path: &str,
        form: &[(String, String)],
        deadline: &Deadline,
    ) -> Result<Value, ApiError> {
        let body = if form.is_empty() { Body::None } else { Body::Form(form.to_vec()) };
        let request = Request { body, ..Request::new(method, path) };
        let mut left = PROXY_TRIES;
        patiently(
            deadline,
            || self.exchange(&request, deadline),
            |error| error.is_locked() || (error.is_unreached() && count_down(&mut left)),
        )
        .map(data)
    }

    /// Sends a write never twice blindly: when its outcome is unknown, `look` tells whether it took
    /// effect (`Some`), and only if not it is sent again.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn write_once<T>(
        &self,
        (method, path, form): (Method, &str, &[(String, String)]),
        deadline: &Deadline,
        read: impl Fn(Value) -> Result<T, ApiError>,
        mut look: impl FnMut() -> Result<Option<T>, ApiError>,
    ) -> Result<T, ApiError> {
        let mut left = UNKNOWN_TRIES;
        deadline.poll(|| match self.write(method, path, form, deadline) {
            Err(error) if error.outcome_is_unknown() && deadline.check().is_ok() && count_down(&mut left) => {
                look()
            }
            outcome => outcome.and_then(&read).map(Some),
        })
    }

    /// Begins a task with `send` and waits for it; a task that failed on a lock is begun again.
    /// `send` gives no UPID where the work is already done.
    pub(crate) fn run_task(
        &self,
        deadline: &Deadline,
        send: impl Fn() -> Result<Option<Upid>, ApiError>,
    ) -> Result<TaskEnd, ApiError> {
        let once = || send()?.map_or_else(|| Ok(TaskEnd::default()), |upid| self.wait(&upid, deadline));
        patiently(deadline, once, |error| matches!(error, ApiError::TaskFailed { .. }) && error.is_locked())
    }

    /// The UPID in an answer; `None` where an old server did the work before it answered.
    pub(crate) fn upid(endpoint: &str, data: &Value) -> Result<Option<Upid>, ApiError> {
        match data {
            Value::Null => Ok(None),
            Value::String(text) => text.parse().map(Some).map_err(|why| ApiError::shape(endpoint, why)),
            other => Err(ApiError::shape(endpoint, format!("expected a UPID, found {other}"))),
        }
    }

    fn exchange(&self, request: &Request, deadline: &Deadline) -> Result<Value, ApiError> {
        let signed = match &self.credentials {
            Credentials::Token { .. } => request.clone(),
            Credentials::Password { user, password } => {
                let ticket = match self.ticket.get() {
                    Some(ticket) => ticket,
                    None => {
                        let ticket = self.sign_in(user, password, deadline)?;
                        self.ticket.get_or_init(|| ticket)
                    }
                };
                let signed = request.clone().header("Cookie", ticket.cookie.clone());
                if request.method == Method::Get {
                    signed
                } else {
                    signed.header("CSRFPreventionToken", ticket.csrf.clone())
                }
            }
        };
        let response = self.http.send(&signed, deadline)?;
        body_of(request, &response).map_err(|error| self.with_cure(error))
    }

    /// `401` tells neither who was refused nor why.
    fn with_cure(&self, error: ApiError) -> ApiError {
        match error {
            ApiError::Refused(refusal) if refusal.status == 401 => {
                ApiError::Refused(Refusal { cure: Some(self.credentials.cure().into()), ..refusal })
            }
            error => error,
        }
    }

    fn sign_in(&self, user: &str, password: &SecretString, deadline: &Deadline) -> Result<Ticket, ApiError> {
        let form = vec![
            ("username".to_owned(), user.to_owned()),
            ("password".to_owned(), password.expose_secret().to_owned()),
        ];
        let request = Request::post("/access/ticket").form(form);
        let answered = body_of(&request, &self.http.send(&request, deadline)?);
        let answer = data(answered.map_err(|error| self.with_cure(error))?);
        if answer["NeedTFA"].as_u64().is_some_and(|needed| needed != 0) {
            return Err(ApiError::SignIn(format!(
                "user {user} has a second factor, which an unattended run cannot give: use an API token \
                 (api_token_id and api_token_secret)"
            )));
        }
        let (Some(ticket), Some(csrf)) = (answer["ticket"].as_str(), answer["CSRFPreventionToken"].as_str())
        else {
            return Err(ApiError::shape("POST /access/ticket", "no ticket in it"));
        };
        // As it is: a ticket holds nothing that the server's decoding would change.
        Ok(Ticket { cookie: format!("PVEAuthCookie={ticket}").into(), csrf: csrf.to_owned().into() })
    }
}

fn body_of(request: &Request, response: &Response) -> Result<Value, ApiError> {
    if response.is_success() {
        return Ok(response.json()?);
    }
    let path = request.path.split('?').next().unwrap_or_default();
    Err(ApiError::Refused(Refusal::of(format!("{} {path}", request.method), response)))
}

fn data(mut body: Value) -> Value {
    body["data"].take()
}

/// Repeats `step` while `may_repeat` says so. When the time is up, the error says what stood in the way.
pub(crate) fn patiently<T>(
    deadline: &Deadline,
    mut step: impl FnMut() -> Result<T, ApiError>,
    mut may_repeat: impl FnMut(&ApiError) -> bool,
) -> Result<T, ApiError> {
    let mut last = None;
    let outcome = deadline.poll(|| match step() {
        Err(error) if may_repeat(&error) => {
            last = Some(error);
            Ok(None)
        }
        outcome => outcome.map(Some),
    });
    match (outcome, last) {
        (Err(ApiError::Expired { why, .. }), Some(error)) => {
            Err(ApiError::Expired { waiting_for: format!("this to pass: {error}"), why })
        }
        (outcome, _) => outcome,
    }
}

/// Whether there is a try left; uses it up.
fn count_down(left: &mut u32) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}
