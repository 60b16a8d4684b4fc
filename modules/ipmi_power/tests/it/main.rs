//! The binary from outside, with the real ipmitool against ipmi_sim.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::ipmi::{FakeBmc, IpmiSim, PASSWORD, Tool, Tools};
use lab::program::{Outcome, Program, with};
use serde_json::{Value, json};

struct Site {
    sim: IpmiSim,
    tools: Tools,
    module: Program,
}

impl Site {
    /// `None`, said so, where the programs are missing.
    fn new(obedient: bool) -> Option<Self> {
        if !lab::present(lab::ipmi::installed(), "ipmitool and ipmi_sim (openipmi)") {
            return None;
        }
        let tools = Tools::new(Tool::Real);
        let module = Program::new(env!("CARGO_BIN_EXE_ipmi_power")).env("PATH", tools.path());
        Some(Self { sim: IpmiSim::start("SIM0001", obedient), tools, module })
    }

    fn options(&self, others: Value) -> Value {
        with(&with(&self.sim.options(), json!({"serial": "SIM0001"})), others)
    }

    fn run(&self, others: Value) -> Outcome {
        self.module.run(&self.options(others))
    }
}

#[test]
fn on_and_gently_off_and_each_only_once() {
    let Some(site) = Site::new(true) else { return };
    for (state, command, done) in [
        ("on", "chassis power on", &["power 1"][..]),
        ("off", "chassis power soft", &["power 1", "shutdown 1"]),
    ] {
        let options = site.options(json!({"state": state}));
        let before = site.tools.writes();
        let predicted = site.module.check(&options).done();
        assert_eq!(site.tools.writes(), before, "check mode only reads");
        let made = site.module.run(&options).done();
        assert_eq!((&made["changed"], &made["commands"]), (&json!(true), &json!([command])));
        assert_eq!(made["commands"], predicted["commands"]);
        assert_eq!(site.module.run(&options).done()["changed"], false);
        assert_eq!(site.sim.done(), done);
        assert_eq!(site.sim.power(), state);
    }
    assert!(site.tools.log().iter().all(|call| !call.contains(PASSWORD)), "no password in an argument");
}

#[test]
fn with_pyghmis_bmc_it_is_on_and_gently_off() {
    if !lab::present(FakeBmc::installed(), "ipmitool and pyghmi (make test)") {
        return;
    }
    let bmc = FakeBmc::start();
    let tools = Tools::new(Tool::RealWithFru);
    let module = Program::new(env!("CARGO_BIN_EXE_ipmi_power")).env("PATH", tools.path());
    for state in ["on", "off"] {
        let options = with(&bmc.options(), json!({"serial": "SIM0001", "state": state}));
        assert_eq!(module.check(&options).done()["changed"], true);
        assert_eq!(module.run(&options).done()["changed"], true);
        assert_eq!(module.run(&options).done()["changed"], false);
    }
    assert_eq!(bmc.done(), ["powered on", "politely shut down the system"]);
}

#[test]
fn a_server_that_stays_on_is_a_failure_and_nothing_is_forced() {
    let Some(site) = Site::new(false) else { return };
    site.sim.set_power(true);
    let result = site.run(json!({"state": "off", "timeout": 4})).failed();
    assert_eq!((&result["error_code"], &result["power"]), (&json!("timeout"), &json!("on")));
    assert_eq!(site.sim.done(), ["shutdown 1"], "asked once");
    let waited = site.run(json!({"state": "off", "wait_only": true, "timeout": 3})).failed();
    assert_eq!(waited["error_code"], "timeout");
    assert_eq!(site.run(json!({"state": "on", "wait_only": true})).done()["changed"], false);
    assert_eq!(site.sim.done(), ["shutdown 1"]);
}

#[test]
fn the_guard_stands_before_it() {
    let Some(site) = Site::new(true) else { return };
    for (options, rule) in [
        (json!({"serial": "SIM9999"}), "serial"),
        (json!({"refuse_serials": ["SIM0001"]}), "refuse_serials"),
        (json!({"serial": null, "refuse_macs": ["00:11:22:33:44:55"]}), "refuse_macs"),
        (json!({"guard": true}), "refuse_serials"),
    ] {
        let result = site.run(with(&json!({"state": "on"}), options)).failed();
        assert_eq!((&result["error_code"], &result["guard"]), (&json!("refused"), &json!(rule)));
    }
    assert_eq!(site.sim.done(), [] as [&str; 0]);
    assert_eq!(site.tools.writes(), [] as [&str; 0]);
}
