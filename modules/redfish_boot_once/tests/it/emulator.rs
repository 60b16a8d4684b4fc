//! Against the sushy-tools emulator, written by others than we.

use lab::program::{Program, with};
use lab::proxy::Proxy;
use lab::redfish::emulator::{Emulator, SERIAL};
use serde_json::{Value, json};

fn options(proxy: &Proxy) -> Value {
    json!({
        "api_host": proxy.host(), "api_port": proxy.port(), "ca_path": proxy.ca_path(), "api_user": "u",
        "api_password": "p-unused", "target": "Pxe", "power_on": true, "timeout": 90,
    })
}

#[test]
fn it_boots_the_emulated_server_once() {
    let Some(emulator) = Emulator::start() else { return };
    let module = Program::new(env!("CARGO_BIN_EXE_redfish_boot_once"));

    // As it comes, the emulator does not say which server this is.
    let bare = Proxy::to(&emulator.bare_url()).tls().start();
    let refused = module.run(&options(&bare)).failed();
    assert_eq!((&refused["error_code"], &refused["guard"]), (&json!("refused"), &json!("unknown_serial")));
    assert!(bare.log().iter().all(|one| one.method == "GET"));

    let proxy = emulator.proxy();
    let options = with(&options(proxy), json!({"serial": SERIAL, "verify_consumed": true}));
    let predicted = module.check(&options).done();
    assert!(proxy.log().iter().all(|one| one.method == "GET"));
    let made = module.run(&options).done();
    assert_eq!(made["changed"], true);
    assert_eq!(made["calls"], predicted["calls"]);
    let system = emulator.system().unwrap();
    assert_eq!(
        (&system["PowerState"], &system["Boot"]["BootSourceOverrideTarget"]),
        (&json!("On"), &json!("Pxe"))
    );

    let again = module.run(&options).failed();
    assert!(again["msg"].as_str().unwrap().contains("already on"), "{again}");
    let writes: Vec<String> =
        proxy.log().iter().filter(|one| one.method != "GET").map(|one| one.method.clone()).collect();
    assert_eq!(writes, ["PATCH", "POST"]);
}
