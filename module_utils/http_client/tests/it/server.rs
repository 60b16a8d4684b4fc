//! A small real server: TLS by rustls, HTTP written by hand, so that a test decides about every byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// What the server does with one request on one connection.
#[derive(Clone)]
pub(crate) enum Act {
    /// Sends these bytes and keeps the connection.
    Answer(String),
    /// Closes without a word.
    Close,
    /// Says nothing until the client goes.
    Hang,
}

pub(crate) fn ok(body: &str) -> Act {
    Act::Answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// Heads and bodies, decrypted.
    pub(crate) requests: Vec<String>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Seen>>,
    scheme: &'static str,
}

impl Server {
    /// Serves `acts` one after another, one a request; then every further request gets the last one.
    pub(crate) fn start(tls: Option<rustls::ServerConfig>, acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (tls, script) = (tls.map(Arc::new), Arc::new(Mutex::new(acts)));
        let log = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (tls, script, log) = (tls.clone(), Arc::clone(&script), Arc::clone(&log));
                thread::spawn(move || serve(stream.unwrap(), tls, &script, &log));
            }
        });
        Self { address, seen, scheme }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    script: &Mutex<Vec<Act>>,
    log: &Mutex<Seen>,
) {
    log.lock().unwrap().connections += 1;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut stream: Box<dyn ReadWrite> = match tls {
        Some(config) => {
            Box::new(rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), stream))
        }
        None => Box::new(stream),
    };
    while let Some(request) = read_request(&mut *stream) {
        log.lock().unwrap().requests.push(request);
        let act = {
            let mut script = script.lock().unwrap();
            if script.len() > 1 { script.remove(0) } else { script[0].clone() }
        };
        match act {
            Act::Answer(text) => stream.write_all(text.as_bytes()).unwrap(),
            Act::Close => return,
            Act::Hang => {
                let _ = stream.read(&mut [0]);
                return;
            }
        }
    }
}

fn read_request(stream: &mut dyn ReadWrite) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = header(head, "content-length").map_or(0, |value| value.parse().unwrap());
        if body.len() >= length {
            return Some(text);
        }
    }
}

/// The value of a header in a recorded request.
pub(crate) fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.split("\r\n").skip(1).take_while(|line| !line.is_empty()).find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// A certificate with its key, and the PEM text of the authority that signed it (itself, when alone).
pub(crate) struct Identity {
    pub(crate) leaf: CertificateDer<'static>,
    pub(crate) authority_pem: String,
    pub(crate) leaf_pem: String,
    key: KeyPair,
}

pub(crate) struct Wanted {
    pub(crate) names: &'static [&'static str],
    pub(crate) marked_as_ca: bool,
    pub(crate) expired: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { names: &["127.0.0.1", "localhost"], marked_as_ca: false, expired: false }
    }
}

impl Wanted {
    fn params(&self) -> CertificateParams {
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "pve1.test");
        if self.marked_as_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        if self.expired {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        params
    }

    pub(crate) fn self_signed(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = self.params().self_signed(&key).unwrap();
        let pem = certificate.pem();
        Identity { leaf: certificate.der().clone(), authority_pem: pem.clone(), leaf_pem: pem, key }
    }

    pub(crate) fn signed_by_a_ca(&self) -> Identity {
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "Test CA");
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = self.params().signed_by(&key, &issuer).unwrap();
        Identity {
            leaf: certificate.der().clone(),
            authority_pem: issuer.pem(),
            leaf_pem: certificate.pem(),
            key,
        }
    }
}

impl Identity {
    pub(crate) fn server_config(&self) -> rustls::ServerConfig {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.leaf.clone()], key)
            .unwrap()
    }
}
