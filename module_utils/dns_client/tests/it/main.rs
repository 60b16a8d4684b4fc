//! Against a real BIND: what an update takes for granted, and what a server does when that is not so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use deadline::Deadline;
use dns_client::{Algorithm, Ask, Error, Key, RecordData, RecordSet, RecordType, Refusal, Server, Update};
use lab::dns::{Bind, TsigKey, Zone};

const KEY: TsigKey<'_> =
    TsigKey { name: "anvil", algorithm: "hmac-sha384", secret: "c2VjcmV0LW9mLXRoZS1jbGllbnQ=" };
const NAME: &str = "web01.example.net";

struct Site {
    bind: Bind,
    server: Server,
    key: Key,
}

impl Site {
    /// `None`, saying so, where the programs are missing.
    fn new(records: &str) -> Option<Self> {
        if !lab::present(
            lab::dns::installed(),
            "BIND, Knot and Unbound (bind9, bind9-dnsutils, knot, unbound)",
        ) {
            return None;
        }
        let zone = Zone { name: "example.net", records, options: "allow-update { key anvil; };" };
        let bind = Bind::start(&[KEY], &[zone]).unwrap();
        let server = Server::new("127.0.0.1", bind.port()).unwrap();
        let key = Key::new(KEY.name, Algorithm::HmacSha384, &KEY.secret.into()).unwrap();
        Some(Self { bind, server, key })
    }

    fn read(&self, rr: RecordType) -> Option<RecordSet> {
        self.server.query(NAME, rr, Ask::Authoritative, &deadline()).unwrap().set(NAME, rr)
    }

    fn update(&self, update: &Update) -> Result<(), Error> {
        self.server.update(&self.key, update, &deadline())
    }
}

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn update(rr: RecordType, before: Option<RecordSet>, after: &[&str]) -> Update {
    let after = after.iter().map(|text| RecordData::parse(rr, text).unwrap()).collect();
    Update { zone: "example.net".into(), name: NAME.into(), rr, before, after, ttl: 60 }
}

#[test]
fn what_somebody_else_changed_meanwhile_is_not_overwritten() {
    let Some(site) = Site::new("") else { return };
    let first = update(RecordType::A, None, &["10.20.0.21"]);
    site.update(&first).unwrap();
    let error = site.update(&update(RecordType::A, None, &["10.20.0.22"])).unwrap_err();
    assert!(matches!(error, Error::Overtaken { .. }) && !error.may_have_happened(), "{error}");
    assert!(error.to_string().contains("somebody else changed it since it was read"), "{error}");

    let seen = site.read(RecordType::A);
    site.update(&update(RecordType::A, seen.clone(), &["10.20.0.23"])).unwrap();
    for stale in [update(RecordType::A, seen.clone(), &["10.20.0.24"]), update(RecordType::A, seen, &[])] {
        assert!(matches!(site.update(&stale), Err(Error::Overtaken { .. })));
        assert!(matches!(site.server.rehearse(&site.key, &stale, &deadline()), Err(Error::Overtaken { .. })));
    }
    assert_eq!(site.bind.ask(NAME, "A").unwrap(), ["10.20.0.23"]);
}

#[test]
fn a_rehearsal_changes_nothing() {
    let Some(site) = Site::new("") else { return };
    let first = update(RecordType::A, None, &["10.20.0.21"]);
    site.server.rehearse(&site.key, &first, &deadline()).unwrap();
    assert!(site.bind.ask(NAME, "A").unwrap().is_empty());
}

#[test]
fn beside_an_alias_nothing_is_dropped_without_a_word() {
    let Some(site) = Site::new("web01 CNAME db") else { return };
    let error = site.update(&update(RecordType::A, None, &["10.20.0.21"])).unwrap_err();
    assert!(matches!(error, Error::Overtaken { .. }), "{error}");
    let Some(site) = Site::new("web01 A 10.20.0.21") else { return };
    let error = site.update(&update(RecordType::Cname, None, &["db.example.net"])).unwrap_err();
    assert!(matches!(error, Error::Overtaken { .. }), "{error}");
}

#[test]
fn a_text_that_others_cut_elsewhere_can_be_changed() {
    let Some(site) = Site::new("web01 TXT \"v=DKIM1; \" \"k=rsa\"") else { return };
    let seen = site.read(RecordType::Txt);
    assert_eq!(seen.as_ref().unwrap().to_string(), "v=DKIM1; k=rsa");
    site.update(&update(RecordType::Txt, seen, &["v=DKIM1; k=ed25519"])).unwrap();
    assert_eq!(site.read(RecordType::Txt).unwrap().to_string(), "v=DKIM1; k=ed25519");
}

#[test]
fn an_answer_too_long_for_udp_is_fetched_over_tcp() {
    let Some(site) = Site::new("") else { return };
    let long = "x".repeat(3000);
    site.update(&update(RecordType::Txt, None, &[&long])).unwrap();
    assert_eq!(site.read(RecordType::Txt).unwrap().to_string(), long);
}

#[test]
fn the_zone_of_a_name_is_found_whether_the_name_exists_or_not() {
    let Some(site) = Site::new("www CNAME web01\nsub NS ns.elsewhere.org.") else { return };
    let zone = |name: &str| site.server.zone_of(name, &deadline());
    for name in ["example.net", "www.example.net", "none.example.net", "a.b.c.example.net"] {
        assert_eq!(zone(name).unwrap(), "example.net", "{name}");
    }
    for name in ["web01.example.org", "net", "host.sub.example.net"] {
        assert!(matches!(zone(name), Err(Error::NotAuthoritative { .. })), "{name}");
    }
}

#[test]
fn a_zone_that_the_server_does_not_keep_is_told() {
    let Some(site) = Site::new("") else { return };
    let elsewhere = Update { zone: "net".into(), ..update(RecordType::A, None, &["10.20.0.21"]) };
    let Err(Error::Refused { refusal, .. }) = site.update(&elsewhere) else { panic!("it was taken") };
    assert_eq!(refusal, Refusal::NotPrimary { zone: "net".into() });
    let outside = Update { name: "web01.example.org".into(), ..update(RecordType::A, None, &["10.20.0.21"]) };
    let Err(Error::Refused { refusal, .. }) = site.update(&outside) else { panic!("it was taken") };
    assert_eq!(refusal, Refusal::NotInZone { zone: "example.net".into() });
}
