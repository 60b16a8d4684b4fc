//! HTTPS around the machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::machine::{Machine, Reply, Request};
use crate::tls::Certificate;

pub(super) type Shared = Arc<Mutex<Machine>>;

/// Serves on a free port of loopback until the returned runtime is dropped.
pub(super) fn serve(certificate: &Certificate, machine: Shared) -> Result<(Runtime, SocketAddr)> {
    let acceptor = certificate.acceptor()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    runtime.spawn(accept(listener, acceptor, machine));
    Ok((runtime, address))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, machine: Shared) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, acceptor.clone(), Arc::clone(&machine)));
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, machine: Shared) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| handle(request, Arc::clone(&machine)));
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn handle(request: hyper::Request<Incoming>, machine: Shared) -> Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = body.collect().await?.to_bytes();
    let request = Request {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        authorization: header("authorization"),
        token: header("x-auth-token"),
        if_match: header("if-match"),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let reply = machine.lock().unwrap_or_else(PoisonError::into_inner).answer(&request);
    response(reply)
}

fn response(reply: Reply) -> Result<Response<Full<Bytes>>> {
    let text = if reply.body.is_null() { String::new() } else { reply.body.to_string() };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(reply.status)?;
    for (name, value) in reply.headers {
        response.headers_mut().insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
    }
    Ok(response)
}
