use std::time::Duration;

use deadline::{Deadline, Expired};
use insta::{assert_json_snapshot, assert_snapshot};
use lab::dns::Unbound;
use lab::opnsense::{Privilege, Record, Release, User};
use serde_json::{Value, json};

use crate::{Site, firewall, record};

#[test]
fn a_record_is_stored_applied_and_proved_then_left_alone() {
    let site = Site::new(firewall());
    let options = site.web01(json!({"description": "front end", "_ansible_verbosity": 2}));
    let would = site.module.check(&options).done();
    assert_eq!(would["changed"], true);
    assert!(site.proxy.writes().is_empty(), "check mode only reads");
    assert_snapshot!(would["diff"]["after"].as_str().unwrap(), @r"
    record.enabled: 1
    record.hostname: web01
    record.domain: example.net
    record.rr: A
    record.server: 10.20.0.21
    record.addptr: 1
    record.description: front end
    unbound.service: running
    ");

    site.proxy.forget();
    let mut result = site.module.run(&options).done();
    assert_eq!(site.proxy.connections(), 1, "one connection a run");
    assert_eq!(site.live("A"), [record("web01.example.net", "A", "10.20.0.21")]);
    assert_eq!(site.live("PTR"), [record("10.20.0.21", "PTR", "web01.example.net")]);
    result["record"]["uuid"] = Value::Null;
    assert_eq!(would["record"], result["record"], "check mode told what would be");
    // How often the service is asked whether it goes on running depends on the time that the answers take.
    result["api_calls"]["GET"] = Value::Null;
    assert_json_snapshot!(result, @r#"
    {
      "record": {
        "hostname": "web01",
        "domain": "example.net",
        "rr": "A",
        "value": "10.20.0.21",
        "ttl": null,
        "server": "10.20.0.21",
        "addptr": true,
        "enabled": true,
        "description": "front end",
        "uuid": null
      },
      "ptr_name": "web01.example.net",
      "pending_apply": false,
      "resolver": null,
      "read_back": {
        "held": [
          "record.enabled",
          "record.hostname",
          "record.domain",
          "record.rr",
          "record.server",
          "record.addptr",
          "record.description",
          "unbound.service"
        ]
      },
      "changed": true,
      "api_calls": {
        "GET": null,
        "POST": 2
      }
    }
    "#);

    site.proxy.forget();
    assert_eq!(site.module.run(&options).done()["changed"], false);
    let requests: Vec<String> =
        site.proxy.log().iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_snapshot!(requests.join("\n"), @r"
    GET /api/unbound/settings/search_host_override
    GET /api/unbound/service/status
    ");
}

#[test]
fn another_address_updates_the_record_on_every_release() {
    for release in [Release::V25_1, Release::V25_7, Release::V26_1_3, Release::V26_7_2] {
        let site = Site::new(firewall().release(release));
        let _ = site.module.run(&site.web01(json!({}))).done();
        let _ = site.module.run(&site.web01(json!({"value": "2001:db8::21"}))).done();
        let result = site.module.run(&site.web01(json!({"value": "10.20.0.31", "hostname": "WEB01"}))).done();
        assert_eq!(result["changed"], true, "{release}");
        assert_eq!(site.live("A"), [record("web01.example.net", "A", "10.20.0.31")], "{release}");
        assert_eq!(site.live("AAAA"), [record("web01.example.net", "AAAA", "2001:db8::21")], "{release}");
        assert_eq!(site.firewall.stored_overrides().len(), 2, "{release}");
        for value in ["10.20.0.31", "2001:db8:0::21"] {
            assert_eq!(
                site.module.run(&site.web01(json!({"value": value}))).done()["changed"],
                false,
                "{release}"
            );
        }
    }
}

#[test]
fn absent_removes_it_and_a_second_run_finds_nothing() {
    let site = Site::new(firewall());
    let _ = site.module.run(&site.web01(json!({}))).done();
    let absent = site.web01(json!({"state": "absent", "value": null}));
    assert_eq!(site.module.check(&absent).done()["record"], Value::Null);
    assert_eq!(site.firewall.stored_overrides().len(), 1);
    assert_eq!(site.module.run(&absent).done()["changed"], true);
    assert!(site.firewall.live_records().is_empty());
    assert_eq!(site.module.run(&absent).done()["changed"], false);
}

#[test]
fn storing_only_needs_no_right_to_apply_and_stays_pending() {
    for release in [Release::V25_1, Release::V26_7_2] {
        let user = User::with("k", "s-e-c-r-e-t", &[Privilege::HostOverrides]);
        let site = Site::new(firewall().release(release).user(user));
        let options = site.web01(json!({"api_key": "k", "api_secret": "s-e-c-r-e-t", "apply": false}));
        assert_eq!(site.module.run(&options).done()["pending_apply"], true, "{release}");
        let again = site.module.run(&options).done();
        assert_eq!((&again["changed"], &again["pending_apply"]), (&json!(false), &json!(true)));
        assert_eq!(site.firewall.stored_overrides().len(), 1);
        assert!(site.firewall.live_records().is_empty());
        let applying = site.module.run(&lab::program::with(&options, json!({"apply": true}))).failed();
        assert_eq!(applying["error_code"], "auth");
        assert!(applying["msg"].as_str().unwrap().contains("\"Services: Unbound\""), "{applying}");
    }
}

#[test]
fn refusals_reach_no_write() {
    let twice = [("hostname", "web01"), ("domain", "example.net"), ("server", "10.20.0.98")];
    let cases = [
        (firewall().host_override(&twice).host_override(&twice), json!({}), "refused"),
        (firewall().release(Release::V26_1), json!({"ptr": false}), "refused"),
        (firewall(), json!({"value": "fe80::1", "type": "A"}), "bad_argument"),
        (firewall(), json!({"hostname": "web01.example.net"}), "bad_argument"),
        (firewall(), json!({"domain": "-example.net"}), "bad_argument"),
        (firewall(), json!({"api_secret": "wrong"}), "auth"),
    ];
    for (builder, options, code) in cases {
        let site = Site::new(builder);
        let result = site.module.run(&site.web01(options.clone())).failed();
        assert_eq!(result["error_code"], code, "{options}: {}", result["msg"]);
        assert!(site.proxy.writes().is_empty(), "{options}");
    }
}

#[test]
fn duplicates_made_by_others_are_repaired_when_asked() {
    let row = |server| [("hostname", "web01"), ("domain", "example.net"), ("server", server)];
    let site = Site::new(firewall().host_override(&row("10.20.0.98")).host_override(&row("10.20.0.21")));
    let result = site.module.run(&site.web01(json!({"repair_duplicates": true}))).done();
    assert_eq!(result["changed"], true);
    assert_eq!(site.live("A"), [record("web01.example.net", "A", "10.20.0.21")]);
    assert_eq!(site.module.run(&site.web01(json!({}))).done()["changed"], false);
}

#[test]
fn the_name_of_the_ptr_is_told() {
    let other = [("hostname", "old"), ("domain", "example.net"), ("server", "10.20.0.21")];
    let site = Site::new(firewall().host_override(&other));
    let result = site.module.run(&site.web01(json!({}))).done();
    assert_eq!(result["ptr_name"], "old.example.net");
    assert_eq!(site.live("PTR"), [record("10.20.0.21", "PTR", "old.example.net")]);
    let without = Site::new(firewall());
    let result = without.module.run(&without.web01(json!({"ptr": false}))).done();
    assert_eq!((&result["ptr_name"], &result["record"]["addptr"]), (&Value::Null, &json!(false)));
    assert!(without.live("PTR").is_empty());
}

#[test]
fn an_alias_follows_its_host_on_every_release() {
    for release in [Release::V25_1, Release::V25_7, Release::V26_7_2] {
        let site = Site::new(firewall().release(release));
        for value in ["10.20.0.21", "2001:db8::21"] {
            let _ = site.module.run(&site.web01(json!({"value": value}))).done();
        }
        let _ = site.module.run(&site.web01(json!({"hostname": "db", "value": "10.20.0.31"}))).done();
        let www = site.web01(json!({"hostname": "www", "type": "CNAME", "value": "web01.example.net."}));
        let would = site.module.check(&www).done();
        assert_eq!(
            (&would["changed"], &would["record"]["value"]),
            (&json!(true), &json!("web01.example.net"))
        );
        let result = site.module.run(&www).done();
        assert_eq!(result["record"]["value"], "web01.example.net", "{release}");
        let named = |rr: &str| -> Vec<String> {
            let own = site.live(rr).into_iter().filter(|record| record.name == "www.example.net");
            own.map(|record| record.value).collect()
        };
        assert_eq!(
            (named("A"), named("AAAA")),
            (vec!["10.20.0.21".to_owned()], vec!["2001:db8::21".to_owned()])
        );
        assert_eq!(site.module.run(&www).done()["changed"], false, "{release}");

        let taken = site.module.run(&site.web01(json!({"hostname": "www", "value": "10.20.0.41"}))).failed();
        assert_eq!(
            (&taken["error_code"], &taken["holder"]),
            (&json!("refused"), &json!("web01.example.net"))
        );

        let other = lab::program::with(&www, json!({"value": "db.example.net"}));
        assert_eq!(site.module.run(&other).done()["changed"], true, "{release}");
        assert_eq!((named("A"), named("AAAA")), (vec!["10.20.0.31".to_owned()], vec![]), "{release}");
        let absent = lab::program::with(&www, json!({"state": "absent"}));
        assert_eq!(site.module.run(&absent).done()["record"], Value::Null);
        assert_eq!(named("A"), Vec::<String>::new(), "{release}");
        assert_eq!(site.module.run(&absent).done()["changed"], false, "{release}");
    }
}

#[test]
fn an_alias_whose_answer_is_lost_is_one_alias() {
    let site = Site::new(firewall());
    let _ = site.module.run(&site.web01(json!({}))).done();
    let www = site.web01(json!({"hostname": "www", "type": "CNAME", "value": "web01.example.net"}));
    site.proxy.on("POST", "add_host_alias").first().lose_answer();
    assert_eq!(site.module.run(&www).done()["changed"], true);
    assert_eq!(site.live("A").len(), 2, "{:?}", site.live("A"));
}

#[test]
fn a_text_needs_a_release_that_keeps_it() {
    let spf = json!({"hostname": "@", "type": "TXT", "value": "v=spf1 -all"});
    let old = Site::new(firewall().release(Release::V25_7));
    assert_eq!(old.module.run(&old.web01(spf.clone())).failed()["error_code"], "refused");
    assert!(old.proxy.writes().is_empty());
    let site = Site::new(firewall().release(Release::V25_7_4));
    assert_eq!(site.module.run(&site.web01(spf.clone())).done()["changed"], true);
    assert_eq!(site.live("TXT"), [record("example.net", "TXT", "v=spf1 -all")]);
    assert_eq!(site.module.run(&site.web01(spf)).done()["changed"], false);
    let other = site.web01(json!({"hostname": "@", "type": "TXT", "value": "v=spf1 mx -all"}));
    assert_eq!(site.module.run(&other).done()["record"]["value"], "v=spf1 mx -all");
    assert_eq!(site.live("TXT").len(), 1);
}

#[test]
fn a_time_to_live_is_kept() {
    let site = Site::new(firewall());
    let _ = site.module.run(&site.web01(json!({}))).done();
    let result = site.module.run(&site.web01(json!({"ttl": 60}))).done();
    assert_eq!((&result["changed"], &result["record"]["ttl"]), (&json!(true), &json!(60)));
    assert_eq!(site.module.run(&site.web01(json!({}))).done()["changed"], false);
}

/// What the double's Unbound serves, served by a real one.
#[test]
fn a_real_unbound_is_asked_until_it_answers_what_is_stored() {
    if !lab::present(lab::dns::installed(), "BIND, Knot and Unbound (bind9, bind9-dnsutils, knot, unbound)") {
        return;
    }
    let serve = |site: &Site, port| {
        let line = |one: &Record| match one.rr.as_str() {
            "PTR" => format!("local-data-ptr: \"{} {}\"", one.name, one.value),
            rr => format!("local-data: \"{} {rr} {}\"", one.name, one.value),
        };
        let lines: Vec<String> = site.firewall.live_records().iter().map(line).collect();
        Unbound::with_data(port, &lines).unwrap()
    };
    let site = Site::new(firewall());
    let port = lab::dns::free_port().unwrap();
    let asking = |options: Value| {
        let resolver = json!({"resolver": "127.0.0.1", "resolver_port": port, "timeout": 30});
        site.web01(lab::program::with(&resolver, options))
    };
    // Unbound starts only when OPNsense has applied the change: until then nothing answers.
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.module.run(&asking(json!({}))).done());
        let applied: Result<(), Expired> = Deadline::after(Duration::from_secs(20))
            .poll(|| Ok((!site.firewall.live_records().is_empty()).then_some(())));
        applied.unwrap();
        let _unbound = serve(&site, port);
        run.join().unwrap()
    });
    assert_eq!(
        result["resolver"]["answers"],
        json!([
            {"name": "web01.example.net", "type": "A", "answer": ["10.20.0.21"]},
            {"name": "21.0.20.10.in-addr.arpa", "type": "PTR", "answer": ["web01.example.net"]},
        ])
    );
    // The next one still serves the old address: the run fails, and says so.
    let stale = serve(&site, port);
    let result = site.module.run(&asking(json!({"value": "10.20.0.31", "timeout": 4}))).failed();
    assert_eq!(
        (&result["error_code"], &result["expected"], &result["found"]),
        (&json!("read_back_mismatch"), &json!("10.20.0.31"), &json!("10.20.0.21"))
    );
    drop(stale);
    let _fresh = serve(&site, port);
    assert_eq!(site.module.run(&asking(json!({"value": "10.20.0.31"}))).done()["changed"], false);
    let stored = site.module.run(&asking(json!({"value": "10.20.0.41", "apply": false}))).done();
    assert_eq!(stored["resolver"], Value::Null, "nobody is asked for what is not in effect");
}
