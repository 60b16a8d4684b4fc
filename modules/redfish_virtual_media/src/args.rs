//! The option table and the checked arguments.

use ansible_module::{Arguments, Failure, Opt, Rule, Spec, Table};
use api_options::{guard_table, redfish_table};
use redfish_api::check_image;
use serde::Deserialize;
use serde_json::json;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Inserted,
    Ejected,
}

/// What the task asks for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Args {
    pub(crate) state: State,
    pub(crate) image: Option<String>,
    pub(crate) slot: Option<String>,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let args: Self = arguments.parse()?;
        if let Some(image) = &args.image {
            check_image(image).map_err(|why| Failure::bad_argument("image", why))?;
        }
        Ok(args)
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("redfish_virtual_media", "Insert an image into a server's virtual CD, or eject it, over Redfish")
        .describe(
            "Has a BMC mount the image of a CD from a web server as the server's virtual CD, and waits until the BMC \
             shows it; or ejects it. The server itself is neither switched nor told to boot from it.",
        )
        .describe(
            "The slot is found by links: the system's own slots first, then those of the managers that manage it. Of those \
             that take a CD, one that has the image already comes first, then an empty one. Something else in the slot is \
             ejected first.",
        )
        .describe(
            "A BMC that offers no slot with InsertMedia, no EjectMedia when that is needed, or not the protocol of the URL \
             is refused: manual media are the way there. A run that fails or is interrupted after it inserted the \
             image ejects it again.",
        )
        .note("Everybody who can read the BMC sees the URL, so one with a user and password in it is refused.")
        .seealso(&["homelab.anvil.redfish_boot_once", "homelab.anvil.redfish_info"])
        .timeout(300)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("state").required().choices(&["inserted", "ejected"]).doc(
            "V(inserted) has O(image) in the virtual CD; V(ejected) has it, or without O(image) anything, out of it.",
        ),
        Opt::str("image").doc(
            "URL of the image as the BMC reaches it, C(http://) or C(https://), without a query. Required with \
             O(state=inserted).",
        ),
        Opt::str("slot").doc("C(Id) of the slot, where the choice has to be another."),
    ])
    .rule(Rule::RequiredIf { option: "state", value: json!("inserted"), required: vec!["image"], any: false })
    .with(guard_table())
    .with(redfish_table())
}

const EXAMPLES: &str = r#"
- name: Put an installer into the virtual CD
  homelab.anvil.redfish_virtual_media:
    api_host: bmc1.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    tls_fingerprint: "{{ bmc_fingerprint }}"
    serial: SN123456
    state: inserted
    image: http://192.0.2.10/installer.iso
  delegate_to: localhost

- name: Take it out again
  homelab.anvil.redfish_virtual_media:
    api_host: bmc1.example.net
    api_user: admin
    api_password: "{{ bmc_password }}"
    tls_fingerprint: "{{ bmc_fingerprint }}"
    serial: SN123456
    state: ejected
  delegate_to: localhost
"#;

const RETURNS: &str = r"
system:
  description: The server as it was last read.
  returned: success
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
virtual_media:
  description: Every slot as it was last read.
  returned: success, and when no slot serves
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
calls:
  description:
    - The writes that were made, in order; in check mode those that would be.
    - A write that the BMC wants with more parameters is there once for each form.
  returned: success
  type: list
  elements: dict
  contains:
    method:
      description: C(POST) or C(PATCH).
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
