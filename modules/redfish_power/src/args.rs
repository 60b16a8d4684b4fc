//! The option table and the arguments.

use ansible_module::{Opt, Spec, Table};
use api_options::{guard_table, redfish_table};
use redfish_api::PowerState;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    On,
    Off,
}

impl State {
    pub(crate) fn power_state(self) -> PowerState {
        match self {
            Self::On => PowerState::On,
            Self::Off => PowerState::Off,
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
    Spec::new("redfish_power", "Switch a server on, or off without force, over Redfish")
        .describe(
            "Switches a server on and waits until it is on, or asks its operating system to shut down and waits until it \
             is off. Nothing is ever forced: a server that does not go down within O(timeout) is a failure that says so.",
        )
        .describe(
            "Going down is C(GracefulShutdown), or C(PushPowerButton) on a BMC that does not offer that. A press is a \
             toggle, so it is sent only right after the BMC was read and said C(On), and never twice.",
        )
        .describe(
            "A server that is already on its way is waited for, not switched again. In check mode nothing is waited for.",
        )
        .seealso(&["homelab.anvil.redfish_boot_once", "homelab.anvil.redfish_info"])
        .timeout(900)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("state").required().choices(&["on", "off"]).doc("The power state to have, or to wait for."),
        Opt::bool("wait_only").default(false).doc(
            "Only wait until the server is in O(state), without switching it: for an installer that powers off when it \
             is done. Give it the O(timeout) it needs.",
        ),
    ])
    .with(guard_table())
    .with(redfish_table())
}

const EXAMPLES: &str = r#"
- name: Shut a server down
  homelab.anvil.redfish_power:
    api_host: bmc1.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    tls_fingerprint: "{{ bmc_fingerprint }}"
    serial: TAG1234
    state: "off"
  delegate_to: localhost

- name: Wait for the installer to power off
  homelab.anvil.redfish_power:
    api_host: bmc1.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    tls_fingerprint: "{{ bmc_fingerprint }}"
    serial: TAG1234
    state: "off"
    wait_only: true
    timeout: 5400
  delegate_to: localhost
"#;

const RETURNS: &str = r"
system:
  description: The server as it was last read.
  returned: success, and when the server was refused
  type: dict
  contains:
    id:
      description: Redfish's C(Id).
      type: str
    serials:
      description: What identifies the server.
      type: list
      elements: str
    power_state:
      description: C(PowerState).
      type: str
      sample: 'Off'
calls:
  description: The writes that were made; in check mode those that would be.
  returned: success
  type: list
  elements: dict
  contains:
    method:
      description: C(POST).
      type: str
    path:
      description: The path on the BMC.
      type: str
    body:
      description: The JSON body.
      type: dict
guard:
  description: The rule that refused the server, an option's name, C(this_machine) or C(unknown_serial).
  returned: when the guard refused
  type: str
power_state:
  description: The power state that the server is stuck in.
  returned: when the time was over
  type: str
status:
  description: The BMC's HTTP status.
  returned: when the BMC refused
  type: int
messages:
  description: What the BMC says, with the arguments filled in.
  returned: when the BMC refused
  type: list
  elements: str
message_ids:
  description: The registry ids of these messages.
  returned: when the BMC refused
  type: list
  elements: str
";
