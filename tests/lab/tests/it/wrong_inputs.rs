//! Wrong inputs of every module, in one play: each says what is wrong, and no server sees a write.

use std::fs;

use lab::lab::{Lab, SUBNET};
use lab::opnsense;
use lab::play::Play;
use lab::pve;
use serde_json::{Map, Value, json};

/// A module, what is wrong, its arguments, the `error_code`, and words that the message must have.
type Case = (&'static str, &'static str, Value, &'static str, &'static [&'static str]);

fn vm(more: Value) -> Value {
    with(json!({"vmid": 1000, "name": "web01", "template_prefix": "fedora-server-"}), more)
}

fn with(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn reservation(more: Value) -> Value {
    with(json!({"mac": "02:a5:00:00:03:e8", "ip": "127.20.30.21", "hostname": "web01", "apply": false}), more)
}

fn record(more: Value) -> Value {
    with(
        json!({"hostname": "web01", "domain": "lab.example.org", "value": "127.20.30.21", "apply": false}),
        more,
    )
}

#[rustfmt::skip]
fn cases(inventory: &str) -> Vec<Case> {
    let identity = |more| with(json!({"host": "web01", "inventory_dir": inventory, "vmid_range": "1000-1099"}), more);
    let guest = |more| with(json!({"host": "127.20.30.21", "user": "root"}), more);
    vec![
        ("vm_identity", "an option that is none", identity(json!({"vmid_rage": "1-2"})), "bad_argument", &["vmid_rage", "vmid_range"]),
        ("vm_identity", "a range backwards", identity(json!({"vmid_range": "1099-1000"})), "bad_argument", &["vmid_range", "1099-1000"]),
        ("vm_identity", "a range beyond 24 bits", identity(json!({"vmid_range": "16777215-16777216"})), "bad_argument", &["vmid_range", "16777215"]),
        ("vm_identity", "a prefix that is not local", identity(json!({"mac_prefix": "00:50:56"})), "bad_argument", &["mac_prefix", "00:50:56"]),
        ("vm_identity", "no such host", identity(json!({"host": "web99"})), "refused", &["host_vars", "web99"]),
        ("vm_identity", "a range that the cluster fills", identity(json!({"vmid_range": "150-151"})), "refused", &["150-151", "stranger"]),
        ("kea_reservation", "no MAC address", reservation(json!({"mac": "02:a5:00"})), "bad_argument", &["mac", "02:a5:00"]),
        ("kea_reservation", "a MAC address that YAML took for a number", reservation(json!({"mac": 123_456})), "bad_argument", &["mac", "quote"]),
        ("kea_reservation", "an address outside the subnet", reservation(json!({"ip": "10.0.0.1", "subnet": SUBNET})), "bad_argument", &["10.0.0.1", SUBNET]),
        ("kea_reservation", "a subnet that is not there", reservation(json!({"ip": "10.0.0.1"})), "refused", &["10.0.0.1", SUBNET]),
        ("kea_reservation", "a full name", reservation(json!({"hostname": "web01.lab.example.org"})), "bad_argument", &["hostname", "web01"]),
        ("kea_reservation", "an address of another machine", reservation(json!({"ip": "127.20.30.50"})), "refused", &["127.20.30.50", "02:00:00:00:00:01"]),
        ("kea_reservation", "the address of another machine, with prune_stale", reservation(json!({"ip": "127.20.30.50", "prune_stale": true})), "refused", &["127.20.30.50", "02:00:00:00:00:01"]),
        ("dns_record", "no value", json!({"hostname": "web01", "domain": "lab.example.org"}), "bad_argument", &["value"]),
        ("dns_record", "a name for an address", record(json!({"value": "web02"})), "bad_argument", &["value", "web02"]),
        ("dns_record", "an IPv6 address in an A record", record(json!({"type": "A", "value": "fd00::1"})), "bad_argument", &["fd00::1"]),
        ("dns_record", "two records of the name already", record(json!({"hostname": "twice"})), "refused", &["twice", "127.20.30.60", "127.20.30.61"]),
        ("opnsense_reconfigure", "nothing to apply", json!({}), "bad_argument", &["services"]),
        ("opnsense_reconfigure", "entries of another service", json!({"services": ["kea"], "records": [record(json!({}))]}), "bad_argument", &["records"]),
        ("opnsense_reconfigure", "a reservation that is not stored", json!({"reservations": [{"mac": "02:a5:00:00:03:e8", "ip": "127.20.30.21"}]}), "read_back_mismatch", &["127.20.30.21"]),
        ("proxmox_vm_clone", "a VMID too low", vm(json!({"vmid": 99})), "bad_argument", &["vmid", "99"]),
        ("proxmox_vm_clone", "two ways to name the template", vm(json!({"template": "fedora"})), "bad_argument", &["template", "template_prefix"]),
        ("proxmox_vm_clone", "a template that is not there", vm(json!({"template_prefix": "debian-"})), "not_found", &["debian-"]),
        ("proxmox_vm_clone", "a multicast MAC address", vm(json!({"net": [{"mac": "03:a5:00:00:03:e8"}]})), "bad_argument", &["net[0].mac"]),
        ("proxmox_vm_clone", "a serial number too long", vm(json!({"disks": [{"slot": "scsi1", "storage": "local-lvm", "size": 1, "serial": "a-serial-number-too-long"}]})), "bad_argument", &["disks[0].serial", "20"]),
        ("proxmox_vm_clone", "an OS disk smaller than the template's", vm(json!({"os_disk": {"size": 5}})), "refused", &["5G", "10G"]),
        ("proxmox_vm_clone", "the VMID of another VM", vm(json!({"vmid": 150})), "refused", &["150", "stranger", "web01"]),
        ("proxmox_vm_clone", "the VMID of a container", vm(json!({"vmid": 151})), "refused", &["151", "container"]),
        ("proxmox_vm_clone", "the VMID of a template", vm(json!({"vmid": 8000})), "refused", &["8000", "template"]),
        ("proxmox_vm_clone", "the end of another VM", json!({"vmid": 150, "name": "web01", "state": "absent"}), "refused", &["150", "stranger"]),
        ("ssh_ready", "a user at the host", guest(json!({"host": "root@127.20.30.21"})), "bad_argument", &["host"]),
        ("ssh_ready", "port 0", guest(json!({"port": 0})), "bad_argument", &["port"]),
        ("ssh_ready", "a key that is not there", guest(json!({"private_key_file": "/nowhere/key"})), "bad_argument", &["private_key_file", "/nowhere/key"]),
        ("data_disk", "the root of the system", json!({"serial": "web01-srv", "path": "/"}), "bad_argument", &["path"]),
        ("data_disk", "a mode that YAML took for a number", json!({"serial": "web01-srv", "path": "/srv", "mode": 755}), "bad_argument", &["mode", "quote"]),
        ("data_disk", "mount options that break fstab", json!({"serial": "web01-srv", "path": "/srv", "opts": ["a b"]}), "bad_argument", &["opts"]),
    ]
}

fn playbook(lab: &Lab, cases: &[Case]) -> Value {
    let (mut proxmox, mut firewall) = lab.connections();
    proxmox["api_token_secret"] = pve::TOKEN_SECRET.into();
    firewall["api_secret"] = opnsense::SECRET.into();
    let connection = |module: &str| match module {
        "kea_reservation" | "dns_record" | "opnsense_reconfigure" => firewall.clone(),
        "vm_identity" | "proxmox_vm_clone" => proxmox.clone(),
        _ => json!({}),
    };
    let tasks = cases.iter().flat_map(|(module, wrong, arguments, code, words)| {
        let said = words.iter().map(|word| format!("{} in r.msg", json!(word)));
        let mut task = Map::new();
        task.insert("name".into(), format!("{module}: {wrong}").into());
        task.insert(format!("homelab.anvil.{module}"), with(connection(module), arguments.clone()));
        task.insert("register".into(), "r".into());
        task.insert("failed_when".into(), false.into());
        let that: Vec<String> = std::iter::once(format!("r.error_code == '{code}'")).chain(said).collect();
        let fail_msg = "WRONG: {{ r.error_code | default('no failure') }}: {{ r.msg | default('') }}";
        let check = json!({
            "name": format!("{module}: {wrong}: is told"),
            "ansible.builtin.assert": {"that": that, "fail_msg": fail_msg},
            // All of them, then the verdict.
            "ignore_errors": true,
        });
        [Value::Object(task), check]
    });
    json!([{"hosts": "localhost", "connection": "local", "gather_facts": false, "tasks": tasks.collect::<Vec<_>>()}])
}

#[test]
fn a_wrong_input_is_told_and_no_server_sees_a_write() {
    let cluster = lab::lab::TEMPLATES
        .iter()
        .fold(pve::FakePve::builder(), |builder, (vmid, name)| builder.template(*vmid, name, lab::lab::NODE));
    let stranger = pve::template_config(150);
    let cluster = cluster
        .vm(150, "stranger", lab::lab::NODE, with(stranger, json!({"template": 0})))
        .container(151, "stranger-ct", lab::lab::NODE, json!({"hostname": "stranger-ct"}))
        .start();
    let lab = Lab::builder().proxmox(cluster).start();
    let other = [("hw_address", "02:00:00:00:00:01"), ("ip_address", "127.20.30.50"), ("hostname", "other")];
    lab.firewall().store_reservation(SUBNET, &other);
    for address in ["127.20.30.60", "127.20.30.61"] {
        let twice = [("hostname", "twice"), ("domain", "lab.example.org"), ("rr", "A"), ("server", address)];
        lab.firewall().store_override(&twice);
    }
    let inventory = lab.directory().join("inventory");
    let cases = cases(inventory.to_str().unwrap());
    let play = lab.directory().join("wrong.yml");
    fs::write(&play, playbook(&lab, &cases).to_string()).unwrap();
    let outcome = Play::new(&lab, play.to_str().unwrap()).run();

    let wrong: Vec<&str> = outcome.output.lines().filter(|line| line.contains("WRONG: ")).collect();
    assert!(wrong.is_empty(), "{}", outcome.output);
    assert_eq!(outcome.expect_success().of("localhost").ok as usize, 2 * cases.len());
    let writes = [lab.proxmox().writes(), lab.opnsense().writes()].concat();
    assert!(writes.is_empty(), "{writes:?}");
    assert!(!inventory.join("host_vars/web01/identity.yml").exists());
    println!("{} wrong inputs of {} modules", cases.len(), 7);
}
