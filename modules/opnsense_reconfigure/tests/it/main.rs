//! The binary from outside, with what the other binaries stored on a double of OPNsense.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod playbook;

use insta::assert_snapshot;
use lab::opnsense::{Builder, Fault, KEY, OpnsenseDouble, SECRET};
use lab::program::{Program, with};
use lab::proxy::Proxy;
use opnsense_api::Service;
use pending_apply::Pending;
use serde_json::{Value, json};

const MACS: [&str; 3] = ["02:a5:00:00:00:65", "02:a5:00:00:00:66", "02:a5:00:00:00:67"];

/// A firewall behind a proxy, and the module's binary.
struct Site {
    firewall: OpnsenseDouble,
    proxy: Proxy,
    module: Program,
}

impl Site {
    fn new(firewall: Builder) -> Self {
        let firewall = firewall.start();
        let proxy = Proxy::to(&firewall.url()).tls().start();
        Self { firewall, proxy, module: Program::new(env!("CARGO_BIN_EXE_opnsense_reconfigure")) }
    }

    fn options(&self, options: Value) -> Value {
        let reach = json!({
            "api_host": self.proxy.host(), "api_port": self.proxy.port(), "ca_path": self.proxy.ca_path(),
            "api_key": KEY, "api_secret": SECRET, "timeout": 60, "_ansible_inject_invocation": false,
        });
        with(&reach, options)
    }

    /// The mark that the storing modules leave.
    fn mark(&self, service: Service) -> Pending {
        let server = format!("opnsense {}:{} {}", self.proxy.host(), self.proxy.port(), service.name());
        let directory = self.module.state().join("homelab.anvil");
        std::fs::create_dir_all(&directory).unwrap();
        Pending::within(&directory, &server)
    }

    /// What three runs of the storing modules leave: three reservations and three records, not in effect.
    fn store_batch(&self) {
        for (number, mac) in MACS.iter().enumerate() {
            let (ip, name) = (format!("10.20.0.{}", 21 + number), format!("web0{}", 1 + number));
            let values = [("hw_address", *mac), ("ip_address", ip.as_str()), ("hostname", name.as_str())];
            self.firewall.store_reservation("10.20.0.0/24", &values);
            let values = [("hostname", name.as_str()), ("domain", "example.net"), ("server", ip.as_str())];
            self.firewall.store_override(&values);
        }
        self.mark(Service::Kea).set().unwrap();
        self.mark(Service::Unbound).set().unwrap();
    }

    fn reconfigures(&self) -> Vec<String> {
        self.proxy.writes().iter().map(|one| one.path.clone()).collect()
    }
}

fn firewall() -> Builder {
    OpnsenseDouble::builder().subnet("10.20.0.0/24", "10.20.0.100-10.20.0.199")
}

fn batch() -> Value {
    let reservations: Vec<Value> = MACS
        .iter()
        .enumerate()
        .map(|(number, mac)| json!({"mac": mac, "ip": format!("10.20.0.{}", 21 + number), "hostname": format!("web0{}", 1 + number)}))
        .collect();
    let records: Vec<Value> = (1..=3)
        .map(|number| json!({"hostname": format!("web0{number}"), "domain": "example.net", "type": "A", "value": format!("10.20.0.{}", 20 + number)}))
        .collect();
    json!({"reservations": reservations, "records": records})
}

#[test]
fn a_batch_is_applied_once_and_then_only_verified() {
    let site = Site::new(firewall());
    site.store_batch();
    let options = site.options(batch());
    let would = site.module.check(&options).done();
    assert_eq!((&would["changed"], site.reconfigures().len()), (&json!(true), 0));
    assert_eq!(would["services"]["kea"], json!({"status": "running", "pending_apply": true}));

    let result = site.module.run(&options).done();
    assert_eq!(site.reconfigures(), ["/api/kea/service/reconfigure", "/api/unbound/service/reconfigure"]);
    assert_eq!(site.firewall.live_reservations().len(), 3);
    assert_eq!(site.firewall.live_records().iter().filter(|record| record.rr == "A").count(), 3);
    assert_eq!(result["services"]["kea"], json!({"status": "running", "pending_apply": false}));
    assert_snapshot!(result["reservations"][0], @r#"{"hw_address":"02:a5:00:00:00:65","ip_address":"10.20.0.21","hostname":"web01"}"#);
    assert_snapshot!(result["records"][2], @r#"{"hostname":"web03","domain":"example.net","rr":"A","server":"10.20.0.23"}"#);
    assert_snapshot!(result["read_back"]["held"], @r#"["kea.service","reservation[02:a5:00:00:00:65 10.20.0.21]","reservation[02:a5:00:00:00:66 10.20.0.22]","reservation[02:a5:00:00:00:67 10.20.0.23]","unbound.service","record[web01.example.net A]","record[web02.example.net A]","record[web03.example.net A]"]"#);

    site.proxy.forget();
    assert_eq!(site.module.run(&options).done()["changed"], false);
    let requests: Vec<String> =
        site.proxy.log().iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_snapshot!(requests.join("\n"), @r"
    GET /api/kea/dhcpv4/search_reservation
    GET /api/unbound/settings/search_host_override
    GET /api/kea/service/status
    GET /api/unbound/service/status
    ");
}

#[test]
fn one_service_is_left_alone_when_only_the_other_has_something() {
    let site = Site::new(firewall());
    site.store_batch();
    site.mark(Service::Unbound).clear().unwrap();
    let _ = site.module.run(&site.options(batch())).done();
    assert_eq!(site.reconfigures(), ["/api/kea/service/reconfigure"]);
}

#[test]
fn force_applies_what_others_stored() {
    let site = Site::new(firewall());
    site.firewall.store_override(&[("hostname", "by"), ("domain", "hand"), ("server", "10.20.0.9")]);
    let options = site.options(json!({"services": ["unbound"], "force": true}));
    assert_eq!(site.module.run(&options).done()["changed"], true);
    assert_eq!(site.firewall.live_records().len(), 2);
}

#[test]
fn every_entry_that_is_missing_is_named_and_nothing_is_applied() {
    let site = Site::new(firewall());
    site.mark(Service::Kea).set().unwrap();
    let result = site.module.run(&site.options(batch())).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!(result["mismatches"].as_array().unwrap().len(), 6);
    for name in MACS.into_iter().chain(["web01.example.net", "web02.example.net", "web03.example.net"]) {
        assert!(result["msg"].as_str().unwrap().contains(name), "{name}: {result}");
    }
    assert!(site.reconfigures().is_empty());
    assert!(site.mark(Service::Kea).is_set(), "still to be applied");
}

#[test]
fn what_vanishes_while_it_is_applied_is_named() {
    let site = Site::new(firewall());
    site.store_batch();
    site.proxy
        .on("GET", "search_reservation")
        .nth(2)
        .rewrite_answer(|body| body.replace("10.20.0.22", "10.20.0.122"));
    let result = site.module.run(&site.options(batch())).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!(result["field"], "reservation[02:a5:00:00:00:66 10.20.0.22]");
    assert_eq!(result["mismatches"].as_array().unwrap().len(), 1);
}

#[test]
fn a_service_that_does_not_start_is_named_and_stays_pending() {
    let site = Site::new(firewall());
    site.store_batch();
    site.firewall.inject(Fault::KeaRefusesToStart);
    let result = site.module.run(&site.options(batch())).failed();
    assert_eq!(
        (&result["error_code"], &result["field"]),
        (&json!("read_back_mismatch"), &json!("kea.service"))
    );
    assert!(site.mark(Service::Kea).is_set());
    assert!(!site.mark(Service::Unbound).is_set());
    site.firewall.heal();
    assert_eq!(site.module.run(&site.options(batch())).done()["changed"], true);
    assert_eq!(site.firewall.live_reservations().len(), 3);
}

#[test]
fn a_lost_answer_or_a_killed_run_is_repaired() {
    let site = Site::new(firewall());
    site.store_batch();
    site.proxy.on("POST", "kea/service/reconfigure").first().lose_answer();
    let _ = site.module.run(&site.options(batch())).done();
    assert_eq!(site.firewall.live_reservations().len(), 3);
    for request in 1.. {
        let site = Site::new(firewall());
        site.store_batch();
        let options = site.options(batch());
        if !site.module.run_killed_at(&site.proxy, request, &options) {
            assert!(request > 10, "killed at {} requests only", request - 1);
            break;
        }
        let _ = site.module.run(&options).done();
        assert_eq!(site.firewall.live_reservations().len(), 3, "killed at request {request}");
        assert_eq!(site.firewall.live_records().len(), 6, "killed at request {request}");
        assert_eq!(site.module.run(&options).done()["changed"], false, "killed at request {request}");
    }
}

#[test]
fn wrong_inputs_reach_no_write() {
    for (builder, options, code) in [
        (firewall(), json!({}), "bad_argument"),
        (firewall(), json!({"services": ["dnsmasq"]}), "bad_argument"),
        (firewall(), json!({"reservations": [{"mac": "nonsense", "ip": "10.20.0.21"}]}), "bad_argument"),
        (firewall().kea_setting("enabled", "0"), json!({"services": ["kea"], "force": true}), "refused"),
        (firewall(), json!({"services": ["kea"], "force": true, "api_secret": "wrong"}), "auth"),
    ] {
        let site = Site::new(builder);
        let result = site.module.run(&site.options(options.clone())).failed();
        assert_eq!(result["error_code"], code, "{options}: {}", result["msg"]);
        assert!(site.reconfigures().is_empty(), "{options}");
    }
}
