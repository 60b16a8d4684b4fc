//! The binary from outside, against a double of a BMC.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::program::{Outcome, Program, with};
use lab::proxy::Proxy;
use lab::redfish::{Builder, Quirk, RedfishDouble, Tree};
use serde_json::{Value, json};

const SYSTEM: &str = "/redfish/v1/Systems/1";
const ON: &str = r#"POST ComputerSystem.Reset {"ResetType":"On"}"#;
const GRACEFUL: &str = r#"POST ComputerSystem.Reset {"ResetType":"GracefulShutdown"}"#;
const PRESS: &str = r#"POST ComputerSystem.Reset {"ResetType":"PushPowerButton"}"#;

struct Site {
    bmc: RedfishDouble,
    module: Program,
}

impl Site {
    fn new(tree: Tree, power: &str, quirks: &[Quirk]) -> Self {
        let bmc = quirks.iter().cloned().fold(RedfishDouble::builder(tree), Builder::quirk).start();
        bmc.set_power(power);
        Self { bmc, module: Program::new(env!("CARGO_BIN_EXE_redfish_power")) }
    }

    fn plain(power: &str, quirks: &[Quirk]) -> Self {
        Self::new(Tree::plain(), power, quirks)
    }

    fn options(&self, others: Value) -> Value {
        with(&self.bmc.options(), others)
    }

    fn run(&self, others: Value) -> Outcome {
        self.module.run(&self.options(others))
    }
}

#[test]
fn off_is_asked_for_gently_and_a_second_run_finds_nothing_to_do() {
    for (tree, down) in [(Tree::plain(), GRACEFUL), (Tree::idrac8(), PRESS)] {
        let site = Site::new(tree, "On", &[]);
        let off = site.options(json!({"state": "off"}));
        let predicted = site.module.check(&off).done();
        assert!(site.bmc.was_only_read());
        assert_eq!(predicted["changed"], true);
        let made = site.module.run(&off).done();
        assert_eq!(made["calls"], predicted["calls"]);
        assert_eq!(made["system"]["power_state"], "Off");
        assert_eq!(site.bmc.writes(), [down]);
        let again = site.module.run(&off).done();
        assert_eq!((&again["changed"], &again["calls"]), (&json!(false), &json!([])));
        assert_eq!(site.bmc.writes(), [down]);
        assert_eq!(site.bmc.power(), "Off");
    }
}

#[test]
fn on_waits_until_it_is_on() {
    for quirks in [&[][..], &[Quirk::LatePower(5)], &[Quirk::Tasks], &[Quirk::AlreadyOn]] {
        let site = Site::plain("Off", quirks);
        let made = site.run(json!({"state": "on"})).done();
        assert_eq!(
            (&made["changed"], &made["system"]["power_state"]),
            (&json!(true), &json!("On")),
            "{quirks:?}"
        );
        assert_eq!(site.bmc.writes(), [ON], "{quirks:?}");
        assert_eq!(site.run(json!({"state": "on"})).done()["changed"], false);
        assert_eq!(site.bmc.writes(), [ON], "{quirks:?}");
    }
    let site = Site::plain("Off", &[Quirk::PowerOnRace(2)]);
    assert_eq!(site.run(json!({"state": "on"})).done()["changed"], true);
    assert_eq!(site.bmc.writes(), [ON, ON, ON]);
}

#[test]
fn a_server_that_stays_on_is_a_failure_and_nothing_is_forced() {
    for (tree, down) in [(Tree::plain(), GRACEFUL), (Tree::idrac8(), PRESS)] {
        let site = Site::new(tree, "On", &[Quirk::StaysOn]);
        let result = site.run(json!({"state": "off", "timeout": 3})).failed();
        assert_eq!(result["error_code"], "timeout");
        assert_eq!(result["power_state"], "On");
        assert!(
            result["msg"].as_str().unwrap().contains("PowerState is still On instead of Off"),
            "{result}"
        );
        assert_eq!(site.bmc.writes(), [down], "asked once");
    }
}

#[test]
fn a_lost_answer_to_a_press_is_not_pressed_again() {
    let site = Site::new(Tree::idrac8(), "On", &[]);
    let proxy = Proxy::to(&site.bmc.url()).tls().start();
    proxy.on("POST", "ComputerSystem.Reset").first().lose_answer();
    let through = json!({"api_port": proxy.port(), "ca_path": proxy.ca_path(), "state": "off"});
    assert_eq!(site.run(through).done()["changed"], true);
    assert_eq!(site.bmc.writes(), [PRESS]);
    assert_eq!(site.bmc.power(), "Off");
}

#[test]
fn a_server_that_went_down_by_itself_is_not_pressed_on() {
    let site = Site::new(Tree::idrac8(), "On", &[]);
    let proxy = Proxy::to(&site.bmc.url()).tls().start();
    // The system, its network cards (three reads), and then the read right before the press.
    proxy
        .on("GET", "/Systems/System.Embedded.1")
        .nth(5)
        .rewrite_answer(|body| body.replace(r#""PowerState":"On""#, r#""PowerState":"Off""#));
    let through = json!({"api_port": proxy.port(), "ca_path": proxy.ca_path(), "state": "off", "timeout": 2});
    assert_eq!(site.run(through).failed()["error_code"], "timeout");
    assert_eq!(site.bmc.writes(), [] as [&str; 0]);
}

#[test]
fn without_a_gentle_way_it_is_refused() {
    let tree = Tree::plain().set(
        &format!("{SYSTEM}/ResetActionInfo"),
        "/Parameters",
        json!([{"Name": "ResetType", "AllowableValues": ["On", "ForceOff", "GracefulRestart"]}]),
    );
    let site = Site::new(tree, "On", &[]);
    let result = site.run(json!({"state": "off"})).failed();
    assert_eq!(result["error_code"], "refused");
    assert!(
        result["msg"].as_str().unwrap().contains("nothing is forced; offered: On, ForceOff, GracefulRestart")
    );
    assert!(site.bmc.was_only_read());
}

#[test]
fn a_server_on_its_way_is_waited_for() {
    let site = Site::plain("On", &[Quirk::LatePower(3)]);
    assert_eq!(site.run(json!({"state": "off"})).done()["changed"], true);
    let site = Site::plain("PoweringOff", &[]);
    let result = site.run(json!({"state": "off", "timeout": 2})).failed();
    assert_eq!((&result["error_code"], &result["power_state"]), (&json!("timeout"), &json!("PoweringOff")));
    assert!(site.bmc.was_only_read(), "not sent again");
    let predicted = site.module.check(&site.options(json!({"state": "off"}))).done();
    assert_eq!(predicted["changed"], false, "it is going there already");
}

#[test]
fn waiting_only_never_writes() {
    let site = Site::plain("On", &[]);
    let late = site.run(json!({"state": "off", "wait_only": true, "timeout": 2})).failed();
    assert_eq!((&late["error_code"], &late["power_state"]), (&json!("timeout"), &json!("On")));
    let done = site.run(json!({"state": "on", "wait_only": true})).done();
    assert_eq!(done["changed"], false);
    let bmc = &site.bmc;
    std::thread::scope(|scope| {
        // The installer switches it off when it sees that somebody is looking.
        let seen = bmc.log().len();
        scope.spawn(move || {
            while bmc.log().len() < seen + 8 {
                std::thread::yield_now();
            }
            bmc.set_power("Off");
        });
        assert_eq!(site.run(json!({"state": "off", "wait_only": true})).done()["changed"], false);
    });
    assert!(site.bmc.was_only_read());
}

#[test]
fn the_guard_stands_before_everything() {
    for (options, rule) in [
        (json!({"serial": "SN999999"}), "serial"),
        (json!({"refuse_serials": ["SN123456"]}), "refuse_serials"),
        (json!({"refuse_macs": ["a0:36:9f:00:00:01"]}), "refuse_macs"),
        (json!({"refuse_addresses": ["127.0.0.1"]}), "refuse_addresses"),
        (json!({"guard": true}), "refuse_serials"),
    ] {
        for others in
            [json!({"state": "off"}), json!({"state": "on"}), json!({"state": "on", "wait_only": true})]
        {
            let site = Site::plain("On", &[]);
            let result = site.run(with(&options, others)).failed();
            assert_eq!((&result["error_code"], &result["guard"]), (&json!("refused"), &json!(rule)));
            assert!(site.bmc.was_only_read());
        }
    }
    for state in ["Paused", "Sleeping"] {
        let site = Site::plain(state, &[]);
        let result = site.run(json!({"state": "off"})).failed();
        assert_eq!(result["error_code"], "refused");
        assert!(site.bmc.was_only_read());
    }
}
