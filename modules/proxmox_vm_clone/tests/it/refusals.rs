//! What is wrong is said before anything is written.

use lab::pve::{FakePve, TOKEN_USER, template_config};
use serde_json::{Value, json};

use crate::{Site, house, web01, web01_with};

/// The code and the message of a refusal; no write was sent.
fn refused(site: &Site, options: &Value) -> (String, String) {
    site.proxy.forget();
    let result = site.failed(options);
    assert!(site.proxy.writes().is_empty(), "{:?}", site.proxy.writes());
    let text = |key: &str| result[key].as_str().unwrap().to_owned();
    (text("error_code"), text("msg"))
}

#[test]
fn bad_arguments_are_told_without_asking_anybody() {
    let site = Site::new(house());
    for (options, part) in [
        (json!({"vmid": 0}), "0, which means not assigned"),
        (json!({"vmid": 99}), "from 100 to 999999999"),
        (json!({"name": "web_01"}), "web_01"),
        (json!({"vmid": 8042, "template_prefix": null, "template_vmid": 8042}), "VMID of its template"),
        (json!({"template": "x"}), "only one of"),
        (json!({"full": false, "storage": "local-lvm"}), "needs `full: true`"),
        (json!({"cores": 0}), "expected 1 to 1024"),
        (json!({"balloon": 9000}), "is more than memory"),
        (json!({"net": [{"mac": 1}]}), "quote it"),
        (json!({"net": [{"mac": "01:00:5e:00:00:01"}]}), "multicast"),
        (json!({"net": [{"mac": ""}]}), "MAC address"),
        (json!({"net": [{"bridge": ""}]}), "expected the name of a bridge"),
        (json!({"net": [{"slot": "eth0"}]}), "expected net0 to net31"),
        (json!({"net": [{}, {}]}), "given twice"),
        (json!({"net": [{"vlan": 4095}]}), "expected 0 to 4094"),
        (json!({"disks": [{"slot": "scsi31", "storage": "a", "size": 1}]}), "scsi0-30"),
        (json!({"disks": [{"slot": "scsi1", "storage": "a", "size": "500M"}]}), "whole number of GiB"),
        (json!({"disks": [{"slot": "scsi1", "storage": "a", "size": 1, "serial": "a b"}]}), "20 of A-Z"),
        (json!({"os_disk": {"size": "big"}}), "expected a number"),
        (json!({"os_disk": {"slot": "scsi1", "size": 9}}), "is the OS disk"),
        (json!({"tags": ["a b/c"]}), "not a tag"),
        (json!({"cloud_init": {"ssh_keys": ["/root/.ssh/id.pub"]}}), "text of a public key"),
        (json!({"cloud_init": {"ip_config": [{"ip": "10.0.0.5"}]}}), "10.0.0.5"),
        (json!({"snapname": "s"}), "a prefix finds templates only"),
        (json!({"rng": "/dev/zero"}), "expected /dev/urandom, /dev/random, /dev/hwrng"),
        (json!({"vmid": 999_999_999, "rebuild_os_disk": true}), "make no VMID"),
        (json!({"restart": true, "state": "present"}), "goes with `state: started`"),
        (json!({"delete": ["scsi1"]}), "a disk is not removed"),
        (json!({"delete": ["net0"]}), "the task sets it as well"),
        (json!({"delete": ["name"]}), "no setting to remove"),
        (json!({"delete": ["a,force=1"]}), "name of a setting"),
        (json!({"state": "running"}), "expected one of present, started, stopped, absent"),
        (json!({"api_user": "root"}), "user with its realm"),
        (json!({"api_host": "https://pve1"}), "leave out https://"),
        (json!({"tls_fingerprint": "AA:BB"}), "SHA-256"),
    ] {
        let options = web01_with(options);
        let (code, msg) = refused(&site, &options);
        assert_eq!(code, "bad_argument", "{options}: {msg}");
        assert!(msg.contains(part), "{part}: {msg}");
        assert!(site.proxy.log().is_empty(), "{options}");
    }
}

#[test]
fn a_vmid_of_somebody_else_is_refused_with_what_was_found() {
    let site = Site::new(house().vm(200, "db01", "pve1", json!({})).container(300, "dns", "pve1", json!({})));
    for (vmid, part) in [
        (200, "expected the name `web01`, found `db01`"),
        (300, "belongs to a container: dns (container 300 on pve1)"),
        (8099, "is a template (fedora-server-9)"),
    ] {
        for state in ["started", "absent"] {
            let (code, msg) = refused(&site, &web01_with(json!({"vmid": vmid, "state": state})));
            assert_eq!(code, "refused", "{msg}");
            assert!(msg.contains(part), "{part}: {msg}");
        }
    }
}

#[test]
fn a_vmid_this_user_may_not_see_is_refused() {
    let privileges = ["VM.Audit", "VM.Clone", "VM.Allocate", "Datastore.AllocateSpace", "Datastore.Audit"];
    let site = Site::new(
        house().vm(1101, "secret", "pve1", json!({})).grant(TOKEN_USER, "/vms/8042", &privileges).grant(
            TOKEN_USER,
            "/storage",
            &privileges,
        ),
    );
    let (code, msg) = refused(&site, &web01());
    assert_eq!(code, "refused", "{msg}");
    assert!(msg.contains("taken by a guest that this user may not see"), "{msg}");
}

#[test]
fn a_missing_privilege_says_what_to_grant() {
    let site = Site::new(house().grant(TOKEN_USER, "/vms/8042", &["VM.Audit", "VM.Clone"]));
    let result = site.failed(&web01());
    assert_eq!(result["error_code"], "auth", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("VM.Allocate on /vms/1101 or on the pool"), "{result}");
}

#[test]
fn a_template_that_cannot_be_told_is_refused() {
    let site = Site::new(FakePve::builder().template(8001, "f-42", "pve1").template(8002, "f-42", "pve2"));
    let (code, msg) = refused(&site, &web01_with(json!({"template_prefix": "f-"})));
    assert_eq!(code, "refused");
    assert!(msg.contains("f-42 (VMID 8001 on pve1), f-42 (VMID 8002 on pve2)"), "{msg}");

    let (code, msg) = refused(&site, &web01_with(json!({"template_prefix": "g-"})));
    assert_eq!(code, "not_found");
    assert!(msg.contains("There are: f-42 (VMID 8001 on pve1)"), "{msg}");

    let (code, msg) = refused(&site, &web01_with(json!({"template_prefix": null})));
    assert_eq!(code, "not_found");
    assert!(msg.contains("names no template"), "{msg}");
}

#[test]
fn disks_are_never_shrunk_re_created_or_taken_for_others() {
    let mut config = template_config(1101);
    config["template"] = json!(0);
    config["scsi1"] = json!("local-lvm:vm-1101-disk-1,serial=other,size=100G");
    config["scsi2"] = json!("local-lvm:vm-1101-disk-2,size=50G");
    let site = Site::new(house().vm(1101, "web01", "pve1", config));
    let disk = |slot: &str| json!({"disks": [{"slot": slot, "storage": "local-lvm", "size": 100, "serial": "web01-data"}]});
    for (options, part) in [
        (
            json!({"os_disk": {"size": 8}, "disks": []}),
            "has 10G, the task asks for 8G; a disk is never shrunk",
        ),
        (disk("scsi1"), "the serial `other` instead of `web01-data`"),
        (disk("scsi2"), "found one of 50G"),
        (disk("scsi0"), "the disk the virtual machine boots from"),
        (disk("ide2"), "a CD-ROM drive"),
        (json!({"boot_order": ["scsi9"], "disks": []}), "no device `scsi9`; it has"),
        (json!({"os_disk": {"slot": "virtio0", "size": 40}, "disks": []}), "there is no disk in virtio0"),
    ] {
        let (code, msg) = refused(&site, &web01_with(options.clone()));
        assert_eq!(code, "refused", "{options}: {msg}");
        assert!(msg.contains(part), "{part}: {msg}");
    }
}

#[test]
fn a_certificate_nobody_vouches_for_gets_no_credential() {
    let site = Site::new(house());
    let (code, msg) = refused(&site, &web01_with(json!({"ca_path": null})));
    assert_eq!(code, "tls", "{msg}");
    assert!(msg.contains("tls_fingerprint") && msg.contains("ca_path"), "{msg}");
    assert!(site.proxy.log().is_empty());

    let pinned =
        web01_with(json!({"ca_path": null, "tls_fingerprint": site.proxy.fingerprint(), "state": "absent"}));
    assert_eq!(site.done(&pinned)["changed"], false);
}

#[test]
fn a_wrong_token_is_told_with_what_to_check() {
    let site = Site::new(house());
    let result = site.failed(&web01_with(json!({"api_token_secret": "wrong-secret"})));
    assert_eq!((&result["error_code"], &result["status"]), (&json!("auth"), &json!(401)), "{result}");
    let msg = result["msg"].as_str().unwrap();
    for part in [
        "The API token anvil@pve!lab was refused",
        "pveum user token list anvil@pve",
        "not the user's password",
    ] {
        assert!(msg.contains(part), "{part}: {msg}");
    }
    assert!(!msg.contains("wrong-secret"), "{msg}");

    let password = json!({
        "api_user": "root@pam", "api_password": "wrong", "api_token_id": null, "api_token_secret": null,
    });
    let msg = site.failed(&web01_with(password))["msg"].as_str().unwrap().to_owned();
    assert!(msg.contains("The password of root@pam was refused") && msg.contains("realm"), "{msg}");
}
