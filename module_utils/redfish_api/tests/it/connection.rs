//! Signing in, sessions, busy BMCs, and what is no Redfish.

use http_client::TlsPolicy;
use lab::redfish::{Quirk, RedfishDouble, Tree};
use redfish_api::{Bmc, Connection, Credentials, Error};
use serde_json::json;

use crate::{bmc, connection, deadline};

const SYSTEM: &str = "/redfish/v1/Systems/1";

/// How each request was signed in, in order.
fn signed(double: &RedfishDouble) -> Vec<String> {
    double.log().iter().map(|one| format!("{} {} {}", one.by, one.method, one.path)).collect()
}

#[test]
fn the_root_is_read_without_credentials_and_the_rest_with_basic() {
    let double = RedfishDouble::builder(Tree::plain()).start();
    bmc(&double).systems(&deadline()).unwrap();
    assert_eq!(
        signed(&double),
        [
            "nobody GET /redfish/v1/",
            "basic GET /redfish/v1/Systems",
            "basic GET /redfish/v1/Systems/1",
            "basic GET /redfish/v1/Systems/1/ResetActionInfo",
        ]
    );
    assert_eq!(double.open_sessions(), 0);
}

#[test]
fn a_root_without_a_slash_is_found() {
    let double = RedfishDouble::builder(Tree::plain()).quirk(Quirk::NoSlash).start();
    assert_eq!(bmc(&double).systems(&deadline()).unwrap().len(), 1);
}

#[test]
fn a_session_is_opened_once_and_closed_whatever_happens() {
    let double = RedfishDouble::builder(Tree::plain()).start();
    let session = Connection { session: true, ..connection(&double) };
    let in_session = Bmc::new(session.clone()).unwrap();
    in_session.systems(&deadline()).unwrap();
    assert_eq!(double.open_sessions(), 1);
    drop(in_session);
    assert_eq!(double.open_sessions(), 0, "closed after success");

    let failing = Bmc::new(session.clone()).unwrap();
    assert!(matches!(failing.get("/redfish/v1/Nothing", &deadline()), Err(Error::Refused(_))));
    drop(failing);
    assert_eq!(double.open_sessions(), 0, "closed after a failure");

    let over = Bmc::new(session.clone()).unwrap();
    let gone = deadline();
    over.get(SYSTEM, &gone).unwrap();
    gone.interrupt_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(over.get(SYSTEM, &gone).is_err());
    drop(over);
    assert_eq!(double.open_sessions(), 0, "closed after an interrupt");

    let logins = double.log().iter().filter(|one| one.method == "POST").count();
    let closed = double.log().iter().filter(|one| one.method == "DELETE" && one.status == 204).count();
    assert_eq!((logins, closed), (3, 3));
    assert!(double.log().iter().all(|one| one.by != "basic"));
}

#[test]
fn a_bmc_without_a_free_session_is_spoken_to_with_basic() {
    let double = RedfishDouble::builder(Tree::plain()).quirk(Quirk::SessionLimit).start();
    let bmc = Bmc::new(Connection { session: true, ..connection(&double) }).unwrap();
    assert_eq!(bmc.systems(&deadline()).unwrap().len(), 1);
    let logins = double.log().iter().filter(|one| one.method == "POST").count();
    assert_eq!(logins, 1, "asked once");
}

#[test]
fn a_connection_that_only_reads_sends_nothing_else() {
    let double = RedfishDouble::builder(Tree::plain()).start();
    let bmc = Bmc::new(Connection { session: true, read_only: true, ..connection(&double) }).unwrap();
    let system = bmc.systems(&deadline()).unwrap().remove(0);
    assert!(matches!(bmc.power_on(&system, &deadline()), Err(Error::ReadOnly { .. })));
    assert!(double.log().iter().all(|one| one.method == "GET"));
}

#[test]
fn wrong_credentials_are_said_to_be_wrong() {
    let double = RedfishDouble::builder(Tree::plain()).start();
    for session in [false, true] {
        let credentials = Credentials { user: "admin".into(), password: "hunter2-wrong".to_owned().into() };
        let bmc = Bmc::new(Connection { credentials, session, ..connection(&double) }).unwrap();
        let error = bmc.systems(&deadline()).unwrap_err();
        assert!(matches!(error, Error::Auth(_)), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[test]
fn a_pinned_bmc_is_believed_and_another_gets_no_credentials() {
    let double = RedfishDouble::builder(Tree::plain()).start();
    let right = http_client::parse_fingerprint(double.fingerprint()).unwrap();
    let with = |tls| Bmc::new(Connection { tls, ..connection(&double) }).unwrap();
    assert_eq!(with(TlsPolicy::Fingerprint(right)).systems(&deadline()).unwrap().len(), 1);
    let before = double.log().len();
    assert!(matches!(with(TlsPolicy::Fingerprint([7; 32])).systems(&deadline()), Err(Error::Http(_))));
    assert_eq!(double.log().len(), before);
}

#[test]
fn a_busy_bmc_is_asked_again() {
    let double = RedfishDouble::builder(Tree::plain()).quirk(Quirk::BusyReads(2)).start();
    assert_eq!(bmc(&double).systems(&deadline()).unwrap().len(), 1);
    let double = RedfishDouble::builder(Tree::plain()).quirk(Quirk::BusyReads(100)).start();
    let error = bmc(&double).systems(&deadline()).unwrap_err().to_string();
    assert!(error.ends_with("503 Service Unavailable: The service is busy."), "{error}");
}

#[test]
fn a_collection_has_pages() {
    let link = |id: &str| json!({"@odata.id": format!("/redfish/v1/Systems/{id}")});
    let page = "/redfish/v1/Systems/page2";
    let tree = Tree::plain()
        .with("/redfish/v1/Systems", json!({"Members": [link("1")], "Members@odata.nextLink": page}))
        // It links to itself: that must not go on for ever.
        .with(page, json!({"Members": [link("1"), link("2"), link("3")], "Members@odata.nextLink": page}))
        .with("/redfish/v1/Systems/2", json!({"Id": "2"}));
    let double = RedfishDouble::builder(tree).start();
    let ids: Vec<String> =
        bmc(&double).systems(&deadline()).unwrap().iter().map(|one| one.id().to_owned()).collect();
    assert_eq!(ids, ["1", "2"], "one that is announced and not there is left out");
}

#[test]
fn what_is_no_system_is_not_taken_for_one() {
    let manager = json!({"@odata.type": "#Manager.v1_0_0.Manager", "Id": "1"});
    let double = RedfishDouble::builder(Tree::plain().with(SYSTEM, manager)).start();
    let error = bmc(&double).systems(&deadline()).unwrap_err().to_string();
    assert!(error.contains("expected a ComputerSystem"), "{error}");
    let double = RedfishDouble::builder(Tree::default().with("/redfish/v1", json!({"Name": "x"}))).start();
    let error = bmc(&double).systems(&deadline()).unwrap_err().to_string();
    assert!(error.contains("expected a service root with a link to Systems"), "{error}");
}
