use ansible_module::{Arguments, Item};
use insta::assert_snapshot;
use net_types::HostIdentifier;
use serde_json::{Value, json};

use super::*;

/// What a task asks for, on top of a firewall that is never reached.
fn args(options: Value) -> Args {
    let mut raw = json!({"api_host": "fw", "api_key": "k", "api_secret": "s", "kea_socket": "/kea.sock"});
    if options["backend"] != "kea" {
        raw.as_object_mut().unwrap().remove("kea_socket");
    }
    raw.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    Args::new(&Arguments::for_tests(&crate::args::spec(), raw).unwrap()).unwrap()
}

fn web01() -> Value {
    json!({"mac": "02:a5:00:00:00:65", "ip": "10.20.0.21", "hostname": "web01"})
}

fn web01_with(options: Value) -> Args {
    let mut all = web01();
    all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    args(all)
}

fn subnet(key: &str, cidr: &str) -> Subnet {
    let routers = vec!["10.20.0.1".parse().unwrap()];
    Subnet { routers, ..Subnet::bare(key.into(), cidr.parse().unwrap()) }
}

/// A server with two subnets, running, where every address is free.
fn server() -> Observed {
    Observed {
        subnets: vec![subnet("u-20", "10.20.0.0/24"), subnet("u-30", "10.30.0.0/24")],
        service: Some("running".into()),
        lease: Lease::Free,
        can_clear_lease: true,
        ..Observed::default()
    }
}

fn reservation(uuid: &str, mac: &str, ip: &str, hostname: &str) -> Reservation {
    let fields = [(Field::HwAddress, mac), (Field::IpAddress, ip), (Field::Hostname, hostname)];
    Reservation {
        uuid: uuid.into(),
        subnet: if ip.starts_with("10.20") { "u-20" } else { "u-30" }.into(),
        host: mac.parse().ok().map(HostIdentifier::Mac),
        identifier: mac.into(),
        values: fields.map(|(field, text)| (field, text.to_owned())).into_iter().collect(),
    }
}

fn owned(mut one: Reservation, owner: &str) -> Reservation {
    one.values.set(Field::Owner, owner);
    one
}

fn server_with(reservations: Vec<Reservation>) -> Observed {
    Observed { reservations, ..server() }
}

/// A plan as a person would tell it; a refusal as its sentence.
fn told(args: &Args, observed: &Observed) -> String {
    match plan(args, observed) {
        Err(failure) => format!("{}: {}", failure.code, failure.msg),
        Ok(plan) if plan.items.is_empty() => "nothing".to_owned(),
        Ok(plan) => {
            let items = plan.items.iter().map(|item| match item {
                Item::Gate => "-- gate --".to_owned(),
                Item::Step(step) => {
                    let changes = step.changes.iter().map(|one| {
                        let before = one
                            .before
                            .as_object()
                            .map_or(one.before.clone(), |map| map["ip_address"].clone());
                        format!("\n    {}: {before} -> {}", one.field, one.after)
                    });
                    format!("{}{}", verb(&step.action), changes.collect::<String>())
                }
            });
            let warnings = plan.warnings.iter().map(|warning| format!("warning: {warning}"));
            items.chain(warnings).collect::<Vec<_>>().join("\n")
        }
    }
}

fn verb(action: &Action) -> String {
    match action {
        Action::Store(Store { remove, put }) => {
            let removed: Vec<&str> = remove.iter().map(|one| one.uuid.as_str()).collect();
            let put = put.as_ref().map(|put| match &put.replaces {
                Some(one) => format!("change {}", one.uuid),
                None => format!("add to {}", put.subnet),
            });
            format!("store: remove {removed:?}, {}", put.unwrap_or_else(|| "put nothing".into()))
        }
        Action::Apply => "apply".into(),
        Action::ClearLease(ip) => format!("clear lease of {ip}"),
    }
}

#[test]
fn a_new_reservation_is_added_then_applied() {
    assert_snapshot!(told(&args(web01()), &server()), @r#"
    store: remove [], add to u-20
        reservation.hw_address: null -> "02:a5:00:00:00:65"
        reservation.ip_address: null -> "10.20.0.21"
        reservation.hostname: null -> "web01"
        reservation.owner: null -> "web01"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_reservation_that_is_so_already_needs_nothing() {
    for (mac, hostname) in [("02:a5:00:00:00:65", "web01"), ("02:A5:00:00:00:65", "WEB01")] {
        let observed = server_with(vec![reservation("u-1", mac, "10.20.0.21", hostname)]);
        assert_eq!(told(&args(web01()), &observed), "nothing", "{mac} {hostname}");
    }
}

#[test]
fn only_what_differs_is_changed_and_the_owner_is_marked_with_it() {
    let observed = server_with(vec![reservation("u-1", "02:a5:00:00:00:65", "10.20.0.31", "web01")]);
    assert_snapshot!(told(&args(web01()), &observed), @r#"
    store: remove [], change u-1
        reservation.ip_address: "10.20.0.31" -> "10.20.0.21"
        reservation.owner: "" -> "web01"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn an_empty_option_unsets_a_field_and_a_missing_one_leaves_it() {
    let mut own = owned(reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01"), "web01");
    own.values.set(Field::NextServer, "10.20.0.2");
    own.values.set(Field::BootFileName, "grubx64.efi");
    let observed = server_with(vec![own]);
    assert_eq!(told(&args(web01()), &observed), "nothing");
    assert_snapshot!(told(&web01_with(json!({"next_server": "", "boot_file": ""})), &observed), @r#"
    store: remove [], change u-1
        reservation.next_server: "10.20.0.2" -> ""
        reservation.boot_file_name: "grubx64.efi" -> ""
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_spelling_that_stops_kea_is_repaired() {
    for mac in ["02-a5-00-00-00-65", "02a5.0000.0065"] {
        let observed = server_with(vec![reservation("u-1", mac, "10.20.0.21", "web01")]);
        let told = told(&args(web01()), &observed);
        assert!(
            told.contains(&format!("reservation.hw_address: \"{mac}\" -> \"02:a5:00:00:00:65\"")),
            "{told}"
        );
    }
}

#[test]
fn two_entries_of_one_mac_in_one_subnet_become_one() {
    let observed = server_with(vec![
        reservation("u-1", "02-A5-00-00-00-65", "10.20.0.31", "web01"),
        reservation("u-2", "02:a5:00:00:00:65", "10.20.0.21", "web01"),
    ]);
    assert_snapshot!(told(&args(web01()), &observed), @r#"
    store: remove ["u-1"], put nothing
        reservation[02-A5-00-00-00-65]: "10.20.0.31" -> null
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn the_same_mac_in_another_subnet_is_another_reservation() {
    let observed = server_with(vec![reservation("u-1", "02:a5:00:00:00:65", "10.30.0.21", "web01")]);
    assert!(told(&args(web01()), &observed).starts_with("store: remove [], add to u-20"));
}

#[test]
fn an_address_reserved_for_another_is_refused_by_name() {
    let other = reservation("u-9", "52:54:00:00:00:09", "10.20.0.21", "db01");
    let observed = server_with(vec![other.clone()]);
    assert_snapshot!(told(&args(web01()), &observed), @"refused: 10.20.0.21 is reserved for 52:54:00:00:00:09 (db01): choose another address, or remove that reservation");
    assert_snapshot!(told(&web01_with(json!({"prune_stale": true})), &observed), @"refused: 10.20.0.21 is reserved for 52:54:00:00:00:09 (db01): choose another address, or remove that reservation");
    let failure = plan(&args(web01()), &observed).unwrap_err();
    assert_snapshot!(failure.details["holder"], @r#"{"hw_address":"52:54:00:00:00:09","ip_address":"10.20.0.21","hostname":"db01","description":"","owner":"","subnet":"10.20.0.0/24","uuid":"u-9"}"#);
    let marked =
        server_with(vec![owned(reservation("u-9", "52:54:00:00:00:09", "10.20.0.21", "web01"), "db01")]);
    assert_snapshot!(told(&web01_with(json!({"prune_stale": true})), &marked), @"refused: 10.20.0.21 is reserved for 52:54:00:00:00:09 (web01): choose another address, or remove that reservation");
}

#[test]
fn a_stale_holder_of_this_host_is_taken_over_in_place() {
    let stale = reservation("u-9", "02:a5:00:00:00:64", "10.20.0.21", "web01");
    assert_snapshot!(told(&args(web01()), &server_with(vec![stale.clone()])), @"refused: 10.20.0.21 is reserved for 02:a5:00:00:00:64 (web01): it looks like an earlier one of this host: `prune_stale: true` takes it over");
    assert_snapshot!(told(&web01_with(json!({"prune_stale": true})), &server_with(vec![stale])), @r#"
    store: remove [], change u-9
        reservation.hw_address: "02:a5:00:00:00:64" -> "02:a5:00:00:00:65"
        reservation.owner: "" -> "web01"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
    let renamed = owned(reservation("u-9", "02:a5:00:00:00:64", "10.20.0.21", "old"), "web01");
    assert_snapshot!(told(&web01_with(json!({"prune_stale": true})), &server_with(vec![renamed])), @r#"
    store: remove [], change u-9
        reservation.hw_address: "02:a5:00:00:00:64" -> "02:a5:00:00:00:65"
        reservation.hostname: "old" -> "web01"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_stale_holder_goes_before_the_own_reservation_moves() {
    let observed = server_with(vec![
        reservation("u-9", "02:a5:00:00:00:64", "10.20.0.21", "web01"),
        owned(reservation("u-1", "02:a5:00:00:00:65", "10.20.0.31", "web01"), "web01"),
    ]);
    assert_snapshot!(told(&web01_with(json!({"prune_stale": true})), &observed), @r#"
    store: remove ["u-9"], change u-1
        reservation[02:a5:00:00:00:64]: "10.20.0.21" -> null
        reservation.ip_address: "10.20.0.31" -> "10.20.0.21"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
}

#[test]
fn a_second_holder_made_by_others_is_seen_though_the_own_reservation_is_right() {
    let observed = server_with(vec![
        reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01"),
        reservation("u-9", "52:54:00:00:00:09", "10.20.0.21", "db01"),
    ]);
    assert_snapshot!(told(&args(web01()), &observed), @"refused: 10.20.0.21 is reserved for 52:54:00:00:00:09 (db01): choose another address, or remove that reservation");
}

#[test]
fn a_hostname_of_another_is_refused_in_the_same_subnet_only() {
    let same = server_with(vec![reservation("u-9", "52:54:00:00:00:09", "10.20.0.40", "WEB01")]);
    assert_snapshot!(told(&args(web01()), &same), @"refused: the hostname web01 is held by the reservation of 10.20.0.40 for 52:54:00:00:00:09 in 10.20.0.0/24: give this host another name, or remove that reservation");
    let full = server_with(vec![reservation("u-9", "52:54:00:00:00:09", "10.20.0.40", "web01.example.net")]);
    assert!(told(&args(web01()), &full).starts_with("refused: the hostname web01 is held"));
    let other = server_with(vec![reservation("u-9", "52:54:00:00:00:09", "10.30.0.40", "web01")]);
    assert!(told(&args(web01()), &other).starts_with("store"));
}

#[test]
fn addresses_that_no_host_may_have() {
    let told = |ip: &str| told(&web01_with(json!({"ip": ip})), &server());
    assert_snapshot!(told("10.20.0.0"), @"refused: 10.20.0.0 is the network address of 10.20.0.0/24");
    assert_snapshot!(told("10.20.0.255"), @"refused: 10.20.0.255 is the broadcast address of 10.20.0.0/24");
    assert_snapshot!(told("10.20.0.1"), @"refused: 10.20.0.1 is the router of 10.20.0.0/24");
    assert_snapshot!(told("10.99.0.5"), @"refused: no subnet that holds 10.99.0.5; subnets of the server: 10.20.0.0/24, 10.30.0.0/24");
    let kea = web01_with(json!({"backend": "kea", "subnet": "u-30"}));
    assert_snapshot!(tests::told(&kea, &server()), @"refused: 10.20.0.21 is not in the subnet 10.30.0.0/24");
    let mut out_of_pool = server();
    out_of_pool.subnets[0].forbidden = vec![("10.20.0.20".parse().unwrap(), "10.20.0.99".parse().unwrap())];
    assert_snapshot!(tests::told(&args(web01()), &out_of_pool), @"refused: 10.20.0.21 is in the pool 10.20.0.20-10.20.0.99, where this Kea ignores reservations (`reservations-out-of-pool`): choose one outside");
}

#[test]
fn an_unknown_subnet_names_the_known_ones() {
    assert_snapshot!(told(&web01_with(json!({"subnet": "10.20.0.0/16"})), &server()), @"refused: no subnet 10.20.0.0/16; subnets of the server: 10.20.0.0/24, 10.30.0.0/24");
    assert_snapshot!(told(&web01_with(json!({"subnet": "7"})), &Observed::default()), @"refused: no subnet with the key 7; subnets of the server: there are none");
}

#[test]
fn a_service_that_ignores_reservations_is_refused() {
    let off = Observed { off: Some("Kea DHCPv4 is disabled".into()), ..server() };
    assert_eq!(told(&args(web01()), &off), "refused: Kea DHCPv4 is disabled");
    let own = reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01");
    let off = Observed { reservations: vec![own], ..off };
    assert_eq!(
        told(&args(web01()), &off),
        "refused: Kea DHCPv4 is disabled",
        "also when it is stored already"
    );
    assert_snapshot!(told(&web01_with(json!({"state": "absent"})), &off), @r#"
    store: remove ["u-1"], put nothing
        reservation[02:a5:00:00:00:65]: "10.20.0.21" -> null
    warning: not applied: Kea DHCPv4 is disabled
    "#);
}

#[test]
fn a_field_that_would_be_dropped_is_refused_before_the_write() {
    let old = Observed { lacking: vec![(Field::NextServer, "OPNsense 26.1.9")], ..server() };
    assert_snapshot!(told(&web01_with(json!({"next_server": "10.20.0.2"})), &old), @"refused: this OPNsense drops `next_server` of a reservation without a word: that field needs OPNsense 26.1.9. Update the firewall, or leave the option out");
    assert!(
        told(&web01_with(json!({"next_server": ""})), &old).starts_with("store"),
        "unsetting nothing is fine"
    );
}

#[test]
fn a_lease_of_another_is_refused_or_cleared() {
    let leased = Observed { lease: Lease::Other("52:54:00:00:00:77".into()), ..server() };
    assert_snapshot!(told(&args(web01()), &leased), @"refused: 10.20.0.21 is leased to 52:54:00:00:00:77 now, so 02:a5:00:00:00:65 would get an address of the pool: stop that client, or forget its lease with `clear_lease: true`");
    assert_snapshot!(told(&web01_with(json!({"clear_lease": true})), &leased), @r#"
    store: remove [], add to u-20
        reservation.hw_address: null -> "02:a5:00:00:00:65"
        reservation.ip_address: null -> "10.20.0.21"
        reservation.hostname: null -> "web01"
        reservation.owner: null -> "web01"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    -- gate --
    clear lease of 10.20.0.21
        lease: "52:54:00:00:00:77" -> null
    "#);
    let old = Observed { can_clear_lease: false, ..leased.clone() };
    assert_snapshot!(told(&web01_with(json!({"clear_lease": true})), &old), @"refused: 10.20.0.21 is leased to 52:54:00:00:00:77, and this OPNsense cannot forget a lease: that needs OPNsense 26.1.6");
    let own = reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01");
    let there = Observed { reservations: vec![own], ..leased };
    assert_snapshot!(told(&web01_with(json!({"clear_lease": true})), &there), @r#"
    -- gate --
    clear lease of 10.20.0.21
        lease: "52:54:00:00:00:77" -> null
    "#);
}

#[test]
fn a_lease_of_the_stale_holder_is_told_and_not_refused() {
    let observed = Observed {
        lease: Lease::Other("02:a5:00:00:00:64".into()),
        ..server_with(vec![reservation("u-9", "02:a5:00:00:00:64", "10.20.0.21", "web01")])
    };
    let told = told(&web01_with(json!({"prune_stale": true})), &observed);
    assert_snapshot!(told.lines().last().unwrap(), @"warning: 10.20.0.21 is still leased to 02:a5:00:00:00:64, the stale holder: 02:a5:00:00:00:65 gets an address of the pool until that lease ends; `clear_lease: true` forgets it");
}

#[test]
fn a_boot_file_without_a_boot_server_is_told() {
    let told = |observed: &Observed, options| {
        let told = told(&web01_with(options), observed);
        told.lines().filter(|line| line.starts_with("warning")).collect::<String>()
    };
    assert_snapshot!(told(&server(), json!({"boot_file": "grubx64.efi"})), @"warning: neither the reservation nor the subnet 10.20.0.0/24 names a boot server (`next_server`): UEFI clients ask the DHCP server itself for the boot file");
    assert_eq!(told(&server(), json!({"boot_file": "grubx64.efi", "next_server": "10.20.0.2"})), "");
    let mut with_server = server();
    with_server.subnets[0].next_server = "10.20.0.2".parse().ok();
    assert_eq!(told(&with_server, json!({"boot_file": "grubx64.efi"})), "");
}

#[test]
fn what_was_stored_and_not_applied_is_applied() {
    let own = reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01");
    let pending = Observed { pending: true, ..server_with(vec![own]) };
    assert_snapshot!(told(&args(web01()), &pending), @r#"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
    assert_eq!(told(&web01_with(json!({"apply": false})), &pending), "nothing");
    let stopped = Observed { pending: false, service: Some("stopped".into()), ..pending.clone() };
    assert_snapshot!(told(&args(web01()), &stopped), @r#"
    -- gate --
    apply
        kea.service: "stopped" -> "running"
    "#);
    assert_snapshot!(told(&web01_with(json!({"backend": "kea"})), &pending), @r#"
    apply
        kea.config_file: "not written" -> "written"
    "#);
}

#[test]
fn storing_only_and_plain_kea_have_no_apply() {
    for options in [json!({"apply": false}), json!({"backend": "kea"})] {
        let told = told(&web01_with(options), &server());
        assert!(!told.contains("apply") && told.starts_with("store"), "{told}");
    }
}

#[test]
fn absent_removes_what_the_mac_has() {
    let absent = |options: Value| {
        let mut all = json!({"mac": "02:a5:00:00:00:65", "state": "absent"});
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        args(all)
    };
    let one = reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01");
    let elsewhere = reservation("u-2", "02:a5:00:00:00:65", "10.30.0.21", "web01");
    let other = reservation("u-9", "52:54:00:00:00:09", "10.20.0.22", "db01");
    assert_eq!(told(&absent(json!({})), &server_with(vec![other.clone()])), "nothing");
    assert_snapshot!(told(&absent(json!({})), &server_with(vec![other, one.clone()])), @r#"
    store: remove ["u-1"], put nothing
        reservation[02:a5:00:00:00:65]: "10.20.0.21" -> null
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
    let both = server_with(vec![one, elsewhere]);
    assert_snapshot!(told(&absent(json!({})), &both), @"refused: 02:a5:00:00:00:65 has reservations in several subnets (10.20.0.0/24, 10.30.0.0/24): say which with `subnet`");
    assert!(told(&absent(json!({"subnet": "10.30.0.0/24"})), &both).starts_with("store: remove [\"u-2\"]"));
    assert_snapshot!(told(&absent(json!({"subnet": "10.40.0.0/24"})), &both), @"refused: no subnet 10.40.0.0/24; subnets of the server: 10.20.0.0/24, 10.30.0.0/24");
}

#[test]
fn a_reservation_outside_every_subnet_is_refused_before_anything_is_written() {
    let global = |mac| Reservation { subnet: String::new(), ..reservation("", mac, "10.20.0.21", "web01") };
    let own = server_with(vec![global("02:a5:00:00:00:65")]);
    let absent = args(json!({"mac": "02:a5:00:00:00:65", "state": "absent"}));
    assert_snapshot!(told(&absent, &own), @"refused: the reservation of 02:a5:00:00:00:65 (web01) stands outside every subnet of Kea's configuration: change it there by hand");
    let stale = server_with(vec![global("02:a5:00:00:00:64")]);
    assert_snapshot!(told(&web01_with(json!({"prune_stale": true})), &stale), @"refused: the reservation of 02:a5:00:00:00:64 (web01) stands outside every subnet of Kea's configuration: change it there by hand");
}

#[test]
fn a_lease_that_cannot_be_looked_for_is_told_when_it_was_to_be_cleared() {
    let own = reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01");
    let unseen = Observed { lease: Lease::NotChecked, ..server_with(vec![own]) };
    let asked = web01_with(json!({"clear_lease": true}));
    assert_snapshot!(plan(&asked, &unseen).unwrap().warnings.join("\n"), @r#"no lease was looked for or forgotten: the user of the API key may not see leases (privilege "Services: DHCP: Kea(v4)")"#);
    assert!(plan(&args(web01()), &unseen).unwrap().warnings.is_empty(), "nobody asked");
}

#[test]
fn a_client_identifier_is_another_way_to_know_a_host() {
    let wanted = json!({"client_id": "01-02-A5", "ip": "10.20.0.21", "hostname": "web01"});
    assert_snapshot!(told(&args(wanted.clone()), &server()), @r#"
    store: remove [], add to u-20
        reservation.client_id: null -> "01:02:a5"
        reservation.ip_address: null -> "10.20.0.21"
        reservation.hostname: null -> "web01"
        reservation.owner: null -> "web01"
    -- gate --
    apply
        kea.service: "running without the stored change" -> "running"
    "#);
    let mut own = reservation("u-1", "", "10.20.0.21", "web01");
    own.host = Some(HostIdentifier::ClientId("0102a5".parse().unwrap()));
    own.values.set(Field::ClientId, "01:02:a5");
    assert_eq!(told(&args(wanted.clone()), &server_with(vec![own])), "nothing");
    let mut taking_over = wanted.clone();
    taking_over["prune_stale"] = json!(true);
    let stale = reservation("u-9", "02:a5:00:00:00:64", "10.20.0.21", "web01");
    assert!(
        told(&args(taking_over), &server_with(vec![stale]))
            .contains("hw_address: \"02:a5:00:00:00:64\" -> \"\"")
    );
    let old = Observed { lacking: vec![(Field::ClientId, "OPNsense 26.1.8")], ..server() };
    assert!(told(&args(wanted), &old).contains("needs OPNsense 26.1.8"));
    assert!(told(&args(web01()), &old).starts_with("store"), "a MAC address is fine there");
}

#[test]
fn options_and_classes_are_lists_that_replace_what_is_there() {
    let mut own = owned(reservation("u-1", "02:a5:00:00:00:65", "10.20.0.21", "web01"), "web01");
    let dns = json!([{"name": "domain-name-servers", "code": 6, "data": "10.20.0.1", "always_send": false, "csv_format": true}]);
    own.values.set(Field::OptionData, dns.to_string());
    own.values.set(Field::ClientClasses, Field::list_text(["a", "b"]));
    let observed = server_with(vec![own]);
    let kea = |options: Value| {
        let mut all = json!({"backend": "kea"});
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        told(&web01_with(all), &observed)
    };
    assert_eq!(kea(json!({})), "nothing");
    assert_eq!(
        kea(json!({"option_data": [{"code": 6, "data": "10.20.0.1"}], "client_classes": ["b", "a"]})),
        "nothing"
    );
    assert_snapshot!(kea(json!({"option_data": [{"name": "routers", "data": "10.20.0.2"}], "client_classes": []})), @r#"
    store: remove [], change u-1
        reservation.option_data: [{"name":"domain-name-servers","code":6,"data":"10.20.0.1","always_send":false,"csv_format":true}] -> [{"name":"routers","data":"10.20.0.2","always_send":false,"csv_format":true}]
        reservation.client_classes: ["a","b"] -> []
    "#);
}

#[test]
fn what_would_not_boot_from_the_network_is_refused() {
    let netboot = |options: Value| {
        let mut all = json!({"netboot": true});
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        web01_with(all)
    };
    let mut right = server();
    right.subnets[0].match_client_id = false;
    let whole = json!({"next_server": "10.20.0.2", "boot_file": "grubx64.efi"});
    assert!(told(&netboot(whole.clone()), &right).starts_with("store"));
    assert_snapshot!(told(&netboot(json!({"boot_file": "grubx64.efi"})), &right), @"refused: 02:a5:00:00:00:65 would not boot from the network: neither the reservation nor the subnet 10.20.0.0/24 names a boot server, so a UEFI client would ask the DHCP server itself: give `next_server`");
    assert_snapshot!(told(&netboot(json!({"next_server": "10.20.0.2"})), &right), @"refused: 02:a5:00:00:00:65 would not boot from the network: neither the reservation nor the subnet 10.20.0.0/24 names a boot file: give `boot_file`");
    assert_snapshot!(told(&netboot(json!({"next_server": "10.20.0.2", "boot_file": "pxelinux.0"})), &right), @"refused: 02:a5:00:00:00:65 would not boot from the network: `pxelinux.0` is no UEFI program (.efi)");
    assert!(
        told(
            &netboot(json!({"next_server": "10.20.0.2", "boot_file": "pxelinux.0", "architecture": "bios"})),
            &right
        )
        .starts_with("store")
    );
    assert_snapshot!(told(&netboot(whole), &server()), @"refused: 02:a5:00:00:00:65 would not boot from the network: in the subnet 10.20.0.0/24 a client identifier outranks the MAC address (`match-client-id`): firmware and operating system send different ones, and the second of them gets an address of the pool. Switch it off for the subnet (Match client-id)");
    let by_class = Observed {
        classes: vec![kea_api::ClientClass {
            name: "uefi".into(),
            next_server: "10.20.0.2".parse().ok(),
            boot_file_name: "grubx64.efi".into(),
        }],
        ..right.clone()
    };
    assert!(told(&netboot(json!({"backend": "kea"})), &by_class).starts_with("store"), "a class has both");
    let mut by_subnet = right;
    by_subnet.subnets[0].next_server = "10.20.0.2".parse().ok();
    by_subnet.subnets[0].boot_file_name = "shimx64.efi".into();
    assert!(told(&netboot(json!({})), &by_subnet).starts_with("store"), "the subnet has both");
}

#[test]
fn shim_in_a_directory_is_warned_of_on_opnsense() {
    let told =
        told(&web01_with(json!({"next_server": "10.20.0.2", "boot_file": "debian/shimx64.efi"})), &server());
    assert_snapshot!(told.lines().last().unwrap(), @"warning: OPNsense sends the boot file as option 67 only, and shim looks for its second file in the directory of the BOOTP field: it will ask for it in the root of the TFTP server, not beside debian/shimx64.efi");
}
