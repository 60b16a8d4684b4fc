//! The binary from outside: with the real ipmitool against ipmi_sim, and with a scripted one for what no simulator does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::ipmi::{FakeBmc, IpmiSim, PASSWORD, Tool, Tools};
use lab::program::{Outcome, Program, with};
use serde_json::{Value, json};

/// A module that finds this ipmitool.
struct Controller {
    tools: Tools,
    module: Program,
}

impl Controller {
    fn new(tool: Tool<'_>) -> Self {
        let tools = Tools::new(tool);
        let module = Program::new(env!("CARGO_BIN_EXE_ipmi_boot_once")).env("PATH", tools.path());
        Self { tools, module }
    }
}

fn simulator(serial: &str) -> Option<IpmiSim> {
    lab::present(lab::ipmi::installed(), "ipmitool and ipmi_sim (openipmi)")
        .then(|| IpmiSim::start(serial, true))
}

fn pxe(options: &Value, others: Value) -> Value {
    with(&with(options, json!({"serial": "SIM0001", "target": "pxe"})), others)
}

#[test]
fn with_the_real_ipmitool_it_boots_once_and_a_second_run_is_refused() {
    let Some(sim) = simulator("SIM0001") else { return };
    let controller = Controller::new(Tool::RealWithFlags);
    let options = pxe(&sim.options(), json!({}));
    let predicted = controller.module.check(&options).done();
    assert_eq!(controller.tools.writes(), [] as [&str; 0]);
    let commands =
        json!(["raw 0x00 0x08 0x03 0x08", "chassis bootdev pxe options=efiboot", "chassis power on"]);
    assert_eq!((&predicted["changed"], &predicted["commands"]), (&json!(true), &commands));
    assert_eq!(sim.done(), [] as [&str; 0]);

    let made = controller.module.run(&options).done();
    assert_eq!((&made["changed"], &made["commands"]), (&json!(true), &commands));
    assert_eq!(made["server"]["serial"], "SIM0001");
    assert_eq!(sim.done(), ["boot pxe", "power 1"]);
    assert_eq!(sim.power(), "on");

    let again = controller.module.run(&options).failed();
    assert_eq!(again["error_code"], "refused");
    assert!(again["msg"].as_str().unwrap().contains("already on"), "{again}");
    assert_eq!(sim.done(), ["boot pxe", "power 1"]);
    assert!(controller.tools.log().iter().all(|call| !call.contains(PASSWORD)), "no password in an argument");
}

#[test]
fn flags_that_a_bmc_drops_never_lead_to_a_start() {
    let Some(sim) = simulator("SIM0001") else { return };
    let controller = Controller::new(Tool::Real);
    let result = controller.module.run(&pxe(&sim.options(), json!({}))).failed();
    assert_eq!(result["error_code"], "read_back_mismatch");
    assert_eq!(result["field"], "boot_flags.valid");
    assert_eq!(sim.done(), ["boot pxe"]);
    assert_eq!(sim.power(), "off");
}

#[test]
fn with_the_real_ipmitool_another_server_and_a_wrong_password_are_refused() {
    let Some(sim) = simulator("..0000000.") else { return };
    let controller = Controller::new(Tool::Real);
    let result = controller.module.run(&pxe(&sim.options(), json!({}))).failed();
    assert_eq!((&result["error_code"], &result["guard"]), (&json!("refused"), &json!("unknown_serial")));
    let wrong = json!({"api_password": "hunter2-wrong", "timeout": 60});
    let outcome = controller.module.run(&pxe(&sim.options(), wrong));
    assert!(!outcome.output.contains("hunter2"), "{}", outcome.output);
    assert_eq!(outcome.failed()["error_code"], "unreachable");
    assert_eq!(controller.tools.writes(), [] as [&str; 0]);
    assert_eq!(sim.done(), [] as [&str; 0]);
}

fn fakebmc() -> Option<FakeBmc> {
    lab::present(FakeBmc::installed(), "ipmitool and pyghmi (make test)").then(FakeBmc::start)
}

#[test]
fn a_bmc_without_a_fru_is_refused_with_reads_alone() {
    let Some(bmc) = fakebmc() else { return };
    let controller = Controller::new(Tool::Real);
    let result = controller.module.run(&pxe(&bmc.options(), json!({}))).failed();
    assert_eq!((&result["error_code"], &result["guard"]), (&json!("refused"), &json!("unknown_serial")));
    assert_eq!((controller.tools.writes(), bmc.done()), (vec![], vec![]));
}

#[test]
fn a_bmc_that_drops_the_uefi_flag_never_starts_its_server_and_boots_it_without() {
    let Some(bmc) = fakebmc() else { return };
    let controller = Controller::new(Tool::RealWithFru);
    let dropped = controller.module.run(&pxe(&bmc.options(), json!({}))).failed();
    assert_eq!(
        (&dropped["error_code"], &dropped["field"]),
        (&json!("read_back_mismatch"), &json!("boot_flags.efi"))
    );
    assert_eq!(bmc.done(), [""; 0], "not started");

    let legacy = pxe(&bmc.options(), json!({"efi": false}));
    let made = controller.module.run(&legacy).done();
    assert_eq!((&made["changed"], &made["server"]["power"]), (&json!(true), &json!("on")));
    let again = controller.module.run(&legacy).failed();
    assert!(again["msg"].as_str().unwrap().contains("already on"), "{again}");
    assert_eq!(bmc.done(), ["powered on"]);
}

/// Says what a BMC with a server that is off says; `FLAGS` are its boot flags, `SERIAL` its serial.
const OFF: &str = r#"
case "$*" in
*"power status"*) if [ -e "$here/on" ]; then echo "Chassis Power is on"; else echo "Chassis Power is off"; fi;;
*"fru print 0"*) echo " Product Serial        : SERIAL";;
*"bootparam get 5"*) echo "Boot parameter data: FLAGS";;
*"raw 0x00 0x08 0x03 0x08"*) echo "Unable to send RAW command" >&2; exit 1;;
*"bootdev"*) echo "Set Boot Device to pxe";;
*"power on"*) touch "$here/on"; echo "Chassis Power Control: Up/On";;
esac
"#;

fn scripted(script: &str, others: Value) -> (Outcome, Tools) {
    let script = script.replace("SERIAL", "SIM0001").replace("FLAGS", "a004000000");
    let controller = Controller::new(Tool::Scripted(&script));
    let reach =
        json!({"api_host": "localhost", "api_user": "admin", "api_password": PASSWORD, "timeout": 20});
    (controller.module.run(&pxe(&reach, others)), controller.tools)
}

fn commands(tools: &Tools) -> Vec<String> {
    let command = |call: String| call.split("-R 4 ").nth(1).unwrap().replace(&format!(" {PASSWORD}"), "");
    tools.writes().into_iter().map(command).collect()
}

#[test]
fn each_rule_of_the_guard_refuses_with_reads_alone() {
    for (script, options, rule) in [
        (OFF, json!({"serial": "SIM9999"}), "serial"),
        (&OFF.replace("SERIAL", "To be filled by O.E.M."), json!({}), "unknown_serial"),
        (&OFF.replace("SERIAL", ""), json!({"serial": null}), "unknown_serial"),
        (
            "echo 'Device not present (Requested sensor, data, or record not found)' >&2; exit 1",
            json!({}),
            "unknown_serial",
        ),
        (OFF, json!({"refuse_serials": ["sim0001 "]}), "refuse_serials"),
        (OFF, json!({"serial": null, "refuse_macs": ["00:11:22:33:44:55"]}), "refuse_macs"),
        (OFF, json!({"guard": true}), "refuse_serials"),
        (OFF, json!({"refuse_addresses": ["127.0.0.1"]}), "refuse_addresses"),
    ] {
        let (outcome, tools) = scripted(script, options);
        let result = outcome.failed();
        assert_eq!((&result["error_code"], &result["guard"]), (&json!("refused"), &json!(rule)), "{result}");
        assert_eq!(tools.writes(), [] as [&str; 0]);
        if matches!(rule, "refuse_addresses") {
            assert_eq!(tools.log(), [] as [&str; 0], "not talked to at all");
        }
    }
}

#[test]
fn a_refused_boot_device_never_leads_to_a_start() {
    let lies = OFF.replace("Set Boot Device to pxe", "Set Chassis Boot Parameter 5 failed");
    let (outcome, tools) = scripted(&lies, json!({}));
    let result = outcome.failed();
    assert_eq!(result["error_code"], "api_error");
    assert!(result["msg"].as_str().unwrap().contains("Set Chassis Boot Parameter 5 failed"), "{result}");
    assert_eq!(commands(&tools), ["raw 0x00 0x08 0x03 0x08", "chassis bootdev pxe options=efiboot"]);
}

#[test]
fn dropped_and_stale_flags_are_told_by_field() {
    for (flags, field) in [
        ("8004000000", "boot_flags.efi"),
        ("2004000000", "boot_flags.valid"),
        ("e004000000", "boot_flags.persistent"),
        ("a008000000", "boot_flags.device"),
    ] {
        let (outcome, tools) = scripted(&OFF.replace("FLAGS", flags), json!({}));
        let result = outcome.failed();
        assert_eq!((&result["error_code"], &result["field"]), (&json!("read_back_mismatch"), &json!(field)));
        assert_eq!(commands(&tools).len(), 2, "no start");
    }
    let (outcome, _) = scripted(&OFF.replace("FLAGS", "8004000000"), json!({"efi": false}));
    assert_eq!(outcome.done()["changed"], true);
}

#[test]
fn without_a_start_it_warns_of_the_minute_and_is_content_with_what_is_set() {
    let (outcome, tools) = scripted(OFF, json!({"power_on": false}));
    let result = outcome.done();
    assert_eq!((&result["changed"], &result["commands"]), (&json!(false), &json!([])));
    assert!(result["warnings"][0].as_str().unwrap().contains("60 seconds"), "{result}");
    assert_eq!(tools.writes(), [] as [&str; 0]);
}

#[test]
fn what_ipmitool_would_take_for_an_option_is_no_host() {
    for (options, option) in
        [(json!({"api_host": "-x"}), "api_host"), (json!({"api_user": "-x"}), "api_user")]
    {
        let (outcome, tools) = scripted(OFF, options);
        assert_eq!(outcome.failed()["option"], option);
        assert_eq!(tools.log(), [] as [&str; 0]);
    }
}
