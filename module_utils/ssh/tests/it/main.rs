//! The client against real OpenSSH servers on loopback.

#![allow(clippy::unwrap_used, reason = "a test has nobody to report to")]

mod sshd;

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use deadline::Deadline;
use secrecy::SecretString;
use ssh::{Address, Connection, Error, Identity, KnownHosts, Login, Verdict, host_keys};

use crate::sshd::{Sshd, make_key};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn login(private: &Path) -> Login {
    Login { user: sshd::user(), identity: Identity::File { path: private.to_owned(), passphrase: None } }
}

/// A listener that answers every connection in its own way, as long as the test runs.
fn listener(answer: impl Fn(std::net::TcpStream) + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    Address::new("127.0.0.1", port)
}

#[test]
fn every_host_key_is_found_and_the_known_hosts_file_of_openssh_agrees() {
    let server = Sshd::start(&["ed25519", "ecdsa", "rsa"]);
    let (keys, connection) = host_keys(&server.address, &soon()).unwrap();
    let kinds: Vec<&str> = keys.iter().map(ssh::HostKey::kind).collect();
    assert_eq!(kinds, ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"]);
    assert_eq!(connection.host_key(), &keys[0]);
    assert_eq!(connection.peer().to_string(), server.address.to_string());

    let scanned = KnownHosts::parse(&server.keyscan());
    assert_eq!(scanned.judge(&server.address, &keys), Verdict::Held { missing: vec![] });
    let mut own = KnownHosts::default();
    own.add(&server.address, &keys);
    let known_hosts = server.directory().join("known_hosts");
    std::fs::write(&known_hosts, own.to_string()).unwrap();
    assert!(server.openssh_accepts(&known_hosts), "ssh(1) logs in with StrictHostKeyChecking and our file");
}

#[test]
fn a_server_with_one_kind_of_key_has_one() {
    let server = Sshd::start(&["rsa"]);
    let (keys, _) = host_keys(&server.address, &soon()).unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].kind(), "ssh-rsa");
}

#[test]
fn a_command_answers_with_output_and_exit_code() {
    let server = Sshd::start(&["ed25519"]);
    let connection = Connection::open(&server.address, &soon()).unwrap();
    let session = connection.log_in(&login(&server.user_key), &soon()).unwrap();
    let answer = session.run("echo out; echo err >&2; exit 3", &soon()).unwrap();
    assert_eq!((answer.exit_code, answer.stdout.as_str(), answer.stderr.as_str()), (3, "out\n", "err\n"));
    assert_eq!(session.run("echo again", &soon()).unwrap().stdout, "again\n");
}

#[test]
fn a_command_that_goes_on_talking_is_not_heard_to_its_end() {
    let server = Sshd::start(&["ed25519"]);
    let session = || {
        let connection = Connection::open(&server.address, &soon()).unwrap();
        connection.log_in(&login(&server.user_key), &soon()).unwrap()
    };
    let error = session().run("yes", &soon()).unwrap_err();
    assert!(error.to_string().contains("the answer does not end"), "{error}");
    let brief = Deadline::after(Duration::from_secs(1));
    let error = session().run("while echo slowly; do sleep 0.1; done", &brief).unwrap_err();
    assert!(matches!(error, Error::Expired(_)), "{error:?}");
}

#[test]
fn a_key_with_a_passphrase_needs_the_right_one() {
    let server = Sshd::start(&["ed25519"]);
    let private = server.authorize_key("locked", "sesame");
    let with = |passphrase: Option<&str>| Login {
        user: sshd::user(),
        identity: Identity::File { path: private.clone(), passphrase: passphrase.map(SecretString::from) },
    };
    let connection = || Connection::open(&server.address, &soon()).unwrap();
    assert!(connection().log_in(&with(Some("sesame")), &soon()).is_ok());
    for wrong in [Some("open"), None] {
        let error = connection().log_in(&with(wrong), &soon()).unwrap_err();
        assert!(matches!(error, Error::Identity(_)), "{error:?}");
    }
}

#[test]
fn a_refused_key_says_so() {
    let server = Sshd::start(&["ed25519"]);
    let stranger = make_key(server.directory(), "stranger", "ed25519", "");
    let connection = Connection::open(&server.address, &soon()).unwrap();
    let error = connection.log_in(&login(&stranger), &soon()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the server refused the key {} for the user {} (it lets in by: publickey)",
            stranger.display(),
            sshd::user()
        )
    );
}

#[test]
fn a_private_key_that_is_none_is_not_a_refusal() {
    let server = Sshd::start(&["ed25519"]);
    let nonsense = server.directory().join("nonsense");
    std::fs::write(&nonsense, "no key\n").unwrap();
    for path in [nonsense, PathBuf::from("/no/such/key")] {
        let connection = Connection::open(&server.address, &soon()).unwrap();
        let error = connection.log_in(&login(&path), &soon()).unwrap_err();
        assert!(matches!(error, Error::Identity(_)), "{error:?}");
    }
}

#[test]
fn nothing_that_listens_is_told_from_something_that_is_no_ssh() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Address::new("127.0.0.1", listener.local_addr().unwrap().port())
    };
    let error = Connection::open(&nobody, &soon()).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");

    let closing = listener(drop);
    let error = Connection::open(&closing, &soon()).unwrap_err();
    assert!(matches!(error, Error::NoSsh { .. }), "{error:?}");

    let web = listener(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")));
    let error = Connection::open(&web, &soon()).unwrap_err();
    assert!(matches!(error, Error::NoSsh { .. }), "{error:?}");

    let error = Connection::open(&Address::new("no-such-host.invalid", 22), &soon()).unwrap_err();
    assert!(matches!(error, Error::Name { .. }), "{error:?}");
}

#[test]
fn a_silent_listener_holds_nobody_past_the_deadline() {
    let silent = listener(std::mem::forget);
    let error = Connection::open(&silent, &Deadline::after(Duration::from_millis(300))).unwrap_err();
    assert!(matches!(error, Error::NoSsh { .. }), "{error:?}");
}
