use std::time::Duration;

use deadline::Deadline;
use http_client::{Auth, Client, ClientConfig, TlsPolicy};
use kea_api::{Error, Reservation, Server};
use lab::kea::{BasicAuth, RealKea, installed};
use net_types::MacAddress;
use serde_json::{Value, json};

fn kea_here() -> bool {
    lab::present(installed(), "Kea (kea-dhcp4-server, kea-ctrl-agent)")
}

fn config() -> Value {
    json!({"Dhcp4": {
        "valid-lifetime": 600,
        "hooks-libraries": [{"library": lease_cmds()}],
        "option-def": [{"name": "colour", "code": 222, "type": "string"}],
        "client-classes": [{"name": "uefi", "test": "option[93].hex == 0x0007", "next-server": "10.20.0.2"}],
        "subnet4": [
            {
                "id": 1, "subnet": "10.20.0.0/24", "pools": [{"pool": "10.20.0.100-10.20.0.199"}],
                "option-data": [{"name": "routers", "data": "10.20.0.1"}],
                "reservations": [
                    {"hw-address": "52:54:00:00:00:01", "ip-address": "10.20.0.5", "user-context": {"by": "hand"}},
                    {"client-id": "01:02:03:04", "ip-address": "10.20.0.6", "option-data": [{"name": "colour", "data": "red"}]},
                ],
            },
            {"id": 9, "subnet": "10.30.0.0/24"},
        ],
    }})
}

fn lease_cmds() -> String {
    "/usr/lib/x86_64-linux-gnu/kea/hooks/libdhcp_lease_cmds.so".to_owned()
}

fn agent(kea: &RealKea, auth: Auth) -> Server {
    let client = Client::new(ClientConfig {
        base_url: kea.url(),
        tls: TlsPolicy::SystemStore,
        auth,
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(10),
    });
    Server::http(client.unwrap())
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn mac() -> MacAddress {
    "02:a5:00:00:00:65".parse().unwrap()
}

fn reservation() -> Reservation {
    let mut reservation = Reservation::new(mac());
    reservation.set_ip("10.20.0.21".parse().unwrap());
    reservation.set_hostname("web01");
    reservation.set_next_server(Some("10.20.0.2".parse().unwrap()));
    reservation.set_boot_file_name("grubx64.efi");
    reservation.set_option("tftp-server-name", "10.20.0.2");
    reservation.set_context("comment", json!("front end"));
    reservation
}

fn round_trip(kea: &mut RealKea, server: &Server) {
    let before = server.config_get(&soon()).unwrap();
    let mut after = before.clone();
    after.put(1, None, reservation()).unwrap();
    server.replace(&before, &after, &soon()).unwrap();

    let running = server.config_get(&soon()).unwrap();
    let subnet = running.subnets().remove(0);
    let read_back = subnet.reservations.iter().find(|one| one.mac() == Some(mac())).unwrap();
    assert_eq!(read_back.ip(), reservation().ip());
    assert_eq!(read_back.hostname(), "web01");
    assert_eq!(read_back.next_server(), reservation().next_server());
    assert_eq!(read_back.boot_file_name(), "grubx64.efi");
    assert_eq!(read_back.option("tftp-server-name"), Some("10.20.0.2"));
    assert_eq!(read_back.user_context(), reservation().user_context());
    assert!(running.same_but_for(&before, 1, &[mac().into()]), "nothing else changed");

    kea.restart_server().unwrap();
    let persisted = server.config_get(&soon()).unwrap();
    assert!(persisted.same_as(&running), "a restart keeps it");
}

#[test]
fn a_reservation_written_over_the_unix_socket_survives_a_restart() {
    if !kea_here() {
        return;
    }
    let mut kea = RealKea::start(&config()).unwrap();
    let server = Server::unix(kea.socket());
    round_trip(&mut kea, &server);
}

#[test]
fn a_reservation_written_through_the_agent_with_a_password_survives_a_restart() {
    if !kea_here() {
        return;
    }
    let mut kea =
        RealKea::start_with_auth(&config(), BasicAuth { user: "anvil", password: "open sesame" }).unwrap();
    let auth = Auth::Basic { user: "anvil".into(), password: "open sesame".to_owned().into() };
    let server = agent(&kea, auth);
    round_trip(&mut kea, &server);
    let error = agent(&kea, Auth::None).config_get(&soon()).unwrap_err();
    assert!(matches!(error, Error::Unauthorized), "{error}");
}

#[test]
fn what_kea_refuses_changes_nothing_and_keeps_its_words() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let server = Server::unix(kea.socket());
    let before = server.config_get(&soon()).unwrap();
    let mut after = before.clone();
    let mut outside = reservation();
    outside.set_ip("10.99.0.10".parse().unwrap());
    after.put(1, None, outside).unwrap();
    let error = server.replace(&before, &after, &soon()).unwrap_err().to_string();
    assert!(error.contains("is not within the IPv4 subnet '10.20.0.0/24'"), "{error}");
    assert!(error.starts_with("Kea refuses config-test: "), "{error}");
    assert!(server.config_get(&soon()).unwrap().same_as(&before));
}

#[test]
fn a_change_by_somebody_else_in_between_is_not_overwritten() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let server = Server::unix(kea.socket());
    let before = server.config_get(&soon()).unwrap();
    let mut theirs = before.clone();
    theirs
        .put(9, None, {
            let mut other = Reservation::new("52:54:00:00:00:09".parse::<MacAddress>().unwrap());
            other.set_ip("10.30.0.9".parse().unwrap());
            other
        })
        .unwrap();
    server.replace(&before, &theirs, &soon()).unwrap();
    let mut ours = before.clone();
    ours.put(1, None, reservation()).unwrap();
    assert!(matches!(server.replace(&before, &ours, &soon()), Err(Error::Raced)));
    assert_eq!(server.config_get(&soon()).unwrap().subnets()[1].reservations.len(), 1, "theirs is kept");
}

#[test]
fn a_file_that_cannot_be_written_puts_the_old_configuration_back() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let server = Server::unix(kea.socket());
    let before = server.config_get(&soon()).unwrap();
    let mut after = before.clone();
    after.put(1, None, reservation()).unwrap();
    std::fs::remove_file(kea.config_path()).unwrap();
    std::fs::create_dir(kea.config_path()).unwrap();
    let error = server.replace(&before, &after, &soon()).unwrap_err();
    let Error::NotPersisted { restored: Ok(()), .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("The old configuration was put back"), "{error}");
    assert!(server.config_get(&soon()).unwrap().same_as(&before));
}

#[test]
fn leases_are_asked_for_and_forgotten() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let server = Server::unix(kea.socket());
    let ip = "10.20.0.150".parse().unwrap();
    assert_eq!(server.lease4_get(ip, &soon()).unwrap(), None);
    let lease = json!({"ip-address": "10.20.0.150", "hw-address": "52:54:00:00:00:77", "hostname": "guest"});
    server.command("lease4-add", &lease, &soon()).unwrap();
    let found = server.lease4_get(ip, &soon()).unwrap().unwrap();
    assert_eq!(found.mac, Some("52:54:00:00:00:77".parse().unwrap()));
    server.lease4_del(ip, &soon()).unwrap();
    server.lease4_del(ip, &soon()).unwrap();
    assert_eq!(server.lease4_get(ip, &soon()).unwrap(), None);
}

#[test]
fn what_this_kea_cannot_do_is_told_from_a_refusal() {
    if !kea_here() {
        return;
    }
    let mut plain = config();
    plain["Dhcp4"]["hooks-libraries"] = json!([]);
    let kea = RealKea::start(&plain).unwrap();
    let server = Server::unix(kea.socket());
    let error = server.lease4_get("10.20.0.150".parse().unwrap(), &soon()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(!server.list_commands(&soon()).unwrap().contains(&"lease4-get".to_owned()));
    let error = Server::unix("/nonexistent/kea.sock").config_get(&soon()).unwrap_err().to_string();
    assert!(error.ends_with("is kea-dhcp4 running on this host?"), "{error}");
}

#[test]
fn a_dead_server_behind_its_agent_is_said_to_be_dead() {
    if !kea_here() {
        return;
    }
    let mut kea = RealKea::start(&config()).unwrap();
    kea.stop_server().unwrap();
    let error = agent(&kea, Auth::None).config_get(&soon()).unwrap_err().to_string();
    assert!(error.contains("unable to forward command to the dhcp4 service"), "{error}");
}
