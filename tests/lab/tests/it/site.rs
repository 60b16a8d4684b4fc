//! `playbooks/site.yml`, run by the real `ansible-playbook` on the whole lab.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lab::lab::Lab;
use lab::opnsense::Fault;
use lab::play::{Outcome, Play, kill_tree};
use lab::proxy::{Fate, Proxy};

const HOST: &str = "web01";
const MAC: &str = "02:a5:00:00:03:e8";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 20, 30, 21);

fn site(lab: &Lab) -> Play<'_> {
    Play::site(lab, HOST)
}

fn requests(lab: &Lab) -> usize {
    lab.proxmox().log().len() + lab.opnsense().log().len()
}

fn writes(lab: &Lab) -> Vec<String> {
    let both = [lab.proxmox().writes(), lab.opnsense().writes()];
    both.concat().iter().map(ToString::to_string).collect()
}

/// VMIDs of everything that is no template.
fn machines(lab: &Lab) -> Vec<u64> {
    let vms = lab.pve().vms();
    vms.iter().filter(|vm| vm["template"] != 1).filter_map(|vm| vm["vmid"].as_u64()).collect()
}

/// One VM, one reservation, one record, each as declared and in effect.
fn assert_built(lab: &Lab) {
    assert_eq!(machines(lab), [1000]);
    let config = lab.pve().vm_config(1000);
    let text = |key: &str| config[key].as_str().unwrap_or_default().to_lowercase();
    assert_eq!(text("net0"), format!("virtio={MAC},bridge=vmbr0,tag=30"));
    assert!(text("scsi0").contains("size=64g"), "{config}");
    assert!(text("scsi1").contains("serial=web01-srv") && text("scsi1").contains("size=20g"), "{config}");
    assert_eq!(
        (text("name").as_str(), &config["cores"], text("memory").as_str()),
        ("web01", &2.into(), "4096")
    );
    assert_eq!(config["lock"], serde_json::Value::Null);
    let unused: Vec<_> = config.as_object().unwrap().keys().filter(|key| key.starts_with("unused")).collect();
    assert!(unused.is_empty(), "{unused:?}");
    assert_eq!(lab.pve().vm_status(1000), "running");
    assert_eq!(lab.guest_address(1000), Some(ADDRESS), "{:?}", lab.events());

    for reservations in [lab.firewall().stored_reservations(), lab.firewall().live_reservations()] {
        assert_eq!(reservations.len(), 1, "{reservations:?}");
        assert_eq!(
            (reservations[0].hw_address.as_str(), reservations[0].ip_address.as_str()),
            (MAC, "127.20.30.21")
        );
    }
    assert_eq!(lab.firewall().stored_overrides().len(), 1);
    let records = lab.firewall().live_records();
    let records: Vec<_> = records
        .iter()
        .map(|record| (record.name.as_str(), record.rr.as_str(), record.value.as_str()))
        .collect();
    assert_eq!(
        records,
        [("web01.lab.example.org", "A", "127.20.30.21"), ("127.20.30.21", "PTR", "web01.lab.example.org")]
    );
    let pinned = fs::read_to_string(lab.known_hosts()).unwrap_or_default();
    assert!(pinned.contains("[127.20.30.21]:"), "{pinned}");
}

#[test]
fn a_check_predicts_a_run_builds_and_a_second_run_changes_nothing() {
    let lab = Lab::start();
    let predicted = site(&lab).args(["--check", "--diff"]).run().expect_success();
    assert_eq!(writes(&lab), [""; 0]);
    assert!(predicted.output.contains("skipped: not built yet"), "{}", predicted.output);
    assert!(predicted.of(HOST).changed > 0);
    assert!(!lab.directory().join("inventory/host_vars/web01/identity.yml").exists());
    assert!(machines(&lab).is_empty() && lab.firewall().stored_reservations().is_empty());

    let built = site(&lab).run().expect_success();
    assert!(built.of(HOST).changed >= 4, "{:?}", built.of(HOST));
    assert_built(&lab);

    lab.proxmox().forget();
    lab.opnsense().forget();
    let again = site(&lab).run().expect_success();
    let proxmox: Vec<String> = lab.proxmox().log().iter().map(ToString::to_string).collect();
    let opnsense: Vec<String> = lab.opnsense().log().iter().map(ToString::to_string).collect();
    println!("second run: {} requests to Proxmox VE, {} to OPNsense", proxmox.len(), opnsense.len());
    println!("{}\n{}", proxmox.join("\n"), opnsense.join("\n"));
    assert_eq!((again.of(HOST).changed, writes(&lab).len()), (0, 0), "{}", again.output);
    assert!(proxmox.len() <= 3, "{proxmox:?}");
    assert_built(&lab);

    let unchanged = site(&lab).args(["--check", "--diff"]).run().expect_success();
    assert_eq!(unchanged.of(HOST).changed, 0);
    assert!(!unchanged.output.contains("skipped: not built yet"));
}

#[test]
fn many_hosts_get_different_identities_and_one_reconfigure() {
    let lab = Lab::start();
    let built = Play::new(&lab, "playbooks/site.yml").run().expect_success();
    assert_eq!((built.of("web01").failed, built.of("web02").failed), (0, 0));
    assert_eq!(machines(&lab).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1000, 1001]));
    assert_eq!(lab.firewall().live_reservations().len(), 2);
    for service in ["/kea/service/reconfigure", "/unbound/service/reconfigure"] {
        let applied =
            lab.opnsense().log().into_iter().filter(|request| request.path.contains(service)).count();
        assert_eq!(applied, 1, "{service}");
    }

    lab.proxmox().forget();
    lab.opnsense().forget();
    let again = Play::new(&lab, "playbooks/site.yml").args(["-e", "anvil_serial=1"]).run().expect_success();
    assert_eq!((again.of("web01").changed, again.of("web02").changed, writes(&lab).len()), (0, 0, 0));
    assert!(lab.proxmox().log().len() <= 6, "{:?}", lab.proxmox().log());
}

#[test]
fn a_step_alone_asserts_that_the_one_before_it_holds() {
    let lab = Lab::start();
    for (tag, words) in [("dhcp", "Run the identity step first"), ("build", "Run the identity step first")] {
        let refused = site(&lab).args(["--tags", tag]).run().expect_failure();
        assert!(refused.output.contains(words), "{tag}: {}", refused.output);
    }
    site(&lab).args(["--tags", "identity"]).run().expect_success();
    for tag in ["dns", "build"] {
        let refused = site(&lab).args(["--tags", tag]).run().expect_failure();
        assert!(refused.output.contains("Run the DHCP step first"), "{tag}: {}", refused.output);
    }
    assert_eq!(writes(&lab), [""; 0]);
    site(&lab).args(["--tags", "dhcp"]).run().expect_success();
    let refused = site(&lab).args(["--tags", "build"]).run().expect_failure();
    assert!(refused.output.contains("Run the DNS step first"), "{}", refused.output);
    assert!(machines(&lab).is_empty());
    site(&lab).args(["--tags", "dns"]).run().expect_success();
    site(&lab).args(["--tags", "build"]).run().expect_success();
    site(&lab).args(["--tags", "guest"]).run().expect_success();
    assert_built(&lab);
}

#[test]
fn a_host_declares_itself_and_no_other() {
    let lab = Lab::start();
    let refused = |arguments: &[&str], words: &[&str]| {
        let outcome = site(&lab).args(arguments).run().expect_failure();
        for word in words {
            assert!(outcome.output.contains(word), "expected {word:?}:\n{}", outcome.output);
        }
    };
    let empty_mac = ["-e", "anvil_assigned_vmid=1000", "-e", "anvil_assigned_mac="];
    refused(&empty_mac, &["Run the identity step first"]);

    // web02's address, as if both had got it from a group.
    let own = lab.directory().join("inventory/host_vars/web01/vars.yml");
    let text = fs::read_to_string(&own).unwrap();
    fs::write(&own, text.replace("127.20.30.21", "127.20.30.22")).unwrap();
    refused(&[], &["127.20.30.22 is declared for web01 and for web02"]);

    let (before, rest) = text.split_once("infrastructure:").unwrap();
    let (infrastructure, rest) = rest.split_once("mgmt_vm:").unwrap();
    fs::write(&own, format!("{before}mgmt_vm:{rest}")).unwrap();
    let group = lab.directory().join("inventory/group_vars/management_plane/infrastructure.yml");
    fs::write(group, format!("infrastructure:{infrastructure}")).unwrap();
    refused(&[], &["expected `infrastructure` in", "found it in a group"]);
    assert_eq!(writes(&lab), [""; 0]);
}

/// How many requests a whole run makes.
fn whole_job() -> usize {
    static REQUESTS: OnceLock<usize> = OnceLock::new();
    *REQUESTS.get_or_init(|| {
        let lab = Lab::start();
        site(&lab).run().expect_success();
        requests(&lab)
    })
}

/// Kills the play when the two servers together see request `number`, which then is carried out or not.
fn kill_at(lab: &Lab, number: usize, fate: Fate) -> Outcome {
    let seen = Arc::new(AtomicUsize::new(0));
    let pid = Arc::new(OnceLock::new());
    for proxy in [lab.proxmox(), lab.opnsense()] {
        let (seen, pid) = (Arc::clone(&seen), Arc::clone(&pid));
        proxy.on("*", "").call(move || {
            if seen.fetch_add(1, Ordering::SeqCst) + 1 != number {
                return Fate::Forward;
            }
            let _ = kill_tree(*pid.wait());
            fate
        });
    }
    let play = site(lab).spawn().unwrap();
    pid.set(play.pid()).unwrap();
    let outcome = play.wait().unwrap();
    for proxy in [lab.proxmox(), lab.opnsense()] {
        proxy.clear_faults();
    }
    outcome
}

fn survives_a_kill(part: usize, of: usize) {
    let number = 1 + part * (whole_job() - 1) / (of - 1);
    let fate = if part.is_multiple_of(2) { Fate::Forward } else { Fate::Drop };
    let lab = Lab::start();
    let killed = kill_at(&lab, number, fate);
    assert!(killed.recap.is_empty(), "the play outlived request {number}:\n{}", killed.output);
    site(&lab).run().expect_success();
    assert_built(&lab);
    println!("killed at request {number} of {} ({fate:?}): the next run converged", whole_job());
}

#[test]
fn a_run_killed_at_any_request_is_finished_by_the_next_one() {
    const PARTS: usize = 12;
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || (half..PARTS).step_by(2).for_each(|part| survives_a_kill(part, PARTS)));
        }
    });
}

/// The failure names the field, the play stops, and no VM runs.
fn assert_stopped(lab: &Lab, outcome: &Outcome, words: &[&str]) {
    for word in words {
        assert!(outcome.output.contains(word), "expected {word:?}:\n{}", outcome.output);
    }
    for vmid in machines(lab) {
        assert_eq!(lab.pve().vm_status(u32::try_from(vmid).unwrap()), "stopped");
    }
    assert!(lab.events().is_empty(), "{:?}", lab.events());
}

#[test]
fn a_mac_address_that_did_not_take_stops_the_play_before_the_start() {
    let lab = Lab::start();
    strip(lab.proxmox(), &format!("%3D{}", MAC.to_uppercase().replace(':', "%3A")));
    strip(lab.proxmox(), &format!("%3D{}", MAC.replace(':', "%3A")));
    let stopped = site(&lab).run().expect_failure();
    assert_stopped(&lab, &stopped, &["read_back_mismatch", "net0", MAC]);
}

#[test]
fn a_serial_number_that_did_not_take_stops_the_play_before_the_start() {
    let lab = Lab::start();
    strip(lab.proxmox(), "%2Cserial%3Dweb01-srv");
    let stopped = site(&lab).run().expect_failure();
    assert_stopped(&lab, &stopped, &["read_back_mismatch", "scsi1", "serial", "web01-srv"]);
}

/// Takes `text` out of every configuration that is sent to Proxmox VE.
fn strip(proxmox: &Proxy, text: &str) {
    let text = text.to_owned();
    proxmox.on("*", "/config").rewrite_request(move |body| body.replace(&text, ""));
}

#[test]
fn a_boot_server_that_is_dropped_stops_the_play_before_the_clone() {
    let lab = Lab::start();
    let vars = lab.directory().join("inventory/host_vars/web01/vars.yml");
    let text = fs::read_to_string(&vars).unwrap();
    let pxe = "      pxe_boot:\n        tftp_server: 127.20.30.2\n        boot_file: grubx64.efi\n";
    let name = "      dns_name: web01.lab.example.org\n";
    fs::write(&vars, text.replace(name, &format!("{name}{pxe}"))).unwrap();
    lab.firewall().inject(Fault::IgnoresField("next_server"));
    let stopped = site(&lab).run().expect_failure();
    assert_stopped(&lab, &stopped, &["read_back_mismatch", "next_server", "127.20.30.2"]);
    assert!(machines(&lab).is_empty());

    lab.firewall().heal();
    site(&lab).run().expect_success();
    let live = lab.firewall().live_reservations();
    assert_eq!(
        (live[0].next_server.as_str(), live[0].boot_file_name.as_str()),
        ("127.20.30.2", "grubx64.efi")
    );
}

#[test]
fn a_pool_lease_is_its_own_failure() {
    let lab = Lab::start();
    lab.firewall().inject(Fault::PoolAddressFor(MAC.into()));
    let stopped = site(&lab).args(["-e", "guest_ready_timeout=30"]).run().expect_failure();
    for word in ["wrong_address", "127.20.30.2", "127.20.30.21"] {
        assert!(stopped.output.contains(word), "expected {word:?}:\n{}", stopped.output);
    }
    assert!(stopped.took < Duration::from_secs(60), "a lease is seen at once, not by a time-out");
    assert_ne!(lab.guest_address(1000), Some(ADDRESS));
}
