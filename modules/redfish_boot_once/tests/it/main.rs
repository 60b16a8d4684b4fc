//! The binary from outside, against a double of a BMC with everything that BMCs do differently.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod boots;
mod emulator;
mod failures;
mod refusals;
mod role;

use lab::program::{Program, with};
use lab::redfish::{Builder, Quirk, RedfishDouble, Tree};
use serde_json::{Value, json};

const SYSTEM: &str = "/redfish/v1/Systems/1";
const PATCH: &str =
    r#"PATCH 1 {"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}}"#;
const PATCH_WITH_MODE: &str = r#"PATCH 1 {"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI"}}"#;
const ON: &str = r#"POST ComputerSystem.Reset {"ResetType":"On"}"#;

/// A BMC and the module's binary.
struct Site {
    bmc: RedfishDouble,
    module: Program,
}

impl Site {
    fn new(bmc: Builder) -> Self {
        Self { bmc: bmc.start(), module: Program::new(env!("CARGO_BIN_EXE_redfish_boot_once")) }
    }

    fn plain(quirks: &[Quirk]) -> Self {
        let bmc = RedfishDouble::builder(Tree::plain());
        Self::new(quirks.iter().cloned().fold(bmc, Builder::quirk))
    }

    /// Boot once from the network, with other options laid over.
    fn options(&self, others: Value) -> Value {
        let usual = json!({"serial": "SN123456", "target": "Pxe", "power_on": true});
        with(&with(&self.bmc.options(), usual), others)
    }

    fn run(&self, others: Value) -> lab::program::Outcome {
        self.module.run(&self.options(others))
    }
}
