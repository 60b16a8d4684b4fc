//! The option table and the checked arguments.

use ansible_module::{Arguments, Failure, Opt, Spec, Table};
use api_options::{guard_table, redfish_table};
use serde::Deserialize;

/// What the task asks for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Args {
    pub(crate) target: String,
    pub(crate) mode: Option<String>,
    pub(crate) power_on: bool,
    pub(crate) verify_consumed: bool,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let args: Self = arguments.parse()?;
        let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_word(&args.target) || args.target.eq_ignore_ascii_case("none") {
            let why = format!("expected a boot target such as Pxe, found `{}`", args.target);
            return Err(Failure::bad_argument("target", why));
        }
        if args.verify_consumed && !args.power_on {
            let why = "an override is used up when the server starts: that takes `power_on: true`";
            return Err(Failure::bad_argument("verify_consumed", why));
        }
        Ok(args)
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("redfish_boot_once", "Boot a server once from the network or a CD, over Redfish")
        .describe(
            "Sets a one-time boot override on a server that is off, and switches the server on when asked, but only \
             after the override was read back. Nothing is ever reset or switched off.",
        )
        .describe(
            "A server that is on, or not certainly off, is refused. So a second run on the server that the first one \
             switched on is refused and says that it is on already.",
        )
        .describe(
            "A server that reports no usable serial, or not the O(serial) that was asked for, is refused; so is one on \
             the lists, and always the machine that the module runs on.",
        )
        .note(
            "C(Cd) is the server's own drive on Dell's iDRAC7 and iDRAC8 and on many Supermicro boards; the virtual one \
             is C(UsbCd) where that is offered.",
        )
        .seealso(&["homelab.anvil.redfish_power", "homelab.anvil.redfish_virtual_media", "homelab.anvil.redfish_info"])
        .one_shot()
        .timeout(300)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("target").required().doc(
            "Where to boot from: V(Pxe), V(Cd), V(UsbCd), V(UefiHttp), V(Hdd), V(BiosSetup), whatever the BMC offers. \
             Case does not matter.",
        ),
        Opt::str("mode").choices(&["UEFI", "Legacy"]).doc(
            "Boot mode for this boot. Left out, the server's own is kept; on some BMCs (iDRAC9) changing it takes a \
             further restart.",
        ),
        Opt::bool("power_on").default(false).doc(
            "Switch the server on when the override was read back, and wait until it is on.",
        ),
        Opt::bool("verify_consumed").default(false).doc(
            "After O(power_on), wait until the firmware has used the override up and the BMC shows it as C(Disabled).",
        ),
    ])
    .with(guard_table())
    .with(redfish_table())
}

const EXAMPLES: &str = r#"
- name: Say what would be done
  homelab.anvil.redfish_boot_once:
    api_host: bmc1.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    tls_fingerprint: "{{ bmc_fingerprint }}"
    serial: TAG1234
    target: Pxe
  check_mode: true
  delegate_to: localhost
  register: planned

- name: Boot once from the network
  homelab.anvil.redfish_boot_once:
    api_host: bmc1.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    tls_fingerprint: "{{ bmc_fingerprint }}"
    serial: TAG1234
    refuse_serials: "{{ servers_in_use }}"
    target: Pxe
    power_on: true
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
      sample: System.Embedded.1
    uri:
      description: Its path on the BMC.
      type: str
    manufacturer:
      description: Who made it, as reported.
      type: str
    model:
      description: Its model, as reported.
      type: str
    serial_number:
      description: C(SerialNumber) as reported.
      type: str
    sku:
      description: C(SKU) as reported.
      type: str
    serials:
      description: What identifies the server.
      type: list
      elements: str
    power_state:
      description: C(PowerState).
      type: str
      sample: 'On'
    boot:
      description: The boot override; C(target), C(enabled) and C(mode).
      type: dict
calls:
  description:
    - The writes that were made, in order; in check mode those that would be.
    - A write that the BMC wants in another form is there once for each form.
  returned: success
  type: list
  elements: dict
  contains:
    method:
      description: C(PATCH) or C(POST).
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
  description: The power state that the server was refused for, or is stuck in.
  returned: failure
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
