//! How a change outlives a restart of a real Kea that may not write its own file, and of one that keeps no leases.

use std::os::unix::fs::MetadataExt;

use lab::kea::RealKea;
use serde_json::{Value, json};

use crate::plain_kea::{config, kea_here, module, over_socket, reservations};
use crate::{web01, web01_with};

fn root_with_kea_here() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    kea_here() && lab::present(is_root, "what runs a Kea as another user (root)")
}

/// As Debian 12 installs it: Kea has a user of its own, and its file belongs to root.
#[test]
fn root_writes_the_file_of_a_kea_that_may_not() {
    if !root_with_kea_here() {
        return;
    }
    let mut kea = RealKea::start_unprivileged(&config()).unwrap();
    let (module, before) = (module(), std::fs::read(kea.config_path()).unwrap());
    let refused = module.run(&over_socket(&kea, web01())).failed();
    assert_eq!(refused["error_code"], "not_persisted");
    let msg = refused["msg"].as_str().unwrap();
    assert!(msg.contains("The old configuration was put back") && msg.contains("`persist: file`"), "{msg}");
    assert_eq!(reservations(&kea).len(), 2);

    let options = over_socket(&kea, web01_with(json!({"persist": "file"})));
    assert_eq!(module.check(&options).done()["changed"], true);
    assert_eq!(std::fs::read(kea.config_path()).unwrap(), before, "check mode only reads");
    let owner = std::fs::metadata(kea.config_path()).unwrap();
    assert_eq!(module.run(&options).done()["changed"], true);
    let written = std::fs::metadata(kea.config_path()).unwrap();
    assert_eq!((written.uid(), written.mode()), (owner.uid(), owner.mode()));
    let beside: Vec<_> = std::fs::read_dir(kea.config_path().parent().unwrap()).unwrap().flatten().collect();
    assert!(
        !beside.iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".anvil")),
        "{beside:?}"
    );
    kea.restart_server().unwrap();
    assert_eq!(module.run(&options).done()["changed"], false, "it outlives a restart");
    assert_eq!(reservations(&kea).len(), 3);
}

#[test]
fn a_file_that_cannot_be_replaced_leaves_the_old_configuration() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let (module, before) = (module(), reservations(&kea));
    let options = over_socket(&kea, web01_with(json!({"persist": "file"})));
    std::fs::remove_file(kea.config_path()).unwrap();
    std::fs::create_dir(kea.config_path()).unwrap();
    let refused = module.run(&options).failed();
    assert_eq!(refused["error_code"], "not_persisted");
    assert!(refused["msg"].as_str().unwrap().contains("it is no regular file"), "{refused}");
    assert_eq!(reservations(&kea), before);
    std::fs::remove_dir(kea.config_path()).unwrap();
    assert_eq!(module.run(&options).done()["changed"], true);
    assert!(kea.config_file().unwrap().to_string().contains("02:a5:00:00:00:65"));
    let another = over_socket(
        &kea,
        web01_with(
            json!({"persist": "file", "kea_config_file": "/etc/kea/kea-dhcp4.conf", "ip": "10.20.0.22"}),
        ),
    );
    let refused = module.run(&another).failed();
    assert_eq!(refused["option"], "kea_config_file");
    assert!(refused["msg"].as_str().unwrap().contains(&kea.config_path().display().to_string()), "{refused}");
}

/// `config-set` would empty a lease database that is in memory only.
#[test]
fn leases_in_memory_are_not_forgotten() {
    if !kea_here() {
        return;
    }
    let kea = RealKea::start(&config()).unwrap();
    let mut volatile = kea.command("config-get", None).unwrap()["arguments"].clone();
    volatile["Dhcp4"]["lease-database"] = json!({"type": "memfile", "persist": false});
    assert_eq!(kea.command("config-set", Some(volatile)).unwrap()["result"], 0);
    let lease = json!({"ip-address": "10.20.0.77", "hw-address": "52:54:00:00:00:77"});
    kea.command("lease4-add", Some(lease)).unwrap();
    let refused = module().run(&over_socket(&kea, web01())).failed();
    assert_eq!(refused["error_code"], "refused");
    assert!(refused["msg"].as_str().unwrap().contains("persist false"), "{refused}");
    let held = |kea: &RealKea| {
        kea.command("lease4-get", Some(json!({"ip-address": "10.20.0.77"}))).unwrap()["result"].clone()
    };
    assert_eq!(held(&kea), 0);
    let running: Value = kea.command("config-get", None).unwrap()["arguments"].clone();
    assert_eq!(kea.command("config-set", Some(running)).unwrap()["result"], 0);
    assert_eq!(held(&kea), 3, "this is why");
}
