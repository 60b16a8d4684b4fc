//! BMCs of 2014: what a real OpenSSL server with their limits gets to see.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use deadline::{Deadline, Expired};
use http_client::{ErrorKind, TlsPolicy, parse_fingerprint};
use redfish_api::{Bmc, Connection, Credentials, Error};
use tempfile::TempDir;

/// `openssl s_server -WWW` with a service root; it dies with the value.
struct OpensslServer {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OpensslServer {
    fn start(key: &str, digest: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", key, digest, "-nodes", "-days", "30", "-subj", "/CN=idrac"])
            .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(&directory)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let root = directory.path().join("redfish/v1");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("root"), "HTTP/1.0 200 OK\r\n\r\n{}").unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let child = Command::new("openssl")
            .args([
                "s_server",
                "-HTTP",
                "-quiet",
                "-accept",
                &port.to_string(),
                "-cert",
                "cert.pem",
                "-key",
                "key.pem",
            ])
            .args(arguments)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Deadline::after(Duration::from_secs(10))
            .poll(|| Ok::<_, Expired>(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()))
            .unwrap();
        Self { child, port, directory }
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    /// What a read ends with: `None` is an answer.
    fn read(&self, tls: TlsPolicy) -> Option<Error> {
        let bmc = Bmc::new(Connection {
            base_url: format!("https://127.0.0.1:{}", self.port),
            tls,
            credentials: Credentials { user: "u".into(), password: "p".to_owned().into() },
            session: false,
            read_only: true,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
        });
        bmc.unwrap().get("/redfish/v1/root", &Deadline::after(Duration::from_secs(10))).err()
    }
}

fn fingerprint(certificate: &Path) -> [u8; 32] {
    let mut printed = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(certificate)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    printed.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    printed.wait().unwrap();
    parse_fingerprint(text.trim().rsplit('=').next().unwrap()).unwrap()
}

fn has_openssl() -> bool {
    lab::present(Command::new("openssl").arg("version").output().is_ok(), "openssl")
}

/// What is asked, and what comes of it: `answer`, or a part of the message.
fn expect(server: &OpensslServer, by_ca: &str, by_pin: &str, unverified: &str) {
    for (expected, tls) in [
        (by_ca, TlsPolicy::CaPath(server.certificate())),
        (by_pin, TlsPolicy::Fingerprint(fingerprint(&server.certificate()))),
        (unverified, TlsPolicy::NoVerification),
    ] {
        match server.read(tls.clone()) {
            None => assert_eq!(expected, "answer", "{tls:?}"),
            Some(Error::Http(error)) => {
                assert_eq!(error.kind, ErrorKind::Tls, "{error}");
                assert!(error.message.contains(expected), "{tls:?}: {error}");
            }
            Some(error) => panic!("{error}"),
        }
    }
}

#[test]
fn tls_1_2_with_a_key_exchange_of_today() {
    if has_openssl() {
        let server = OpensslServer::start("rsa:2048", "-sha256", &["-tls1_2"]);
        expect(&server, "answer", "answer", "answer");
    }
}

/// It cannot be spoken to: the message has to say what it is that lacks.
#[test]
fn tls_1_2_with_rsa_key_exchange_only() {
    if has_openssl() {
        let cipher = "AES128-SHA:AES256-SHA:@SECLEVEL=0";
        let server = OpensslServer::start("rsa:2048", "-sha256", &["-tls1_2", "-cipher", cipher]);
        let lacking = "only RSA key exchange, must be updated or put behind a TLS proxy";
        expect(&server, lacking, lacking, lacking);
    }
}

/// It can only be spoken to without verification.
#[test]
fn a_certificate_of_1024_bits_signed_with_sha_1() {
    if has_openssl() {
        let cipher = "ECDHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0";
        let server = OpensslServer::start("rsa:1024", "-sha1", &["-tls1_2", "-cipher", cipher]);
        expect(&server, "BadSignature", "BadSignature", "answer");
    }
}
