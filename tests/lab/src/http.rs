//! The few requests that the lab itself sends to its doubles: one connection each, any certificate.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::tls::trust_anything;

/// A status and a body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none, or the status is 400 or above; both quote the body.
    pub fn json(&self) -> Result<serde_json::Value> {
        ensure!(self.status < 400, "status {}: {}", self.status, self.body);
        serde_json::from_str(&self.body).with_context(|| format!("no JSON: {}", self.body))
    }
}

/// Sends one request to `base` (`http[s]://HOST:PORT`) and reads the whole answer.
///
/// `headers` are full lines; a body goes with its own content type among them.
///
/// # Errors
/// When the server cannot be reached or does not speak HTTP/1.1.
pub fn request(base: &str, method: &str, path: &str, headers: &[String], body: &str) -> Result<Answer> {
    let (scheme, authority) = base.split_once("://").with_context(|| format!("no URL: {base}"))?;
    let stream = TcpStream::connect(authority).with_context(|| format!("cannot reach {base}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut message = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n");
    for header in headers {
        message.push_str(header);
        message.push_str("\r\n");
    }
    if !body.is_empty() {
        message.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    message.push_str("\r\n");
    message.push_str(body);
    let answer = if scheme == "https" {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_owned();
        let session = ClientConnection::new(Arc::new(trust_anything()?), ServerName::try_from(host)?)?;
        exchange(StreamOwned::new(session, stream), &message)?
    } else {
        exchange(stream, &message)?
    };
    parse(&answer)
}

fn exchange(mut stream: impl Read + Write, message: &str) -> Result<String> {
    stream.write_all(message.as_bytes())?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // A server that closes without the TLS farewell: the body is whole, parse() checks its length.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error.into()),
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn parse(answer: &str) -> Result<Answer> {
    let (head, body) =
        answer.split_once("\r\n\r\n").with_context(|| format!("no HTTP answer: {answer:?}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("no status line: {head:?}"))?;
    let announced = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    ensure!(announced.is_none_or(|length| length == body.len()), "the answer was cut short: {answer:?}");
    Ok(Answer { status, body: body.to_owned() })
}
