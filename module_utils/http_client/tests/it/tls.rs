use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use http_client::{ErrorKind, HttpError, Request, TlsPolicy, parse_fingerprint};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::server::{Identity, Server, Wanted, ok};
use crate::{client, config, minute};

fn bundle(pem: &str) -> (TempDir, TlsPolicy) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    (dir, TlsPolicy::CaPath(path))
}

fn fingerprint(identity: &Identity) -> [u8; 32] {
    Sha256::digest(&identity.leaf).into()
}

/// Asks a server with this identity once.
fn ask(identity: &Identity, policy: TlsPolicy) -> (Result<String, HttpError>, Server) {
    let server = Server::start(Some(identity.server_config()), vec![ok("hello")]);
    let outcome = client(server.url(), policy).send(&Request::get("/x"), &minute());
    (outcome.map(|response| response.text()), server)
}

fn assert_taken(identity: &Identity, policy: TlsPolicy) {
    assert_eq!(ask(identity, policy).0.unwrap(), "hello");
}

/// The refusal; no request reached the server.
fn assert_refused(identity: &Identity, policy: TlsPolicy) -> String {
    let (outcome, server) = ask(identity, policy);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Tls, "{error}");
    assert!(!error.may_have_reached_server);
    assert_eq!(server.requests(), Vec::<String>::new());
    assert_eq!(server.connections(), 1, "a refused certificate is not asked for again");
    error.message
}

#[test]
fn a_ca_file_vouches_for_what_it_signed() {
    let identity = Wanted::default().signed_by_a_ca();
    let (_dir, policy) = bundle(&identity.authority_pem);
    assert_taken(&identity, policy);
}

#[test]
fn a_ca_file_may_hold_several_certificates() {
    let identity = Wanted::default().signed_by_a_ca();
    let other = Wanted::default().self_signed();
    let (_dir, policy) = bundle(&format!("{}\n{}", other.authority_pem, identity.authority_pem));
    assert_taken(&identity, policy);
}

#[test]
fn a_self_signed_leaf_in_the_file_is_taken_marked_as_ca_or_not() {
    for marked_as_ca in [false, true] {
        let identity = Wanted { marked_as_ca, ..Wanted::default() }.self_signed();
        let (_dir, policy) = bundle(&identity.leaf_pem);
        assert_taken(&identity, policy);
    }
}

#[test]
fn name_and_dates_of_a_listed_leaf_are_still_checked() {
    for marked_as_ca in [false, true] {
        let elsewhere = Wanted { names: &["pve9.test"], marked_as_ca, ..Wanted::default() }.self_signed();
        let (_dir, policy) = bundle(&elsewhere.leaf_pem);
        let message = assert_refused(&elsewhere, policy);
        assert!(message.contains("not valid for the name 127.0.0.1"), "{message}");
        assert!(message.contains("alternative names pve9.test"), "{message}");

        let old = Wanted { expired: true, marked_as_ca, ..Wanted::default() }.self_signed();
        let (_dir, policy) = bundle(&old.leaf_pem);
        let message = assert_refused(&old, policy);
        assert!(message.contains("it has expired"), "{message}");
    }
}

#[test]
fn name_and_dates_of_a_signed_leaf_are_checked() {
    let elsewhere = Wanted { names: &["pve9.test"], ..Wanted::default() }.signed_by_a_ca();
    let (_dir, policy) = bundle(&elsewhere.authority_pem);
    assert!(assert_refused(&elsewhere, policy).contains("not valid for the name 127.0.0.1"));

    let old = Wanted { expired: true, ..Wanted::default() }.signed_by_a_ca();
    let (_dir, policy) = bundle(&old.authority_pem);
    assert!(assert_refused(&old, policy).contains("it has expired"));
}

#[test]
fn a_stranger_is_refused_with_everything_needed_to_trust_it() {
    let identity = Wanted::default().signed_by_a_ca();
    let (_dir, policy) = bundle(&Wanted::default().self_signed().leaf_pem);
    let message = assert_refused(&identity, policy);
    let printed =
        fingerprint(&identity).iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":");
    for part in [
        "not signed by the certificates in",
        "subject CN=pve1.test",
        "issuer CN=Test CA",
        "alternative names 127.0.0.1, localhost",
        "valid ",
        &printed,
        "ca_path",
        "tls_fingerprint",
    ] {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    assert_eq!(parse_fingerprint(&printed), Ok(fingerprint(&identity)));
}

#[test]
fn the_system_store_does_not_know_our_server() {
    let identity = Wanted { marked_as_ca: true, ..Wanted::default() }.self_signed();
    let message = assert_refused(&identity, TlsPolicy::SystemStore);
    assert!(message.contains("the certificate authorities of this machine"), "{message}");
}

#[test]
fn a_pin_takes_its_own_leaf_whatever_else_is_wrong_with_it() {
    let identity = Wanted { names: &["pve9.test"], expired: true, marked_as_ca: true }.self_signed();
    assert_taken(&identity, TlsPolicy::Fingerprint(fingerprint(&identity)));
}

#[test]
fn a_pin_refuses_every_other_leaf_before_a_credential_is_sent() {
    let identity = Wanted::default().signed_by_a_ca();
    let message = assert_refused(&identity, TlsPolicy::Fingerprint([7; 32]));
    assert!(message.contains("not the pinned 07:07:07"), "{message}");
    assert!(message.contains("No credential was sent"), "{message}");
}

#[test]
fn without_verification_everything_is_taken() {
    let identity = Wanted { names: &["pve9.test"], expired: true, marked_as_ca: true }.self_signed();
    assert_taken(&identity, TlsPolicy::NoVerification);
}

/// Records the raw bytes of one connection, to which `answer` is the only answer.
fn raw_server(answer: &'static [u8]) -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = vec![0; 4096];
        let count = stream.read(&mut received).unwrap();
        received.truncate(count);
        stream.write_all(answer).unwrap();
        let _ = stream.read_to_end(&mut received);
        let _ = sender.send(received);
    });
    (url, receiver)
}

#[test]
fn a_server_of_the_past_is_refused_with_the_reason() {
    // TLS alert, fatal: protocol_version (70) and handshake_failure (40), as old stacks send them.
    for alert in [b"\x15\x03\x01\x00\x02\x02\x46", b"\x15\x03\x03\x00\x02\x02\x28"] {
        let (url, received) = raw_server(alert);
        let error =
            client(url, TlsPolicy::NoVerification).send(&Request::post("/login"), &minute()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Tls, "{error}");
        assert!(!error.may_have_reached_server);
        assert!(error.message.contains("only RSA key exchange"), "{error}");
        let bytes = received.recv().unwrap();
        assert!(!bytes.windows(11).any(|window| window == b"very-secret"), "a credential was sent");
    }
}

#[test]
fn plain_http_behind_https_is_named() {
    let (url, _received) = raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = client(url, TlsPolicy::NoVerification).send(&Request::post("/"), &minute()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Tls, "{error}");
    assert!(error.message.contains("does not speak TLS"), "{error}");
}

#[test]
fn a_useless_ca_file_is_refused_at_once() {
    let (_dir, policy) = bundle("no certificate here\n");
    let message = http_client::Client::new(config("https://127.0.0.1".into(), policy)).unwrap_err().message;
    assert!(message.contains("no certificate is in this file"), "{message}");

    let missing = TlsPolicy::CaPath(PathBuf::from("/nonexistent/ca.pem"));
    let message = http_client::Client::new(config("https://127.0.0.1".into(), missing)).unwrap_err().message;
    assert!(message.contains("ca_path /nonexistent/ca.pem: No such file"), "{message}");
}
