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
    assert_snapshot!(refusal(json!({"type": "MX"})), @"option `type`: expected one of A, AAAA, CNAME, TXT, PTR, found `MX`");
    assert_snapshot!(refusal(json!({"description": "x".repeat(256)})), @"option `description`: OPNsense keeps 255 characters");
    assert_snapshot!(refusal(json!({"domain": null})), @"option `domain`: missing: the domain of the host");
    assert_snapshot!(refusal(json!({"ttl": -1})), @"option `ttl`: expected 0 to 2147483647 seconds, found -1");
    assert_snapshot!(refusal(json!({"type": "CNAME", "value": "db"})), @r#"option `value`: "db" is not a fully qualified domain name: expected a host name and a domain with a dot between them (like web01.example.net), found one label without a domain"#);
    assert_snapshot!(refusal(json!({"type": "CNAME", "value": "db.example.net", "hostname": "@"})), @"option `hostname`: the domain itself cannot be an alias (RFC 1034, 3.6.2)");
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

#[test]
fn what_opnsense_cannot_keep_is_told() {
    assert_snapshot!(refusal(json!({"type": "PTR", "value": "web01.example.net"})), @"option `type`: OPNsense keeps no PTR record by itself: it makes one for the first name of an address, with type A or AAAA");
    assert_snapshot!(refusal(json!({"type": "TXT", "value": "say \"hi\""})), @"option `value`: Unbound's file on OPNsense would break at a quotation mark, an apostrophe, a backslash or a line break");
    assert_snapshot!(refusal(json!({"type": "TXT", "value": "x".repeat(256)})), @"option `value`: OPNsense keeps 255 characters");
    assert_snapshot!(refusal(json!({"type": "CNAME", "value": "db.example.net", "ttl": 60})), @"option `ttl`: an alias on OPNsense has the time to live of its host");
}

#[test]
fn what_a_dns_server_needs_and_cannot_keep_is_told() {
    let told = |options: Value| {
        let mut server =
            json!({"backend": "rfc2136", "dns_server": "ns1", "key_name": "anvil", "key_secret": "c2VjcmV0"});
        server.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        refusal(server)
    };
    assert_snapshot!(told(json!({"key_secret": null})), @"with `backend: rfc2136`, `key_secret` must be set");
    assert_snapshot!(told(json!({"description": "front end"})), @"option `description`: a DNS server keeps none");
    assert_snapshot!(told(json!({"apply": false})), @"option `apply`: an update of a DNS server is in effect at once");
    assert_snapshot!(told(json!({"zone": "example.org"})), @"option `zone`: web01.example.net is not in the zone example.org");
    assert_snapshot!(told(json!({"key_algorithm": "hmac-md5"})), @"option `key_algorithm`: expected one of hmac-sha256, hmac-sha384, hmac-sha512, found `hmac-md5`");
    assert_snapshot!(told(json!({"hostname": "10.20.0.21", "type": "PTR", "value": "web01.example.net"})), @"option `domain`: the address in `hostname` says it already: leave it out");
}

#[test]
fn names_of_other_things_than_hosts_are_taken() {
    let name = |options: Value| checked(options).unwrap().fqdn();
    assert_eq!(name(json!({"hostname": "_dmarc", "type": "TXT", "value": "v=DMARC1"})), "_dmarc.example.net");
    assert_eq!(name(json!({"hostname": "@", "type": "TXT", "value": "v=spf1 -all"})), "example.net");
    let server = json!({
        "backend": "rfc2136", "dns_server": "ns1", "key_name": "anvil", "key_secret": "c2VjcmV0", "type": "PTR",
        "hostname": "2001:db8::21", "domain": null, "value": "Web01.example.net.",
    });
    let ptr = checked(server).unwrap();
    assert_eq!(ptr.fqdn(), reverse_name("2001:db8::21".parse().unwrap()));
    assert_eq!(ptr.value.unwrap().as_str(), "web01.example.net");
}
