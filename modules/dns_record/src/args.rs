//! The option table and the checked arguments.

use std::fmt;
use std::net::IpAddr;

use ansible_module::{Arguments, Failure, Opt, Rule, Spec, Table};
use api_options::{OpnsenseOptions, opnsense_table};
use net_types::{DomainName, HostName};
use serde::Deserialize;
use serde_json::json;

/// OPNsense keeps at most this many characters in a description.
const LONGEST_DESCRIPTION: usize = 255;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Present,
    Absent,
}

/// The record types that hold an address.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Type {
    A,
    #[serde(rename = "AAAA")]
    Aaaa,
}

impl Type {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
        }
    }

    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::A } else { Self::Aaaa }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the task asks for, checked as far as nobody has to be asked.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) state: State,
    /// A label, or `*`.
    pub(crate) hostname: String,
    pub(crate) domain: String,
    pub(crate) rr: Type,
    /// `None` with `state: absent`.
    pub(crate) value: Option<IpAddr>,
    pub(crate) ptr: bool,
    pub(crate) description: Option<String>,
    pub(crate) repair_duplicates: bool,
    pub(crate) apply: bool,
    pub(crate) opnsense: OpnsenseOptions,
}

#[derive(Deserialize)]
struct Raw {
    state: State,
    hostname: String,
    domain: String,
    #[serde(rename = "type")]
    rr: Option<Type>,
    value: Option<String>,
    ptr: bool,
    description: Option<String>,
    repair_duplicates: bool,
    apply: bool,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        let value = raw.value.as_deref().map(address).transpose()?;
        let rr = match (raw.rr, value) {
            (Some(rr), Some(value)) if rr != Type::of(value) => {
                let why =
                    format!("{value} does not fit type {rr}: that address needs type {}", Type::of(value));
                return Err(Failure::bad_argument("value", why));
            }
            (Some(rr), _) => rr,
            (None, Some(value)) => Type::of(value),
            (None, None) => Type::A,
        };
        let too_long =
            raw.description.as_ref().is_some_and(|text| text.chars().count() > LONGEST_DESCRIPTION);
        if too_long {
            let why = format!("OPNsense keeps {LONGEST_DESCRIPTION} characters");
            return Err(Failure::bad_argument("description", why));
        }
        Ok(Self {
            hostname: hostname(&raw.hostname)?,
            domain: domain(&raw.domain)?,
            state: raw.state,
            rr,
            value,
            ptr: raw.ptr,
            description: raw.description,
            repair_duplicates: raw.repair_duplicates,
            apply: raw.apply,
            opnsense: arguments.parse()?,
        })
    }

    /// `web01.example.net`
    pub(crate) fn fqdn(&self) -> String {
        format!("{}.{}", self.hostname, self.domain)
    }
}

fn hostname(text: &str) -> Result<String, Failure> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    if text.contains('.') {
        let why = format!(
            "expected one label, found `{text}`: what comes behind the first dot belongs into `domain`"
        );
        return Err(Failure::bad_argument("hostname", why));
    }
    let name: HostName = text.parse().map_err(|why| Failure::bad_argument("hostname", why))?;
    Ok(name.to_string())
}

/// A dot at the end is understood; it is not sent, as Unbound's file would hold two.
fn domain(text: &str) -> Result<String, Failure> {
    let name: DomainName = text.parse().map_err(|why| Failure::bad_argument("domain", why))?;
    Ok(name.to_string())
}

fn address(text: &str) -> Result<IpAddr, Failure> {
    let refuse = |why: String| Err(Failure::bad_argument("value", why));
    match text.parse::<IpAddr>() {
        Err(_) => refuse(format!("expected an IPv4 or IPv6 address, found `{text}`")),
        Ok(address) if address.is_unspecified() || address.is_multicast() => {
            refuse(format!("{address} is not the address of a host"))
        }
        Ok(address) => Ok(address),
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("dns_record", "Name an address in the DNS of OPNsense (Unbound host override)")
        .describe(
            "Adds, changes or removes one A or AAAA record with its PTR, and proves that the firewall holds it and that \
             Unbound runs with it.",
        )
        .describe(
            "A record is known by its hostname, domain and type. Another value changes that record; it never adds a second \
             one.",
        )
        .note("OPNsense needs the privilege C(Services: Unbound) for the user of the key, as only that may apply. With \
               O(apply=false), C(Services: Unbound DNS: Edit Host and Domain Override) is enough.")
        .note(
            "A run that was killed after it stored a record and before it applied it leaves a mark in \
             C(~/.local/state/homelab.anvil) of the user the module runs as; the next run there sees it and applies.",
        )
        .seealso(&["homelab.anvil.opnsense_reconfigure", "homelab.anvil.kea_reservation"])
        .timeout(120)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("backend").choices(&["opnsense"]).default("opnsense").doc("Where the record is kept."),
        Opt::str("state").choices(&["present", "absent"]).default("present").doc("V(absent) removes the record."),
        Opt::str("hostname").required().doc("Name of the host, one label without the domain; V(*) for every name."),
        Opt::str("domain").required().doc("Domain of the host."),
        Opt::str("type")
            .choices(&["A", "AAAA"])
            .aliases(&["rr"])
            .doc("Type of the record; by default the one that O(value) fits, and V(A) without a value."),
        Opt::str("value")
            .quoted("an address")
            .aliases(&["server", "ip"])
            .doc("Address of the host; required with O(state=present)."),
        Opt::bool("ptr")
            .default(true)
            .doc("Whether the address also gets a PTR record. OPNsense gives one to the first name of an address only; \
                  RV(ptr_name) says which. V(false) needs OPNsense 26.1.3."),
        Opt::str("description").doc("Free text; left out, it stays as it is."),
        Opt::bool("repair_duplicates")
            .default(false)
            .doc("OPNsense keeps any number of records of one name and type. When there is more than one, the module refuses; \
                  with V(true) it keeps one, the one with O(value) if there is such, and removes the others."),
        Opt::bool("apply")
            .default(true)
            .doc("Whether Unbound reads the change. With V(false) it is stored and verified as stored, and RV(pending_apply) \
                  says that M(homelab.anvil.opnsense_reconfigure) has to run, once for a batch."),
    ])
    .rule(Rule::RequiredIf { option: "state", value: json!("present"), required: vec!["value"], any: false })
    .with(opnsense_table(true))
}

const EXAMPLES: &str = r#"
- name: Name web01, with its PTR
  homelab.anvil.dns_record:
    api_host: fw.example.net
    api_key: "{{ opnsense_key }}"
    api_secret: "{{ opnsense_secret }}"
    hostname: web01
    domain: example.net
    value: 10.20.0.21
  delegate_to: localhost

- name: Forget the IPv6 address of an old host
  homelab.anvil.dns_record:
    api_host: fw.example.net
    api_key: "{{ opnsense_key }}"
    api_secret: "{{ opnsense_secret }}"
    hostname: old01
    domain: example.net
    type: AAAA
    state: absent
  delegate_to: localhost
"#;

const RETURNS: &str = r"
record:
  description: The host override as OPNsense holds it; in check mode as it would be. Null when there is none.
  returned: success
  type: dict
  contains:
    hostname:
      description: The name without the domain.
      type: str
      sample: web01
    domain:
      description: The domain.
      type: str
      sample: example.net
    rr:
      description: The type of the record.
      type: str
      sample: A
    server:
      description: The address.
      type: str
      sample: 10.20.0.21
    addptr:
      description: Whether a PTR record is asked for.
      type: bool
    enabled:
      description: Whether Unbound gets to see the record.
      type: bool
    description:
      description: The description.
      type: str
    uuid:
      description: OPNsense's UUID of the host override; null before it exists.
      type: str
ptr_name:
  description: The name that the PTR record of the address gives; null when it gets none.
  returned: success
  type: str
  sample: web01.example.net
pending_apply:
  description: Whether OPNsense holds changes that are stored and not in effect; M(homelab.anvil.opnsense_reconfigure) applies them.
  returned: success
  type: bool
duplicates:
  description: The records of this name and type, when there is more than one and that is why the task was refused.
  returned: failure
  type: list
  elements: dict
validations:
  description: The fields that OPNsense refuses, each with its words.
  returned: failure
  type: dict
";

#[cfg(test)]
mod tests;
