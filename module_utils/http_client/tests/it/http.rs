use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use deadline::Deadline;
use http_client::{Auth, Client, ClientConfig, ErrorKind, Request, TlsPolicy};
use serde_json::json;

use crate::server::{Act, Server, Wanted, header, ok};
use crate::{client, config, minute};

fn plain(acts: Vec<Act>) -> (Server, Client) {
    let server = Server::start(None, acts);
    let client = client(server.url(), TlsPolicy::SystemStore);
    (server, client)
}

#[test]
fn the_reason_phrase_of_the_server_is_kept() {
    for (status, phrase) in [
        (500, "can't lock file '/var/lock/qemu-server/lock-104.conf' - got timeout"),
        (595, "No route to host"),
        (200, "OK"),
    ] {
        let (_server, client) =
            plain(vec![Act::Answer(format!("HTTP/1.1 {status} {phrase}\r\nContent-Length: 2\r\n\r\n{{}}"))]);
        let response = client.send(&Request::put("/config"), &minute()).unwrap();
        assert_eq!((response.status, response.reason.as_str()), (status, phrase));
        assert_eq!(response.json().unwrap(), json!({}));
    }
}

#[test]
fn requests_are_written_as_strict_servers_want_them() {
    let (server, client) = plain(vec![ok("{}")]);
    let pairs = vec![("boot".to_owned(), "order=scsi0;net0".to_owned())];
    let deadline = minute();
    for request in [
        Request::get("/a").form(pairs.clone()),
        Request::delete("/b?x=1").form(pairs.clone()),
        Request::put("/c").form(pairs),
        Request::post("/d").json(json!({"mac": "02:a5"})),
        Request::post("/e").header("CSRFPreventionToken", "token".into()),
    ] {
        client.send(&request, &deadline).unwrap();
    }
    let seen = server.requests();
    assert!(seen[0].starts_with("GET /a?boot=order%3Dscsi0%3Bnet0 HTTP/1.1\r\n"), "{}", seen[0]);
    assert!(seen[1].starts_with("DELETE /b?x=1&boot=order%3Dscsi0%3Bnet0 HTTP/1.1\r\n"), "{}", seen[1]);
    for without_body in &seen[..2] {
        assert_eq!(header(without_body, "content-type"), None);
        assert_eq!(header(without_body, "content-length"), None);
    }
    assert!(seen[2].ends_with("\r\n\r\nboot=order%3Dscsi0%3Bnet0"), "{}", seen[2]);
    assert_eq!(header(&seen[2], "content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(header(&seen[2], "content-length"), Some("25"));
    assert!(seen[3].ends_with("\r\n\r\n{\"mac\":\"02:a5\"}"), "{}", seen[3]);
    assert_eq!(header(&seen[4], "content-length"), Some("0"));
    assert_eq!(header(&seen[4], "csrfpreventiontoken"), Some("token"));
    for request in &seen {
        assert_eq!(header(request, "transfer-encoding"), None);
        assert_eq!(header(request, "accept-encoding"), None);
        assert_eq!(header(request, "authorization"), Some("PVEAPIToken=u@pve!t=very-secret"));
    }
    assert_eq!(server.connections(), 1, "one connection a run");
    let calls: Vec<_> = client.calls().into_iter().collect();
    assert_eq!(calls, [("DELETE".into(), 1), ("GET".into(), 1), ("POST".into(), 2), ("PUT".into(), 1)]);
}

#[test]
fn one_tls_connection_serves_many_requests() {
    let server = Server::start(Some(Wanted::default().self_signed().server_config()), vec![ok("x")]);
    let client = client(server.url(), TlsPolicy::NoVerification);
    for _ in 0..5 {
        client.send(&Request::get("/"), &minute()).unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn basic_credentials_are_sent() {
    let server = Server::start(None, vec![ok("")]);
    let auth = Auth::Basic { user: "key".into(), password: "secret".into() };
    let client = Client::new(ClientConfig { auth, ..config(server.url(), TlsPolicy::SystemStore) }).unwrap();
    client.send(&Request::get("/"), &minute()).unwrap();
    assert_eq!(header(&server.requests()[0], "authorization"), Some("Basic a2V5OnNlY3JldA=="));
}

#[test]
fn a_redirect_is_an_answer_and_not_followed() {
    let (server, client) = plain(vec![Act::Answer(
        "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".into(),
    )]);
    let response = client.send(&Request::get("/"), &minute()).unwrap();
    assert_eq!((response.status, response.header("location")), (302, Some("/elsewhere")));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_lost_read_is_repeated_and_a_lost_write_is_not() {
    let (server, client) = plain(vec![Act::Close, Act::Close, ok("third time")]);
    let response = client.send(&Request::get("/"), &minute()).unwrap();
    assert_eq!(response.text(), "third time");
    assert_eq!(client.calls()["GET"], 3);
    assert_eq!(server.requests().len(), 3);

    let (server, client) = plain(vec![Act::Close]);
    let error = client.send(&Request::post("/clone"), &minute()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    assert!(error.may_have_reached_server);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_write_lost_on_a_kept_alive_connection_is_not_repeated() {
    let (server, client) = plain(vec![ok("first"), Act::Close, ok("after")]);
    client.send(&Request::get("/"), &minute()).unwrap();
    let error = client.send(&Request::post("/start"), &minute()).unwrap_err();
    assert!(error.may_have_reached_server, "{error}");
    assert_eq!(server.requests().len(), 2);
    assert_eq!(client.send(&Request::get("/"), &minute()).unwrap().text(), "after");
    assert_eq!(server.connections(), 2);
}

#[test]
fn an_answer_that_ends_early_is_an_error() {
    let (_server, client) =
        plain(vec![Act::Answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".into()), Act::Close]);
    let config = ClientConfig {
        request_timeout: Duration::from_millis(300),
        ..config(client.base_url().to_owned(), TlsPolicy::SystemStore)
    };
    let error = Client::new(config).unwrap().send(&Request::put("/"), &minute()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert!(error.may_have_reached_server);
}

#[test]
fn the_shorter_of_request_timeout_and_deadline_ends_a_request() {
    let (_server, client) = plain(vec![Act::Hang]);
    let error = client.send(&Request::post("/"), &Deadline::after(Duration::from_millis(200))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert!(error.may_have_reached_server);

    let over = Deadline::after(Duration::ZERO);
    let error = client.send(&Request::post("/"), &over).unwrap_err();
    assert_eq!((error.kind, error.may_have_reached_server), (ErrorKind::Timeout, false));
}

#[test]
fn an_interrupt_ends_a_request_that_hangs() {
    let (server, client) = plain(vec![Act::Hang]);
    let deadline = minute();
    let flag = deadline.interrupt_flag();
    let raiser = thread::spawn(move || {
        while server.requests().is_empty() {
            thread::yield_now();
        }
        flag.store(true, Ordering::Relaxed);
    });
    let error = client.send(&Request::post("/"), &deadline).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
    assert!(error.may_have_reached_server);
    raiser.join().unwrap();
}

#[test]
fn nobody_listening_is_unreachable_and_surely_not_reached() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let client = client(format!("http://127.0.0.1:{port}"), TlsPolicy::SystemStore);
    let error = client.send(&Request::post("/"), &minute()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(!error.may_have_reached_server);
    assert!(error.message.contains("Connection refused"), "{error}");
    assert!(error.message.contains(&format!("127.0.0.1:{port}")), "{error}");
}

#[test]
fn a_body_that_is_not_json_is_shown() {
    let (_server, client) = plain(vec![ok("<html>login</html>")]);
    let error = client.send(&Request::get("/api"), &minute()).unwrap().json().unwrap_err();
    assert!(error.message.contains("not JSON"), "{error}");
    assert!(error.message.contains("<html>login"), "{error}");
}

#[test]
fn nothing_secret_is_in_debug_text() {
    let (_server, client) = plain(vec![ok("")]);
    let request = Request::post("/x").form(vec![("cipassword".into(), "very-secret".into())]);
    let text = format!("{client:?} {request:?}");
    assert!(!text.contains("very-secret"), "{text}");
}
