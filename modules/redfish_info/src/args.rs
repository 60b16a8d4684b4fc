//! The option table.

use ansible_module::Spec;
use api_options::redfish_table;

pub(crate) fn spec() -> Spec {
    Spec::new("redfish_info", "Read what a BMC says of its servers over Redfish")
        .describe(
            "Reads every system that a BMC manages: serials, power state, boot override, what can be booted from and \
             how it can be switched, network cards, disks and slots for virtual media. It is what a person needs to \
             declare the server, and to fill in O(homelab.anvil.redfish_boot_once#module:serial).",
        )
        .describe("It sends nothing but GET, except to open and close a session with O(session=true).")
        .note(
            "On a Dell the serial number is that of the board, and SKU is the service tag; both are accepted by the \
             modules that write. Elsewhere SKU is a part number.",
        )
        .seealso(&["homelab.anvil.redfish_boot_once", "homelab.anvil.redfish_power"])
        .timeout(120)
        .options(redfish_table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

const EXAMPLES: &str = r#"
- name: Look at a server
  homelab.anvil.redfish_info:
    api_host: bmc1.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    tls_fingerprint: "{{ bmc_fingerprint }}"
  delegate_to: localhost
  register: bmc

- name: Show its disks
  ansible.builtin.debug:
    var: bmc.systems[0].disks
"#;

const RETURNS: &str = r"
systems:
  description: The systems of the BMC; one with O(system_id).
  returned: success
  type: list
  elements: dict
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
      description: C(SerialNumber) as reported, padded or blank as it may be.
      type: str
    sku:
      description: C(SKU) as reported; on a Dell the service tag.
      type: str
    serials:
      description: What identifies the server; empty when the BMC reports no usable serial.
      type: list
      elements: str
    power_state:
      description: C(On), C(Off), C(PoweringOn), C(PoweringOff), C(Paused) or C(unknown).
      type: str
    reset_types:
      description: How the BMC can switch it; null when it does not tell.
      type: list
      elements: str
    boot:
      description: The boot override.
      type: dict
      contains:
        target:
          description: C(BootSourceOverrideTarget).
          type: str
        enabled:
          description: C(BootSourceOverrideEnabled).
          type: str
        mode:
          description: C(BootSourceOverrideMode).
          type: str
        allowed_targets:
          description: What it can boot from; null when the BMC does not tell.
          type: list
          elements: str
    nics:
      description: Its network cards; null, with a warning, when the BMC answers with an error.
      type: list
      elements: dict
      contains:
        id:
          description: Redfish's C(Id).
          type: str
        mac_address:
          description: The permanent MAC address, as the BMC writes it.
          type: str
        link_status:
          description: C(LinkStatus); null when the BMC does not tell.
          type: str
    disks:
      description: >-
        Its disks; null, with a warning, when the BMC answers with an error. Older BMCs tell neither size nor serial.
      type: list
      elements: dict
      contains:
        id:
          description: Redfish's C(Id).
          type: str
        model:
          description: The disk's model.
          type: str
        serial_number:
          description: The disk's serial number.
          type: str
        capacity_bytes:
          description: Its size in bytes.
          type: int
        media_type:
          description: C(HDD) or C(SSD).
          type: str
        protocol:
          description: C(SATA), C(SAS), C(NVMe), as the BMC calls it.
          type: str
    virtual_media:
      description: Slots for virtual media; null, with a warning, when the BMC answers with an error.
      type: list
      elements: dict
      contains:
        id:
          description: Redfish's C(Id).
          type: str
        media_types:
          description: What it can hold.
          type: list
          elements: str
        inserted:
          description: Whether something is in it.
          type: bool
        image:
          description: URL of what is in it; some BMCs leave out the scheme.
          type: str
        can_insert:
          description: Whether an image can be inserted over Redfish.
          type: bool
        can_eject:
          description: Whether it can be ejected over Redfish.
          type: bool
";
