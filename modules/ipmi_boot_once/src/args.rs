//! The option table and the arguments.

use ansible_module::{Opt, Spec, Table};
use api_options::{guard_table, ipmi_table};
use ipmi::BootDevice;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    Pxe,
    Disk,
    Cdrom,
    Bios,
}

impl Target {
    pub(crate) fn device(self) -> BootDevice {
        match self {
            Self::Pxe => BootDevice::Pxe,
            Self::Disk => BootDevice::Disk,
            Self::Cdrom => BootDevice::Cdrom,
            Self::Bios => BootDevice::Bios,
        }
    }
}

/// What the task asks for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Args {
    pub(crate) target: Target,
    pub(crate) efi: bool,
    pub(crate) power_on: bool,
}

pub(crate) fn spec() -> Spec {
    Spec::new("ipmi_boot_once", "Boot a server once from the network or a CD, over plain IPMI")
        .describe(
            "Sets the boot device for the next start of a server that is off, reads it back, and then switches the server \
             on. Nothing is ever reset or switched off. Where the BMC speaks Redfish, M(homelab.anvil.redfish_boot_once) \
             sees more and is to be preferred.",
        )
        .describe(
            "A server that is on is refused, so a second run on the server that the first one switched on is refused \
             and says that it is on already. So is a server whose FRU has no usable product serial, or not the O(serial) \
             that was asked for.",
        )
        .note("IPMI does not tell a server's network cards: with O(refuse_macs), O(serial) has to be given.")
        .note(
            "A BMC that drops the UEFI flag or the mark that the flags are valid is a failure, and the server stays off.",
        )
        .requirement("ipmitool, on the machine that the module runs on")
        .seealso(&["homelab.anvil.ipmi_power", "homelab.anvil.redfish_boot_once"])
        .one_shot()
        .timeout(300)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("target")
            .required()
            .choices(&["pxe", "disk", "cdrom", "bios"])
            .doc("Where to boot from; V(bios) enters the setup."),
        Opt::bool("efi").default(true).doc("Whether this start is in UEFI mode."),
        Opt::bool("power_on").default(true).doc(
            "Switch the server on when the flags were read back. Many BMCs forget them after 60 seconds otherwise, so \
             V(false) gives a warning.",
        ),
    ])
    .with(guard_table())
    .with(ipmi_table())
}

const EXAMPLES: &str = r#"
- name: Boot once from the network
  homelab.anvil.ipmi_boot_once:
    api_host: bmc7.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    serial: SN123456
    target: pxe
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
    boot:
      description: The boot flags; C(device), C(valid), C(efi) and C(persistent).
      type: dict
commands:
  description: The writing commands of ipmitool that were given, in order; in check mode those that would be.
  returned: success
  type: list
  elements: str
  sample: [chassis bootdev pxe options=efiboot, chassis power on]
guard:
  description: The rule that refused the server, an option's name, C(this_machine) or C(unknown_serial).
  returned: when the guard refused
  type: str
power:
  description: The power that the server was refused for, or is stuck in.
  returned: failure
  type: str
";
