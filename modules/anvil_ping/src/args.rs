//! The option table and the checked arguments.

use ansible_module::{Opt, Spec, Table};
use secrecy::SecretString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Args {
    pub(crate) data: String,
    pub(crate) secret: Option<SecretString>,
}

pub(crate) fn spec() -> Spec {
    Spec::new("anvil_ping", "Prove that the modules of this collection run on a host")
        .describe("Answers like M(ansible.builtin.ping), and needs no Python on the host.")
        .describe(
            "Tells on what and as whom it ran: the whole way to the host, privilege escalation included.",
        )
        .options(Table::new(vec![
            Opt::str("data")
                .default("pong")
                .env(&["ANVIL_PING_DATA"])
                .doc("Returned as it came.")
                .doc("V(crash) makes the module crash, to see how that looks."),
            Opt::str("secret").no_log().env(&["ANVIL_PING_SECRET"]).doc(
                "Never returned; only that it arrived is. To see that a secret leaves no trace on the way.",
            ),
        ]))
        .examples(EXAMPLES)
        .returns(RETURNS)
}

const EXAMPLES: &str = r"
- name: The host runs the modules of this collection
  homelab.anvil.anvil_ping:

- name: They run as root there
  homelab.anvil.anvil_ping:
  become: true
  register: anvil
  failed_when: anvil.ping.uid != 0
";

const RETURNS: &str = r"
ping:
  description: What ran, where and as whom.
  returned: success
  type: dict
  contains:
    data:
      description: The option O(data).
      type: str
    arch:
      description: The architecture that the module was built for.
      type: str
      sample: x86_64
    host:
      description: The name that the host gives itself.
      type: str
    uid:
      description: The effective user id of the module.
      type: int
    user:
      description: The name of that user in C(/etc/passwd); null when it has none.
      type: str
    cwd:
      description: The directory that the module ran in; null when it cannot be read.
      type: str
    program:
      description: The file that ran.
      type: str
    version:
      description: The version of the module.
      type: str
    secret_given:
      description: Whether the option O(secret) arrived.
      type: bool
";
