use ansible_module::Arguments;
use insta::assert_snapshot;
use serde_json::json;

use super::*;

fn web01_with(options: Value) -> Args {
    let mut raw = json!({
        "backend": "rfc2136", "dns_server": "127.0.0.1", "key_name": "anvil", "key_secret": "c2VjcmV0",
        "hostname": "web01", "domain": "example.net", "value": "10.20.0.21",
    });
    raw.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    Args::new(&Arguments::for_tests(&crate::args::spec(), raw).unwrap()).unwrap()
}

fn web01() -> Args {
    web01_with(json!({}))
}

fn set(rr: RecordType, values: &[&str], ttl: u32) -> Option<RecordSet> {
    Some(RecordSet { values: values.iter().map(|text| RecordData::parse(rr, text).unwrap()).collect(), ttl })
}

fn reverse(last: u8, ptr: Option<&str>) -> Reverse {
    Reverse {
        address: [10, 20, 0, last].into(),
        name: format!("{last}.0.20.10.in-addr.arpa"),
        zone: Some("20.10.in-addr.arpa".into()),
        ptr: ptr.and_then(|name| set(RecordType::Ptr, &[name], 300)),
        holders: Vec::new(),
    }
}

fn server(own: Option<RecordSet>, reverses: Vec<Reverse>) -> Observed {
    Observed { zone: "example.net".into(), own, reverses, ..Observed::default() }
}

/// A plan as a person would tell it; a refusal as its sentence.
fn told(args: &Args, observed: &Observed) -> String {
    let list = |values: &[RecordData]| values.iter().map(RecordData::as_str).collect::<Vec<_>>().join(", ");
    match plan(args, observed) {
        Err(failure) => format!("{}: {}", failure.code, failure.msg),
        Ok(plan) if plan.is_empty() => "nothing".to_owned(),
        Ok(plan) => plan
            .steps()
            .map(|step| {
                let Update { zone, name, rr, before, after, ttl } = &step.action;
                let before = before.as_ref().map(ToString::to_string).unwrap_or_default();
                let fields: Vec<&str> = step.changes.iter().map(|change| change.field.as_str()).collect();
                format!(
                    "{name} {rr} in {zone}: [{before}] -> [{}] for {ttl} s ({})",
                    list(after),
                    fields.join(", ")
                )
            })
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

#[test]
fn a_new_name_gets_its_address_then_the_address_its_name() {
    assert_snapshot!(told(&web01(), &server(None, vec![reverse(21, None)])), @r"
    web01.example.net A in example.net: [] -> [10.20.0.21] for 3600 s (record.value, record.ttl)
    21.0.20.10.in-addr.arpa PTR in 20.10.in-addr.arpa: [] -> [web01.example.net] for 3600 s (ptr.10.20.0.21)
    ");
    assert_snapshot!(told(&web01_with(json!({"ptr": false, "ttl": 60})), &server(None, vec![])), @"web01.example.net A in example.net: [] -> [10.20.0.21] for 60 s (record.value, record.ttl)");
}

#[test]
fn another_address_takes_the_old_ptr_first_and_the_record_last_but_one() {
    let observed = server(
        set(RecordType::A, &["10.20.0.99"], 300),
        vec![reverse(21, None), reverse(99, Some("web01.example.net"))],
    );
    assert_snapshot!(told(&web01(), &observed), @r"
    99.0.20.10.in-addr.arpa PTR in 20.10.in-addr.arpa: [web01.example.net] -> [] for 300 s (ptr.10.20.0.99)
    web01.example.net A in example.net: [10.20.0.99] -> [10.20.0.21] for 300 s (record.value)
    21.0.20.10.in-addr.arpa PTR in 20.10.in-addr.arpa: [] -> [web01.example.net] for 300 s (ptr.10.20.0.21)
    ");
}

#[test]
fn what_is_so_already_needs_nothing() {
    let right =
        server(set(RecordType::A, &["10.20.0.21"], 300), vec![reverse(21, Some("web01.example.net"))]);
    assert_eq!(told(&web01(), &right), "nothing");
    assert_eq!(told(&web01_with(json!({"ttl": 300})), &right), "nothing");
    assert_snapshot!(told(&web01_with(json!({"ttl": 60})), &right), @"web01.example.net A in example.net: [10.20.0.21] -> [10.20.0.21] for 60 s (record.ttl)");
    assert_eq!(
        told(&web01_with(json!({"state": "absent"})), &server(None, vec![reverse(21, None)])),
        "nothing"
    );
}

#[test]
fn absent_takes_the_ptr_of_the_name_and_no_other() {
    let absent = web01_with(json!({"state": "absent", "value": null}));
    let own = set(RecordType::A, &["10.20.0.21", "10.20.0.22"], 300);
    let both = Reverse {
        ptr: set(RecordType::Ptr, &["db.example.net", "web01.example.net"], 300),
        ..reverse(22, None)
    };
    let observed = server(own, vec![reverse(21, Some("old.example.net")), both]);
    assert_snapshot!(told(&absent, &observed), @r"
    22.0.20.10.in-addr.arpa PTR in 20.10.in-addr.arpa: [db.example.net, web01.example.net] -> [db.example.net] for 300 s (ptr.10.20.0.22)
    web01.example.net A in example.net: [10.20.0.21, 10.20.0.22] -> [] for 300 s (record.value)
    ");
}

#[test]
fn what_others_hold_is_refused() {
    let held = Reverse { holders: vec!["old.example.net".into()], ..reverse(21, Some("old.example.net")) };
    assert_snapshot!(told(&web01(), &server(None, vec![held])), @"refused: 10.20.0.21 belongs to old.example.net, as its PTR record says and old.example.net has this address: remove that name first, or give `ptr: false` for a second name of the address");
    let no_zone = Reverse { zone: None, ..reverse(21, None) };
    assert_snapshot!(told(&web01(), &server(None, vec![no_zone])), @"refused: the server keeps no zone for 21.0.20.10.in-addr.arpa, the PTR record of 10.20.0.21: add the reverse zone there, or give `ptr: false`");
    let alias = Observed { alias_of: Some("db.example.net".into()), ..server(None, vec![reverse(21, None)]) };
    assert_snapshot!(told(&web01(), &alias), @"refused: web01.example.net is an alias (CNAME) of db.example.net, and beside one no other record may stand: remove it first, with type CNAME and `state: absent`");
    let others = Observed { others: vec![RecordType::A, RecordType::Txt], ..server(None, vec![]) };
    let cname = web01_with(json!({"type": "CNAME", "value": "db.example.net"}));
    assert_snapshot!(told(&cname, &others), @"refused: web01.example.net has records of its own (A, TXT), so it cannot be an alias: remove them first");
    let twice = server(set(RecordType::A, &["10.20.0.21", "10.20.0.22"], 300), vec![reverse(21, None)]);
    assert_snapshot!(told(&web01(), &twice), @"refused: web01.example.net has 2 records of type A (10.20.0.21, 10.20.0.22): remove all but one, or let `repair_duplicates: true` do it");
    let twice = Observed { reverses: vec![], ..twice };
    assert_snapshot!(told(&web01_with(json!({"repair_duplicates": true, "ptr": false})), &twice), @"web01.example.net A in example.net: [10.20.0.21, 10.20.0.22] -> [10.20.0.21] for 300 s (record.value)");
}

#[test]
fn a_ptr_whose_name_has_moved_on_is_replaced() {
    let observed =
        server(set(RecordType::A, &["10.20.0.21"], 300), vec![reverse(21, Some("gone.example.net"))]);
    assert_snapshot!(told(&web01(), &observed), @"21.0.20.10.in-addr.arpa PTR in 20.10.in-addr.arpa: [gone.example.net] -> [web01.example.net] for 300 s (ptr.10.20.0.21)");
}
