//! The option table and the checked arguments.

use std::net::Ipv4Addr;

use ansible_module::{Arguments, Failure, Opt, Rule, Spec, Table};
use api_options::{KeaOptions, OpnsenseOptions, kea_table, opnsense_table};
use net_types::{HostName, Ipv4Cidr, MacAddress};
use serde::Deserialize;
use serde_json::json;

use crate::values::{Field, Values, mark, unmark};

/// OPNsense keeps at most this many characters in a description.
const LONGEST_DESCRIPTION: usize = 255;
/// The BOOTP `file` field, less its end.
const LONGEST_BOOT_FILE: usize = 127;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Backend {
    Opnsense,
    Kea,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Present,
    Absent,
}

/// A subnet as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubnetName {
    Cidr(Ipv4Cidr),
    /// Kea's subnet-id, or OPNsense's UUID.
    Key(String),
}

/// What the task asks for, checked as far as nobody has to be asked.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) backend: Backend,
    pub(crate) state: State,
    pub(crate) mac: MacAddress,
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) subnet: Option<SubnetName>,
    /// The fields asked for; those left out stay as they are. An empty text unsets a field.
    pub(crate) wanted: Values,
    /// Whose reservation it is: `owner`, or the hostname.
    pub(crate) owner: Option<String>,
    pub(crate) prune_stale: bool,
    pub(crate) clear_lease: bool,
    pub(crate) apply: bool,
    pub(crate) opnsense: OpnsenseOptions,
    pub(crate) kea: KeaOptions,
}

#[derive(Deserialize)]
struct Raw {
    backend: Backend,
    state: State,
    mac: MacAddress,
    ip: Option<String>,
    subnet: Option<String>,
    hostname: Option<String>,
    next_server: Option<String>,
    boot_file: Option<String>,
    tftp_server_name: Option<String>,
    description: Option<String>,
    owner: Option<String>,
    prune_stale: bool,
    clear_lease: bool,
    apply: bool,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        let ip = raw.ip.as_deref().map(address).transpose()?;
        let subnet = raw.subnet.as_deref().map(subnet_name).transpose()?;
        let hostname = raw.hostname.as_deref().map(hostname).transpose()?;
        let owner = [&raw.owner, &hostname].into_iter().flatten().find(|name| !name.is_empty()).cloned();
        refuse_contradictions(&raw, ip, subnet.as_ref(), owner.as_deref())?;
        let args = Self {
            wanted: wanted(&raw, ip, hostname)?,
            backend: raw.backend,
            state: raw.state,
            mac: raw.mac,
            ip,
            subnet,
            owner,
            prune_stale: raw.prune_stale,
            clear_lease: raw.clear_lease,
            apply: raw.apply,
            opnsense: arguments.parse()?,
            kea: arguments.parse()?,
        };
        args.refuse_unfit_description()?;
        Ok(args)
    }

    /// Whether a write takes a later step to be in effect, and this run is not the one to take it.
    pub(crate) fn stores_only(&self) -> bool {
        self.backend == Backend::Opnsense && !self.apply
    }

    fn refuse_unfit_description(&self) -> Result<(), Failure> {
        let owner = self.owner.as_deref();
        if owner.is_some_and(|owner| owner.contains(['[', ']', '\n'])) {
            return Err(Failure::bad_argument("owner", "brackets and line breaks cannot be part of it"));
        }
        let description = self.wanted.text(Field::Description);
        if unmark(&mark(description, owner)) != (description, owner.unwrap_or_default()) {
            let why =
                format!("`{description}` ends like the mark of an owner; give `owner` or `hostname` instead");
            return Err(Failure::bad_argument("description", why));
        }
        let length = mark(description, owner).chars().count();
        if length > LONGEST_DESCRIPTION {
            let why = format!(
                "with the mark of its owner it is {length} characters long; OPNsense keeps {LONGEST_DESCRIPTION}"
            );
            return Err(Failure::bad_argument("description", why));
        }
        Ok(())
    }
}

fn refuse_contradictions(
    raw: &Raw,
    ip: Option<Ipv4Addr>,
    subnet: Option<&SubnetName>,
    owner: Option<&str>,
) -> Result<(), Failure> {
    let (option, why) = match (ip, subnet) {
        _ if raw.mac.is_multicast() || raw.mac.bytes() == [0; 6] => {
            ("mac", format!("{} cannot be the address of a network card", raw.mac))
        }
        (Some(ip), Some(SubnetName::Cidr(cidr))) if !cidr.contains(ip) => {
            ("ip", format!("{ip} is not in the subnet {cidr}"))
        }
        _ if raw.clear_lease && raw.backend == Backend::Opnsense && !raw.apply => {
            let why = "a lease is forgotten once the reservation is in effect: with `apply: false` it is not";
            ("clear_lease", why.to_owned())
        }
        _ if raw.prune_stale && owner.is_none() => {
            let why = "whose stale reservation may be removed? Give `hostname` or `owner` as well";
            ("prune_stale", why.to_owned())
        }
        _ => return Ok(()),
    };
    Err(Failure::bad_argument(option, why))
}

fn wanted(raw: &Raw, ip: Option<Ipv4Addr>, hostname: Option<String>) -> Result<Values, Failure> {
    let next_server = raw.next_server.as_deref().map(next_server).transpose()?;
    for (option, text) in [("boot_file", &raw.boot_file), ("tftp_server_name", &raw.tftp_server_name)] {
        let is_option_data = option == "tftp_server_name" || raw.backend == Backend::Opnsense;
        if let Some(text) = text {
            check_text(option, text, is_option_data)?;
        }
    }
    let asked = [
        (Field::HwAddress, Some(raw.mac.to_string())),
        (Field::IpAddress, ip.map(|ip| ip.to_string())),
        (Field::Hostname, hostname),
        (Field::NextServer, next_server),
        (Field::BootFileName, raw.boot_file.clone()),
        (Field::TftpServerName, raw.tftp_server_name.clone()),
        (Field::Description, raw.description.clone()),
    ];
    Ok(asked.into_iter().filter_map(|(field, text)| Some((field, text?))).collect())
}

fn address(text: &str) -> Result<Ipv4Addr, Failure> {
    let why = || format!("expected an IPv4 address without a prefix length, found `{text}`");
    text.parse().map_err(|_| Failure::bad_argument("ip", why()))
}

fn subnet_name(text: &str) -> Result<SubnetName, Failure> {
    if !text.contains('/') {
        return Ok(SubnetName::Key(text.to_owned()));
    }
    let cidr: Ipv4Cidr = text.parse().map_err(|why| Failure::bad_argument("subnet", why))?;
    if cidr.is_network() {
        return Ok(SubnetName::Cidr(cidr));
    }
    let why = format!("{cidr} is an address in a network; the network is {}", cidr.network());
    Err(Failure::bad_argument("subnet", why))
}

/// A single label: Kea and OPNsense put the subnet's domain behind it.
fn hostname(text: &str) -> Result<String, Failure> {
    if text.is_empty() {
        return Ok(String::new());
    }
    if let Some((label, domain)) = text.split_once('.') {
        let why = format!(
            "expected one label, found the full name `{text}`: DHCP puts the domain of the subnet behind it, so the \
             name would become {label}.{domain}.{domain}; give `{label}`"
        );
        return Err(Failure::bad_argument("hostname", why));
    }
    let name: HostName = text.parse().map_err(|why| Failure::bad_argument("hostname", why))?;
    Ok(name.to_string())
}

fn next_server(text: &str) -> Result<String, Failure> {
    let why = || format!("expected an IPv4 address, found `{text}`: siaddr cannot hold a name");
    match text.parse::<Ipv4Addr>() {
        _ if text.is_empty() => Ok(String::new()),
        Ok(ip) if !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast() => Ok(ip.to_string()),
        _ => Err(Failure::bad_argument("next_server", why())),
    }
}

/// `is_option_data`: the text becomes data of a DHCP option, where Kea cuts it at a bare comma.
fn check_text(option: &'static str, text: &str, is_option_data: bool) -> Result<(), Failure> {
    if text.contains(['"', '\n', '\r']) {
        return Err(Failure::bad_argument(option, "quotation marks and line breaks cannot be part of it"));
    }
    if text.len() > LONGEST_BOOT_FILE {
        let why = format!("{} bytes are too many: at most {LONGEST_BOOT_FILE} fit", text.len());
        return Err(Failure::bad_argument(option, why));
    }
    if is_option_data && has_bare_comma(text) {
        let why = format!("the client would get `{text}` cut at the comma: write `\\,`");
        return Err(Failure::bad_argument(option, why));
    }
    Ok(())
}

fn has_bare_comma(text: &str) -> bool {
    let mut escaped = false;
    text.chars().any(|letter| {
        let bare = letter == ',' && !escaped;
        escaped = letter == '\\' && !escaped;
        bare
    })
}

pub(crate) fn spec() -> Spec {
    Spec::new("kea_reservation", "Reserve an address for a MAC address in Kea, on OPNsense or by itself")
        .describe(
            "Adds, changes or removes one DHCPv4 reservation, and proves that the server holds it: what was written is \
             read back, and on OPNsense the service is seen running after it was reconfigured.",
        )
        .describe(
            "A reservation is known by its MAC address, compared as six bytes, and its subnet. An option that is left \
             out leaves its field as it is; an empty text unsets it.",
        )
        .describe(
            "Nothing is written when the address is reserved for or leased to another MAC address, is not a host address \
             of the subnet or is its router's, when another reservation of the subnet has the hostname, when Kea is \
             disabled or configured by hand on OPNsense, or when this release of OPNsense would drop a field.",
        )
        .note(
            "OPNsense needs the privilege C(Services: DHCP: Kea(v4)) for the user of the key.",
        )
        .note(
            "A run that was killed after it stored a reservation and before it applied it leaves a mark in \
             C(~/.local/state/homelab.anvil) of the user the module runs as; the next run there sees it and applies. From \
             another machine, run M(homelab.anvil.opnsense_reconfigure) with O(homelab.anvil.opnsense_reconfigure#module:force=true).",
        )
        .note(
            "On plain Kea the reservation is written with config-set and config-write, the rest of the configuration \
             stays as it is. Where Kea may not write its file (Debian 12 as installed), the old configuration is put \
             back and the failure says how to allow it.",
        )
        .seealso(&["homelab.anvil.opnsense_reconfigure", "homelab.anvil.dns_record"])
        .timeout(120)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("backend")
            .choices(&["opnsense", "kea"])
            .default("opnsense")
            .doc("V(opnsense) is the firewall's API, V(kea) is Kea's own control channel."),
        Opt::str("state")
            .choices(&["present", "absent"])
            .default("present")
            .doc("V(absent) removes the reservation of O(mac)."),
        Opt::str("mac")
            .required()
            .quoted("a MAC address")
            .aliases(&["hw_address"])
            .doc("MAC address of the host, in any spelling; it is sent in lower case with colons."),
        Opt::str("ip")
            .quoted("an IPv4 address")
            .aliases(&["ip_address"])
            .doc("Address to reserve; required with O(state=present)."),
        Opt::str("subnet")
            .doc("Subnet as a prefix (V(10.20.0.0/24)), as Kea's subnet-id or as OPNsense's UUID. Left out, it is the one \
                  that O(ip) lies in."),
        Opt::str("hostname").doc("Name of the host, one label without a domain."),
        Opt::str("next_server")
            .quoted("an IPv4 address")
            .doc("Address of the boot server (siaddr). OPNsense stores it since 26.1.9."),
        Opt::str("boot_file")
            .aliases(&["boot_file_name"])
            .doc("Boot file. On plain Kea it is the BOOTP field C(file); OPNsense can only send it as option 67, since 25.7."),
        Opt::str("tftp_server_name").doc("Option 66. OPNsense stores it since 25.7."),
        Opt::str("description")
            .doc("Free text. On plain Kea it is the C(comment) of the reservation's user context."),
        Opt::str("owner")
            .doc("Whose reservation it is; by default O(hostname). It is marked in the description (OPNsense, as \
                  V([anvil:NAME]) at its end) or the user context (Kea) whenever the module writes the reservation, so that \
                  O(prune_stale) touches nothing else."),
        Opt::bool("prune_stale")
            .default(false)
            .doc("Take O(ip) over from a stale reservation of this very host. Stale is a reservation that holds O(ip) for \
                  another MAC address, and is marked with the same owner, or has no mark and the same hostname. Any other \
                  holder is refused."),
        Opt::bool("clear_lease")
            .default(false)
            .doc("Forget a lease that another MAC address has on O(ip), once the reservation is in effect. Needs the hook \
                  lease_cmds, or OPNsense 26.1.6."),
        Opt::bool("apply")
            .default(true)
            .doc("Whether OPNsense makes Kea read the change. With V(false) it is stored and verified as stored, and \
                  RV(pending_apply) says that M(homelab.anvil.opnsense_reconfigure) has to run, once for a batch. Plain Kea \
                  applies at once."),
    ])
    .rule(Rule::RequiredIf { option: "state", value: json!("present"), required: vec!["ip"], any: false })
    .rule(Rule::RequiredIf {
        option: "backend",
        value: json!("opnsense"),
        required: vec!["api_host", "api_key", "api_secret"],
        any: false,
    })
    .rule(Rule::RequiredIf {
        option: "backend",
        value: json!("kea"),
        required: vec!["kea_url", "kea_socket"],
        any: true,
    })
    .with(opnsense_table(false))
    .with(kea_table())
}

const EXAMPLES: &str = r#"
- name: Reserve the address of web01 on the firewall
  homelab.anvil.kea_reservation:
    api_host: fw.example.net
    api_key: "{{ opnsense_key }}"
    api_secret: "{{ opnsense_secret }}"
    ca_path: /etc/ssl/fw.pem
    mac: "02:a5:00:00:00:65"
    ip: 10.20.0.21
    hostname: web01
    prune_stale: true
  delegate_to: localhost

- name: Store it now, apply a whole batch later
  homelab.anvil.kea_reservation:
    api_host: fw.example.net
    api_key: "{{ opnsense_key }}"
    api_secret: "{{ opnsense_secret }}"
    mac: "02:a5:00:00:00:66"
    ip: 10.20.0.22
    hostname: web02
    apply: false
  delegate_to: localhost
  register: reservation

- name: Reserve an address in the Kea of this host, with what a network boot needs
  homelab.anvil.kea_reservation:
    backend: kea
    kea_socket: /run/kea/kea4-ctrl-socket
    mac: "02:a5:00:00:00:67"
    ip: 10.20.0.23
    next_server: 10.20.0.2
    boot_file: grubx64.efi
  become: true
"#;

const RETURNS: &str = r"
reservation:
  description: The reservation as the server holds it; in check mode as it would be. Null when there is none.
  returned: success
  type: dict
  contains:
    subnet:
      description: The subnet's prefix.
      type: str
      sample: 10.20.0.0/24
    subnet_key:
      description: Kea's subnet-id, or OPNsense's UUID of the subnet.
      type: str
    uuid:
      description: OPNsense's UUID of the reservation; null on plain Kea.
      type: str
    hw_address:
      description: The MAC address.
      type: str
      sample: 02:a5:00:00:00:65
    ip_address:
      description: The reserved address.
      type: str
      sample: 10.20.0.21
    hostname:
      description: The host's name; empty when it has none.
      type: str
    next_server:
      description: The boot server (siaddr); empty when the subnet's counts.
      type: str
    boot_file_name:
      description: The boot file; RV(boot_file_sent_as) says how it is sent.
      type: str
    tftp_server_name:
      description: Option 66.
      type: str
    description:
      description: The description without the mark of the owner.
      type: str
    owner:
      description: Whose reservation it is marked as; empty without a mark.
      type: str
boot_file_sent_as:
  description: How the client gets the boot file.
  returned: success
  type: str
  sample: option 67
lease:
  description:
    - Who has the address now, asked before a write.
    - V(free), V(own), V(other) (and then cleared or on its way out), or V(not_checked) when nothing had to be written or nobody can tell.
  returned: success
  type: str
pending_apply:
  description: Whether the server holds changes that are stored and not in effect; M(homelab.anvil.opnsense_reconfigure) applies them.
  returned: success
  type: bool
holder:
  description: Who holds the address or the hostname, when that is why the task was refused.
  returned: failure
  type: dict
validations:
  description: The fields that OPNsense refuses, each with its words.
  returned: failure
  type: dict
";

#[cfg(test)]
mod tests;
