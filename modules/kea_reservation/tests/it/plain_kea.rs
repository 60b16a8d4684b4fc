//! Against the real kea-dhcp4 and kea-ctrl-agent of this machine.

use lab::kea::{BasicAuth, RealKea, installed};
use lab::program::{Program, with};
use lab::proxy::Proxy;
use serde_json::{Value, json};

use crate::{forty_at_once, web01, web01_with};

const LEASE_CMDS: &str = "/usr/lib/x86_64-linux-gnu/kea/hooks/libdhcp_lease_cmds.so";

pub(crate) fn kea_here() -> bool {
    lab::present(installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)")
}

pub(crate) fn config() -> Value {
    json!({"Dhcp4": {
        "hooks-libraries": [{"library": LEASE_CMDS}],
        "client-classes": [{"name": "uefi", "test": "option[93].hex == 0x0007", "next-server": "10.20.0.2"}],
        "subnet4": [
            {
                "id": 1, "subnet": "10.20.0.0/24", "pools": [{"pool": "10.20.0.100-10.20.0.199"}],
                "option-data": [{"name": "routers", "data": "10.20.0.1"}],
                "reservations": [
                    {"hw-address": "52:54:00:00:00:01", "ip-address": "10.20.0.5", "hostname": "db01"},
                    {"hw-address": "02:a5:00:00:00:64", "ip-address": "10.20.0.61", "hostname": "old"},
                ],
            },
            {"id": 9, "subnet": "10.30.0.0/24"},
        ],
    }})
}

pub(crate) fn module() -> Program {
    Program::new(env!("CARGO_BIN_EXE_kea_reservation"))
}

pub(crate) fn over_socket(kea: &RealKea, options: Value) -> Value {
    with(&json!({"backend": "kea", "kea_socket": kea.socket(), "timeout": 30}), options)
}

pub(crate) fn reservations(kea: &RealKea) -> Vec<Value> {
    let answer = kea.command("config-get", None).unwrap();
    let mut all = answer["arguments"]["Dhcp4"]["subnet4"][0]["reservations"].as_array().unwrap().clone();
    all.sort_by_key(|one| one["ip-address"].to_string());
    all
}

/// The configuration without the reservations of the first subnet.
fn rest(kea: &RealKea) -> Value {
    let mut answer = kea.command("config-get", None).unwrap();
    answer["arguments"]["Dhcp4"]["subnet4"][0]["reservations"] = Value::Null;
    answer["arguments"].clone()
}

#[test]
fn a_reservation_runs_is_persisted_and_the_rest_is_untouched() {
    if !kea_here() {
        return;
    }
    let mut kea = RealKea::start(&config()).unwrap();
    let (module, before) = (module(), rest(&kea));
    let options = over_socket(
        &kea,
        web01_with(json!({
            "next_server": "10.20.0.2", "boot_file": "grubx64.efi", "tftp_server_name": "10.20.0.2", "description": "front end",
        })),
    );
    assert_eq!(module.check(&options).done()["changed"], true);
    assert_eq!(reservations(&kea).len(), 2, "check mode only reads");
    let result = module.run(&options).done();
    insta::assert_json_snapshot!(result, @r#"
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
        "subnet_key": "1",
        "uuid": null
      },
      "boot_file_sent_as": "BOOTP file field",
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
          "reservation.owner"
        ]
      },
      "changed": true
    }
    "#);
    assert_eq!(module.run(&options).done()["changed"], false);
    kea.restart_server().unwrap();
    assert_eq!(module.run(&options).done()["changed"], false, "it outlives a restart");
    assert_eq!(rest(&kea), before);

    let absent = over_socket(&kea, json!({"mac": "02a5.0000.0065", "state": "absent"}));
    assert_eq!(module.run(&absent).done()["changed"], true);
    assert_eq!(module.run(&absent).done()["changed"], false);
    assert_eq!(reservations(&kea).len(), 2);
    assert_eq!(rest(&kea), before);
}

#[test]
fn the_agent_with_a_password_is_another_way_in() {
    if !kea_here() {
        return;
    }
    let kea =
        RealKea::start_with_auth(&config(), BasicAuth { user: "anvil", password: "open-sesame-77" }).unwrap();
    let module = module();
    let options = with(
        &web01(),
        json!({
            "backend": "kea", "kea_url": kea.url(), "kea_user": "anvil", "kea_password": "open-sesame-77",
        }),
    );
    assert_eq!(module.run(&options).done()["changed"], true);
    assert_eq!(module.run(&options).done()["changed"], false);
    let outcome = module.run(&with(&options, json!({"kea_password": "wrong-sesame-77"})));
    assert!(!outcome.output.contains("wrong-sesame-77"));
    assert_eq!(outcome.failed()["error_code"], "auth");
    assert_eq!(reservations(&kea).len(), 3);
}

#[test]
fn what_is_held_by_others_is_refused_and_nothing_is_written() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let lease = json!({"ip-address": "10.20.0.77", "hw-address": "52:54:00:00:00:77"});
    kea.command("lease4-add", Some(lease)).unwrap();
    let (module, before) = (module(), reservations(&kea));
    let mut told = Vec::new();
    for options in [
        json!({"ip": "10.20.0.5"}),
        json!({"hostname": "db01"}),
        json!({"ip": "10.20.0.77"}),
        json!({"ip": "10.20.0.1"}),
        json!({"ip": "10.20.0.0"}),
        json!({"ip": "10.20.0.61", "prune_stale": true}),
        json!({"ip": "10.20.0.21", "subnet": "9"}),
        json!({"ip": "10.40.0.1"}),
    ] {
        let result = module.run(&over_socket(&kea, web01_with(options.clone()))).failed();
        told.push(format!(
            "{options}: {}: {}",
            result["error_code"].as_str().unwrap(),
            result["msg"].as_str().unwrap()
        ));
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    {"ip":"10.20.0.5"}: refused: 10.20.0.5 is reserved for hw-address 52:54:00:00:00:01 (db01): choose another address, or remove that reservation
    {"hostname":"db01"}: refused: the hostname db01 is held by the reservation of 10.20.0.5 for hw-address 52:54:00:00:00:01 in 10.20.0.0/24: give this host another name, or remove that reservation
    {"ip":"10.20.0.77"}: refused: 10.20.0.77 is leased to 52:54:00:00:00:77 now, so 02:a5:00:00:00:65 would get an address of the pool: stop that client, or forget its lease with `clear_lease: true`
    {"ip":"10.20.0.1"}: refused: 10.20.0.1 is the router of 10.20.0.0/24
    {"ip":"10.20.0.0"}: refused: 10.20.0.0 is the network address of 10.20.0.0/24
    {"ip":"10.20.0.61","prune_stale":true}: refused: 10.20.0.61 is reserved for hw-address 02:a5:00:00:00:64 (old): choose another address, or remove that reservation
    {"ip":"10.20.0.21","subnet":"9"}: refused: 10.20.0.21 is not in the subnet 10.30.0.0/24
    {"ip":"10.40.0.1"}: refused: no subnet that holds 10.40.0.1; subnets of the server: 10.20.0.0/24 (id 1), 10.30.0.0/24 (id 9)
    "#);
    assert_eq!(reservations(&kea), before);
}

#[test]
fn a_stale_holder_and_a_lease_give_way_when_asked() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let lease = json!({"ip-address": "10.20.0.61", "hw-address": "02:a5:00:00:00:64"});
    kea.command("lease4-add", Some(lease)).unwrap();
    let options = over_socket(
        &kea,
        web01_with(json!({
            "ip": "10.20.0.61", "hostname": "old", "prune_stale": true, "clear_lease": true,
        })),
    );
    let result = module().run(&options).done();
    assert_eq!(result["lease"], "other");
    assert_eq!(reservations(&kea).len(), 2);
    assert_eq!(reservations(&kea)[1]["hw-address"], "02:a5:00:00:00:65");
    let gone = kea.command("lease4-get", Some(json!({"ip-address": "10.20.0.61"}))).unwrap();
    assert_eq!(gone["result"], 3);
}

#[test]
fn a_lease_that_is_over_keeps_nobody_out() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let over = json!({"ip-address": "10.20.0.21", "hw-address": "52:54:00:00:00:77", "state": 2});
    let added = kea.command("lease4-add", Some(over)).unwrap();
    assert_eq!(added["result"], 0, "{added}");
    assert_eq!(module().run(&over_socket(&kea, web01())).done()["lease"], "free");
}

#[test]
fn without_the_hook_for_leases_the_result_says_so() {
    if !kea_here() {
        return;
    }
    let mut plain = config();
    plain["Dhcp4"]["hooks-libraries"] = json!([]);
    let kea = RealKea::start(&plain).unwrap();
    assert_eq!(module().run(&over_socket(&kea, web01())).done()["lease"], "not_checked");
    let cleared = module().run(&over_socket(&kea, web01_with(json!({"clear_lease": true})))).done();
    assert!(cleared["warnings"][0].as_str().unwrap().starts_with("no lease was looked for"), "{cleared}");
}

#[test]
fn a_file_that_kea_may_not_write_leaves_the_old_configuration_and_the_cure() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    std::fs::remove_file(kea.config_path()).unwrap();
    std::fs::create_dir(kea.config_path()).unwrap();
    let (module, before) = (module(), reservations(&kea));
    let result = module.run(&over_socket(&kea, web01())).failed();
    assert_eq!(result["error_code"], "not_persisted");
    assert!(
        result["msg"].as_str().unwrap().contains("The old configuration was put back. Cure: "),
        "{result}"
    );
    assert_eq!(reservations(&kea), before);
    std::fs::remove_dir(kea.config_path()).unwrap();
    assert_eq!(module.run(&over_socket(&kea, web01())).done()["changed"], true);
    assert!(kea.config_file().unwrap().to_string().contains("02:a5:00:00:00:65"));
}

#[test]
fn lost_answers_and_killed_runs_end_with_one_reservation_in_the_file() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let proxy = Proxy::to(&kea.url()).start();
    let module = module();
    let options = with(&web01(), json!({"backend": "kea", "kea_url": proxy.url(), "timeout": 30}));
    let absent = with(&options, json!({"state": "absent"}));
    for request in 1..=10 {
        proxy.forget();
        proxy.on_request(request).lose_answer();
        let result = module.run(&options).done();
        proxy.clear_faults();
        assert_eq!(result["changed"], true, "answer {request} lost");
        assert!(
            kea.config_file().unwrap().to_string().contains("02:a5:00:00:00:65"),
            "answer {request} lost"
        );
        let _ = module.run(&absent).done();
    }
    for request in 1.. {
        if !module.run_killed_at(&proxy, request, &options) {
            assert!(request > 6, "killed at {} requests only", request - 1);
            break;
        }
        let _ = module.run(&options).done();
        assert_eq!(reservations(&kea).len(), 3, "killed at request {request}");
        assert!(
            kea.config_file().unwrap().to_string().contains("02:a5:00:00:00:65"),
            "killed at request {request}"
        );
        assert_eq!(module.run(&options).done()["changed"], false, "killed at request {request}");
        let _ = module.run(&absent).done();
    }
}

#[test]
fn forty_runs_at_once_lose_none() {
    if !kea_here() {
        return;
    }
    let mut kea = RealKea::start(&config()).unwrap();
    let proxy = Proxy::to(&kea.url()).start();
    forty_at_once(&proxy, &module(), &json!({"backend": "kea", "kea_url": proxy.url()}));
    kea.restart_server().unwrap();
    assert_eq!(reservations(&kea).len(), 42, "with the two that were there");
}

#[test]
fn a_real_client_gets_what_was_reserved_and_the_old_card_no_longer_does() {
    if !kea_here() {
        return;
    }
    let mut kea = RealKea::start(&config()).unwrap();
    let (module, subnet) = (module(), "10.20.0.0".parse().unwrap());
    let offered = |kea: &RealKea, mac: &str| kea.discover(mac, subnet).unwrap().unwrap();
    let web01 =
        over_socket(&kea, web01_with(json!({"next_server": "10.20.0.2", "boot_file": "grubx64.efi"})));
    let _ = module.run(&web01).done();
    let offer = offered(&kea, "02:a5:00:00:00:65");
    assert_eq!(offer.address.to_string(), "10.20.0.21");
    assert_eq!((offer.next_server.to_string().as_str(), offer.file.as_str()), ("10.20.0.2", "grubx64.efi"));

    let _ = module.run(&with(&web01, json!({"mac": "02:a5:00:00:00:66", "prune_stale": true}))).done();
    kea.restart_server().unwrap();
    assert_eq!(offered(&kea, "02:a5:00:00:00:66").address.to_string(), "10.20.0.21");
    let old = offered(&kea, "02:a5:00:00:00:65").address;
    assert!(old.octets()[3] >= 100, "an address of the pool, not {old}");
}

/// What Kea 2.4 and newer do and 2.2 does not: a `hash` beside the configuration, which `config-set` refuses to get back.
#[test]
fn the_hash_of_newer_versions_is_not_sent_back() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let proxy = Proxy::to(&kea.url()).tls().start();
    proxy.on("POST", "/").always().rewrite_answer(|answer| {
        let mut answer: Value = serde_json::from_str(answer).unwrap();
        if answer[0]["arguments"].get("Dhcp4").is_some() {
            answer[0]["arguments"]["hash"] =
                json!("5C3C90EF7035249E2FF74D003C19F34EE0B83A3D329E741B52B2EF95A2C9CC5C");
        }
        answer.to_string()
    });
    let options = json!({"backend": "kea", "kea_url": proxy.url(), "ca_path": proxy.ca_path(), "_ansible_verbosity": 2});
    let result = module().run(&with(&web01(), options)).done();
    assert_eq!(reservations(&kea).len(), 3);
    let commands: Vec<String> = proxy
        .log()
        .iter()
        .map(|one| serde_json::from_str::<Value>(&one.body).unwrap())
        .inspect(|body| {
            assert_eq!((&body["service"], body["arguments"].get("hash")), (&json!(["dhcp4"]), None))
        })
        .map(|body| body["command"].as_str().unwrap().to_owned())
        .collect();
    insta::assert_snapshot!(commands.join(" "), @"config-get list-commands lease4-get config-test config-get config-set config-write config-get config-get");
    assert_eq!(result["api_calls"], json!({"POST": commands.len()}));
    assert_eq!(proxy.connections(), 1, "one connection a run");
}

#[test]
fn a_server_that_is_not_there_is_told_and_where_it_was_looked_for() {
    let module = module();
    let run = |options: Value| {
        module.run(&web01_with(with(&json!({"backend": "kea", "timeout": 5}), options))).failed()
    };
    let socket = run(json!({"kea_socket": "/nonexistent/kea4-ctrl-socket"}));
    insta::assert_snapshot!(socket["msg"].as_str().unwrap(), @"Kea's control socket /nonexistent/kea4-ctrl-socket: No such file or directory (os error 2): is kea-dhcp4 running on this host?");
    assert_eq!(socket["error_code"], "unreachable");
    assert_eq!(run(json!({"kea_url": "http://127.0.0.1:9/"}))["error_code"], "unreachable");
    assert_eq!(run(json!({"kea_url": "127.0.0.1:8000"}))["error_code"], "bad_argument");
    if kea_here() {
        let mut kea = RealKea::start(&config()).unwrap();
        kea.stop_server().unwrap();
        let behind = run(json!({"kea_url": kea.url()}));
        assert!(behind["msg"].as_str().unwrap().contains("unable to forward command"), "{behind}");
    }
}

/// A client identifier, options by name and by code, and classes; the options of vendors' spaces stay.
#[test]
fn options_classes_and_client_identifiers_are_held_and_sent() {
    if !kea_here() {
        return;
    }
    let mut with_vendor = config();
    with_vendor["Dhcp4"]["subnet4"][0]["match-client-id"] = json!(false);
    with_vendor["Dhcp4"]["subnet4"][0]["reservations"][1]["option-data"] =
        json!([{"space": "vendor-4491", "code": 1, "csv-format": false, "data": "0A"}]);
    let kea = RealKea::start(&with_vendor).unwrap();
    let module = module();
    let options = json!([
        {"name": "boot-file-name", "data": "grubx64.efi"},
        {"code": 3, "data": "10.20.0.3, 10.20.0.4"},
        {"code": 222, "data": "0a:0b", "csv_format": false},
    ]);
    let web01 = over_socket(
        &kea,
        web01_with(json!({
            "next_server": "10.20.0.2", "boot_file": "grubx64.efi", "netboot": true, "option_data": options,
            "client_classes": ["uefi"],
        })),
    );
    assert_eq!(module.run(&web01).done()["changed"], true);
    assert_eq!(module.run(&web01).done()["changed"], false);
    let offer = kea.discover("02:a5:00:00:00:65", "10.20.0.0".parse().unwrap()).unwrap().unwrap();
    assert_eq!((offer.file.as_str(), offer.boot_file_name.as_deref()), ("grubx64.efi", Some("grubx64.efi")));
    assert_eq!(offer.routers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.20.0.3", "10.20.0.4"]);

    let old = over_socket(
        &kea,
        json!({"mac": "02:a5:00:00:00:64", "ip": "10.20.0.61", "option_data": [{"name": "routers", "data": "10.20.0.9"}]}),
    );
    assert_eq!(module.run(&old).done()["changed"], true);
    let kept = reservations(&kea)[2]["option-data"].to_string();
    assert!(kept.contains("vendor-4491") && kept.contains("10.20.0.9"), "{kept}");
    assert_eq!(
        module.run(&with(&old, json!({"option_data": []}))).done()["reservation"]["option_data"],
        json!([])
    );

    let by_client_id =
        over_socket(&kea, json!({"client_id": "01-AA-BB", "ip": "10.20.0.71", "hostname": "web02"}));
    let result = module.run(&by_client_id).done();
    assert_eq!(
        (&result["reservation"]["client_id"], &result["reservation"]["hw_address"]),
        (&json!("01:aa:bb"), &json!(""))
    );
    assert_eq!(module.run(&with(&by_client_id, json!({"client_id": "01aabb"}))).done()["changed"], false);
    let by_mac = over_socket(
        &kea,
        json!({"mac": "02:a5:00:00:00:70", "ip": "10.20.0.71", "hostname": "web02", "prune_stale": true}),
    );
    assert_eq!(module.run(&by_mac).done()["changed"], true);
    let taken_over: Vec<Value> =
        reservations(&kea).into_iter().filter(|one| one["ip-address"] == "10.20.0.71").collect();
    assert_eq!((taken_over.len(), &taken_over[0]["hw-address"]), (1, &json!("02:a5:00:00:00:70")));
    assert_eq!(taken_over[0].get("client-id"), None);
}

#[test]
fn an_address_in_a_pool_where_reservations_are_ignored_is_refused_and_would_be_ignored() {
    if !kea_here() {
        return;
    }
    let mut ignoring = config();
    ignoring["Dhcp4"]["subnet4"][0]["reservations-out-of-pool"] = json!(true);
    ignoring["Dhcp4"]["subnet4"][0]["reservations-in-subnet"] = json!(true);
    let lost = json!({"hw-address": "52:54:00:00:00:02", "ip-address": "10.20.0.150"});
    ignoring["Dhcp4"]["subnet4"][0]["reservations"].as_array_mut().unwrap().push(lost);
    let kea = RealKea::start(&ignoring).unwrap();
    let refused = module().run(&over_socket(&kea, web01_with(json!({"ip": "10.20.0.151"})))).failed();
    assert!(refused["msg"].as_str().unwrap().contains("reservations-out-of-pool"), "{refused}");
    let offer = kea.discover("52:54:00:00:00:02", "10.20.0.0".parse().unwrap()).unwrap().unwrap();
    assert_ne!(offer.address.to_string(), "10.20.0.150", "this is why");
}
