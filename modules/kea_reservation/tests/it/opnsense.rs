use insta::{assert_json_snapshot, assert_snapshot};
use lab::opnsense::{Fault, Privilege, Release, User};
use serde_json::{Value, json};

use crate::{Site, firewall, web01, web01_with};

/// A result without what differs from run to run.
fn masked(result: &Value) -> Value {
    let mut result = result.clone();
    for key in ["uuid", "subnet_key"] {
        result["reservation"][key] = json!("[uuid]");
    }
    // How often the status is asked is a matter of time.
    result["api_calls"]["GET"] = json!("[count]");
    result
}

#[test]
fn a_reservation_is_stored_applied_and_proved_then_left_alone() {
    let site = Site::new(firewall());
    let options = site.options(web01_with(json!({
        "next_server": "10.20.0.2", "boot_file": "grubx64.efi", "tftp_server_name": "10.20.0.2",
        "description": "front end", "_ansible_verbosity": 2,
    })));

    let would = site.module.check(&options).done();
    assert_eq!(would["changed"], true);
    assert!(site.proxy.writes().is_empty(), "check mode only reads");
    assert!(site.firewall.stored_reservations().is_empty());
    assert_eq!(std::fs::read_dir(site.module.state()).unwrap().count(), 0, "nor does it write here");
    assert_snapshot!(would["diff"]["after"].as_str().unwrap(), @r"
    reservation.hw_address: 02:a5:00:00:00:65
    reservation.ip_address: 10.20.0.21
    reservation.hostname: web01
    reservation.next_server: 10.20.0.2
    reservation.boot_file_name: grubx64.efi
    reservation.tftp_server_name: 10.20.0.2
    reservation.description: front end
    reservation.owner: web01
    kea.service: running
    ");

    site.proxy.forget();
    let result = site.module.run(&options).done();
    assert_json_snapshot!(masked(&result), @r#"
    {
      "reservation": {
        "hw_address": "02:a5:00:00:00:65",
        "client_id": "",
        "ip_address": "10.20.0.21",
        "hostname": "web01",
        "next_server": "10.20.0.2",
        "boot_file_name": "grubx64.efi",
        "tftp_server_name": "10.20.0.2",
        "option_data": [],
        "client_classes": [],
        "description": "front end",
        "owner": "web01",
        "subnet": "10.20.0.0/24",
        "subnet_key": "[uuid]",
        "uuid": "[uuid]"
      },
      "boot_file_sent_as": "option 67",
      "lease": "free",
      "pending_apply": false,
      "read_back": {
        "held": [
          "reservation.hw_address",
          "reservation.ip_address",
          "reservation.hostname",
          "reservation.next_server",
          "reservation.boot_file_name",
          "reservation.tftp_server_name",
          "reservation.description",
          "reservation.owner",
          "kea.service"
        ]
      },
      "changed": true,
      "api_calls": {
        "GET": "[count]",
        "POST": 2
      }
    }
    "#);
    assert_snapshot!(site.requests().join("\n"), @r"
    GET /api/kea/dhcpv4/search_reservation
    GET /api/kea/dhcpv4/get
    GET /api/kea/dhcpv4/get_reservation
    GET /api/kea/service/status
    GET /api/kea/dhcpv4/get_subnet/UUID
    GET /api/kea/leases4/search
    POST /api/kea/dhcpv4/add_reservation
    GET /api/kea/dhcpv4/search_reservation
    GET /api/kea/dhcpv4/get
    GET /api/kea/service/status
    POST /api/kea/service/reconfigure
    GET /api/kea/service/status
    GET /api/kea/dhcpv4/search_reservation
    GET /api/kea/dhcpv4/get
    GET /api/kea/service/status
    ");
    assert_eq!(site.proxy.connections(), 1, "one connection a run");
    let live = site.firewall.live_reservations();
    assert_eq!(live.len(), 1);
    assert_eq!(live[0].hw_address, "02:a5:00:00:00:65");
    assert_eq!(live[0].next_server, "10.20.0.2");
    assert_eq!(live[0].description, "front end [anvil:web01]");
    let mut planned = would["reservation"].clone();
    planned["uuid"] = result["reservation"]["uuid"].clone();
    assert_eq!(planned, result["reservation"], "check mode told what would be");

    site.proxy.forget();
    let again = site.module.run(&options).done();
    assert_eq!(again["changed"], false);
    assert_eq!(again["reservation"], result["reservation"]);
    assert_snapshot!(site.requests().join("\n"), @r"
    GET /api/kea/dhcpv4/search_reservation
    GET /api/kea/dhcpv4/get
    GET /api/kea/service/status
    ");
}

#[test]
fn every_spelling_of_the_mac_finds_the_same_reservation_on_every_release() {
    for release in [Release::V25_1, Release::V25_7, Release::V26_1, Release::V26_7_2] {
        let site = Site::new(firewall().release(release));
        let _ = site.module.run(&site.options(web01())).done();
        assert_eq!(site.firewall.stored_reservations()[0].hw_address, "02:a5:00:00:00:65");
        for mac in ["02:a5:00:00:00:65", "02-A5-00-00-00-65", "02a5.0000.0065", "02a500000065"] {
            let result = site.module.run(&site.options(web01_with(json!({"mac": mac})))).done();
            assert_eq!(result["changed"], false, "{release} {mac}");
        }
        let moved = site.module.run(&site.options(web01_with(json!({"ip": "10.20.0.31"})))).done();
        assert_eq!(moved["changed"], true);
        let live = site.firewall.live_reservations();
        assert_eq!((live.len(), live[0].ip_address.as_str()), (1, "10.20.0.31"), "{release}");
    }
}

#[test]
fn absent_removes_it_and_a_second_run_finds_nothing() {
    let site = Site::new(firewall());
    let _ = site.module.run(&site.options(web01())).done();
    let absent = site.options(web01_with(json!({"state": "absent"})));
    assert_eq!(site.module.check(&absent).done()["reservation"], Value::Null);
    assert_eq!(site.firewall.stored_reservations().len(), 1);
    let result = site.module.run(&absent).done();
    assert_eq!((&result["changed"], &result["reservation"]), (&json!(true), &Value::Null));
    assert!(site.firewall.stored_reservations().is_empty());
    assert!(site.firewall.live_reservations().is_empty());
    assert_eq!(site.module.run(&absent).done()["changed"], false);
}

#[test]
fn storing_only_says_that_it_is_pending_until_somebody_applies() {
    let site = Site::new(firewall());
    let options = site.options(web01_with(json!({"apply": false})));
    assert_eq!(site.module.check(&options).done()["pending_apply"], true);
    let result = site.module.run(&options).done();
    assert_eq!((&result["changed"], &result["pending_apply"]), (&json!(true), &json!(true)));
    assert_snapshot!(result["read_back"], @r#"{"held":[],"pending":{"reservation.hw_address":"stored; homelab.anvil.opnsense_reconfigure puts it in effect","reservation.ip_address":"stored; homelab.anvil.opnsense_reconfigure puts it in effect","reservation.hostname":"stored; homelab.anvil.opnsense_reconfigure puts it in effect","reservation.owner":"stored; homelab.anvil.opnsense_reconfigure puts it in effect"}}"#);
    assert_eq!(site.firewall.stored_reservations().len(), 1);
    assert!(site.firewall.live_reservations().is_empty());

    let again = site.module.run(&options).done();
    assert_eq!((&again["changed"], &again["pending_apply"]), (&json!(false), &json!(true)), "still pending");
    let applied = site.module.run(&site.options(web01())).done();
    assert_eq!((&applied["changed"], &applied["pending_apply"]), (&json!(true), &json!(false)));
    assert_eq!(site.firewall.live_reservations().len(), 1);
    assert_eq!(site.module.run(&options).done()["pending_apply"], false);
}

#[test]
fn a_host_with_a_new_mac_takes_its_address_over() {
    let site = Site::new(firewall().reservation(
        "10.20.0.0/24",
        &[
            ("hw_address", "02:a5:00:00:00:64"),
            ("ip_address", "10.20.0.21"),
            ("hostname", "web01"),
            ("description", "made by hand"),
        ],
    ));
    let refused = site.module.run(&site.options(web01())).failed();
    assert_eq!(refused["error_code"], "refused");
    assert_eq!(refused["holder"]["hw_address"], "02:a5:00:00:00:64");
    assert!(site.proxy.writes().is_empty());
    let uuid = site.firewall.stored_reservations()[0].uuid.clone();
    let result = site.module.run(&site.options(web01_with(json!({"prune_stale": true})))).done();
    assert_eq!(result["reservation"]["uuid"], uuid, "changed in place");
    let live = site.firewall.live_reservations();
    assert_eq!((live.len(), live[0].hw_address.as_str()), (1, "02:a5:00:00:00:65"));
    assert_eq!(live[0].description, "made by hand [anvil:web01]");
}

/// What must be refused before any write, by what the firewall holds.
#[test]
fn refusals_reach_no_write_and_name_the_cause() {
    let other = [("hw_address", "52:54:00:00:00:09"), ("ip_address", "10.20.0.21"), ("hostname", "db01")];
    let named = [("hw_address", "52:54:00:00:00:09"), ("ip_address", "10.20.0.40"), ("hostname", "web01")];
    let cases = [
        (firewall().reservation("10.20.0.0/24", &other), json!({}), "refused"),
        (firewall().reservation("10.20.0.0/24", &other), json!({"prune_stale": true}), "refused"),
        (firewall().reservation("10.20.0.0/24", &named), json!({}), "refused"),
        (firewall().lease("10.20.0.21", "52:54:00:00:00:77"), json!({}), "refused"),
        (firewall(), json!({"ip": "10.20.0.1"}), "refused"),
        (firewall(), json!({"ip": "10.20.0.255"}), "refused"),
        (firewall(), json!({"ip": "10.99.0.1"}), "refused"),
        (firewall(), json!({"subnet": "10.20.0.0/25"}), "refused"),
        (firewall().kea_setting("enabled", "0"), json!({}), "refused"),
        (firewall().kea_setting("manual_config", "1"), json!({}), "refused"),
        (firewall().release(Release::V26_1_8), json!({"next_server": "10.20.0.2"}), "refused"),
        (firewall().release(Release::V25_1), json!({"boot_file": "grubx64.efi"}), "refused"),
        (firewall(), json!({"boot_file": "a,b"}), "bad_argument"),
        (firewall(), json!({"hostname": "web01.example.net"}), "bad_argument"),
        (firewall(), json!({"mac": "02:a5:00:00:65"}), "bad_argument"),
        (firewall(), json!({"api_secret": "wrong"}), "auth"),
    ];
    let mut told = Vec::new();
    for (builder, options, code) in cases {
        let site = Site::new(builder);
        let result = site.module.run(&site.options(web01_with(options.clone()))).failed();
        assert_eq!(result["error_code"], code, "{options}: {}", result["msg"]);
        assert!(site.proxy.writes().is_empty(), "{options}");
        assert!(result.get("changed").is_none_or(|changed| changed == false), "{options}");
        told.push(format!("{options}: {}", result["msg"].as_str().unwrap()));
    }
    assert_snapshot!(told.join("\n"), @r#"
    {}: 10.20.0.21 is reserved for 52:54:00:00:00:09 (db01): choose another address, or remove that reservation
    {"prune_stale":true}: 10.20.0.21 is reserved for 52:54:00:00:00:09 (db01): choose another address, or remove that reservation
    {}: the hostname web01 is held by the reservation of 10.20.0.40 for 52:54:00:00:00:09 in 10.20.0.0/24: give this host another name, or remove that reservation
    {}: 10.20.0.21 is leased to 52:54:00:00:00:77 now, so 02:a5:00:00:00:65 would get an address of the pool: stop that client, or forget its lease with `clear_lease: true`
    {"ip":"10.20.0.1"}: 10.20.0.1 is the router of 10.20.0.0/24
    {"ip":"10.20.0.255"}: 10.20.0.255 is the broadcast address of 10.20.0.0/24
    {"ip":"10.99.0.1"}: no subnet that holds 10.99.0.1; subnets of the server: 10.20.0.0/24, 10.30.0.0/24
    {"subnet":"10.20.0.0/25"}: no subnet 10.20.0.0/25; subnets of the server: 10.20.0.0/24, 10.30.0.0/24
    {}: Kea DHCPv4 is disabled on OPNsense: enable it under Services: Kea DHCP
    {}: Kea DHCPv4 is configured by hand on OPNsense (Manual config), so reservations that the API stores have no effect: switch that off under Services: Kea DHCP
    {"next_server":"10.20.0.2"}: this OPNsense drops `next_server` of a reservation without a word: that field needs OPNsense 26.1.9. Update the firewall, or leave the option out
    {"boot_file":"grubx64.efi"}: this OPNsense drops `boot_file_name` of a reservation without a word: that field needs OPNsense 25.7. Update the firewall, or leave the option out
    {"boot_file":"a,b"}: option `boot_file`: the client would get `a,b` cut at the comma: write `\,`
    {"hostname":"web01.example.net"}: option `hostname`: expected one label, found the full name `web01.example.net`: DHCP puts the domain of the subnet behind it, so the name would become web01.example.net.example.net; give `web01`
    {"mac":"02:a5:00:00:65"}: option `mac`: "02:a5:00:00:65" is not a MAC address: expected 6 bytes of two hex digits each (like 02:a5:00:00:00:64), found 5 bytes
    {"api_secret":"wrong"}: OPNsense does not accept the API key and secret (401): check both; a secret is shown only once, when the key is made
    "#);
}

#[test]
fn a_key_that_may_not_see_leases_still_reserves() {
    let site = Site::new(firewall());
    site.proxy.on("GET", "leases4").always().answer(
        403,
        "Forbidden",
        r#"{"status":403,"message":"Forbidden"}"#,
    );
    let result = site.module.run(&site.options(web01())).done();
    assert_eq!(result["lease"], "not_checked");
}

#[test]
fn a_certificate_that_is_not_known_gets_no_credential() {
    let site = Site::new(firewall());
    for (options, code) in [
        (json!({"ca_path": null}), "tls"),
        (json!({"ca_path": null, "tls_fingerprint": "00".repeat(32)}), "tls"),
        (json!({"ca_path": null, "tls_fingerprint": "00"}), "bad_argument"),
    ] {
        let result = site.module.run(&site.options(web01_with(options.clone()))).failed();
        assert_eq!(result["error_code"], code, "{options}");
        assert!(site.proxy.log().is_empty(), "{options}");
    }
    let pinned = json!({"ca_path": null, "tls_fingerprint": site.proxy.fingerprint()});
    assert_eq!(site.module.run(&site.options(web01_with(pinned))).done()["changed"], true);
}

#[test]
fn a_restricted_user_is_told_the_privilege() {
    let site = Site::new(firewall().user(User::with("k", "s-e-c-r-e-t", &[Privilege::Unbound])));
    let options = site.options(web01_with(json!({"api_key": "k", "api_secret": "s-e-c-r-e-t"})));
    let outcome = site.module.run(&options);
    assert!(!outcome.output.contains("s-e-c-r-e-t"));
    let result = outcome.failed();
    assert_eq!(result["error_code"], "auth");
    assert!(result["msg"].as_str().unwrap().contains("Services: DHCP: Kea(v4)"), "{result}");
    let site = Site::new(firewall().user(User::with("k", "s-e-c-r-e-t", &[Privilege::Kea])));
    let options = site.options(web01_with(json!({"api_key": "k", "api_secret": "s-e-c-r-e-t"})));
    assert_eq!(site.module.run(&options).done()["changed"], true);
}

#[test]
fn a_lease_of_another_is_cleared_when_asked() {
    let site = Site::new(firewall().lease("10.20.0.21", "52:54:00:00:00:77"));
    let options = site.options(web01_with(json!({"clear_lease": true})));
    let result = site.module.run(&options).done();
    assert_eq!(result["lease"], "other");
    assert!(site.firewall.leases().is_empty());
    assert_eq!(site.module.run(&options).done()["changed"], false);

    let old = Site::new(firewall().release(Release::V26_1).lease("10.20.0.21", "52:54:00:00:00:77"));
    let result = old.module.run(&old.options(web01_with(json!({"clear_lease": true})))).failed();
    assert_eq!(result["error_code"], "refused");
    assert!(old.proxy.writes().is_empty());
}

#[test]
fn two_entries_of_one_mac_that_stop_kea_become_one_and_kea_runs() {
    let site = Site::new(firewall().release(Release::V25_7));
    site.firewall.store_reservation(
        "10.20.0.0/24",
        &[("hw_address", "02-A5-00-00-00-65"), ("ip_address", "10.20.0.31")],
    );
    site.firewall.store_reservation(
        "10.20.0.0/24",
        &[("hw_address", "02:a5:00:00:00:65"), ("ip_address", "10.20.0.21")],
    );
    let result = site.module.run(&site.options(web01())).done();
    assert_eq!(result["changed"], true);
    let live = site.firewall.live_reservations();
    assert_eq!((live.len(), live[0].ip_address.as_str()), (1, "10.20.0.21"));
}

#[test]
fn requests_do_not_grow_with_the_number_of_reservations() {
    let mut builder = firewall();
    for number in 0..2000_u32 {
        let mac = format!("52:54:00:{:02x}:{:02x}:01", number / 256, number % 256);
        let ip = format!("10.30.{}.{}", number / 256, number % 256);
        builder =
            builder.reservation("10.30.0.0/24", &[("hw_address", mac.as_str()), ("ip_address", ip.as_str())]);
    }
    let site = Site::new(builder);
    let options = site.options(web01_with(json!({"apply": false})));
    let _ = site.module.run(&options).done();
    site.proxy.forget();
    assert_eq!(site.module.run(&options).done()["changed"], false);
    assert_eq!(site.proxy.log().len(), 2);
}

#[test]
fn a_kea_that_does_not_start_is_a_failure_and_the_next_run_applies_again() {
    let site = Site::new(firewall());
    site.firewall.inject(Fault::KeaRefusesToStart);
    let result = site.module.run(&site.options(web01_with(json!({"timeout": 60})))).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!((&result["field"], &result["found"]), (&json!("kea.service"), &json!("stopped")));
    site.firewall.heal();
    let result = site.module.run(&site.options(web01())).done();
    assert_eq!(result["changed"], true);
    assert_eq!(site.firewall.live_reservations().len(), 1);
}

#[test]
fn options_and_client_identifiers_are_held_by_the_releases_that_store_them() {
    let options = json!([
        {"name": "routers", "data": "10.20.0.3, 10.20.0.4"},
        {"name": "domain-name", "data": "lab.example.net"},
    ]);
    for release in [Release::V25_7, Release::V26_7_2] {
        let site = Site::new(firewall().release(release));
        let first = site.options(web01_with(json!({"option_data": options})));
        let result = site.module.run(&first).done();
        assert_eq!(
            result["reservation"]["option_data"][1]["data"], "10.20.0.3,10.20.0.4",
            "{release}: {result}"
        );
        assert_eq!(site.module.run(&first).done()["changed"], false, "{release}");
        let fewer = json!({"option_data": [{"name": "domain-name", "data": "lab.example.net"}]});
        assert_eq!(site.module.run(&site.options(web01_with(fewer.clone()))).done()["changed"], true);
        assert_eq!(site.module.run(&site.options(web01_with(fewer))).done()["changed"], false, "{release}");
        let kept = site.module.run(&site.options(web01())).done();
        assert_eq!(kept["reservation"]["option_data"].as_array().unwrap().len(), 1, "left out is left alone");
    }
    let by_client_id = json!({"client_id": "01:aa:bb", "ip": "10.20.0.71", "hostname": "web02"});
    let site = Site::new(firewall());
    let result = site.module.run(&site.options(by_client_id.clone())).done();
    assert_eq!(result["reservation"]["client_id"], "01:aa:bb");
    assert_eq!(site.module.run(&site.options(by_client_id.clone())).done()["changed"], false);
    let by_mac =
        json!({"mac": "02:a5:00:00:00:70", "ip": "10.20.0.71", "hostname": "web02", "prune_stale": true});
    let result = site.module.run(&site.options(by_mac)).done();
    assert_eq!(
        (&result["reservation"]["client_id"], site.firewall.live_reservations().len()),
        (&json!(""), 1)
    );
    for (release, options) in
        [(Release::V26_1_6, by_client_id), (Release::V25_1, web01_with(json!({"option_data": options})))]
    {
        let old = Site::new(firewall().release(release));
        let refused = old.module.run(&old.options(options)).failed();
        assert_eq!(refused["error_code"], "refused", "{refused}");
        assert!(old.proxy.writes().is_empty());
    }
}

#[test]
fn a_network_boot_needs_a_subnet_where_the_mac_address_counts() {
    let netboot = json!({"next_server": "10.20.0.2", "boot_file": "grubx64.efi", "netboot": true});
    let site = Site::new(firewall());
    let refused = site.module.run(&site.options(web01_with(netboot.clone()))).failed();
    assert!(refused["msg"].as_str().unwrap().contains("match-client-id"), "{refused}");
    assert!(site.proxy.writes().is_empty());
    let right = firewall().subnet_with(&[
        ("subnet", "10.40.0.0/24"),
        ("pools", "10.40.0.100-10.40.0.199"),
        ("match-client-id", "0"),
    ]);
    let site = Site::new(right);
    let web01 = site.options(web01_with(lab::program::with(&netboot, json!({"ip": "10.40.0.21"}))));
    assert_eq!(site.module.run(&web01).done()["changed"], true);
    assert_eq!(site.module.run(&web01).done()["changed"], false);
}

#[test]
fn a_kea_that_dies_of_its_file_a_moment_after_its_start_is_not_taken_for_running() {
    let site = Site::new(firewall());
    site.firewall.inject(Fault::KeaDiesSoon);
    let result = site.module.run(&site.options(web01_with(json!({"timeout": 60})))).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!((&result["field"], &result["found"]), (&json!("kea.service"), &json!("stopped")));
    site.firewall.heal();
    assert_eq!(site.module.run(&site.options(web01())).done()["changed"], true, "it is applied again");
}
