//! A reverse proxy that injects faults: it stands in front of a double and breaks what a test asks for.
//!
//! Statuses such as 595 and reason phrases pass unchanged; connections are kept alive; every request is
//! logged. The API is synchronous, the server stops when the [`Proxy`] is dropped.
//!
//! ```no_run
//! # use lab::proxy::Proxy;
//! let proxy = Proxy::to("http://127.0.0.1:8000").tls().start();
//! proxy.on("POST", "/clone").first().lose_answer();
//! proxy.on("GET", "/config").always().rewrite_answer(|body| body.replace("serial=web01", "ro=0"));
//! proxy.on_request(7).answer(500, "got no worker upid - start worker failed", "");
//! ```

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::redfish;
use crate::tls::{Certificate, trust_anything};

/// One request as the proxy saw it, with what the client got.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Position in the log, from 1.
    pub number: usize,
    /// Which client connection carried it, from 1.
    pub connection: usize,
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: String,
    /// The status the client was sent; `None` where the answer was lost or is not there yet.
    pub status: Option<u16>,
    /// The body the client was sent.
    pub answer: String,
}

impl Exchange {
    /// Whether the request could change the server: every method but GET and HEAD, except a search by
    /// POST (OPNsense), a login (Proxmox), and a Kea command that only reads.
    #[must_use]
    pub fn is_write(&self) -> bool {
        if matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS") {
            return false;
        }
        let last = self.path.rsplit('/').next().unwrap_or_default();
        let searches = self.path.split('/').any(|part| part.starts_with("search"));
        !searches && last != "ticket" && !self.is_kea_read()
    }

    /// A POST to Redfish's reset other than On, GracefulShutdown and PushPowerButton.
    fn is_forced_reset(&self) -> bool {
        let body = serde_json::from_str(&self.body).unwrap_or_default();
        self.method == "POST" && self.path.ends_with("/ComputerSystem.Reset") && !redfish::is_gentle(&body)
    }

    fn is_kea_read(&self) -> bool {
        let Ok(body) = serde_json::from_str::<serde_json::Value>(&self.body) else { return false };
        body["command"].as_str().is_some_and(|command| {
            command.contains("-get") || matches!(command, "config-test" | "list-commands" | "build-report")
        })
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        match self.status {
            Some(status) => write!(f, " -> {status}"),
            None => f.write_str(" -> no answer"),
        }
    }
}

type BodyRewrite = Arc<dyn Fn(&str) -> String + Send + Sync>;
type Callback = Arc<dyn Fn() -> Fate + Send + Sync>;

/// What becomes of a request after the callback looked at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Forward,
    /// The server never sees it, the client's connection closes.
    Drop,
}

#[derive(Clone)]
enum Effect {
    Answer { status: u16, reason: String, body: String },
    DropRequest,
    LoseAnswer,
    Delay(Duration),
    ArriveLate(Duration),
    RewriteRequest(BodyRewrite),
    RewriteAnswer(BodyRewrite),
    Call(Callback),
}

enum Which {
    Number(usize),
    Route { method: String, path: String },
    Write(usize),
}

enum When {
    Always,
    Nth(usize),
}

struct Rule {
    which: Which,
    when: When,
    effect: Effect,
    seen: usize,
}

impl Rule {
    fn applies(&mut self, exchange: &Exchange, writes: usize) -> bool {
        let matches = match &self.which {
            Which::Number(number) => exchange.number == *number,
            Which::Write(number) => exchange.is_write() && writes == *number,
            Which::Route { method, path } => {
                (method == "*" || *method == exchange.method) && exchange.path.contains(path.as_str())
            }
        };
        if !matches {
            return false;
        }
        self.seen += 1;
        match self.when {
            When::Always => true,
            When::Nth(nth) => self.seen == nth,
        }
    }
}

#[derive(Default)]
struct Shared {
    log: Mutex<Vec<Exchange>>,
    /// Resets of a server that are not gentle; no test may forget them.
    resets: Mutex<Vec<String>>,
    rules: Mutex<Vec<Rule>>,
    connections: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    fn admit(
        &self,
        connection: usize,
        parts: &hyper::http::request::Parts,
        body: &Bytes,
    ) -> (usize, Vec<Effect>) {
        let mut log = lock(&self.log);
        let exchange = Exchange {
            number: log.len() + 1,
            connection,
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: String::from_utf8_lossy(body).into_owned(),
            status: None,
            answer: String::new(),
        };
        let number = exchange.number;
        if exchange.is_forced_reset() {
            lock(&self.resets).push(format!("{} {} {}", exchange.method, exchange.path, exchange.body));
        }
        log.push(exchange);
        let writes = log.iter().filter(|seen| seen.is_write()).count();
        let exchange = &log[number - 1];
        let effects = lock(&self.rules)
            .iter_mut()
            .filter_map(|rule| rule.applies(exchange, writes).then(|| rule.effect.clone()))
            .collect();
        (number, effects)
    }

    fn answered(&self, number: usize, status: StatusCode, body: &Bytes) {
        let exchange = &mut lock(&self.log)[number - 1];
        exchange.status = Some(status.as_u16());
        exchange.answer = String::from_utf8_lossy(body).into_owned();
    }
}

/// Says which requests a fault hits; ends in one of the faults.
pub struct FaultBuilder<'a> {
    shared: &'a Shared,
    which: Which,
    when: When,
}

impl FaultBuilder<'_> {
    /// The first matching request only.
    #[must_use]
    pub fn first(self) -> Self {
        self.nth(1)
    }

    /// The `n`th matching request only, from 1, counted from now on.
    #[must_use]
    pub fn nth(mut self, n: usize) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// Every matching request (the default).
    #[must_use]
    pub fn always(mut self) -> Self {
        self.when = When::Always;
        self
    }

    /// Answers itself; the server never sees the request.
    pub fn answer(self, status: u16, reason: &str, body: &str) {
        self.add(Effect::Answer { status, reason: reason.to_owned(), body: body.to_owned() });
    }

    /// Closes the connection; the server never sees the request.
    pub fn drop_request(self) {
        self.add(Effect::DropRequest);
    }

    /// The server carries the request out, the client's connection closes without an answer.
    pub fn lose_answer(self) {
        self.add(Effect::LoseAnswer);
    }

    /// Forwards the request `pause` later.
    pub fn delay(self, pause: Duration) {
        self.add(Effect::Delay(pause));
    }

    /// Forwards the request `pause` later, also when the client has gone by then: it is on its way.
    pub fn arrive_late(self, pause: Duration) {
        self.add(Effect::ArriveLate(pause));
    }

    /// Forwards a changed request body.
    pub fn rewrite_request(self, rewrite: impl Fn(&str) -> String + Send + Sync + 'static) {
        self.add(Effect::RewriteRequest(Arc::new(rewrite)));
    }

    /// Sends the client a changed answer body.
    pub fn rewrite_answer(self, rewrite: impl Fn(&str) -> String + Send + Sync + 'static) {
        self.add(Effect::RewriteAnswer(Arc::new(rewrite)));
    }

    /// Holds the request while `callback` runs, and does then what that says.
    pub fn call(self, callback: impl Fn() -> Fate + Send + Sync + 'static) {
        self.add(Effect::Call(Arc::new(callback)));
    }

    fn add(self, effect: Effect) {
        lock(&self.shared.rules).push(Rule { which: self.which, when: self.when, effect, seen: 0 });
    }
}

/// How the proxy is to be started.
pub struct ProxyBuilder {
    upstream: String,
    tls: bool,
    listen: Ipv4Addr,
    port: u16,
    directory: Option<PathBuf>,
}

impl ProxyBuilder {
    /// Speaks TLS to its clients, with a fresh self-signed certificate.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// The loopback address and port to listen on (default: 127.0.0.1 and a free port).
    #[must_use]
    pub fn listen(mut self, address: Ipv4Addr, port: u16) -> Self {
        (self.listen, self.port) = (address, port);
        self
    }

    /// Keeps the certificate in this directory instead of a temporary one.
    #[must_use]
    pub fn certificate_in(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Starts the proxy.
    ///
    /// # Panics
    /// When it cannot: a test has nothing to go on with.
    #[must_use]
    pub fn start(self) -> Proxy {
        self.try_start().unwrap_or_else(|error| panic!("proxy: {error:#}"))
    }

    /// # Errors
    /// When the port is taken or the upstream URL is none.
    pub fn try_start(self) -> Result<Proxy> {
        let upstream = Arc::new(Upstream::parse(&self.upstream)?);
        let certificate =
            self.tls.then(|| Certificate::make(self.listen, self.directory.as_deref())).transpose()?;
        let acceptor = certificate.as_ref().map(Certificate::acceptor).transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind(SocketAddr::from((self.listen, self.port))))
            .with_context(|| format!("cannot listen on {}:{}", self.listen, self.port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        runtime.spawn(serve(listener, acceptor, upstream, Arc::clone(&shared)));
        Ok(Proxy { address, certificate, shared, runtime: Some(runtime) })
    }
}

/// A running proxy. Whatever a test does with it, it panics when it is dropped if it ever carried a forced reset of a server.
pub struct Proxy {
    address: SocketAddr,
    certificate: Option<Certificate>,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// A proxy to `upstream`, `http://HOST:PORT` or `https://HOST:PORT` (any certificate is accepted there).
    #[must_use]
    pub fn to(upstream: &str) -> ProxyBuilder {
        ProxyBuilder {
            upstream: upstream.to_owned(),
            tls: false,
            listen: Ipv4Addr::LOCALHOST,
            port: 0,
            directory: None,
        }
    }

    /// Requests of this method (`*`: any) whose path contains `path`.
    #[must_use]
    pub fn on(&self, method: &str, path: &str) -> FaultBuilder<'_> {
        self.rule(Which::Route { method: method.to_owned(), path: path.to_owned() })
    }

    /// Request number `number` of the log, from 1.
    #[must_use]
    pub fn on_request(&self, number: usize) -> FaultBuilder<'_> {
        self.rule(Which::Number(number))
    }

    /// The `number`th write of the log, from 1.
    #[must_use]
    pub fn on_write(&self, number: usize) -> FaultBuilder<'_> {
        self.rule(Which::Write(number))
    }

    fn rule(&self, which: Which) -> FaultBuilder<'_> {
        FaultBuilder { shared: &self.shared, which, when: When::Always }
    }

    /// Forgets every fault; the log stays.
    pub fn clear_faults(&self) {
        lock(&self.shared.rules).clear();
    }

    /// `https://127.0.0.1:PORT`, or `http://` without [`ProxyBuilder::tls`].
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    #[must_use]
    pub fn host(&self) -> String {
        self.address.ip().to_string()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The PEM file of the certificate: what a client's `ca_path` wants.
    ///
    /// # Panics
    /// Without [`ProxyBuilder::tls`].
    #[must_use]
    pub fn ca_path(&self) -> &Path {
        self.certificate().pem_path()
    }

    /// SHA-256 of the certificate, `AA:BB:...`: what `tls_fingerprint` wants.
    ///
    /// # Panics
    /// Without [`ProxyBuilder::tls`].
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.certificate().fingerprint()
    }

    fn certificate(&self) -> &Certificate {
        self.certificate.as_ref().expect("the proxy was started without tls()")
    }

    /// Every request so far, oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<Exchange> {
        lock(&self.shared.log).clone()
    }

    /// The requests that could change the server.
    #[must_use]
    pub fn writes(&self) -> Vec<Exchange> {
        self.log().into_iter().filter(Exchange::is_write).collect()
    }

    /// The requests that only read.
    #[must_use]
    pub fn reads(&self) -> Vec<Exchange> {
        self.log().into_iter().filter(|exchange| !exchange.is_write()).collect()
    }

    /// How many client connections were opened.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Empties the log, so that counts begin anew; faults stay.
    pub fn forget(&self) {
        lock(&self.shared.log).clear();
        self.shared.connections.store(0, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let resets = lock(&self.shared.resets).clone();
            assert!(resets.is_empty(), "what no BMC may ever be asked for was asked for: {resets:#?}");
        }
        if let Some(runtime) = self.runtime.take() {
            // A callback may still block in a test that failed.
            runtime.shutdown_background();
        }
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    upstream: Arc<Upstream>,
    shared: Arc<Shared>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, upstream, shared) = (acceptor.clone(), Arc::clone(&upstream), Arc::clone(&shared));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let connection = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
            match acceptor {
                None => converse(stream, connection, upstream, shared).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        converse(stream, connection, upstream, shared).await;
                    }
                }
            }
        });
    }
}

/// Serves one client connection. An error of the service is how a connection is dropped.
async fn converse<S>(stream: S, connection: usize, upstream: Arc<Upstream>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let link = Arc::new(tokio::sync::Mutex::new(None));
    let service = service_fn(move |request| {
        let (link, upstream, shared) = (Arc::clone(&link), Arc::clone(&upstream), Arc::clone(&shared));
        async move { handle(request, connection, &link, upstream, shared).await }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .keep_alive(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Link = tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>;

async fn handle(
    request: Request<Incoming>,
    connection: usize,
    link: &Link,
    upstream: Arc<Upstream>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let mut body = body.collect().await?.to_bytes();
    let (number, effects) = shared.admit(connection, &parts, &body);
    for effect in &effects {
        match effect {
            Effect::Delay(pause) => tokio::time::sleep(*pause).await,
            Effect::Call(callback) => {
                let callback = Arc::clone(callback);
                if tokio::task::spawn_blocking(move || callback()).await? == Fate::Drop {
                    return Err(anyhow!("dropped on purpose"));
                }
            }
            Effect::RewriteRequest(rewrite) => body = rewritten(rewrite, &body),
            Effect::ArriveLate(pause) => {
                let late = forward_late(*pause, number, (parts, body), upstream, shared);
                return tokio::spawn(late).await?;
            }
            Effect::DropRequest => return Err(anyhow!("dropped on purpose")),
            Effect::Answer { status, reason, body } => {
                let response = canned(*status, reason, body)?;
                shared.answered(number, response.status(), &Bytes::copy_from_slice(body.as_bytes()));
                return Ok(response);
            }
            Effect::LoseAnswer | Effect::RewriteAnswer(_) => {}
        }
    }
    let (head, mut answer) = upstream.forward(link, parts, body).await?;
    for effect in &effects {
        match effect {
            Effect::LoseAnswer => return Err(anyhow!("answer lost on purpose")),
            Effect::RewriteAnswer(rewrite) => answer = rewritten(rewrite, &answer),
            _ => {}
        }
    }
    Ok(passed_on(number, head, answer, &shared))
}

fn passed_on(
    number: usize,
    mut head: hyper::http::response::Parts,
    answer: Bytes,
    shared: &Shared,
) -> Response<Full<Bytes>> {
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(answer.len()));
    shared.answered(number, head.status, &answer);
    Response::from_parts(head, Full::new(answer))
}

/// Over a connection of its own: the client's may be gone.
async fn forward_late(
    pause: Duration,
    number: usize,
    (parts, body): (hyper::http::request::Parts, Bytes),
    upstream: Arc<Upstream>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>> {
    tokio::time::sleep(pause).await;
    let (head, answer) = upstream.forward(&Link::default(), parts, body).await?;
    Ok(passed_on(number, head, answer, &shared))
}

fn rewritten(rewrite: &BodyRewrite, body: &Bytes) -> Bytes {
    Bytes::from(rewrite(&String::from_utf8_lossy(body)))
}

fn canned(status: u16, reason: &str, body: &str) -> Result<Response<Full<Bytes>>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(status)?;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response.extensions_mut().insert(ReasonPhrase::try_from(reason.as_bytes().to_vec())?);
    Ok(response)
}

struct Upstream {
    host: String,
    port: u16,
    tls: bool,
}

impl Upstream {
    fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").with_context(|| format!("no URL: {url}"))?;
        let (host, port) = rest
            .trim_end_matches('/')
            .rsplit_once(':')
            .with_context(|| format!("{url}: expected SCHEME://HOST:PORT"))?;
        Ok(Self { host: host.to_owned(), port: port.parse()?, tls: scheme == "https" })
    }

    async fn forward(
        &self,
        link: &Link,
        mut parts: hyper::http::request::Parts,
        body: Bytes,
    ) -> Result<(hyper::http::response::Parts, Bytes)> {
        parts.headers.remove(TRANSFER_ENCODING);
        if parts.headers.contains_key(CONTENT_LENGTH) || !body.is_empty() {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        parts.headers.insert(HOST, HeaderValue::from_str(&format!("{}:{}", self.host, self.port))?);
        let mut link = link.lock().await;
        let mut kept = link.take();
        if let Some(sender) = &mut kept
            && sender.ready().await.is_err()
        {
            kept = None;
        }
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
        let (head, answer) = response.into_parts();
        let answer = answer.collect().await?.to_bytes();
        *link = Some(sender);
        Ok((head, answer))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .with_context(|| format!("the double at {}:{} is not there", self.host, self.port))?;
        stream.set_nodelay(true)?;
        if !self.tls {
            return Self::handshake(stream).await;
        }
        let name = rustls::pki_types::ServerName::try_from(self.host.clone())?;
        let connector = TlsConnector::from(Arc::new(trust_anything()?));
        Self::handshake(connector.connect(name, stream).await?).await
    }

    async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
