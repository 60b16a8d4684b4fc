//! HTTPS around the API.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::Logged;
use super::api::{self, Reply, Request};
use super::firewall::{Firewall, logged_body};
use crate::tls::Certificate;

/// What the connections share.
#[derive(Debug)]
pub(super) struct Shared {
    firewall: Mutex<Firewall>,
    pub(super) connections: AtomicUsize,
}

impl Shared {
    pub(super) fn new(firewall: Firewall) -> Arc<Self> {
        Arc::new(Self { firewall: Mutex::new(firewall), connections: AtomicUsize::new(0) })
    }

    /// The firewall; calls wait for each other, as OPNsense's do for the lock on config.xml.
    pub(super) fn firewall(&self) -> MutexGuard<'_, Firewall> {
        self.firewall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &Request) -> Reply {
        let mut firewall = self.firewall();
        let writes = request.method == "POST"
            && api::endpoint(request, firewall.release).is_some_and(|(endpoint, _)| endpoint.writes());
        let mut reply = api::answer(&mut firewall, request);
        if writes && let Err(error) = firewall.persist() {
            reply =
                Reply { status: 500, body: Some(serde_json::json!({"errorMessage": format!("{error:#}")})) };
        }
        firewall.log.push(Logged {
            method: request.method.clone(),
            path: request.uri.clone(),
            body: logged_body(&request.body),
            status: reply.status,
            answer: reply.body.clone().unwrap_or_default(),
            write: writes,
        });
        reply
    }
}

/// Binds `address` and serves until the returned runtime is dropped.
pub(super) fn serve(
    address: SocketAddr,
    certificate: &Certificate,
    shared: Arc<Shared>,
) -> Result<(Runtime, SocketAddr)> {
    let acceptor = certificate.acceptor()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime
        .block_on(TcpListener::bind(address))
        .with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    runtime.spawn(accept(listener, acceptor, shared));
    Ok((runtime, address))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, acceptor.clone(), Arc::clone(&shared)));
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    shared.connections.fetch_add(1, Ordering::Relaxed);
    let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn handle(request: hyper::Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let header =
        |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let request = Request {
        method: parts.method.to_string(),
        uri: parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        content_type: header(CONTENT_TYPE).unwrap_or_default(),
        authorization: header(AUTHORIZATION),
        body: body.collect().await?.to_bytes().to_vec(),
    };
    // A reconfigure runs Kea's own check, which takes its time.
    let reply = tokio::task::spawn_blocking(move || (shared.answer(&request), request.uri)).await?;
    response(reply)
}

fn response((reply, uri): (Reply, String)) -> Result<Response<Full<Bytes>>> {
    let text = reply.body.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(reply.status)?;
    if reply.body.is_some() {
        let json = HeaderValue::from_static("application/json; charset=UTF-8");
        response.headers_mut().insert(CONTENT_TYPE, json);
    } else if reply.status == 401 {
        response.headers_mut().insert(LOCATION, HeaderValue::from_str(&format!("/?url={uri}"))?);
    }
    Ok(response)
}
