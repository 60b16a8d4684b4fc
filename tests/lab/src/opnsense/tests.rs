//! One test for each fact that a client of the API meets.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::http;

const MAC: &str = "52:54:00:ab:cd:ef";
const POOL: &str = "10.0.0.100-10.0.0.199";
const UNKNOWN: &str = "11111111-2222-4333-8444-555555555555";

fn double(release: Release) -> OpnsenseDouble {
    OpnsenseDouble::builder().release(release).subnet("10.0.0.0/24", POOL).start()
}

/// An answer's status and body; `Null` for an empty body.
#[derive(Debug, PartialEq)]
struct Got(u16, Value);

impl OpnsenseDouble {
    fn raw(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Got {
        let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
        let answer = http::request(&self.url(), method, path, &headers, body).unwrap();
        Got(answer.status, serde_json::from_str(&answer.body).unwrap_or_default())
    }

    fn get(&self, path: &str) -> Value {
        let Got(status, body) = self.raw("GET", path, &[&basic(KEY, SECRET)], "");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let Got(status, body) = self.send(path, &body);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn send(&self, path: &str, body: &Value) -> Got {
        self.raw("POST", path, &[&basic(KEY, SECRET), JSON], &body.to_string())
    }

    fn add(&self, values: Value) -> Value {
        let mut values = values;
        if values.get("subnet").is_none() {
            values["subnet"] = json!(self.subnet_uuid("10.0.0.0/24").unwrap());
        }
        self.post("/api/kea/dhcpv4/add_reservation", json!({"reservation": values}))
    }

    fn add_host(&self, values: Value) -> Value {
        self.post("/api/unbound/settings/add_host_override", json!({"host": values}))
    }

    fn reconfigure(&self) -> Value {
        self.post("/api/kea/service/reconfigure", json!({}))
    }

    fn status(&self) -> Value {
        self.get("/api/kea/service/status")["status"].clone()
    }
}

const JSON: &str = "Content-Type: application/json";

fn basic(key: &str, secret: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(format!("{key}:{secret}")))
}

fn validations(answer: &Value) -> &Value {
    assert_eq!(answer["result"], "failed", "{answer}");
    &answer["validations"]
}

// Transport and authentication.

#[test]
fn a_wrong_secret_is_a_401_in_json_and_no_header_one_without_a_body() {
    let double = double(Release::V26_7_2);
    let path = "/api/kea/dhcpv4/search_reservation";
    let refused = Got(401, json!({"status": 401, "message": "Authentication Failed"}));
    assert_eq!(double.raw("GET", path, &[&basic(KEY, "wrong")], ""), refused);
    assert_eq!(double.raw("GET", path, &["Authorization: Basic %%%"], ""), refused);
    assert_eq!(double.raw("GET", path, &[], ""), Got(401, Value::Null));
}

#[test]
fn an_unknown_endpoint_is_a_404_even_without_a_key() {
    let double = double(Release::V26_7_2);
    let missing = Got(404, json!({"errorMessage": "Endpoint not found"}));
    for path in
        ["/api/kea/dhcpv4/bogus", "/api/kea/dhcpv4", "/api/bogus/a/b", "/api/kea/dhcpv4/set_reservation"]
    {
        assert_eq!(double.raw("GET", path, &[], ""), missing, "{path}");
    }
    assert_eq!(
        double.raw("GET", "/api/unbound/settings/bogus", &[&basic(KEY, SECRET)], ""),
        Got(200, Value::Null)
    );
}

#[test]
fn an_empty_json_body_is_a_400_also_on_get() {
    let double = double(Release::V25_1);
    let refused = Got(400, json!({"status": 400, "message": "Invalid JSON syntax"}));
    for (method, path) in [("GET", "/api/kea/service/status"), ("POST", "/api/kea/service/reconfigure")] {
        assert_eq!(double.raw(method, path, &[&basic(KEY, SECRET), JSON], ""), refused);
        let spaced = "Content-Type: Application/JSON; charset=UTF-8";
        assert_eq!(double.raw(method, path, &[&basic(KEY, SECRET), spaced], ""), refused);
    }
}

#[test]
fn a_body_of_another_type_or_of_broken_json_counts_as_none() {
    let double = double(Release::V26_7_2);
    let path = "/api/kea/dhcpv4/add_reservation";
    let body = json!({"reservation": {"hw_address": MAC}}).to_string();
    let nothing = Got(200, json!({"result": "failed"}));
    for content_type in ["Content-Type: text/plain", "Content-Type: application/json; charset=latin1"] {
        assert_eq!(double.raw("POST", path, &[&basic(KEY, SECRET), content_type], &body), nothing);
    }
    assert_eq!(double.raw("POST", path, &[&basic(KEY, SECRET), JSON], "{oops"), nothing);
}

#[test]
fn both_spellings_reach_the_same_action() {
    let double = double(Release::V25_1);
    let snake = double.get("/api/kea/dhcpv4/search_subnet");
    assert_eq!(snake, double.get("/api/kea/dhcpv4/searchSubnet"));
    assert_eq!(snake["total"], 1);
}

#[test]
fn privileges_compare_the_uri_as_it_was_written() {
    for (release, allowed, forbidden) in [
        (Release::V25_1, "searchHostOverride", "search_host_override"),
        (Release::V25_7, "search_host_override", "searchHostOverride"),
    ] {
        let user = User::with("dns", "s", &[Privilege::HostOverrides]);
        let double = OpnsenseDouble::builder().release(release).user(user).start();
        let call = |path: &str| double.raw("GET", path, &[&basic("dns", "s")], "").0;
        assert_eq!(call(&format!("/api/unbound/settings/{allowed}")), 200);
        assert_eq!(call(&format!("/api/unbound/settings/{forbidden}")), 403);
        assert_eq!(call(&format!("/api/unbound/settings/{allowed}?rowCount=1")), 403);
        assert_eq!(call("/api/unbound/service/reconfigure"), 403);
        assert_eq!(call("/api/kea/service/status"), 403);
    }
}

#[test]
fn a_privilege_for_kea_ends_at_unbound() {
    let user = User::with("dhcp", "s", &[Privilege::Kea]);
    let double = OpnsenseDouble::builder().user(user).start();
    let call = |path: &str| double.raw("GET", path, &[&basic("dhcp", "s")], "");
    for path in ["/api/kea/dhcpv4/get", "/api/kea/leases4/search", "/api/kea/service/status"] {
        assert_eq!(call(path).0, 200, "{path}");
    }
    assert_eq!(call("/api/unbound/settings/get"), Got(403, json!({"status": 403, "message": "Forbidden"})));
}

#[test]
fn a_read_only_user_reads_and_cannot_save() {
    let double = OpnsenseDouble::builder()
        .subnet("10.0.0.0/24", POOL)
        .user(User::admin(KEY, SECRET).read_only())
        .start();
    let subnet = double.subnet_uuid("10.0.0.0/24").unwrap();
    let body = json!({"reservation": {"subnet": subnet, "ip_address": "10.0.0.5", "hw_address": MAC}});
    let Got(status, answer) = double.send("/api/kea/dhcpv4/add_reservation", &body);
    assert_eq!(status, 500);
    assert_eq!(answer["errorTitle"], "General access");
    assert!(answer["errorMessage"].as_str().unwrap().contains("user-config-readonly"), "{answer}");
    assert!(double.stored_reservations().is_empty());
}

#[test]
fn get_where_post_is_due_fails_without_a_reason() {
    let double = double(Release::V26_7_2);
    let uuid =
        double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}))["uuid"].as_str().unwrap().to_owned();
    for path in
        ["add_reservation", &format!("set_reservation/{uuid}"), &format!("del_reservation/{uuid}"), "set"]
    {
        assert_eq!(double.get(&format!("/api/kea/dhcpv4/{path}")), json!({"result": "failed"}), "{path}");
    }
    assert_eq!(double.get("/api/kea/service/reconfigure"), json!({"status": "failed"}));
    assert_eq!(double.stored_reservations().len(), 1);
    assert!(double.live_reservations().is_empty());
}

#[test]
fn a_wrong_root_key_fails_without_a_reason() {
    let double = double(Release::V26_7_2);
    let body = json!({"host": {"hw_address": MAC}});
    assert_eq!(double.post("/api/kea/dhcpv4/add_reservation", body), json!({"result": "failed"}));
    assert_eq!(
        double.post("/api/kea/dhcpv4/add_reservation", json!({"reservation": null})),
        json!({"result": "failed"})
    );
}

#[test]
fn a_list_where_a_value_is_due_is_a_500() {
    let double = double(Release::V26_7_2);
    let unexpected = Got(500, json!({"errorMessage": "Unexpected error, check log for details"}));
    for values in [json!({"ip_address": ["10.0.0.5"]}), json!({"option_data": "x"})] {
        let body = json!({"reservation": values});
        assert_eq!(double.send("/api/kea/dhcpv4/add_reservation", &body), unexpected);
    }
}

// Reservations.

#[test]
fn a_reservation_is_stored_at_once_and_live_after_reconfigure() {
    let double = double(Release::V26_7_2);
    let answer = double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC, "hostname": "n1"}));
    assert_eq!(answer["result"], "saved");
    let uuid = answer["uuid"].as_str().unwrap();
    assert_eq!(double.stored_reservations()[0].uuid, uuid);
    assert_eq!(double.live_reservations(), []);
    assert_eq!(double.address_for(MAC), Address::Pool("10.0.0.100".parse().unwrap()));
    assert_eq!(double.reconfigure(), json!({"status": "ok"}));
    assert_eq!(double.live_reservations(), double.stored_reservations());
    assert_eq!(double.address_for("52:54:00:AB:CD:EF"), Address::Reserved("10.0.0.5".parse().unwrap()));
}

#[test]
fn a_reservation_is_shown_with_maps_for_lists_and_strings_for_all_else() {
    let double = double(Release::V26_7_2);
    let uuid = double.add(json!({
        "ip_address": "10.0.0.5", "hw_address": MAC, "next_server": "10.0.0.2",
        "option_data": {"routers": "10.0.0.1,10.0.0.2", "boot_file_name": "grubnetx64.efi"},
    }))["uuid"]
        .clone();
    let empty = json!({"": {"value": "", "selected": 1}});
    let routers = json!({"10.0.0.1": {"value": "10.0.0.1", "selected": 1}, "10.0.0.2": {"value": "10.0.0.2", "selected": 1}});
    assert_eq!(
        double.get(&format!("/api/kea/dhcpv4/get_reservation/{}", uuid.as_str().unwrap())),
        json!({"reservation": {
            "subnet": {double.subnet_uuid("10.0.0.0/24").unwrap(): {"value": "10.0.0.0/24", "selected": 1}},
            "ip_address": "10.0.0.5", "hw_address": MAC, "client_id": "", "hostname": "", "description": "",
            "next_server": "10.0.0.2",
            "option_data": {
                "domain_name_servers": empty, "domain_search": empty, "routers": routers, "static_routes": "",
                "classless_static_route": "", "domain_name": "", "ntp_servers": empty, "time_servers": empty,
                "tftp_server_name": "", "boot_file_name": "grubnetx64.efi",
            },
            "option": [],
        }})
    );
}

#[test]
fn an_unknown_uuid_and_an_empty_map_are_lists() {
    let double = OpnsenseDouble::builder().start();
    assert_eq!(double.get(&format!("/api/kea/dhcpv4/get_reservation/{UNKNOWN}")), json!([]));
    let blank = double.get("/api/kea/dhcpv4/get_reservation");
    assert_eq!(blank["reservation"]["subnet"], json!([]));
    assert_eq!(blank["reservation"]["option"], json!([]));
    assert_eq!(double.get("/api/unbound/settings/get")["unbound"]["hosts"]["host"], json!([]));
}

#[test]
fn scalars_of_other_types_become_strings_and_null_is_not_sent() {
    let double = double(Release::V26_7_2);
    double.add(json!({"ip_address": " 10.0.0.5 ", "hw_address": format!(" {MAC} "), "hostname": 7, "description": null}));
    let stored = &double.stored_reservations()[0];
    assert_eq!((stored.ip_address.as_str(), stored.hw_address.as_str()), ("10.0.0.5", MAC));
    assert_eq!((stored.hostname.as_str(), stored.description.as_str()), ("7", ""));
}

#[test]
fn unknown_fields_are_dropped_without_a_word() {
    for (release, next_server, boot_file) in [
        (Release::V25_1, "", ""),
        (Release::V25_7, "", "grub.efi"),
        (Release::V26_1_8, "", "grub.efi"),
        (Release::V26_1_9, "10.0.0.2", "grub.efi"),
    ] {
        let double = double(release);
        let answer = double.add(json!({
            "ip_address": "10.0.0.5", "hw_address": MAC, "next_server": "10.0.0.2", "bogus": "1",
            "option_data": {"boot_file_name": "grub.efi"},
        }));
        assert_eq!(answer["result"], "saved", "{release}");
        let stored = &double.stored_reservations()[0];
        assert_eq!(
            (stored.next_server.as_str(), stored.boot_file_name.as_str()),
            (next_server, boot_file),
            "{release}"
        );
        double.reconfigure();
        let live = &double.live_reservations()[0];
        assert_eq!(
            (live.next_server.as_str(), live.boot_file_name.as_str()),
            (next_server, boot_file),
            "{release}"
        );
    }
}

#[test]
fn set_touches_only_what_is_sent() {
    let double = double(Release::V26_7_2);
    let uuid =
        double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC, "hostname": "n1"}))["uuid"].clone();
    let path = format!("/api/kea/dhcpv4/set_reservation/{}", uuid.as_str().unwrap());
    assert_eq!(
        double.post(&path, json!({"reservation": {"ip_address": "10.0.0.6"}})),
        json!({"result": "saved"})
    );
    let stored = double.stored_reservations();
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].ip_address.as_str(), stored[0].hostname.as_str()), ("10.0.0.6", "n1"));
}

#[test]
fn set_creates_what_has_an_unknown_uuid_of_version_4_only() {
    let double = double(Release::V26_7_2);
    let subnet = double.subnet_uuid("10.0.0.0/24").unwrap();
    let body = json!({"reservation": {"subnet": subnet, "ip_address": "10.0.0.5", "hw_address": MAC}});
    for uuid in [
        "n1",
        "11111111-2222-5333-8444-555555555555",
        &UNKNOWN.replace('1', "A"),
        "11111111-2222-4333-c444-555555555555",
    ] {
        let answer = double.post(&format!("/api/kea/dhcpv4/set_reservation/{uuid}"), body.clone());
        assert_eq!(answer, json!({"result": "failed"}), "{uuid}");
    }
    let answer = double.post(&format!("/api/kea/dhcpv4/set_reservation/{UNKNOWN}"), body);
    assert_eq!(answer, json!({"result": "saved"}));
    assert_eq!(double.stored_reservations()[0].uuid, UNKNOWN);
}

#[test]
fn a_duplicate_is_reported_at_every_field_of_its_key() {
    let double = double(Release::V26_7_2);
    double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
    let answer = double.add(json!({"ip_address": "10.0.0.6", "hw_address": MAC}));
    let duplicate = "Duplicate entry exists.";
    assert_eq!(
        validations(&answer),
        &json!({"reservation.subnet": duplicate, "reservation.hw_address": duplicate})
    );
    let answer = double.add(json!({"ip_address": "10.0.0.5", "hw_address": "52:54:00:00:00:02"}));
    assert_eq!(validations(&answer), &json!({"reservation.ip_address": duplicate}));
    assert_eq!(double.stored_reservations().len(), 1);
}

#[test]
fn addresses_are_unique_across_subnets_and_macs_within_one() {
    let double = OpnsenseDouble::builder().subnet("10.0.0.0/24", POOL).subnet("10.0.0.0/16", "").start();
    let wide = double.subnet_uuid("10.0.0.0/16").unwrap();
    double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
    let answer =
        double.add(json!({"subnet": wide, "ip_address": "10.0.0.5", "hw_address": "52:54:00:00:00:02"}));
    assert_eq!(validations(&answer), &json!({"reservation.ip_address": "Duplicate entry exists."}));
    assert_eq!(
        double.add(json!({"subnet": wide, "ip_address": "10.0.1.5", "hw_address": MAC}))["result"],
        "saved"
    );
}

#[test]
fn macs_are_compared_as_texts_and_without_case_since_25_7_8() {
    for (release, upper) in [(Release::V25_7, "saved"), (Release::V25_7_8, "failed")] {
        let double = double(release);
        double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
        let add = |address: &str, mac: &str| {
            double.add(json!({"ip_address": address, "hw_address": mac}))["result"].clone()
        };
        assert_eq!(add("10.0.0.6", "52:54:00:AB:CD:EF"), upper, "{release}");
        assert_eq!(add("10.0.0.7", "52-54-00-ab-cd-ef"), "saved", "{release}");
        assert_eq!(add("10.0.0.8", "5254.00ab.cdef"), "saved", "{release}");
        assert_eq!(add("10.0.0.9", "525400abcdef"), "failed", "{release}");
    }
}

#[test]
fn messages_got_their_full_stops_in_25_7_8() {
    for (release, duplicate) in
        [(Release::V25_1, "Duplicate entry exists"), (Release::V25_7_8, "Duplicate entry exists.")]
    {
        let double = double(release);
        double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
        let answer = double.add(json!({"ip_address": "10.0.0.5", "hw_address": "52:54:00:00:00:02"}));
        assert_eq!(validations(&answer)["reservation.ip_address"], duplicate);
    }
}

#[test]
fn an_address_lies_in_its_subnet() {
    let double = double(Release::V26_7_2);
    let outside = "Address not in specified subnet";
    let no_address = "Please specify a valid network segment or IP address.";
    for (address, expected) in [
        (json!("10.0.1.5"), json!(outside)),
        (json!(""), json!(outside)),
        (json!("10.0.0.5/24"), json!([no_address, outside])),
        (json!("10.0.0.05"), json!([no_address, outside])),
        (json!("fd00::5"), json!([no_address, outside])),
        (json!("any"), json!([no_address, outside])),
    ] {
        let answer = double.add(json!({"ip_address": address, "hw_address": MAC}));
        assert_eq!(validations(&answer), &json!({"reservation.ip_address": expected}), "{address}");
    }
    for (address, mac) in
        [("10.0.0.0", "52:54:00:00:00:01"), ("10.0.0.150", "52:54:00:00:00:02"), ("10.0.0.255", MAC)]
    {
        assert_eq!(
            double.add(json!({"ip_address": address, "hw_address": mac}))["result"],
            "saved",
            "{address}"
        );
    }
}

#[test]
fn an_unknown_subnet_is_refused_twice() {
    let double = double(Release::V26_7_2);
    let answer = double.add(json!({"subnet": "10.0.0.0/24", "ip_address": "10.0.0.5", "hw_address": MAC}));
    let expected = json!({"reservation.subnet": "Related subnet not found.", "reservation.ip_address": "Address not in specified subnet"});
    assert_eq!(validations(&answer), &expected);
    let answer = double.add(json!({"subnet": "", "ip_address": "10.0.0.5", "hw_address": MAC}));
    assert_eq!(validations(&answer)["reservation.subnet"], "A value is required.");
}

#[test]
fn a_mac_was_required_until_client_ids_came() {
    let answer = double(Release::V26_1_6).add(json!({"ip_address": "10.0.0.5"}));
    assert_eq!(validations(&answer), &json!({"reservation.hw_address": "A value is required."}));
    let double = double(Release::V26_1_8);
    let answer = double.add(json!({"ip_address": "10.0.0.5"}));
    let either =
        json!({"reservation.hw_address": "Either a client ID or a MAC address should be specified."});
    assert_eq!(validations(&answer), &either);
    let answer = double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC, "client_id": "01:02"}));
    let both = "Either a client ID or a MAC address should be specified, but not both";
    assert_eq!(validations(&answer), &json!({"reservation.hw_address": both}));
    assert_eq!(double.add(json!({"ip_address": "10.0.0.5", "client_id": "01:02"}))["result"], "saved");
}

#[test]
fn client_ids_are_pairs_of_hex_and_unique_within_a_subnet() {
    let double = double(Release::V26_7_2);
    assert_eq!(double.add(json!({"ip_address": "10.0.0.5", "client_id": "01:aB:02"}))["result"], "saved");
    let duplicate = "Duplicate entry exists.";
    let answer = double.add(json!({"ip_address": "10.0.0.6", "client_id": "01:aB:02"}));
    let expected = json!({"reservation.subnet": duplicate, "reservation.client_id": duplicate});
    assert_eq!(validations(&answer), &expected);
    for wrong in ["01", "1:2", "01-02", "01:0g"] {
        let answer = double.add(json!({"ip_address": "10.0.0.7", "client_id": wrong}));
        let message = "Value must be a colon-separated hexadecimal sequence (e.g., 01:02:f3).";
        assert_eq!(validations(&answer), &json!({"reservation.client_id": message}), "{wrong}");
    }
}

#[test]
fn several_fields_can_be_wrong_at_once() {
    let answer = double(Release::V26_7_2).add(json!({
        "ip_address": "10.0.0.5", "hw_address": "zz", "hostname": "a b", "description": "x".repeat(256),
        "next_server": "tftp", "option_data": {"boot_file_name": "a\"b", "domain_name": "-x"},
    }));
    let keys: Vec<&str> = validations(&answer).as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "reservation.hw_address",
        "reservation.hostname",
        "reservation.description",
        "reservation.next_server",
        "reservation.option_data.domain_name",
        "reservation.option_data.boot_file_name",
    ];
    assert_eq!(keys, expected);
    assert_eq!(answer["validations"]["reservation.hw_address"], "Invalid MAC address.");
}

#[test]
fn hostnames_are_nearly_free() {
    let double = double(Release::V26_7_2);
    for (index, name) in ["a.b", "a.b.", "a_b", "-a", "10.9.9.9"].iter().enumerate() {
        let mac = format!("52:54:00:00:00:0{index}");
        let answer = double.add(
            json!({"ip_address": format!("10.0.0.{}", index + 10), "hw_address": mac, "hostname": name}),
        );
        assert_eq!(answer["result"], "saved", "{name}");
    }
    for name in ["a b", "a/b", "*", "a..b"] {
        let answer = double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC, "hostname": name}));
        assert!(validations(&answer).get("reservation.hostname").is_some(), "{name}");
    }
}

#[test]
fn deletion_takes_a_list_and_tells_of_the_last() {
    let double = double(Release::V26_7_2);
    let add = |address: &str, mac: &str| {
        double.add(json!({"ip_address": address, "hw_address": mac}))["uuid"].as_str().unwrap().to_owned()
    };
    let (first, second) = (add("10.0.0.5", MAC), add("10.0.0.6", "52:54:00:00:00:02"));
    let delete = |uuids: &str| double.post(&format!("/api/kea/dhcpv4/del_reservation/{uuids}"), json!({}));
    assert_eq!(delete(&format!("{first},{second}")), json!({"result": "deleted"}));
    assert_eq!(delete(&first), json!({"result": "not found"}));
    assert_eq!(double.stored_reservations(), []);
}

// Grids.

fn with_rows(release: Release) -> OpnsenseDouble {
    OpnsenseDouble::builder()
        .release(release)
        .subnet("10.0.0.0/24", POOL)
        .reservation(
            "10.0.0.0/24",
            &[("ip_address", "10.0.0.100"), ("hw_address", "52:54:00:00:00:03"), ("hostname", "web-2")],
        )
        .reservation(
            "10.0.0.0/24",
            &[("ip_address", "10.0.0.10"), ("hw_address", "52:54:00:00:00:02"), ("hostname", "web-1")],
        )
        .reservation(
            "10.0.0.0/24",
            &[("ip_address", "10.0.0.1"), ("hw_address", "52:54:00:00:00:01"), ("hostname", "db")],
        )
        .start()
}

fn hostnames(answer: &Value) -> Vec<&str> {
    answer["rows"].as_array().unwrap().iter().map(|row| row["hostname"].as_str().unwrap()).collect()
}

#[test]
fn rows_hold_descriptions_until_25_1_and_keys_from_25_7() {
    let old = with_rows(Release::V25_1);
    let row = &old.get("/api/kea/dhcpv4/search_reservation")["rows"][0];
    assert_eq!(row["subnet"], "10.0.0.0/24");
    assert_eq!(row.get("%subnet"), None);
    let subnet = &old.get("/api/kea/dhcpv4/search_subnet")["rows"][0];
    assert_eq!(subnet["option_data"], "");

    let new = with_rows(Release::V25_7);
    let row = &new.get("/api/kea/dhcpv4/search_reservation")["rows"][0];
    assert_eq!(row["subnet"], json!(new.subnet_uuid("10.0.0.0/24").unwrap()));
    assert_eq!(row["%subnet"], "10.0.0.0/24");
    assert_eq!(row["option_data.boot_file_name"], "");
    assert_eq!(row.get("option_data"), None);
}

#[test]
fn a_search_counts_matches_and_rows_apart() {
    let double = with_rows(Release::V26_7_2);
    let search = |body: Value| double.post("/api/kea/dhcpv4/search_reservation", body);
    let all = search(json!({}));
    assert_eq!((&all["total"], &all["rowCount"], &all["current"]), (&json!(3), &json!(3), &json!(1)));
    let second = search(json!({"rowCount": 2, "current": 2}));
    assert_eq!(
        (&second["total"], &second["rowCount"], &second["current"]),
        (&json!(3), &json!(1), &json!(2))
    );
    assert_eq!(hostnames(&second), ["web-2"]);
    let by_query = double.get("/api/kea/dhcpv4/search_reservation?rowCount=1&searchPhrase=web");
    assert_eq!((&by_query["total"], &by_query["rowCount"]), (&json!(2), &json!(1)));
}

#[test]
fn a_phrase_is_words_that_must_all_be_somewhere() {
    let double = with_rows(Release::V26_7_2);
    let search =
        |phrase: &str| double.post("/api/kea/dhcpv4/search_reservation", json!({"searchPhrase": phrase}));
    assert_eq!(hostnames(&search("10.0.0.1")), ["db", "web-1", "web-2"]);
    assert_eq!(hostnames(&search("WEB 52:54:00:00:00:02")), ["web-1"]);
    assert_eq!(hostnames(&search("web db")), [""; 0]);
    assert_eq!(search("10.0.0.0/24")["total"], 3);
    let uuid = double.stored_reservations()[0].uuid.clone();
    assert_eq!(hostnames(&search(&uuid)), ["web-2"]);
    let subnet = double.subnet_uuid("10.0.0.0/24").unwrap();
    assert_eq!(search(&subnet)["total"], 0);
}

#[test]
fn rows_are_sorted_by_mac_unless_asked_otherwise() {
    let double = with_rows(Release::V26_7_2);
    let search = |body: Value| double.post("/api/kea/dhcpv4/search_reservation", body);
    assert_eq!(hostnames(&search(json!({}))), ["db", "web-1", "web-2"]);
    assert_eq!(hostnames(&search(json!({"sort": {"ip_address": "desc"}}))), ["web-2", "web-1", "db"]);
}

// Subnets.

#[test]
fn subnets_are_kept_by_the_same_rules() {
    let double = double(Release::V26_7_2);
    let add = |subnet: Value| double.post("/api/kea/dhcpv4/add_subnet", json!({"subnet4": subnet}));
    assert_eq!(
        validations(&add(json!({"subnet": "10.0.0.0/24"}))),
        &json!({"subnet4.subnet": "Subnet must be unique."})
    );
    let answer = add(json!({"subnet": "fd00::/64", "pools": "10.1.0.9"}));
    assert_eq!(
        validations(&answer),
        &json!({
            "subnet4.subnet": "Please specify a valid network segment or IP address.",
            "subnet4.pools": "Entry \"10.1.0.9\" is not a valid range or subnet.",
        })
    );
    let uuid = add(json!({"subnet": "10.1.0.0/24", "pools": "10.1.0.10 - 10.1.0.20\n10.1.0.128/25"}))["uuid"]
        .clone();
    let subnet = double.get(&format!("/api/kea/dhcpv4/get_subnet/{}", uuid.as_str().unwrap()));
    assert_eq!(subnet["subnet4"]["subnet_id"], "2");
    assert_eq!(subnet["subnet4"]["match-client-id"], "1");
    assert_eq!(subnet["subnet4"]["option_data_autocollect"], "1");
    assert_eq!(subnet["subnet4"]["allocator"][""], json!({"value": "Default", "selected": 1}));
}

#[test]
fn a_subnet_in_use_is_kept_since_26_1_8() {
    for (release, status) in [(Release::V26_1_6, 200), (Release::V26_1_8, 500)] {
        let double = with_rows(release);
        let subnet = double.subnet_uuid("10.0.0.0/24").unwrap();
        let Got(got, answer) = double.send(&format!("/api/kea/dhcpv4/del_subnet/{subnet}"), &json!({}));
        assert_eq!(got, status, "{release}: {answer}");
        assert_eq!(double.subnet_uuid("10.0.0.0/24").is_some(), status == 500);
        if status == 500 {
            assert!(answer["errorTitle"].as_str().unwrap().ends_with("in use by:"), "{answer}");
        }
    }
}

#[test]
fn an_error_message_is_escaped_as_html() {
    let double = OpnsenseDouble::builder()
        .subnet_with(&[("subnet", "10.0.0.0/24"), ("description", "a <b> & \"c\"")])
        .reservation(
            "10.0.0.0/24",
            &[("ip_address", "10.0.0.5"), ("hw_address", MAC), ("description", "<n1>")],
        )
        .start();
    let subnet = double.subnet_uuid("10.0.0.0/24").unwrap();
    let reservation = &double.stored_reservations()[0].uuid;
    assert_eq!(
        double.send(&format!("/api/kea/dhcpv4/del_subnet/{subnet}"), &json!({})),
        Got(
            500,
            json!({
                "errorMessage": format!("dhcp4 - &lt;n1&gt; {{dhcp4.reservations.reservation.{reservation}}}\n"),
                "errorTitle": "Item subnets.subnet4 {a &lt;b&gt; &amp; \"c\"} in use by:",
            })
        )
    );
}

#[test]
fn subnet_ids_followed_the_order_until_26_7_2() {
    for (release, id) in [(Release::V26_7, 1), (Release::V26_7_2, 2)] {
        let double = OpnsenseDouble::builder()
            .release(release)
            .subnet("10.0.0.0/24", "")
            .subnet("10.1.0.0/24", "")
            .start();
        let first = double.subnet_uuid("10.0.0.0/24").unwrap();
        double.post(&format!("/api/kea/dhcpv4/del_subnet/{first}"), json!({}));
        double.reconfigure();
        assert_eq!(double.kea_file()["Dhcp4"]["subnet4"][0]["id"], id, "{release}");
    }
}

#[test]
fn saving_the_settings_collects_options() {
    let double = OpnsenseDouble::builder()
        .subnet("10.0.0.0/24", POOL)
        .firewall_address("10.0.0.1".parse().unwrap())
        .start();
    let answer = double.post("/api/kea/dhcpv4/set", json!({"dhcpv4": {"general": {"valid_lifetime": 600}}}));
    assert_eq!(answer, json!({"result": "saved"}));
    double.reconfigure();
    let file = double.kea_file();
    assert_eq!(file["Dhcp4"]["valid-lifetime"], 600);
    assert_eq!(kea_conf::option(&file["Dhcp4"]["subnet4"][0], "routers"), "10.0.0.1");
}

// Kea's service.

#[test]
fn settings_tell_whether_kea_is_on_and_generated() {
    let double =
        OpnsenseDouble::builder().kea_setting("enabled", "0").kea_setting("manual_config", "1").start();
    let general = &double.get("/api/kea/dhcpv4/get")["dhcpv4"]["general"];
    assert_eq!((&general["enabled"], &general["manual_config"]), (&json!("0"), &json!("1")));
    assert_eq!(general["interfaces"]["lan"], json!({"value": "LAN", "selected": 1}));
    let old = OpnsenseDouble::builder().release(Release::V25_1).start();
    assert_eq!(old.get("/api/kea/dhcpv4/get")["dhcpv4"]["general"].get("manual_config"), None);
}

#[test]
fn a_kea_that_is_off_stays_off() {
    let double = OpnsenseDouble::builder().subnet("10.0.0.0/24", POOL).kea_setting("enabled", "0").start();
    assert_eq!(double.reconfigure(), json!({"status": "ok"}));
    assert_eq!(double.status(), "disabled");
    assert_eq!(double.address_for(MAC), Address::None);
}

#[test]
fn a_hand_written_file_makes_reservations_ineffective() {
    let double =
        OpnsenseDouble::builder().subnet("10.0.0.0/24", POOL).kea_setting("manual_config", "1").start();
    double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
    assert_eq!(double.reconfigure(), json!({"status": "ok"}));
    assert_eq!(double.status(), "running");
    assert_eq!(double.stored_reservations().len(), 1);
    assert!(double.live_reservations().is_empty());
}

#[test]
fn reconfigure_says_ok_and_kea_is_dead() {
    for (mac, words) in [
        ("5254.00ab.cdef", "invalid host identifier value '5254.00ab.cdef'"),
        ("52-54-00-AB-CD-EF", "this host has already been added"),
    ] {
        let double = double(Release::V26_7_2);
        double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
        double.reconfigure();
        assert_eq!(double.status(), "running");
        assert_eq!(double.add(json!({"ip_address": "10.0.0.6", "hw_address": mac}))["result"], "saved");
        assert_eq!(double.reconfigure(), json!({"status": "ok"}));
        assert_eq!(double.status(), "stopped");
        assert!(double.kea_refusal().unwrap().contains(words), "{:?}", double.kea_refusal());
        assert_eq!(double.address_for(MAC), Address::None);
        assert!(double.live_reservations().is_empty());
    }
}

#[test]
fn dashes_killed_kea_before_25_1_7() {
    for (release, status) in [(Release::V25_1_5, "stopped"), (Release::V25_1_7, "running")] {
        let double = double(release);
        double.add(json!({"ip_address": "10.0.0.5", "hw_address": "52-54-00-AB-CD-EF"}));
        double.reconfigure();
        assert_eq!(double.status(), status, "{release}: {:?}", double.kea_refusal());
    }
}

#[test]
fn the_service_can_be_stopped_and_started() {
    let double = double(Release::V26_7_2);
    assert_eq!(double.post("/api/kea/service/stop", json!({})), json!({"response": "OK"}));
    assert_eq!(double.status(), "stopped");
    assert_eq!(double.get("/api/kea/service/start"), json!({"response": []}));
    double.post("/api/kea/service/start", json!({}));
    assert_eq!(double.status(), "running");
}

#[test]
fn the_file_is_what_the_generator_writes() {
    let double = OpnsenseDouble::builder()
        .subnet_with(&[
            ("subnet", "10.0.0.0/24"),
            ("pools", POOL),
            ("next_server", "10.0.0.1"),
            ("option_data.routers", "10.0.0.1"),
        ])
        .start();
    let uuid = double.add(json!({
        "ip_address": "10.0.0.5", "hw_address": "52-54-00-AB-CD-EF", "hostname": "n1", "description": "first",
        "next_server": "10.0.0.2", "option_data": {"tftp_server_name": "10.0.0.2", "boot_file_name": "grub.efi"},
    }))["uuid"].clone();
    double.reconfigure();
    assert_eq!(
        double.kea_file()["Dhcp4"]["subnet4"],
        json!([{
            "id": 1, "subnet": "10.0.0.0/24", "next-server": "10.0.0.1", "match-client-id": true,
            "option-data": [{"name": "routers", "data": "10.0.0.1"}, {"name": "domain-name", "data": "internal"}],
            "pools": [{"pool": POOL}],
            "reservations": [{
                "ip-address": "10.0.0.5", "hostname": "n1", "hw-address": "52:54:00:AB:CD:EF", "next-server": "10.0.0.2",
                "option-data": [{"name": "tftp-server-name", "data": "10.0.0.2"}, {"name": "boot-file-name", "data": "grub.efi"}],
                "user-context": {"uuid": uuid, "description": "first"},
            }],
            "user-context": {"uuid": double.subnet_uuid("10.0.0.0/24").unwrap()},
        }])
    );
}

#[test]
fn the_file_grew_with_the_releases() {
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let base = "valid-lifetime interfaces-config lease-database control-socket loggers subnet4";
    for (release, file, host) in [
        (Release::V25_1, base.to_owned(), "ip-address hw-address"),
        (Release::V25_7, base.to_owned(), "ip-address hw-address option-data"),
        (Release::V26_1, format!("{base} hooks-libraries"), "ip-address hw-address option-data"),
        (
            Release::V26_1_8,
            format!("{base} hooks-libraries"),
            "ip-address hw-address option-data user-context",
        ),
        (
            Release::V26_1_9,
            format!("{base} decline-probation-period hooks-libraries"),
            "ip-address hw-address next-server option-data user-context",
        ),
    ] {
        let double = OpnsenseDouble::builder()
            .release(release)
            .subnet("10.0.0.0/24", POOL)
            .reservation(
                "10.0.0.0/24",
                &[
                    ("ip_address", "10.0.0.5"),
                    ("hw_address", MAC),
                    ("next_server", "10.0.0.2"),
                    ("option_data.boot_file_name", "grub.efi"),
                ],
            )
            .start();
        let dhcp4 = &double.kea_file()["Dhcp4"];
        assert_eq!(keys(dhcp4), file, "{release}");
        assert_eq!(keys(&dhcp4["subnet4"][0]["reservations"][0]), host, "{release}");
        assert_eq!(dhcp4["subnet4"][0]["next-server"], "", "{release}");
        assert_eq!(dhcp4["lease-database"], json!({"type": "memfile", "persist": true}));
    }
}

#[test]
fn the_real_kea_takes_the_file_of_every_release() {
    if !crate::present(crate::kea::checker_installed(), "kea-dhcp4") {
        return;
    }
    for release in [
        Release::V25_1,
        Release::V25_7,
        Release::V26_1,
        Release::V26_1_8,
        Release::V26_1_9,
        Release::V26_7,
        Release::V26_7_2,
    ] {
        let double = with_rows(release);
        assert_eq!(double.kea_refusal(), None, "{release}");
        assert_eq!(double.live_reservations().len(), 3, "{release}");
    }
}

#[test]
fn the_real_kea_offers_what_is_reserved() {
    if !crate::present(crate::kea::installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)") {
        return;
    }
    let double = OpnsenseDouble::builder()
        .subnet_with(&[("subnet", "10.0.0.0/24"), ("pools", POOL), ("next_server", "10.0.0.1")])
        .start();
    double.add(json!({
        "ip_address": "10.0.0.5", "hw_address": MAC, "next_server": "10.0.0.2",
        "option_data": {"tftp_server_name": "10.0.0.2", "boot_file_name": "grub.efi"},
    }));
    double.reconfigure();
    let kea = double.real_kea().unwrap();
    let network = "10.0.0.0".parse().unwrap();
    let offer = kea.discover(MAC, network).unwrap().unwrap();
    assert_eq!(double.address_for(MAC), Address::Reserved(offer.address));
    assert_eq!(offer.next_server.to_string(), "10.0.0.2");
    // OPNsense sets option 67 and never the BOOTP field, on which shim relies.
    assert_eq!((offer.boot_file_name.as_deref(), offer.file.as_str()), (Some("grub.efi"), ""));
    let other = "52:54:00:00:00:01";
    let offer = kea.discover(other, network).unwrap().unwrap();
    assert_eq!(double.address_for(other), Address::Pool(offer.address));
    assert_eq!((offer.next_server.to_string().as_str(), offer.boot_file_name), ("10.0.0.1", None));
}

#[test]
fn the_real_kea_keeps_the_uuids_of_the_api() {
    if !crate::present(crate::kea::installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)") {
        return;
    }
    let double = with_rows(Release::V26_7_2);
    let live = double.real_kea().unwrap().command("config-get", None).unwrap();
    let hosts = live["arguments"]["Dhcp4"]["subnet4"][0]["reservations"].as_array().unwrap();
    for stored in double.stored_reservations() {
        let host = hosts.iter().find(|host| host["user-context"]["uuid"] == stored.uuid.as_str()).unwrap();
        assert_eq!(
            (&host["ip-address"], &host["hw-address"]),
            (&json!(stored.ip_address), &json!(stored.hw_address))
        );
    }
}

#[test]
fn the_stand_in_for_kea_agrees_with_it() {
    let file = |macs: &[&str]| {
        let host = |(index, mac)| json!({"hw-address": mac, "ip-address": format!("10.0.0.{index}")});
        let hosts: Vec<Value> = macs.iter().enumerate().map(host).collect();
        json!({"Dhcp4": {"subnet4": [{"id": 1, "subnet": "10.0.0.0/24", "reservations": hosts}]}})
    };
    for (macs, refused) in [
        (vec![MAC, "52:54:00:00:00:02"], false),
        (vec![MAC, "52:54:00:AB:CD:EF"], true),
        (vec!["5254.00ab.cdef"], true),
    ] {
        assert_eq!(kea_conf::refusal(&file(&macs)).is_some(), refused, "{macs:?}");
        if crate::present(crate::kea::checker_installed(), "kea-dhcp4") {
            let verdict = crate::kea::check(&file(&macs)).unwrap();
            assert_eq!(verdict != crate::kea::Verdict::Accepted, refused, "{macs:?}: {verdict:?}");
        }
    }
}

// Leases.

#[test]
fn leases_are_listed_with_their_reservations() {
    let double = OpnsenseDouble::builder()
        .subnet("10.0.0.0/24", POOL)
        .reservation("10.0.0.0/24", &[("ip_address", "10.0.0.5"), ("hw_address", MAC)])
        .lease("10.0.0.101", "52:54:00:00:00:09")
        .start();
    assert_eq!(double.address_for(MAC), Address::Reserved("10.0.0.5".parse().unwrap()));
    let answer = double.get("/api/kea/leases4/search");
    assert_eq!(answer["stats"], json!({"active": 2, "inactive": 0, "total": 2}));
    let rows: Vec<_> = answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["address"].clone(), row["is_reserved"].clone()))
        .collect();
    assert_eq!(rows, [(json!("10.0.0.5"), json!(["hwaddr"])), (json!("10.0.0.101"), json!([]))]);
    let found = double.post("/api/kea/leases4/search", json!({"searchPhrase": "00:09", "rowCount": 10}));
    assert_eq!((&found["total"], &found["rows"][0]["address"]), (&json!(1), &json!("10.0.0.101")));
    let other = double.post("/api/kea/leases4/search", json!({"selected_interfaces": ["opt1"]}));
    assert_eq!(other["total"], 0);
}

#[test]
fn a_lease_can_be_deleted_since_26_1_6() {
    let start = |release| {
        OpnsenseDouble::builder()
            .release(release)
            .subnet("10.0.0.0/24", POOL)
            .lease("10.0.0.101", MAC)
            .start()
    };
    let path = "/api/kea/leases4/del_lease/10.0.0.101";
    assert_eq!(start(Release::V26_1_5).send(path, &json!({})).0, 404);
    let double = start(Release::V26_1_6);
    assert_eq!(double.get(path), json!({"status": "error", "message": "Invalid request method"}));
    assert_eq!(double.post(path, json!({})), json!({"status": "ok"}));
    assert!(double.leases().is_empty());
    let Got(status, answer) = double.send(path, &json!({}));
    assert_eq!(
        (status, &answer["errorMessage"]),
        (500, &json!("Failed to delete lease(s): 10.0.0.101: IPv4 lease not found."))
    );
}

#[test]
fn a_pool_serves_each_mac_one_address_until_it_is_empty() {
    let double = OpnsenseDouble::builder()
        .subnet("10.0.0.0/24", "10.0.0.100/31")
        .reservation("10.0.0.0/24", &[("ip_address", "10.0.0.100"), ("hw_address", MAC)])
        .start();
    let pool = Address::Pool("10.0.0.101".parse().unwrap());
    assert_eq!(double.address_for("52:54:00:00:00:01"), pool);
    assert_eq!(double.address_for("52:54:00:00:00:01"), pool);
    assert_eq!(double.address_for("52:54:00:00:00:02"), Address::None);
    assert_eq!(double.address_for(MAC), Address::Reserved("10.0.0.100".parse().unwrap()));
}

// Unbound.

fn a_record(server: &str) -> Value {
    json!({"hostname": "n1", "domain": "lab.example", "server": server})
}

#[test]
fn an_override_is_live_after_reconfigure() {
    let double = OpnsenseDouble::builder().start();
    assert_eq!(double.add_host(a_record("10.0.0.5"))["result"], "saved");
    assert_eq!(double.live_records(), []);
    assert_eq!(double.post("/api/unbound/service/reconfigure", json!({})), json!({"status": "ok"}));
    assert_eq!(double.get("/api/unbound/service/status")["status"], "running");
    let record =
        |name: &str, rr: &str, value: &str| Record { name: name.into(), rr: rr.into(), value: value.into() };
    assert_eq!(
        double.live_records(),
        [record("n1.lab.example", "A", "10.0.0.5"), record("10.0.0.5", "PTR", "n1.lab.example")]
    );
}

#[test]
fn nothing_about_an_override_is_unique_and_one_gets_the_ptr() {
    let double = OpnsenseDouble::builder().start();
    for _ in 0..2 {
        assert_eq!(double.add_host(a_record("10.0.0.5"))["result"], "saved");
    }
    double.add_host(json!({"hostname": "n2", "domain": "lab.example", "server": "10.0.0.5"}));
    double.post("/api/unbound/service/reconfigure", json!({}));
    assert_eq!(double.stored_overrides().len(), 3);
    let records = double.live_records();
    assert_eq!(records.iter().filter(|record| record.rr == "PTR").count(), 1);
    assert_eq!(records.iter().filter(|record| record.name == "n1.lab.example").count(), 2);
}

#[test]
fn overrides_have_these_rules() {
    let double = OpnsenseDouble::builder().start();
    let missing = "The field IP address is required.";
    let domain = "A valid domain must be specified.";
    for (values, expected) in [
        (
            json!({"hostname": "n1", "domain": "lab.example"}),
            json!({"host.rr": missing, "host.server": missing}),
        ),
        (json!({"domain": "", "server": "10.0.0.5"}), json!({"host.domain": "A value is required."})),
        (json!({"domain": "a_b", "server": "10.0.0.5"}), json!({"host.domain": domain})),
        (json!({"domain": "lab.", "server": "10.0.0.5"}), json!({"host.domain": domain})),
        (
            json!({"hostname": "a b", "domain": "lab", "server": "10.0.0.5"}),
            json!({"host.hostname": "A valid hostname must be specified."}),
        ),
        (
            json!({"domain": "lab", "rr": "CNAME", "server": "10.0.0.5"}),
            json!({"host.rr": "Option [] not in list."}),
        ),
        (
            json!({"domain": "lab", "server": "n2"}),
            json!({"host.server": "Please specify a valid network segment or IP address."}),
        ),
        (
            json!({"domain": "lab", "server": "10.0.0.5", "enabled": "yes"}),
            json!({"host.enabled": "Value should be a boolean (0,1)."}),
        ),
    ] {
        assert_eq!(validations(&double.add_host(values)), &expected);
    }
    for values in [
        json!({"hostname": "*", "domain": "lab", "server": "10.0.0.5"}),
        json!({"hostname": "", "domain": "lab", "server": "10.0.0.5"}),
        json!({"hostname": "n1", "domain": "lab", "server": "fd00::5"}),
        json!({"hostname": "n1", "domain": "LAB.Example", "server": "10.0.0.5", "enabled": true}),
        json!({"hostname": "n1", "domain": "lab", "rr": "TXT", "txtdata": "x"}),
    ] {
        assert_eq!(double.add_host(values.clone())["result"], "saved", "{values}");
    }
}

#[test]
fn a_mail_exchanger_needs_a_host_and_a_priority() {
    let double = OpnsenseDouble::builder().start();
    let answer = double.add_host(json!({"domain": "lab.example", "rr": "MX"}));
    let (priority, host) = ("The field MX Priority is required.", "The field MX Host is required.");
    let expected = json!({"host.rr": [priority, host], "host.mxprio": priority, "host.mx": host});
    assert_eq!(validations(&answer), &expected);
    let answer = double
        .add_host(json!({"domain": "lab.example", "rr": "MX", "mx": "mail.lab.example", "mxprio": "ten"}));
    assert_eq!(validations(&answer), &json!({"host.mxprio": "Invalid integer value."}));
    double.add_host(json!({"domain": "lab.example", "rr": "MX", "mx": "mail.lab.example", "mxprio": 10}));
    double.post("/api/unbound/service/reconfigure", json!({}));
    let mail = Record { name: "lab.example".into(), rr: "MX".into(), value: "10 mail.lab.example".into() };
    assert_eq!(double.live_records(), [mail]);
}

#[test]
fn the_settings_hold_every_override_by_its_uuid() {
    let double = OpnsenseDouble::builder().start();
    let uuid = double.add_host(a_record("10.0.0.5"))["uuid"].as_str().unwrap().to_owned();
    let all = double.get("/api/unbound/settings/get")["unbound"].clone();
    let one = double.get(&format!("/api/unbound/settings/get_host_override/{uuid}"))["host"].clone();
    assert_eq!(all["hosts"]["host"], json!({uuid: one}));
    assert_eq!(all["general"]["enabled"], "1");
}

#[test]
fn an_unbound_that_is_off_stays_off() {
    let double = OpnsenseDouble::builder().start();
    double.post("/api/unbound/settings/set", json!({"unbound": {"general": {"enabled": "0"}}}));
    assert_eq!(double.post("/api/unbound/service/reconfigure", json!({})), json!({"status": "ok"}));
    assert_eq!(double.get("/api/unbound/service/status")["status"], "disabled");
    let answer = double.post("/api/unbound/settings/set", json!({"unbound": {"general": {"port": "x"}}}));
    assert_eq!(validations(&answer), &json!({"unbound.general.port": "Invalid integer value."}));
}

#[test]
fn addptr_came_in_26_1_3_and_txt_in_25_7_4() {
    for (release, addptr, txt) in
        [(Release::V25_7, false, false), (Release::V25_7_4, false, true), (Release::V26_1_3, true, true)]
    {
        let double = OpnsenseDouble::builder().release(release).start();
        let host = &double.get("/api/unbound/settings/get_host_override")["host"];
        assert_eq!(host.get("addptr").is_some(), addptr, "{release}");
        assert_eq!(host["rr"].get("TXT").is_some(), txt, "{release}");
        assert_eq!(host["rr"]["A"], json!({"value": "A (IPv4 address)", "selected": 1}));
        let mut record = a_record("10.0.0.5");
        record["addptr"] = json!("0");
        double.add_host(record);
        double.post("/api/unbound/service/reconfigure", json!({}));
        let has_ptr = double.live_records().iter().any(|record| record.rr == "PTR");
        assert_eq!(has_ptr, !addptr, "{release}");
    }
}

#[test]
fn an_override_can_be_toggled() {
    let double = OpnsenseDouble::builder().start();
    let uuid = double.add_host(a_record("10.0.0.5"))["uuid"].as_str().unwrap().to_owned();
    let toggle = |rest: &str| {
        double.post(&format!("/api/unbound/settings/toggle_host_override/{uuid}{rest}"), json!({}))
    };
    assert_eq!(toggle(""), json!({"result": "Disabled", "changed": true}));
    assert_eq!(toggle("/0"), json!({"result": "Disabled", "changed": false}));
    double.post("/api/unbound/service/reconfigure", json!({}));
    assert_eq!(double.live_records(), []);
    assert_eq!(toggle("/1"), json!({"result": "Enabled", "changed": true}));
}

#[test]
fn aliases_go_with_their_host() {
    let double = OpnsenseDouble::builder().start();
    let uuid = double.add_host(a_record("10.0.0.5"))["uuid"].clone();
    let add = |alias: Value| double.post("/api/unbound/settings/add_host_alias", json!({"alias": alias}));
    assert_eq!(add(json!({"host": uuid, "hostname": "www"}))["result"], "saved");
    assert_eq!(validations(&add(json!({"host": uuid}))).as_object().unwrap().len(), 2);
    double.post("/api/unbound/service/reconfigure", json!({}));
    let names: Vec<_> = double
        .live_records()
        .into_iter()
        .filter(|record| record.rr == "A")
        .map(|record| record.name)
        .collect();
    assert_eq!(names, ["n1.lab.example", "www.lab.example"]);
    let row = &double.get("/api/unbound/settings/search_host_override")["rows"][0];
    assert_eq!((&row["isAlias"], &row["_children"][0]["hostname"]), (&json!(false), &json!("www")));
    double.post(&format!("/api/unbound/settings/del_host_override/{}", uuid.as_str().unwrap()), json!({}));
    assert_eq!(double.get("/api/unbound/settings/search_host_alias")["total"], 0);
}

#[test]
fn a_host_mirrors_its_aliases_since_26_1_6() {
    for (release, mirrored) in [(Release::V26_1_5, false), (Release::V26_1_6, true)] {
        let double = OpnsenseDouble::builder().release(release).start();
        let uuid = double.add_host(a_record("10.0.0.5"))["uuid"].as_str().unwrap().to_owned();
        let path = format!("/api/unbound/settings/get_host_override/{uuid}");
        double.post(
            "/api/unbound/settings/add_host_alias",
            json!({"alias": {"host": uuid, "hostname": "www"}}),
        );
        let aliases = double.get(&path)["host"].get("aliases").cloned();
        let expected = json!({"www.lab.example": {"value": "www.lab.example", "selected": 1}});
        assert_eq!(aliases, mirrored.then_some(expected), "{release}");
    }
}

#[test]
fn toggling_what_is_not_there_became_an_exception_in_26_1_3() {
    let path = format!("/api/unbound/settings/toggle_host_override/{UNKNOWN}");
    let start = |release| OpnsenseDouble::builder().release(release).start();
    assert_eq!(start(Release::V26_1).send(&path, &json!({})), Got(200, json!({"result": "failed"})));
    assert_eq!(start(Release::V26_1_3).send(&path, &json!({})).0, 500);
}

#[test]
fn a_value_where_a_container_is_due_is_a_500_since_26_7() {
    for (release, status) in [(Release::V26_1_9, 200), (Release::V26_7, 500)] {
        let body = json!({"reservation": {"option_data": "x"}});
        assert_eq!(double(release).send("/api/kea/dhcpv4/add_reservation", &body).0, status, "{release}");
    }
}

// Faults, the log, persistence.

#[test]
fn faults_of_kea_hide_behind_ok() {
    let double = double(Release::V26_7_2);
    double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
    double.inject(Fault::KeaRefusesToStart);
    assert_eq!((double.reconfigure(), double.status()), (json!({"status": "ok"}), json!("stopped")));
    double.heal();
    double.inject(Fault::ReconfigureLoses(MAC.to_uppercase()));
    assert_eq!((double.reconfigure(), double.status()), (json!({"status": "ok"}), json!("running")));
    assert_eq!((double.stored_reservations().len(), double.live_reservations().len()), (1, 0));
    double.heal();
    double.inject(Fault::PoolAddressFor(MAC.to_owned()));
    double.reconfigure();
    assert_eq!(double.live_reservations().len(), 1);
    assert_eq!(double.address_for(MAC), Address::Pool("10.0.0.100".parse().unwrap()));
    double.heal();
    assert_eq!(double.address_for(MAC), Address::Reserved("10.0.0.5".parse().unwrap()));
}

#[test]
fn writes_can_be_forgotten_in_part_or_whole() {
    let double = double(Release::V26_7_2);
    double.inject(Fault::IgnoresField("next_server"));
    double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC, "next_server": "10.0.0.2"}));
    assert_eq!(double.stored_reservations()[0].next_server, "");
    double.inject(Fault::ForgetsWrites);
    let answer = double.add(json!({"ip_address": "10.0.0.6", "hw_address": "52:54:00:00:00:02"}));
    assert_eq!(answer["result"], "saved");
    assert_eq!(double.stored_reservations().len(), 1);
}

#[test]
fn unbound_can_stay_stopped() {
    let double = OpnsenseDouble::builder()
        .host_override(&[("hostname", "n1"), ("domain", "lab"), ("server", "10.0.0.5")])
        .start();
    assert_eq!(double.live_records().len(), 2);
    double.inject(Fault::UnboundStaysStopped);
    double.post("/api/unbound/service/reconfigure", json!({}));
    assert_eq!(double.get("/api/unbound/service/status")["status"], "stopped");
    assert_eq!(double.live_records(), []);
}

#[test]
fn the_log_tells_reads_from_writes_and_holds_no_secret() {
    let double = double(Release::V26_7_2);
    double.get("/api/kea/dhcpv4/get");
    double.post("/api/kea/dhcpv4/search_reservation", json!({"searchPhrase": "x"}));
    double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
    double.reconfigure();
    let paths = |logged: Vec<Logged>| logged.into_iter().map(|logged| logged.path).collect::<Vec<_>>();
    assert_eq!(paths(double.reads()), ["/api/kea/dhcpv4/get", "/api/kea/dhcpv4/search_reservation"]);
    assert_eq!(paths(double.writes()), ["/api/kea/dhcpv4/add_reservation", "/api/kea/service/reconfigure"]);
    assert_eq!(double.writes()[0].body["reservation"]["hw_address"], MAC);
    assert!(!format!("{:?}", double.log()).contains(SECRET));
    assert_eq!(double.connections(), 4);
    double.forget();
    assert_eq!((double.log().len(), double.connections()), (0, 0));
}

#[test]
fn a_restart_goes_on_from_the_state_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("opnsense.json");
    let start = || OpnsenseDouble::builder().subnet("10.0.0.0/24", POOL).state_file(&file).start();
    let double = start();
    double.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
    double.reconfigure();
    double.add(json!({"ip_address": "10.0.0.6", "hw_address": "52:54:00:00:00:02"}));
    drop(double);
    let double = start();
    assert_eq!((double.stored_reservations().len(), double.live_reservations().len()), (2, 1));
    assert_eq!(double.address_for(MAC), Address::Reserved("10.0.0.5".parse().unwrap()));
    drop(double);
    std::fs::write(&file, "{").unwrap();
    let error = OpnsenseDouble::builder().state_file(&file).try_start().err().unwrap();
    assert!(format!("{error:#}").contains("no state of this double"), "{error:#}");
}

#[test]
fn an_upgrade_gives_new_fields_their_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("opnsense.json");
    let start = |release| {
        OpnsenseDouble::builder().release(release).subnet("10.0.0.0/24", POOL).state_file(&file).start()
    };
    let old = start(Release::V25_1);
    old.add(json!({"ip_address": "10.0.0.5", "hw_address": MAC}));
    old.add_host(a_record("10.0.0.5"));
    drop(old);
    let new = start(Release::V26_7_2);
    let subnet = new.subnet_uuid("10.0.0.0/24").unwrap();
    assert_eq!(new.get(&format!("/api/kea/dhcpv4/get_subnet/{subnet}"))["subnet4"]["subnet_id"], "1");
    let uuid = &new.stored_overrides()[0].uuid;
    let answer =
        new.post(&format!("/api/unbound/settings/set_host_override/{uuid}"), json!({"host": {"ttl": "60"}}));
    assert_eq!(answer, json!({"result": "saved"}));
    let uuid = &new.stored_reservations()[0].uuid;
    let path = format!("/api/kea/dhcpv4/set_reservation/{uuid}");
    assert_eq!(
        new.post(&path, json!({"reservation": {"next_server": "10.0.0.2"}})),
        json!({"result": "saved"})
    );
    assert_eq!(new.stored_reservations()[0].next_server, "10.0.0.2");
}

#[test]
fn a_dropped_double_no_longer_listens() {
    let double = OpnsenseDouble::builder().start();
    let address = double.address();
    assert!(double.pem_path().exists());
    assert_eq!(double.fingerprint().len(), 95);
    drop(double);
    let gone = deadline::Deadline::after(Duration::from_secs(10))
        .poll(|| anyhow::Ok(std::net::TcpStream::connect(address).is_err().then_some(())));
    assert!(gone.is_ok());
}

#[test]
fn releases_are_ordered_and_parsed() {
    assert!(
        Release::V25_1 < Release::V25_1_5
            && Release::V25_7_11 < Release::V26_1
            && Release::V26_1_9 < Release::V26_7
    );
    for text in ["25.1", "25.7.11", "26.1.9"] {
        assert_eq!(text.parse::<Release>().unwrap().to_string(), text);
    }
    for text in ["", "26", "26.x", "26.1.9.1"] {
        assert!(text.parse::<Release>().is_err(), "{text}");
    }
}
