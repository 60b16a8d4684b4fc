//! A real BIND with a TSIG key, and a real Unbound in front of it.

use std::process::Command;
use std::thread;
use std::time::Duration;

use deadline::{Deadline, Expired};
use insta::{assert_json_snapshot, assert_snapshot};
use lab::dns::{Bind, Knot, TsigKey, Unbound, Zone};
use lab::program::{Program, with};
use serde_json::{Value, json};

const SECRET: &str = "bGFiLXRzaWctc2VjcmV0LW9mLXRoZS16b25l";
const KEY: TsigKey<'_> = TsigKey { name: "anvil", algorithm: "hmac-sha256", secret: SECRET };
const OTHER: TsigKey<'_> =
    TsigKey { name: "guest", algorithm: "hmac-sha512", secret: "Z3Vlc3QtZ3Vlc3QtZ3Vlc3Q=" };
const REVERSE: &str = "20.10.in-addr.arpa";

/// A primary server, a resolver in front of it, and the module's binary.
struct Site {
    bind: Bind,
    unbound: Unbound,
    module: Program,
}

impl Site {
    /// `None`, saying so, where the programs are missing.
    fn with(records: &str, reverse: &str) -> Option<Self> {
        let options = "allow-update { key anvil; };";
        let zones = [
            Zone { name: "example.net", records, options },
            Zone { name: REVERSE, records: reverse, options },
            Zone { name: "static.net", records: "", options: "" },
        ];
        Self::serving(&zones)
    }

    fn new() -> Option<Self> {
        Self::with("", "")
    }

    fn serving(zones: &[Zone<'_>]) -> Option<Self> {
        if !lab::present(
            lab::dns::installed(),
            "BIND, Knot and Unbound (bind9, bind9-dnsutils, knot, unbound)",
        ) {
            return None;
        }
        let bind = Bind::start(&[KEY, OTHER], zones).unwrap();
        let names: Vec<&str> = zones.iter().map(|zone| zone.name).collect();
        let unbound = Unbound::in_front_of(bind.port(), &names).unwrap();
        Some(Self { bind, unbound, module: Program::new(env!("CARGO_BIN_EXE_dns_record")) })
    }

    /// web01, with other options laid over it.
    fn web01(&self, options: Value) -> Value {
        let web01 = json!({
            "backend": "rfc2136", "dns_server": "127.0.0.1", "dns_port": self.bind.port(), "key_name": "anvil",
            "key_secret": SECRET, "resolver": "127.0.0.1", "resolver_port": self.unbound.port(), "timeout": 30,
            "_ansible_inject_invocation": false, "hostname": "web01", "domain": "example.net", "value": "10.20.0.21",
            "ttl": 1,
        });
        with(&web01, options)
    }

    fn kept(&self, name: &str, rr: &str) -> String {
        self.bind.ask(name, rr).unwrap().join(" ")
    }

    fn resolved(&self, name: &str, rr: &str) -> String {
        self.unbound.ask(name, rr).unwrap().join(" ")
    }
}

#[test]
fn a_record_is_added_changed_and_removed_with_its_ptr() {
    let Some(site) = Site::new() else { return };
    let options = site.web01(json!({"_ansible_verbosity": 2}));
    let would = site.module.check(&options).done();
    assert_eq!((&would["changed"], site.kept("web01.example.net", "A").as_str()), (&json!(true), ""));
    assert_snapshot!(would["diff"]["after"].as_str().unwrap(), @r"
    record.value: 10.20.0.21
    record.ttl: 1
    ptr.10.20.0.21: web01.example.net
    ");
    let mut result = site.module.run(&options).done();
    assert_eq!(would["record"], result["record"], "check mode told what would be");
    result["resolver"]["address"] = Value::Null;
    assert_json_snapshot!(result, @r#"
    {
      "record": {
        "hostname": "web01",
        "domain": "example.net",
        "zone": "example.net",
        "rr": "A",
        "value": "10.20.0.21",
        "ttl": 1
      },
      "ptr_name": "web01.example.net",
      "pending_apply": false,
      "resolver": {
        "address": null,
        "answers": [
          {
            "name": "web01.example.net",
            "type": "A",
            "answer": [
              "10.20.0.21"
            ]
          },
          {
            "name": "21.0.20.10.in-addr.arpa",
            "type": "PTR",
            "answer": [
              "web01.example.net"
            ]
          }
        ]
      },
      "read_back": {
        "held": [
          "record.value",
          "record.ttl",
          "ptr.10.20.0.21"
        ]
      },
      "changed": true,
      "api_calls": {
        "QUERY": 10,
        "UPDATE": 2
      }
    }
    "#);
    assert_eq!(site.kept("web01.example.net", "A"), "10.20.0.21");
    assert_eq!(site.resolved("21.0.20.10.in-addr.arpa", "PTR"), "web01.example.net.");
    let again = site.module.run(&options).done();
    assert_eq!((&again["changed"], &again["api_calls"]), (&json!(false), &json!({"QUERY": 4})));

    let moved = site.module.run(&site.web01(json!({"value": "10.20.0.31", "hostname": "WEB01"}))).done();
    assert_eq!(moved["changed"], true);
    assert_eq!(site.kept("web01.example.net", "A"), "10.20.0.31");
    assert_eq!(site.kept("21.0.20.10.in-addr.arpa", "PTR"), "");
    assert_eq!(site.kept("31.0.20.10.in-addr.arpa", "PTR"), "web01.example.net.");
    assert_eq!(site.resolved("web01.example.net", "A"), "10.20.0.31");

    let absent = site.web01(json!({"state": "absent", "value": null, "ttl": null}));
    assert_eq!(site.module.check(&absent).done()["record"], Value::Null);
    assert_eq!(site.kept("web01.example.net", "A"), "10.20.0.31");
    assert_eq!(site.module.run(&absent).done()["changed"], true);
    assert_eq!(site.kept("web01.example.net", "A") + &site.kept("31.0.20.10.in-addr.arpa", "PTR"), "");
    assert_eq!(site.resolved("web01.example.net", "A"), "");
    assert_eq!(site.module.run(&absent).done()["changed"], false);
}

#[test]
fn every_type_is_one_record_set() {
    let Some(site) = Site::new() else { return };
    let long = format!("v=DKIM1; p={}", "k".repeat(600));
    for (options, name, other) in [
        (json!({"value": "2001:db8::21", "ptr": false}), "web01.example.net", "2001:db8::22"),
        (
            json!({"type": "TXT", "hostname": "_acme-challenge", "domain": "web01.example.net", "value": "one"}),
            "_acme-challenge.web01.example.net",
            "two \"quoted\"",
        ),
        (json!({"type": "TXT", "hostname": "@", "value": "v=spf1 -all"}), "example.net", long.as_str()),
        (
            json!({"type": "CNAME", "hostname": "www", "value": "web01.example.net."}),
            "www.example.net",
            "db.example.net",
        ),
        (
            json!({"type": "PTR", "hostname": "10.20.0.77", "domain": null, "value": "printer.example.net"}),
            "77.0.20.10.in-addr.arpa",
            "scanner.example.net",
        ),
        (json!({"hostname": "*", "domain": "apps.example.net"}), "*.apps.example.net", "10.20.0.22"),
    ] {
        let options = site.web01(options);
        let rr = site.module.run(&options).done()["record"]["rr"].as_str().unwrap().to_owned();
        assert_eq!(site.bind.ask(name, &rr).unwrap().len(), 1, "{name}");
        assert_eq!(site.module.run(&options).done()["changed"], false, "{name}");
        let changed = with(&options, json!({"value": other}));
        let result = site.module.run(&changed).done();
        assert_eq!((&result["changed"], &result["record"]["value"]), (&json!(true), &json!(other)), "{name}");
        assert_eq!(site.module.run(&changed).done()["changed"], false, "{name}");
        assert_eq!(site.bind.ask(name, &rr).unwrap().len(), 1, "{name}: changed, never added to");
        let absent = with(&options, json!({"state": "absent", "type": rr}));
        assert_eq!(site.module.run(&absent).done()["changed"], true, "{name}");
        assert!(site.bind.ask(name, &rr).unwrap().is_empty(), "{name}");
    }
}

#[test]
fn a_wrong_key_is_told_apart_and_never_shown() {
    let Some(site) = Site::new() else { return };
    let wrong = "d3Jvbmctd3Jvbmctd3Jvbmc=";
    let told = |options: Value| {
        let options = site.web01(options);
        let outcome = site.module.run(&options);
        assert!(!outcome.output.contains(wrong) && !outcome.output.contains(SECRET), "{}", outcome.output);
        let result = outcome.failed();
        let checked = site.module.check(&options).failed();
        assert_eq!(checked["msg"], result["msg"], "check mode tells it too");
        assert!(result["written"].is_null(), "{result}");
        let port = site.bind.port().to_string();
        let msg = result["msg"].as_str().unwrap().replace(&port, "PORT");
        format!("{}: {msg}", result["error_code"].as_str().unwrap())
    };
    assert_snapshot!(told(json!({"key_secret": wrong})), @"auth: DNS server 127.0.0.1:PORT, update of web01.example.net A in zone example.net: the key `anvil` has another secret there (NOTAUTH, BADSIG): give the one of its configuration");
    assert_snapshot!(told(json!({"key_name": "anvl"})), @"auth: DNS server 127.0.0.1:PORT, update of web01.example.net A in zone example.net: it knows no key `anvl` with hmac-sha256 (NOTAUTH, BADKEY): both must be as in its configuration");
    assert_snapshot!(told(json!({"key_algorithm": "hmac-sha512"})), @"auth: DNS server 127.0.0.1:PORT, update of web01.example.net A in zone example.net: it knows no key `anvil` with hmac-sha512 (NOTAUTH, BADKEY): both must be as in its configuration");
    assert_snapshot!(told(json!({"key_name": "guest", "key_algorithm": "hmac-sha512", "key_secret": OTHER.secret})), @"auth: DNS server 127.0.0.1:PORT, update of web01.example.net A in zone example.net: it does not allow this (REFUSED): the key needs the right to change this name and type there (BIND: update-policy or allow-update of the zone; Knot: an acl with the action update; PowerDNS: dnsupdate, TSIG-ALLOW-DNSUPDATE)");
    assert_snapshot!(told(json!({"domain": "static.net", "ptr": false})), @"auth: DNS server 127.0.0.1:PORT, update of web01.static.net A in zone static.net: it does not allow this (REFUSED): the key needs the right to change this name and type there (BIND: update-policy or allow-update of the zone; Knot: an acl with the action update; PowerDNS: dnsupdate, TSIG-ALLOW-DNSUPDATE)");
    assert_snapshot!(told(json!({"domain": "elsewhere.org"})), @"refused: DNS server 127.0.0.1:PORT keeps no zone that web01.elsewhere.org is in: updates go to the primary server of the zone");
    assert_snapshot!(told(json!({"value": "192.0.2.1"})), @"refused: the server keeps no zone for 1.2.0.192.in-addr.arpa, the PTR record of 192.0.2.1: add the reverse zone there, or give `ptr: false`");
    assert_eq!(site.kept("web01.example.net", "A"), "");
}

#[test]
fn what_others_hold_is_refused_and_what_they_left_is_not() {
    let records = "old A 10.20.0.21\nwww CNAME old\ntwice A 10.20.0.1\ntwice A 10.20.0.2";
    let Some(site) = Site::with(records, "21.0 PTR old.example.net.\n22.0 PTR gone.example.net.") else {
        return;
    };
    let refused = |options: Value| {
        let result = site.module.run(&site.web01(options.clone())).failed();
        assert_eq!(result["error_code"], "refused", "{options}: {result}");
        result
    };
    assert_eq!(refused(json!({}))["holder"], "old.example.net");
    assert_eq!(refused(json!({"hostname": "www", "ptr": false}))["holder"], "old.example.net");
    assert_eq!(
        refused(json!({"hostname": "old", "type": "CNAME", "value": "web01.example.net"}))["holder"],
        "old.example.net"
    );
    assert_eq!(refused(json!({"hostname": "twice"}))["duplicates"], json!(["10.20.0.1", "10.20.0.2"]));
    let repaired = site.web01(json!({"hostname": "twice", "repair_duplicates": true, "value": "10.20.0.2"}));
    assert_eq!(site.module.run(&repaired).done()["changed"], true);
    assert_eq!(site.kept("twice.example.net", "A"), "10.20.0.2");
    let second = site.module.run(&site.web01(json!({"ptr": false}))).done();
    assert_eq!((&second["changed"], &second["ptr_name"]), (&json!(true), &Value::Null));
    assert_eq!(site.kept("21.0.20.10.in-addr.arpa", "PTR"), "old.example.net.");
    let _ = site.module.run(&site.web01(json!({"hostname": "web02", "value": "10.20.0.22"}))).done();
    assert_eq!(site.kept("22.0.20.10.in-addr.arpa", "PTR"), "web02.example.net.");
}

#[test]
fn rights_to_single_names_show_in_the_real_run() {
    let zones = [Zone {
        name: "example.net",
        records: "",
        options: "update-policy { grant anvil name web02.example.net. A; };",
    }];
    let Some(site) = Site::serving(&zones) else { return };
    let result = site.module.run(&site.web01(json!({"ptr": false}))).failed();
    assert_eq!((&result["error_code"], &result["written"]), (&json!("auth"), &Value::Null));
    assert!(result["msg"].as_str().unwrap().contains("REFUSED"), "{result}");
    let web02 = site.web01(json!({"hostname": "web02", "ptr": false}));
    assert_eq!(site.module.run(&web02).done()["changed"], true);
}

#[test]
fn a_resolver_that_keeps_an_old_answer_fails_the_run_and_the_next_waits_for_it() {
    let Some(site) = Site::with("web01 4 A 10.20.0.99", "") else { return };
    assert_eq!(site.resolved("web01.example.net", "A"), "10.20.0.99");
    let options = site.web01(json!({"timeout": 2, "ptr": false}));
    let result = site.module.run(&options).failed();
    assert_eq!(result["error_code"], "read_back_mismatch", "{result}");
    assert_eq!(
        (&result["field"], &result["expected"], &result["found"]),
        (&json!("resolver web01.example.net A"), &json!("10.20.0.21"), &json!("10.20.0.99"))
    );
    assert_eq!(
        (&result["changed"], &result["written"]),
        (&json!(true), &json!(["record.value", "record.ttl"]))
    );
    assert!(
        result["msg"]
            .as_str()
            .unwrap()
            .contains("asked for 10.20.0.21, it answers 10.20.0.99, and may keep that")
    );
    let next = site.module.run(&with(&options, json!({"timeout": 30}))).done();
    assert_eq!(
        (&next["changed"], &next["resolver"]["answers"][0]["answer"]),
        (&json!(false), &json!(["10.20.0.21"]))
    );
    let nobody = site.module.run(&with(&options, json!({"resolver_port": 1, "timeout": 1}))).failed();
    assert_eq!(nobody["error_code"], "unreachable", "{nobody}");
}

#[test]
fn a_run_killed_between_update_and_proof_is_repaired_by_the_next() {
    let Some(site) = Site::with("web01 A 10.20.0.99", "99.0 PTR web01.example.net.") else { return };
    // It waits for a resolver that is not there when its last update is in the zone.
    let options = site.web01(json!({"resolver_port": lab::dns::free_port().unwrap(), "timeout": 60}));
    site.module.run_known_to(&options, |pid| {
        let written = || site.kept("21.0.20.10.in-addr.arpa", "PTR") == "web01.example.net.";
        let seen: Result<(), Expired> =
            Deadline::after(Duration::from_secs(20)).poll(|| Ok(written().then_some(())));
        seen.unwrap();
        assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    });
    assert_eq!(site.kept("web01.example.net", "A"), "10.20.0.21");
    assert_eq!(site.kept("99.0.20.10.in-addr.arpa", "PTR"), "");
    let next = site.module.run(&site.web01(json!({}))).done();
    assert_eq!(
        (&next["changed"], &next["resolver"]["answers"][0]["answer"]),
        (&json!(false), &json!(["10.20.0.21"]))
    );
}

#[test]
fn of_many_writers_each_wins_or_says_that_it_lost() {
    let Some(site) = Site::new() else { return };
    let results: Vec<(String, Value)> = thread::scope(|scope| {
        let writers: Vec<_> = (1..=6)
            .map(|last| {
                let value = format!("10.20.0.{last}");
                let options = site.web01(json!({"value": value, "ptr": false, "resolver": null}));
                // Each with a state directory of its own: controllers that know nothing of each other's locks.
                let module = Program::new(env!("CARGO_BIN_EXE_dns_record"))
                    .env("HOME", site.module.state().join(last.to_string()));
                scope.spawn(move || (value, module.run(&options).result))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let kept = site.kept("web01.example.net", "A");
    assert_eq!(kept.split(' ').count(), 1, "one record: {kept}");
    for (value, result) in &results {
        let lost = ["conflict", "read_back_mismatch"].map(|code| json!(code)).contains(&result["error_code"]);
        assert!(result["changed"] == json!(true) || lost, "{value}: {result}");
    }
    assert!(
        results.iter().any(|(value, result)| *value == kept && result["failed"].is_null()),
        "{kept}: {results:?}"
    );
}

#[test]
fn many_hosts_at_once_are_all_kept() {
    let Some(site) = Site::new() else { return };
    thread::scope(|scope| {
        for fork in 0..8 {
            let site = &site;
            scope.spawn(move || {
                for host in (fork..40).step_by(8) {
                    let options = json!({"hostname": format!("n{host}"), "value": format!("10.20.1.{host}")});
                    let result = site.module.run(&site.web01(options)).done();
                    assert_eq!(result["changed"], true, "{result}");
                }
            });
        }
    });
    for host in 0..40 {
        assert_eq!(site.kept(&format!("n{host}.example.net"), "A"), format!("10.20.1.{host}"));
        assert_eq!(
            site.kept(&format!("{host}.1.20.10.in-addr.arpa"), "PTR"),
            format!("n{host}.example.net.")
        );
    }
}

#[test]
fn a_server_that_does_not_answer_is_unreachable_and_the_deadline_holds() {
    let Some(site) = Site::new() else { return };
    site.bind.pause().unwrap();
    let result = site.module.run(&site.web01(json!({"timeout": 1}))).failed();
    assert_eq!(result["error_code"], "timeout", "{result}");
    site.bind.resume().unwrap();
    let nobody = site.web01(json!({"dns_port": lab::dns::free_port().unwrap()}));
    let result = site.module.run(&nobody).failed();
    assert_eq!(result["error_code"], "unreachable");
    assert!(
        result["msg"].as_str().unwrap().ends_with("nothing listens there (connection refused)"),
        "{result}"
    );
}

#[test]
fn knot_takes_the_same_updates() {
    let Some(site) = Site::new() else { return };
    let knot = Knot::start(&KEY, &["example.net", REVERSE]).unwrap();
    let web01 =
        |options: Value| site.web01(with(&json!({"dns_port": knot.port(), "resolver": null}), options));
    assert_eq!(site.module.check(&web01(json!({}))).done()["changed"], true);
    assert!(knot.ask("web01.example.net", "A").unwrap().is_empty());
    let _ = site.module.run(&web01(json!({}))).done();
    let moved = web01(json!({"value": "10.20.0.31"}));
    assert_eq!(site.module.run(&moved).done()["changed"], true);
    assert_eq!(site.module.run(&moved).done()["changed"], false);
    assert_eq!(knot.ask("web01.example.net", "A").unwrap(), ["10.20.0.31"]);
    assert_eq!(knot.ask("31.0.20.10.in-addr.arpa", "PTR").unwrap(), ["web01.example.net."]);
    assert!(knot.ask("21.0.20.10.in-addr.arpa", "PTR").unwrap().is_empty());
    let wrong = web01(json!({"key_secret": "d3Jvbmctd3Jvbmctd3Jvbmc=", "value": "10.20.0.41"}));
    assert_eq!(site.module.run(&wrong).failed()["error_code"], "auth");
    let absent = web01(json!({"state": "absent", "value": null}));
    assert_eq!(site.module.run(&absent).done()["record"], Value::Null);
    assert!(knot.ask("web01.example.net", "A").unwrap().is_empty());
}
