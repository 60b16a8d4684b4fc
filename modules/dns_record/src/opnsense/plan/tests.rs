use ansible_module::{Arguments, Item};
use insta::assert_snapshot;
use opnsense_api::HostAlias;

use super::*;

fn web01_with(options: Value) -> Args {
    let mut raw = json!({
        "api_host": "fw", "api_key": "k", "api_secret": "s", "hostname": "web01", "domain": "example.net",
        "value": "10.20.0.21",
    });
    raw.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    Args::new(&Arguments::for_tests(&crate::args::spec(), raw).unwrap()).unwrap()
}

fn web01() -> Args {
    web01_with(json!({}))
}

fn row(uuid: &str, hostname: &str, server: &str) -> HostOverrideRow {
    HostOverrideRow {
        uuid: uuid.into(),
        enabled: true,
        hostname: hostname.into(),
        domain: "example.net".into(),
        rr: if server.contains(':') { "AAAA" } else { "A" }.into(),
        server: server.parse().ok(),
        text: String::new(),
        ttl: None,
        description: String::new(),
        addptr: Some(true),
    }
}

fn firewall(rows: Vec<HostOverrideRow>) -> Observed {
    Observed { rows, knows_addptr: true, service: Some("running".into()), ..Observed::default() }
}

/// A plan as a person would tell it; a refusal as its sentence.
fn told(args: &Args, observed: &Observed) -> String {
    match plan(args, observed) {
        Err(failure) => format!("{}: {}", failure.code, failure.msg),
        Ok(plan) if plan.is_empty() && plan.warnings.is_empty() => "nothing".to_owned(),
        Ok(plan) => {
            let items = plan.items.iter().map(|item| match item {
                Item::Gate => "-- gate --".to_owned(),
                Item::Step(step) => {
                    let what = match &step.action {
                        Action::Remove { uuid } => format!("remove {uuid}"),
                        Action::Put { uuid: None, .. } => "add".into(),
                        Action::Put { uuid: Some(uuid), .. } => format!("change {uuid}"),
                        Action::RemoveAlias { uuid } => format!("remove alias {uuid}"),
                        Action::PutAlias { uuid: None, .. } => "add alias".into(),
                        Action::PutAlias { uuid: Some(uuid), .. } => format!("change alias {uuid}"),
                        Action::Apply => "apply".into(),
                    };
                    let changes = step.changes.iter().filter(|one| !one.field.ends_with(']'));
                    let changes =
                        changes.map(|one| format!(" {}: {} -> {}", one.field, one.before, one.after));
                    format!("{what}{}", changes.collect::<String>())
                }
            });
            let warnings = plan.warnings.iter().map(|warning| format!("warning: {warning}"));
            items.chain(warnings).collect::<Vec<_>>().join("\n")
        }
    }
}

#[test]
fn a_new_record_is_added_then_applied() {
    assert_snapshot!(told(&web01(), &firewall(vec![row("u-9", "web01", "2001:db8::1")])), @r#"
    add record.enabled: null -> "1" record.hostname: null -> "web01" record.domain: null -> "example.net" record.rr: null -> "A" record.server: null -> "10.20.0.21" record.addptr: null -> "1"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_name_that_others_split_elsewhere_is_changed_and_never_doubled() {
    for (hostname, domain) in [("", "web01.example.net"), ("web01.example", "net"), ("web01", "example.net.")]
    {
        let mut split = row("u-1", hostname, "10.20.0.98");
        split.domain = domain.into();
        let told = told(&web01(), &firewall(vec![split.clone()]));
        assert!(told.starts_with("change u-1"), "{hostname}|{domain}: {told}");
        assert!(told.contains("record.domain: \"") && told.contains("-> \"example.net\""), "{told}");
        let absent = web01_with(json!({"state": "absent", "value": null}));
        assert!(self::told(&absent, &firewall(vec![split])).starts_with("remove u-1"));
    }
}

#[test]
fn a_record_that_is_so_already_needs_nothing() {
    let mut other_case = row("u-1", "WEB01", "10.20.0.21");
    other_case.domain = "Example.net".into();
    for row in [row("u-1", "web01", "10.20.0.21"), other_case] {
        assert_eq!(told(&web01(), &firewall(vec![row])), "nothing");
    }
}

#[test]
fn another_value_changes_the_record_and_adds_none() {
    assert_snapshot!(told(&web01(), &firewall(vec![row("u-1", "web01", "10.20.0.99")])), @r#"
    change u-1 record.server: "10.20.0.99" -> "10.20.0.21"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_disabled_record_is_enabled() {
    let disabled = HostOverrideRow { enabled: false, ..row("u-1", "web01", "10.20.0.21") };
    assert_snapshot!(told(&web01(), &firewall(vec![disabled])), @r#"
    change u-1 record.enabled: "0" -> "1"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_description_is_only_touched_when_given() {
    let described = HostOverrideRow { description: "by hand".into(), ..row("u-1", "web01", "10.20.0.21") };
    assert_eq!(told(&web01(), &firewall(vec![described.clone()])), "nothing");
    assert_snapshot!(told(&web01_with(json!({"description": ""})), &firewall(vec![described])), @r#"
    change u-1 record.description: "by hand" -> ""
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn duplicates_are_refused_or_repaired_keeping_the_right_one() {
    let three = firewall(vec![
        row("u-1", "web01", "10.20.0.98"),
        row("u-2", "web01", "10.20.0.21"),
        row("u-3", "web01", "10.20.0.21"),
    ]);
    assert_snapshot!(told(&web01(), &three), @"refused: web01.example.net has 3 records of type A (10.20.0.21, 10.20.0.21, 10.20.0.98): remove all but one, or let `repair_duplicates: true` do it");
    assert_eq!(plan(&web01(), &three).unwrap_err().details["duplicates"].as_array().unwrap().len(), 3);
    assert_snapshot!(told(&web01_with(json!({"repair_duplicates": true})), &three), @r#"
    remove u-3
    remove u-1
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    let wrong = firewall(vec![row("u-1", "web01", "10.20.0.98"), row("u-2", "web01", "10.20.0.99")]);
    assert_snapshot!(told(&web01_with(json!({"repair_duplicates": true})), &wrong), @r#"
    remove u-2
    change u-1 record.server: "10.20.0.98" -> "10.20.0.21"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_ptr_is_one_of_the_fields_where_it_is_known() {
    let observed = firewall(vec![row("u-1", "web01", "10.20.0.21")]);
    assert_snapshot!(told(&web01_with(json!({"ptr": false})), &observed), @r#"
    change u-1 record.addptr: "1" -> "0"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    let old = Observed { knows_addptr: false, ..observed };
    assert_snapshot!(told(&web01_with(json!({"ptr": false})), &old), @"refused: this OPNsense makes a PTR record for every address: `ptr: false` needs OPNsense 26.1.3");
    assert!(!told(&web01(), &Observed { rows: vec![], ..old }).contains("addptr"));
}

#[test]
fn a_ptr_that_gives_another_name_is_told() {
    let observed = firewall(vec![row("u-9", "old", "10.20.0.21"), row("u-1", "web01", "10.20.0.21")]);
    assert_snapshot!(told(&web01(), &observed), @"warning: the PTR record of 10.20.0.21 gives old.example.net, which stands before web01.example.net on OPNsense: it makes one for the first name of an address only");
    assert!(!told(&web01_with(json!({"ptr": false})), &observed).contains("warning"));
}

#[test]
fn absent_removes_every_record_of_the_key_and_no_other() {
    let observed = firewall(vec![
        row("u-1", "web01", "10.20.0.98"),
        row("u-2", "WEB01", "10.20.0.21"),
        row("u-3", "web01", "2001:db8::1"),
        row("u-4", "web02", "10.20.0.21"),
    ]);
    assert_snapshot!(told(&web01_with(json!({"state": "absent"})), &observed), @r#"
    remove u-2
    remove u-1
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    assert_eq!(told(&web01_with(json!({"state": "absent"})), &firewall(vec![])), "nothing");
}

#[test]
fn what_was_stored_and_not_applied_is_applied() {
    let right = firewall(vec![row("u-1", "web01", "10.20.0.21")]);
    assert_snapshot!(told(&web01(), &Observed { pending: true, ..right.clone() }), @r#"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    assert_snapshot!(told(&web01(), &Observed { service: Some("stopped".into()), ..right.clone() }), @r#"
    -- gate --
    apply unbound.service: "stopped" -> "running"
    "#);
    let stores_only = Observed { pending: true, service: None, ..right };
    assert_eq!(told(&web01_with(json!({"apply": false})), &stores_only), "nothing");
}

#[test]
fn a_disabled_unbound_is_refused() {
    let off =
        Observed { service: Some("disabled".into()), ..firewall(vec![row("u-1", "web01", "10.20.0.21")]) };
    assert_snapshot!(told(&web01(), &off), @"refused: Unbound is disabled on OPNsense, so its records have no effect: enable it under Services: Unbound DNS");
    assert_snapshot!(told(&web01_with(json!({"state": "absent"})), &off), @r"
    remove u-1
    warning: not applied: Unbound is disabled on OPNsense
    ");
}

fn alias(uuid: &str, host: &str) -> HostAlias {
    HostAlias {
        uuid: uuid.into(),
        enabled: true,
        host: host.into(),
        hostname: "www".into(),
        domain: "example.net".into(),
        description: String::new(),
    }
}

fn www_with(options: Value) -> Args {
    let mut www = json!({"hostname": "www", "type": "CNAME", "value": "web01.example.net"});
    www.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    web01_with(www)
}

#[test]
fn an_alias_follows_every_address_of_its_host() {
    let rows = vec![
        row("u-1", "web01", "10.20.0.21"),
        row("u-2", "web01", "2001:db8::21"),
        row("u-3", "db", "10.20.0.31"),
    ];
    let seen = |aliases: Vec<HostAlias>| Observed { aliases, ..firewall(rows.clone()) };
    assert_snapshot!(told(&www_with(json!({})), &seen(vec![])), @r#"
    add alias alias.A.host: null -> "web01.example.net"
    add alias alias.AAAA.host: null -> "web01.example.net"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    let right = seen(vec![alias("a-1", "u-1"), alias("a-2", "u-2")]);
    assert_eq!(told(&www_with(json!({})), &right), "nothing");
    let disabled = HostAlias { enabled: false, ..alias("a-1", "u-1") };
    assert_snapshot!(told(&www_with(json!({})), &seen(vec![disabled, alias("a-2", "u-2")])), @r#"
    change alias a-1 alias.A.host: "disabled" -> "web01.example.net"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    assert_snapshot!(told(&www_with(json!({"value": "db.example.net"})), &right), @r#"
    change alias a-1 alias.A.host: "web01.example.net" -> "db.example.net"
    remove alias a-2
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    assert_snapshot!(told(&www_with(json!({"state": "absent", "value": null})), &right), @r#"
    remove alias a-1
    remove alias a-2
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn an_alias_and_a_host_of_one_name_are_refused() {
    let rows = vec![row("u-1", "web01", "10.20.0.21"), row("u-2", "www", "10.20.0.22")];
    assert_snapshot!(told(&www_with(json!({})), &firewall(rows.clone())), @"refused: www.example.net is a host override of type A itself, so it cannot be an alias: remove it first");
    assert_snapshot!(told(&www_with(json!({"value": "db.example.net", "hostname": "w"})), &firewall(rows.clone())), @"refused: db.example.net is no enabled host override with an address on OPNsense, and an alias there can only follow one: add db.example.net first, or give w.example.net an A record of its own");
    let held = Observed { aliases: vec![alias("a-1", "u-1")], ..firewall(rows[..1].to_vec()) };
    assert_snapshot!(told(&web01_with(json!({"hostname": "www", "value": "10.20.0.22"})), &held), @"refused: www.example.net is an alias of web01.example.net on OPNsense, so Unbound would answer both: remove it first, with type CNAME and `state: absent`");
}

#[test]
fn a_text_and_a_time_to_live_are_fields_like_others() {
    let text = web01_with(json!({"type": "TXT", "value": "v=spf1 -all", "ttl": 60}));
    let knows_text = Observed { knows_text: true, ..firewall(vec![]) };
    assert_snapshot!(told(&text, &knows_text), @r#"
    add record.enabled: null -> "1" record.hostname: null -> "web01" record.domain: null -> "example.net" record.rr: null -> "TXT" record.txtdata: null -> "v=spf1 -all" record.ttl: null -> "60"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
    assert_snapshot!(told(&text, &firewall(vec![])), @"refused: this OPNsense keeps no texts: a TXT record needs OPNsense 25.7.4");
    let observed = firewall(vec![row("u-1", "web01", "10.20.0.21")]);
    assert_snapshot!(told(&web01_with(json!({"ttl": 60})), &observed), @r#"
    change u-1 record.ttl: "" -> "60"
    -- gate --
    apply unbound.service: "running without the stored change" -> "running"
    "#);
}
