//! The option table and the arguments.

use ansible_module::{Opt, Spec, Table};
use api_options::{guard_table, ipmi_table};
use ipmi::Power;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    On,
    Off,
}

impl State {
    pub(crate) fn power(self) -> Power {
        match self {
            Self::On => Power::On,
            Self::Off => Power::Off,
        }
    }
}

/// What the task asks for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Args {
    pub(crate) state: State,
    pub(crate) wait_only: bool,
}

pub(crate) fn spec() -> Spec {
    Spec::new("ipmi_power", "Switch a server on, or off without force, over plain IPMI")
        .describe(
            "Switches a server on and waits until it is on, or asks its operating system to shut down (ACPI) and waits \
             until it is off. Nothing is ever forced: a server that does not go down within O(timeout) is a failure that \
             says so.",
        )
        .describe(
            "A server whose FRU has no usable product serial, or not the O(serial) that was asked for, is refused.",
        )
        .note("IPMI does not tell a server's network cards: with O(refuse_macs), O(serial) has to be given.")
        .requirement("ipmitool, on the machine that the module runs on")
        .seealso(&["homelab.anvil.ipmi_boot_once", "homelab.anvil.redfish_power"])
        .timeout(900)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("state").required().choices(&["on", "off"]).doc("The power to have, or to wait for."),
        Opt::bool("wait_only").default(false).doc(
            "Only wait until the server is in O(state), without switching it: for an installer that powers off when it \
             is done. Give it the O(timeout) it needs.",
        ),
    ])
    .with(guard_table())
    .with(ipmi_table())
}

const EXAMPLES: &str = r#"
- name: Shut a server down
  homelab.anvil.ipmi_power:
    api_host: bmc7.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    serial: SN123456
    state: "off"
  delegate_to: localhost
"#;

const RETURNS: &str = r"
server:
  description: The server as it was last read.
  returned: success
  type: dict
  contains:
    serial:
      description: C(Product Serial) of the FRU.
      type: str
    power:
      description: C(on) or C(off).
      type: str
commands:
  description: The writing commands of ipmitool that were given; in check mode those that would be.
  returned: success
  type: list
  elements: str
  sample: [chassis power soft]
guard:
  description: The rule that refused the server, an option's name, C(this_machine) or C(unknown_serial).
  returned: when the guard refused
  type: str
power:
  description: The power that the server is stuck in.
  returned: when the time was over
  type: str
";
