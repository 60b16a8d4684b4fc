//! Kea 3 through its own HTTP socket, with the hook host_cmds: a double everywhere, and the real one where `make test-kea3`
//! has unpacked it.

use lab::kea::{RealKea, unpacked, unpacked_hook};
use lab::kea3::Kea3Double;
use lab::program::with;
use lab::proxy::Proxy;
use serde_json::{Value, json};

use crate::plain_kea::module;
use crate::{web01, web01_with};

enum Server {
    Double(Kea3Double),
    Real(Box<RealKea>),
}

impl Server {
    fn config() -> Value {
        json!({"Dhcp4": {
            "subnet4": [
                {
                    "id": 1, "subnet": "10.20.0.0/24", "pools": [{"pool": "10.20.0.100-10.20.0.199"}],
                    "reservations": [
                        {"hw-address": "52:54:00:00:00:01", "ip-address": "10.20.0.5", "hostname": "db01"},
                        {"hw-address": "02:a5:00:00:00:64", "ip-address": "10.20.0.61", "hostname": "web01"},
                    ],
                },
                {"id": 9, "subnet": "10.30.0.0/24"},
            ],
        }})
    }

    fn each() -> Vec<Self> {
        let mut servers = vec![Self::double()];
        if let Some(root) = unpacked() {
            let mut config = Self::config();
            config["Dhcp4"]["hooks-libraries"] = ["lease_cmds", "host_cmds"]
                .map(|name| json!({"library": unpacked_hook(&root, name)}))
                .to_vec()
                .into();
            servers.push(Self::Real(Box::new(RealKea::start_unpacked(&root, &config).unwrap())));
        }
        servers
    }

    fn double() -> Self {
        Self::Double(Kea3Double::start(&Self::config()).unwrap())
    }

    fn url(&self) -> String {
        match self {
            Self::Double(double) => double.url(),
            Self::Real(kea) => kea.url(),
        }
    }

    /// The hosts of the first subnet in its file, by address.
    fn in_file(&self) -> Vec<String> {
        let file = match self {
            Self::Double(double) => double.file(),
            Self::Real(kea) => kea.config_file().unwrap(),
        };
        hosts(&file)
    }

    fn running(&self) -> Value {
        match self {
            Self::Double(double) => double.running(),
            Self::Real(kea) => kea.command("config-get", None).unwrap()["arguments"].clone(),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Double(double) => double.restart(),
            Self::Real(kea) => kea.restart_server().unwrap(),
        }
    }
}

fn hosts(config: &Value) -> Vec<String> {
    let hosts = config["Dhcp4"]["subnet4"][0]["reservations"].as_array().unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let mut hosts: Vec<String> = hosts
        .iter()
        .map(|one| {
            format!("{} {} {}", text(one, "ip-address"), text(one, "hw-address"), text(one, "hostname"))
        })
        .collect();
    hosts.sort();
    hosts
}

fn rest(config: &Value) -> Value {
    let mut rest = config["Dhcp4"].clone();
    rest["subnet4"][0]["reservations"] = Value::Null;
    rest
}

fn commands(proxy: &Proxy) -> String {
    let command =
        |body: &str| serde_json::from_str::<Value>(body).unwrap()["command"].as_str().unwrap().to_owned();
    let commands: Vec<String> = proxy.log().iter().map(|one| command(&one.body)).collect();
    proxy.forget();
    commands.join(" ")
}

#[test]
fn one_host_is_one_command_and_a_move_is_one_configuration() {
    for mut server in Server::each() {
        let (proxy, module) = (Proxy::to(&server.url()).start(), module());
        let before = rest(&server.running());
        let run = |options: Value| {
            module.run(&with(&json!({"backend": "kea", "kea_url": proxy.url()}), options)).done()
        };
        assert_eq!(
            run(web01_with(json!({"hostname": "web02", "next_server": "10.20.0.2"})))["changed"],
            true
        );
        assert_eq!(
            commands(&proxy),
            "config-get list-commands lease4-get reservation-add config-write config-get config-get"
        );
        assert_eq!(run(web01_with(json!({"hostname": "web02"})))["changed"], false);
        assert_eq!(commands(&proxy), "config-get");
        let updated = run(web01_with(json!({"hostname": "web03", "description": "front end"})));
        assert_eq!(
            commands(&proxy),
            "config-get list-commands lease4-get reservation-update config-write config-get config-get"
        );
        assert_eq!(updated["reservation"]["next_server"], "10.20.0.2", "an update replaces a host whole");
        assert_eq!(run(web01_with(json!({"hostname": "web03", "ip": "10.20.0.22"})))["changed"], true);
        assert_eq!(
            commands(&proxy),
            "config-get list-commands lease4-get config-test config-get config-set config-write config-get config-get"
        );
        let taken = json!({"mac": "02:a5:00:00:00:70", "ip": "10.20.0.61", "prune_stale": true});
        assert_eq!(run(web01_with(taken))["changed"], true);
        assert!(
            !commands(&proxy).contains("reservation-"),
            "no moment without the reservation, and none with two"
        );
        server.restart();
        let expected = [
            "10.20.0.22 02:a5:00:00:00:65 web03",
            "10.20.0.5 52:54:00:00:00:01 db01",
            "10.20.0.61 02:a5:00:00:00:70 web01",
        ];
        assert_eq!(server.in_file(), expected);
        assert_eq!(hosts(&server.running()), server.in_file());
        assert_eq!(run(json!({"mac": "02a5.0000.0065", "state": "absent"}))["changed"], true);
        assert_eq!(
            commands(&proxy),
            "config-get list-commands reservation-del config-write config-get config-get"
        );
        assert_eq!(server.in_file().len(), 2);
        assert_eq!(rest(&server.running()), before);
    }
}

/// A failed reservation-update would delete the host: an address of another is refused before any command.
#[test]
fn an_address_of_another_never_loses_a_host() {
    for server in Server::each() {
        let (proxy, module) = (Proxy::to(&server.url()).start(), module());
        let options =
            json!({"backend": "kea", "kea_url": proxy.url(), "mac": "02:a5:00:00:00:64", "ip": "10.20.0.5"});
        let refused = module.run(&options).failed();
        assert_eq!(refused["holder"]["hostname"], "db01");
        assert!(proxy.writes().is_empty());
        assert_eq!(server.in_file().len(), 2);
    }
}

#[test]
fn what_cannot_be_written_is_taken_back() {
    let server = Server::double();
    let Server::Double(double) = &server else { return };
    let module = module();
    let own =
        json!({"backend": "kea", "kea_url": server.url(), "mac": "02:a5:00:00:00:64", "ip": "10.20.0.61"});
    let before = double.running();
    double.let_write(false);
    for options in [
        with(&web01_with(json!({"hostname": "web09"})), json!({"backend": "kea", "kea_url": server.url()})),
        with(&own, json!({"hostname": "web09"})),
        with(&own, json!({"state": "absent"})),
        with(&own, json!({"ip": "10.20.0.62"})),
    ] {
        let failed = module.run(&options).failed();
        assert_eq!(failed["error_code"], "not_persisted", "{failed}");
        assert_eq!(hosts(&double.running()), hosts(&before), "{options}");
    }
    double.let_write(true);
    assert_eq!(module.run(&with(&own, json!({"state": "absent"}))).done()["changed"], true);
}

#[test]
fn lost_answers_and_killed_runs_end_with_one_reservation_in_the_file() {
    let server = Server::double();
    let (proxy, module) = (Proxy::to(&server.url()).start(), module());
    let reach = json!({"backend": "kea", "kea_url": proxy.url(), "timeout": 30});
    let present = with(&web01_with(json!({"hostname": "web09"})), reach.clone());
    let absent = with(&json!({"mac": "02:a5:00:00:00:65", "state": "absent"}), reach);
    for (options, count) in [(&present, 3), (&absent, 2)] {
        for request in 1..=7 {
            let _ = module.run(if count == 3 { &absent } else { &present }).done();
            proxy.forget();
            proxy.on_request(request).lose_answer();
            assert_eq!(module.run(options).done()["changed"], true, "answer {request} lost");
            proxy.clear_faults();
            assert_eq!(server.in_file().len(), count, "answer {request} lost");
        }
        for request in 1.. {
            let _ = module.run(if count == 3 { &absent } else { &present }).done();
            if !module.run_killed_at(&proxy, request, options) {
                assert!(request > 5, "killed at {} requests only", request - 1);
                break;
            }
            let _ = module.run(options).done();
            assert_eq!(server.in_file().len(), count, "killed at request {request}");
            assert_eq!(module.run(options).done()["changed"], false, "killed at request {request}");
        }
    }
}

#[test]
fn a_client_of_the_real_kea_3_gets_what_was_reserved() {
    for server in Server::each() {
        let Server::Real(kea) = &server else { continue };
        let options = with(
            &web01_with(json!({"hostname": "web09", "next_server": "10.20.0.2", "boot_file": "grubx64.efi"})),
            json!({"backend": "kea", "kea_url": server.url()}),
        );
        assert_eq!(module().run(&options).done()["lease"], "free");
        let offer = kea.discover("02:a5:00:00:00:65", "10.20.0.0".parse().unwrap()).unwrap().unwrap();
        assert_eq!((offer.address.to_string().as_str(), offer.file.as_str()), ("10.20.0.21", "grubx64.efi"));
        assert_eq!(offer.next_server.to_string(), "10.20.0.2");
    }
}

/// Without leases on disk, a whole configuration would forget them; a command for one host does not.
#[test]
fn leases_in_memory_are_kept_by_host_commands() {
    let mut config = Server::config();
    config["Dhcp4"]["lease-database"] = json!({"type": "memfile", "persist": false});
    let double = Kea3Double::start(&config).unwrap();
    let reach = json!({"backend": "kea", "kea_url": double.url()});
    let added = with(&web01_with(json!({"hostname": "web09"})), reach);
    assert_eq!(module().run(&added).done()["changed"], true);
    let refused = module().run(&with(&added, json!({"ip": "10.20.0.22"}))).failed();
    assert!(refused["msg"].as_str().unwrap().contains("forget every lease"), "{refused}");
    assert_eq!(
        module()
            .run(&with(&web01(), json!({"backend": "kea", "kea_url": double.url(), "state": "absent"})))
            .done()["changed"],
        true
    );
}
