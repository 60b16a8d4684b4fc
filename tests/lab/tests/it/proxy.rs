//! The proxy between a client and fakepve.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lab::http::request;
use lab::proxy::{Fate, Proxy};
use lab::pve::{self, FakePve};

fn pve_behind_proxy() -> (FakePve, Proxy) {
    let pve = FakePve::builder().template(8000, "fedora-server-42", "pve1").start();
    let proxy = Proxy::to(&pve.url()).tls().start();
    (pve, proxy)
}

#[test]
fn passes_requests_and_answers_and_logs_them() {
    let (_pve, proxy) = pve_behind_proxy();
    let config = pve::call(&proxy.url(), "GET", "/nodes/pve1/qemu/8000/config?current=1", &[]).unwrap();
    assert_eq!(config["name"], "fedora-server-42");
    pve::call(&proxy.url(), "PUT", "/nodes/pve1/qemu/8000/config", &[("description", "a b")]).unwrap();
    let log: Vec<String> = proxy.log().iter().map(ToString::to_string).collect();
    assert_eq!(
        log,
        [
            "GET /api2/json/nodes/pve1/qemu/8000/config?current=1 -> 200",
            "PUT /api2/json/nodes/pve1/qemu/8000/config -> 200"
        ]
    );
    assert_eq!(proxy.writes()[0].body, "description=a%20b");
    assert_eq!((proxy.reads().len(), proxy.writes().len(), proxy.connections()), (1, 1, 2));
}

#[test]
fn a_reason_phrase_and_an_odd_status_reach_the_client() {
    let (_pve, proxy) = pve_behind_proxy();
    proxy.on("GET", "/version").first().answer(595, "No route to host", "");
    let answer = raw(&proxy, "GET /api2/json/version");
    assert!(answer.starts_with("HTTP/1.1 595 No route to host\r\n"), "{answer}");
    // From behind the proxy: fakepve's own words.
    let answer = raw(&proxy, "GET /api2/json/nodes/pve1/qemu/777/config");
    let expected = "HTTP/1.1 500 Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist\r\n";
    assert!(answer.starts_with(expected), "{answer}");
}

#[test]
fn a_dropped_request_never_arrives_and_a_lost_answer_does() {
    let (pve, proxy) = pve_behind_proxy();
    let path = "/nodes/pve1/qemu/8000/config";
    proxy.on("PUT", "/config").first().drop_request();
    proxy.on("PUT", "/config").nth(2).lose_answer();
    assert!(pve::call(&proxy.url(), "PUT", path, &[("description", "first")]).is_err());
    assert!(pve.vm_config(8000)["description"].is_null());
    assert!(pve::call(&proxy.url(), "PUT", path, &[("description", "second")]).is_err());
    assert_eq!(pve.vm_config(8000)["description"], "second");
    assert_eq!(proxy.writes().iter().map(|exchange| exchange.status).collect::<Vec<_>>(), [None, None]);
}

#[test]
fn bodies_are_rewritten_both_ways() {
    let (pve, proxy) = pve_behind_proxy();
    proxy.on("PUT", "/config").rewrite_request(|body| body.replace("cores=8", "cores=2"));
    proxy.on("GET", "/config").rewrite_answer(|body| body.replace("fedora-server-42", "somebody-else"));
    pve::call(&proxy.url(), "PUT", "/nodes/pve1/qemu/8000/config", &[("cores", "8")]).unwrap();
    assert_eq!(pve.vm_config(8000)["cores"], 2);
    let seen = pve::call(&proxy.url(), "GET", "/nodes/pve1/qemu/8000/config", &[]).unwrap();
    assert_eq!(seen["name"], "somebody-else");
    proxy.clear_faults();
    let seen = pve::call(&proxy.url(), "GET", "/nodes/pve1/qemu/8000/config", &[]).unwrap();
    assert_eq!(seen["name"], "fedora-server-42");
}

#[test]
fn a_request_is_held_while_the_callback_runs() {
    let (_pve, proxy) = pve_behind_proxy();
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    proxy.on_request(2).call(move || {
        seen.fetch_add(1, Ordering::SeqCst);
        Fate::Forward
    });
    proxy.on_request(3).delay(Duration::from_millis(200));
    proxy.on_request(4).call(|| Fate::Drop);
    for expected in [0, 1] {
        pve::call(&proxy.url(), "GET", "/version", &[]).unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), expected);
    }
    let asked = Instant::now();
    pve::call(&proxy.url(), "GET", "/version", &[]).unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(200));
    assert!(pve::call(&proxy.url(), "GET", "/version", &[]).is_err());
    assert_eq!(proxy.log()[3].status, None);
}

#[test]
fn connections_are_kept_alive() {
    use std::io::{BufRead, BufReader, Read, Write};
    let (_pve, proxy) = pve_behind_proxy();
    let plain = Proxy::to(&proxy.url()).start();
    let mut stream = BufReader::new(std::net::TcpStream::connect((plain.host(), plain.port())).unwrap());
    for _ in 0..3 {
        write!(stream.get_mut(), "GET /api2/json/version HTTP/1.1\r\nHost: pve\r\n{}\r\n\r\n", token())
            .unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).unwrap();
    }
    assert_eq!((plain.connections(), proxy.connections(), proxy.log().len()), (1, 1, 3));
}

#[test]
fn what_counts_as_a_write() {
    let (_pve, proxy) = pve_behind_proxy();
    let send = |method: &str, path: &str, body: &str| {
        proxy.on("*", path).first().answer(200, "OK", "{}");
        request(&proxy.url(), method, path, &[], body).unwrap();
    };
    send("POST", "/api/kea/dhcpv4/search_reservation", "{}");
    send("POST", "/kea/read", r#"{"command":"config-get"}"#);
    send("POST", "/api2/json/access/ticket", "username=root@pam");
    assert_eq!(proxy.writes().len(), 0);
    send("POST", "/kea/write", r#"{"command":"config-set"}"#);
    send("POST", "/api/kea/service/reconfigure", "{}");
    assert_eq!(proxy.writes().len(), 2);
    proxy.on_write(3).answer(503, "busy", "");
    let answer = request(&proxy.url(), "POST", "/kea/other", &[], r#"{"command":"config-write"}"#).unwrap();
    assert_eq!(answer.status, 503);
}

fn token() -> String {
    format!("Authorization: PVEAPIToken={}!{}={}", pve::TOKEN_USER, pve::TOKEN_ID, pve::TOKEN_SECRET)
}

/// The raw answer, status line and all, through a second proxy that speaks plain HTTP.
fn raw(proxy: &Proxy, request_line: &str) -> String {
    use std::io::{Read, Write};
    let plain = Proxy::to(&proxy.url()).start();
    let mut stream = std::net::TcpStream::connect((plain.host(), plain.port())).unwrap();
    write!(stream, "{request_line} HTTP/1.1\r\nHost: pve\r\nConnection: close\r\n{}\r\n\r\n", token())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_forced_reset_of_a_server_is_never_forgotten() {
    let upstream = Proxy::to("http://127.0.0.1:1").start();
    let reset = |kind: &str| {
        let path = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
        let body = format!(r#"{{"ResetType": "{kind}"}}"#);
        let proxy = Proxy::to(&upstream.url()).start();
        proxy.on("POST", "/").answer(204, "No Content", "");
        let _ = request(&proxy.url(), "POST", path, &[], &body);
        proxy.forget();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(proxy))).is_ok()
    };
    for (kind, passes) in
        [("On", true), ("GracefulShutdown", true), ("ForceOff", false), ("GracefulRestart", false)]
    {
        assert_eq!(reset(kind), passes, "{kind}");
    }
}
