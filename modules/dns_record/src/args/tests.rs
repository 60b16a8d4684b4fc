use insta::assert_snapshot;
use serde_json::Value;

use super::*;

fn checked(options: Value) -> Result<Args, Failure> {
    let mut raw = json!({
        "api_host": "fw", "api_key": "k", "api_secret": "s", "hostname": "web01", "domain": "example.net",
        "value": "10.20.0.21",
    });
    for (key, value) in options.as_object().unwrap() {
        raw[key] = value.clone();
    }
    Arguments::for_tests(&spec(), raw).and_then(|arguments| Args::new(&arguments))
}

fn refusal(options: Value) -> String {
    let failure = checked(options.clone()).expect_err(&options.to_string());
    assert_eq!(failure.code.as_str(), "bad_argument");
    failure.msg
}

#[test]
fn wrong_arguments_are_told_without_asking_anybody() {
    assert_snapshot!(refusal(json!({"hostname": "web01.example.net"})), @"option `hostname`: expected one label, found `web01.example.net`: what comes behind the first dot belongs into `domain`");
    assert_snapshot!(refusal(json!({"hostname": "web01."})), @"option `hostname`: expected one label, found `web01.`: what comes behind the first dot belongs into `domain`");
    assert_snapshot!(refusal(json!({"hostname": ""})), @r#"option `hostname`: "" is not a host name: expected 1 to 63 letters, digits and hyphens, no hyphen at either end (RFC 1123), found an empty label"#);
    assert_snapshot!(refusal(json!({"hostname": "web_01"})), @r#"option `hostname`: "web_01" is not a host name: expected 1 to 63 letters, digits and hyphens, no hyphen at either end (RFC 1123), found the character '_'"#);
    assert_snapshot!(refusal(json!({"domain": "example..net"})), @r#"option `domain`: "example..net" is not a domain name: expected labels of letters, digits and hyphens with dots between them, at most 253 characters, found an empty label"#);
    assert_snapshot!(refusal(json!({"domain": ""})), @r#"option `domain`: "" is not a domain name: expected labels of letters, digits and hyphens with dots between them, at most 253 characters, found an empty label"#);
    assert_snapshot!(refusal(json!({"value": null})), @"with `state: present`, `value` must be set");
    assert_snapshot!(refusal(json!({"value": "10.20.0"})), @"option `value`: expected an IPv4 or IPv6 address, found `10.20.0`");
    assert_snapshot!(refusal(json!({"value": 10.2})), @"option `value`: expected an address as text, found the number 10.2; quote it in the YAML");
    assert_snapshot!(refusal(json!({"value": {"ip": "10.20.0.21"}})), @"option `value`: expected an address as text, found a dictionary of 1");
    assert_snapshot!(refusal(json!({"value": "0.0.0.0"})), @"option `value`: 0.0.0.0 is not the address of a host");
    assert_snapshot!(refusal(json!({"value": "fe80::1", "type": "A"})), @"option `value`: fe80::1 does not fit type A: that address needs type AAAA");
    assert_snapshot!(refusal(json!({"type": "AAAA"})), @"option `value`: 10.20.0.21 does not fit type AAAA: that address needs type A");
    assert_snapshot!(refusal(json!({"type": "MX"})), @"option `type`: expected one of A, AAAA, found `MX`");
    assert_snapshot!(refusal(json!({"description": "x".repeat(256)})), @"option `description`: OPNsense keeps 255 characters");
    assert_snapshot!(refusal(json!({"api_secret": null})), @"missing required option `api_secret`");
}

#[test]
fn the_type_follows_the_address() {
    for (value, rr) in [("10.20.0.21", "A"), ("2001:db8::21", "AAAA"), ("::ffff:10.0.0.1", "AAAA")] {
        assert_eq!(checked(json!({"value": value})).unwrap().rr.as_str(), rr, "{value}");
    }
}

#[test]
fn names_are_kept_in_one_form() {
    let args = checked(json!({"hostname": "Web01", "domain": "Example.NET."})).unwrap();
    assert_eq!(args.fqdn(), "web01.example.net");
    assert_eq!(checked(json!({"hostname": "*"})).unwrap().hostname, "*");
}
