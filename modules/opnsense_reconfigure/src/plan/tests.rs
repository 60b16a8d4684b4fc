use ansible_module::Arguments;
use insta::assert_snapshot;

use super::*;

fn args(options: Value) -> Args {
    let mut raw = json!({"api_host": "fw", "api_key": "k", "api_secret": "s"});
    raw.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    Args::new(&Arguments::for_tests(&crate::args::spec(), raw).unwrap()).unwrap()
}

/// As the two modules return their objects.
fn batch() -> Value {
    json!({
        "reservations": [{
            "hw_address": "02:A5:00:00:00:65", "ip_address": "10.20.0.21", "hostname": "web01", "next_server": "",
            "boot_file_name": "", "tftp_server_name": "", "client_id": "", "option_data": [], "client_classes": [], "description": "", "owner": "web01", "subnet": "10.20.0.0/24",
            "subnet_key": "u-20", "uuid": "u-1",
        }],
        "records": [{
            "hostname": "web01", "domain": "example.net", "rr": "A", "server": "10.20.0.21", "addptr": true,
            "enabled": true, "description": "", "uuid": null,
        }],
    })
}

fn reservation(mac: &str, ip: &str) -> ReservationRow {
    ReservationRow {
        uuid: "u-1".into(),
        subnet: "10.20.0.0/24".into(),
        subnet_uuid: None,
        ip_address: ip.parse().ok(),
        hw_address: mac.into(),
        mac: mac.parse().ok(),
        client_id: None,
        option_data: std::collections::BTreeMap::new(),
        hostname: "WEB01".into(),
        description: String::new(),
        next_server: Some(String::new()),
        boot_file_name: None,
        tftp_server_name: None,
    }
}

fn record(server: &str) -> HostOverrideRow {
    HostOverrideRow {
        uuid: "u-2".into(),
        enabled: true,
        hostname: "web01".into(),
        domain: "Example.net".into(),
        rr: "A".into(),
        server: server.parse().ok(),
        text: String::new(),
        ttl: None,
        description: String::new(),
        addptr: None,
    }
}

fn seen(service: Service, status: &str, pending: bool) -> Seen {
    Seen { service, status: status.into(), pending }
}

fn firewall() -> Observed {
    Observed {
        services: vec![seen(Service::Kea, "running", false), seen(Service::Unbound, "running", false)],
        reservations: vec![
            reservation("02:a5:00:00:00:65", "10.30.0.21"),
            reservation("02-a5-00-00-00-65", "10.20.0.21"),
        ],
        records: vec![record("10.20.0.21")],
    }
}

fn told(args: &Args, observed: &Observed, check_mode: bool) -> String {
    match plan(args, observed, check_mode) {
        Err(failure) => format!("{}: {}", failure.code, failure.msg),
        Ok(plan) if plan.is_empty() => "nothing".to_owned(),
        Ok(plan) => plan
            .steps()
            .map(|step| {
                let fields: Vec<&str> = step.changes.iter().map(|change| change.field.as_str()).collect();
                format!("{:?}: {} ({})", step.action, fields.join(", "), step.changes[0].before)
            })
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

#[test]
fn a_batch_that_is_in_effect_needs_nothing() {
    assert_eq!(told(&args(batch()), &firewall(), false), "nothing");
    assert_eq!(told(&args(batch()), &firewall(), true), "nothing");
}

#[test]
fn only_the_service_with_something_to_apply_is_reconfigured() {
    let mut observed = firewall();
    observed.services[1].pending = true;
    assert_snapshot!(told(&args(batch()), &observed, false), @r#"Reconfigure(Unbound): unbound.service, record[web01.example.net A] ("running without what was stored last")"#);
    observed.services[0].status = "stopped".into();
    observed.services[1].pending = false;
    assert_snapshot!(told(&args(batch()), &observed, false), @r#"Reconfigure(Kea): kea.service, reservation[02:a5:00:00:00:65 10.20.0.21] ("stopped")"#);
    let force = args(json!({"services": ["kea", "unbound"], "force": true}));
    assert_snapshot!(told(&force, &firewall(), false), @r#"
    Reconfigure(Kea): kea.service ("running without what was stored last")
    Reconfigure(Unbound): unbound.service ("running without what was stored last")
    "#);
}

#[test]
fn every_entry_that_is_not_stored_is_named_and_nothing_is_applied() {
    let mut observed = firewall();
    observed.services[0].pending = true;
    observed.reservations.remove(1);
    observed.records = vec![record("10.20.0.21"), record("10.20.0.99")];
    assert_snapshot!(told(&args(batch()), &observed, false), @r#"read_back_mismatch: 2 of 2 entries of the batch are not stored as they should be, and nothing was applied: reservation[02:a5:00:00:00:65 10.20.0.21]: asked for {"ip_address":"10.20.0.21","hostname":"web01","next_server":"","boot_file_name":"","tftp_server_name":""}, found {"ip_address":"10.30.0.21","hostname":"web01","next_server":"","boot_file_name":"","tftp_server_name":""}; record[web01.example.net A]: asked for "10.20.0.21", found ["10.20.0.21","10.20.0.99"]"#);
    observed.records = vec![HostOverrideRow { enabled: false, ..record("10.20.0.21") }];
    observed.reservations.clear();
    assert_snapshot!(told(&args(batch()), &observed, false), @r#"read_back_mismatch: 2 of 2 entries of the batch are not stored as they should be, and nothing was applied: reservation[02:a5:00:00:00:65 10.20.0.21]: asked for {"ip_address":"10.20.0.21","hostname":"web01","next_server":"","boot_file_name":"","tftp_server_name":""}, found null; record[web01.example.net A]: asked for "10.20.0.21", found null"#);
    let failure = plan(&args(batch()), &observed, false).unwrap_err();
    assert_eq!(failure.details["mismatches"].as_array().unwrap().len(), 2);
}

#[test]
fn in_check_mode_what_is_not_stored_would_be() {
    let empty = Observed { reservations: vec![], records: vec![], ..firewall() };
    assert_snapshot!(told(&args(batch()), &empty, true), @r#"
    Reconfigure(Kea): kea.service, reservation[02:a5:00:00:00:65 10.20.0.21] ("running without what was stored last")
    Reconfigure(Unbound): unbound.service, record[web01.example.net A] ("running without what was stored last")
    "#);
}

#[test]
fn a_disabled_service_is_refused() {
    let mut observed = firewall();
    observed.services[0].status = "disabled".into();
    assert_snapshot!(told(&args(batch()), &observed, false), @"refused: kea is disabled on OPNsense, so what is stored for it has no effect: enable it there");
}

#[test]
fn a_batch_must_fit_its_services() {
    let refusal = |options: Value| {
        let mut raw = json!({"api_host": "fw", "api_key": "k", "api_secret": "s"});
        raw.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let checked =
            Arguments::for_tests(&crate::args::spec(), raw).and_then(|arguments| Args::new(&arguments));
        checked.expect_err(&options.to_string()).msg
    };
    assert_snapshot!(refusal(json!({})), @"option `services`: say what to apply: `services`, or the `reservations` or `records` of a batch");
    assert_snapshot!(refusal(json!({"services": ["kea"], "records": batch()["records"]})), @"option `records`: `records` belong to the service unbound, which is not in `services`");
    assert_snapshot!(refusal(json!({"services": ["dnsmasq"]})), @"option `services`: expected one of kea, unbound, found `dnsmasq`");
    assert_snapshot!(refusal(json!({"reservations": [{"mac": "02:a5:00:00:65", "ip": "10.20.0.21"}]})), @r#"option `reservations[0].hw_address`: "02:a5:00:00:65" is not a MAC address: expected 6 bytes of two hex digits each (like 02:a5:00:00:00:64), found 5 bytes"#);
    assert_snapshot!(refusal(json!({"reservations": [{"hw_address": "", "client_id": "", "ip": "10.20.0.21"}]})), @"option `reservations[0].hw_address`: one of `hw_address`, `client_id` is needed");
    assert_snapshot!(refusal(json!({"reservations": [{"mac": "02:a5:00:00:00:65"}]})), @"missing required option `reservations[0].ip_address`");
    assert_snapshot!(refusal(json!({"records": [{"hostname": "a", "domain": "b", "value": "c"}]})), @"option `records[0].server`: expected an IP address, found `c`");
    assert!(args(json!({"services": []})).services.is_empty());
}

#[test]
fn a_second_address_under_another_split_of_the_name_is_found() {
    let mut seen = firewall();
    let mut other = record("10.20.0.98");
    (other.hostname, other.domain) = (String::new(), "web01.example.net".into());
    seen.records.push(other);
    assert_snapshot!(told(&args(batch()), &seen, false), @r#"read_back_mismatch: 1 of 2 entries of the batch are not stored as they should be, and nothing was applied: record[web01.example.net A]: asked for "10.20.0.21", found ["10.20.0.21","10.20.0.98"]"#);
}
