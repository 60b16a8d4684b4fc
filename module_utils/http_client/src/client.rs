use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadline::{Deadline, Expired};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::{self, Runtime};

use crate::error::{ErrorKind, HttpError};
use crate::message::{Body, Method, Request, Response};
use crate::percent::form_encode;
use crate::tls::{Refusal, TlsPolicy, tls_config};

const GET_TRIES: u32 = 4;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(150);
/// pveproxy, nginx and Kea drop an idle connection after 5 s or more; a write must not run into that.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
const INTERRUPT_TICK: Duration = Duration::from_millis(50);

/// How the client shows who it is.
#[derive(Clone)]
pub enum Auth {
    None,
    Basic {
        user: String,
        password: SecretString,
    },
    /// One header with every request, such as `Authorization: PVEAPIToken=...`.
    Header {
        name: String,
        value: SecretString,
    },
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Basic { user, .. } => write!(f, "Basic {{ user: {user:?} }}"),
            Self::Header { name, .. } => write!(f, "Header {{ name: {name:?} }}"),
        }
    }
}

/// Everything about the server that does not change during a run.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `https://HOST:PORT/PREFIX`, or `http://` for a control channel on a trusted network.
    pub base_url: String,
    pub tls: TlsPolicy,
    pub auth: Auth,
    /// Longest time for name lookup, TCP and TLS handshake together.
    pub connect_timeout: Duration,
    /// Longest time for one request with its answer.
    pub request_timeout: Duration,
}

/// A client of one server. Calls block; an interrupt raised on the deadline ends them within 50 ms.
pub struct Client {
    http: reqwest::Client,
    config: ClientConfig,
    refusal: Refusal,
    calls: Mutex<BTreeMap<String, u64>>,
    /// Only `None` while the client is dropped.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Drop for Client {
    /// A name lookup cannot be cancelled: do not wait for one that hangs.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Client {
    /// # Errors
    /// [`ErrorKind::Tls`] when the CA file cannot be used, [`ErrorKind::Protocol`] when the base URL or
    /// the credentials cannot be sent over HTTP.
    pub fn new(mut config: ClientConfig) -> Result<Self, HttpError> {
        config.base_url.truncate(config.base_url.trim_end_matches('/').len());
        let refusal = Refusal::default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("homelab.anvil/", env!("CARGO_PKG_VERSION")))
            .default_headers(auth_header(&config.auth)?.into_iter().collect())
            .connect_timeout(config.connect_timeout)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(IDLE_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .http1_only();
        // Even a client for plain http gets a configuration: without one, reqwest looks for a provider.
        let policy =
            if config.base_url.starts_with("https:") { &config.tls } else { &TlsPolicy::NoVerification };
        builder = builder.tls_backend_preconfigured(tls_config(policy, &refusal)?);
        let http =
            builder.build().map_err(|error| HttpError::of_transport(&config.base_url, None, &error))?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| HttpError::new(ErrorKind::Protocol, format!("cannot start: {error}")))?;
        Ok(Self { http, config, refusal, calls: Mutex::default(), runtime: Some(runtime) })
    }

    /// The base URL, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.config.base_url
    }

    /// Requests sent so far, by method; each try counts.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request and reads the whole answer, whatever its status. A GET is tried again after a
    /// transport error, with growing pauses and never past the deadline.
    ///
    /// # Errors
    /// [`HttpError`] when no complete answer came.
    pub fn send(&self, request: &Request, deadline: &Deadline) -> Result<Response, HttpError> {
        let tries = if request.method == Method::Get { GET_TRIES } else { 1 };
        let mut pause = FIRST_RETRY_PAUSE;
        for _ in 1..tries {
            match self.try_once(request, deadline) {
                Err(error) if error.is_passing() => {
                    match deadline.pause(pause) {
                        Ok(()) => pause *= 3,
                        // What broke says more than that time is up.
                        Err(Expired::TimedOut { .. }) => return Err(error),
                        Err(interrupted) => return Err(interrupted.into()),
                    }
                }
                outcome => return outcome,
            }
        }
        self.try_once(request, deadline)
    }

    fn try_once(&self, request: &Request, deadline: &Deadline) -> Result<Response, HttpError> {
        deadline.check()?;
        let target = format!("{} {}{}", request.method, self.config.base_url, request.path);
        let timeout = self.config.request_timeout.min(deadline.remaining());
        let prepared = self.prepare(request, timeout, &target)?;
        *self
            .calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(request.method.as_str().to_owned())
            .or_default() += 1;
        let runtime = self.runtime.as_ref().ok_or_else(|| HttpError::from(Expired::Interrupted))?;
        runtime.block_on(async {
            settle().await;
            let mut exchange = std::pin::pin!(self.exchange(prepared, target));
            loop {
                if let Ok(outcome) = tokio::time::timeout(INTERRUPT_TICK, &mut exchange).await {
                    return outcome;
                }
                if deadline.check() == Err(Expired::Interrupted) {
                    return Err(HttpError::of_expiry(Expired::Interrupted, true));
                }
            }
        })
    }

    fn prepare(
        &self,
        request: &Request,
        timeout: Duration,
        target: &str,
    ) -> Result<reqwest::Request, HttpError> {
        let invalid = |what: &str| HttpError::new(ErrorKind::Protocol, format!("{target}: {what}"));
        let mut url = format!("{}{}", self.config.base_url, request.path);
        let mut payload = None;
        match &request.body {
            Body::None => {}
            Body::Form(pairs) if request.method.carries_body() => {
                payload = Some(("application/x-www-form-urlencoded", form_encode(pairs)));
            }
            Body::Form(pairs) => {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(&form_encode(pairs));
            }
            Body::Json(document) if request.method.carries_body() => {
                payload = Some(("application/json", document.to_string()));
            }
            Body::Json(_) => return Err(invalid("a GET or DELETE cannot carry a JSON body")),
        }
        let method = reqwest::Method::from_bytes(request.method.as_str().as_bytes())
            .map_err(|_| invalid("unknown method"))?;
        let mut prepared = self.http.request(method, url).timeout(timeout);
        for (name, value) in &request.headers {
            prepared =
                prepared.header(name, secret_header(value).ok_or_else(|| invalid("bad header value"))?);
        }
        if let Some((content_type, text)) = payload {
            prepared = prepared.header(CONTENT_TYPE, content_type).body(text);
        } else if request.method.carries_body() {
            prepared = prepared.header(reqwest::header::CONTENT_LENGTH, 0);
        }
        prepared.build().map_err(|error| HttpError::of_transport(target, None, &error.without_url()))
    }

    async fn exchange(&self, request: reqwest::Request, target: String) -> Result<Response, HttpError> {
        let describe = |error: reqwest::Error| {
            HttpError::of_transport(&target, self.refusal.take(), &error.without_url())
        };
        let answer = self.http.execute(request).await.map_err(describe)?;
        let status = answer.status();
        let reason = match answer.extensions().get::<hyper::ext::ReasonPhrase>() {
            Some(phrase) => String::from_utf8_lossy(phrase.as_bytes()).into_owned(),
            None => status.canonical_reason().unwrap_or_default().to_owned(),
        };
        let headers = answer
            .headers()
            .iter()
            .map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect();
        let body = answer.bytes().await.map_err(describe)?.to_vec();
        Ok(Response { status: status.as_u16(), reason, body, headers, target })
    }
}

impl HttpError {
    /// Whether asking again may help.
    fn is_passing(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Protocol)
    }
}

/// Lets the idle connection find its way back into the pool, and notice that the server has closed it:
/// the runtime stands still between two calls.
async fn settle() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

fn secret_header(value: &SecretString) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value.expose_secret()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn auth_header(auth: &Auth) -> Result<Option<(HeaderName, HeaderValue)>, HttpError> {
    let (name, value) = match auth {
        Auth::None => return Ok(None),
        Auth::Basic { user, password } => {
            use base64::Engine as _;
            let pair = format!("{user}:{}", password.expose_secret());
            let text = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
            (AUTHORIZATION, SecretString::from(text))
        }
        Auth::Header { name, value } => {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| HttpError::new(ErrorKind::Protocol, format!("{name:?} is not a header name")))?;
            (name, value.clone())
        }
    };
    match secret_header(&value) {
        Some(value) => Ok(Some((name, value))),
        None => Err(HttpError::new(
            ErrorKind::Protocol,
            "the credentials hold a character that HTTP cannot carry (a line break at the end?)",
        )),
    }
}
