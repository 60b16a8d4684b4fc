//! The option table and the checked arguments.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use ansible_module::{Arguments, Failure, Kind, Opt, Rule, Spec, Table};
use api_options::{KeaOptions, OpnsenseOptions, kea_table, opnsense_table};
use dhcp_reservations::opnsense::name_in_kea;
use dhcp_reservations::{Field, OptionData, Values, mark, unmark};
use net_types::{ClientId, HostIdentifier, HostName, Ipv4Cidr, MacAddress};
use opnsense_api::OPTIONS;
use serde::Deserialize;
use serde_json::json;

use crate::boot::Architecture;

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

/// Who keeps a change of plain Kea for its next start.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Persist {
    /// `config-write`
    Server,
    /// This module writes the file.
    File,
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
    pub(crate) host: HostIdentifier,
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) subnet: Option<SubnetName>,
    /// The fields asked for; those left out stay as they are. An empty text unsets a field.
    pub(crate) wanted: Values,
    /// Whose reservation it is: `owner`, or the hostname.
    pub(crate) owner: Option<String>,
    pub(crate) prune_stale: bool,
    pub(crate) clear_lease: bool,
    /// The architecture that must be able to boot from the network.
    pub(crate) netboot: Option<Architecture>,
    pub(crate) apply: bool,
    pub(crate) persist: Persist,
    pub(crate) kea_config_file: Option<PathBuf>,
    pub(crate) opnsense: OpnsenseOptions,
    pub(crate) kea: KeaOptions,
}

#[derive(Deserialize)]
struct Raw {
    backend: Backend,
    state: State,
    mac: Option<MacAddress>,
    client_id: Option<ClientId>,
    ip: Option<String>,
    subnet: Option<String>,
    hostname: Option<String>,
    next_server: Option<String>,
    boot_file: Option<String>,
    tftp_server_name: Option<String>,
    option_data: Option<Vec<OptionData>>,
    client_classes: Option<Vec<String>>,
    description: Option<String>,
    owner: Option<String>,
    prune_stale: bool,
    clear_lease: bool,
    netboot: bool,
    architecture: Architecture,
    apply: bool,
    persist: Persist,
    kea_config_file: Option<PathBuf>,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        let host = host(&raw)?;
        let ip = raw.ip.as_deref().map(address).transpose()?;
        let subnet = raw.subnet.as_deref().map(subnet_name).transpose()?;
        let hostname = raw.hostname.as_deref().map(hostname).transpose()?;
        let owner = [&raw.owner, &hostname].into_iter().flatten().find(|name| !name.is_empty()).cloned();
        refuse_contradictions(&raw, ip, subnet.as_ref(), owner.as_deref())?;
        let args = Self {
            wanted: wanted(&raw, &host, ip, hostname)?,
            backend: raw.backend,
            state: raw.state,
            host,
            ip,
            subnet,
            owner,
            prune_stale: raw.prune_stale,
            clear_lease: raw.clear_lease,
            netboot: raw.netboot.then_some(raw.architecture),
            apply: raw.apply,
            persist: raw.persist,
            kea_config_file: raw.kea_config_file,
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

    /// What a field shall be in the end.
    pub(crate) fn asked(&self, field: Field) -> &str {
        match field {
            Field::Owner => self.owner.as_deref().unwrap_or_default(),
            field => self.wanted.text(field),
        }
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
        (Some(ip), Some(SubnetName::Cidr(cidr))) if !cidr.contains(ip) => {
            ("ip", format!("{ip} is not in the subnet {cidr}"))
        }
        _ if raw.clear_lease && raw.backend == Backend::Opnsense && !raw.apply => {
            let why = "a lease is forgotten once the reservation is in effect: with `apply: false` it is not";
            ("clear_lease", why.to_owned())
        }
        _ if raw.netboot && raw.client_id.is_some() => {
            let why = "a firmware sends another client identifier than the system it boots, so only one of them would get \
                       the address: reserve by `mac`";
            ("netboot", why.to_owned())
        }
        _ if raw.prune_stale && owner.is_none() => {
            let why = "whose stale reservation may be removed? Give `hostname` or `owner` as well";
            ("prune_stale", why.to_owned())
        }
        _ => return Ok(()),
    };
    Err(Failure::bad_argument(option, why))
}

fn host(raw: &Raw) -> Result<HostIdentifier, Failure> {
    match (raw.mac, &raw.client_id) {
        (Some(mac), _) if mac.is_multicast() || mac.bytes() == [0; 6] => {
            Err(Failure::bad_argument("mac", format!("{mac} cannot be the address of a network card")))
        }
        (Some(mac), _) => Ok(mac.into()),
        (None, Some(client_id)) => Ok(client_id.clone().into()),
        (None, None) => Err(Failure::bad_argument("mac", "one of `mac`, `client_id` is needed")),
    }
}

fn wanted(
    raw: &Raw,
    host: &HostIdentifier,
    ip: Option<Ipv4Addr>,
    hostname: Option<String>,
) -> Result<Values, Failure> {
    let next_server = raw.next_server.as_deref().map(next_server).transpose()?;
    for (option, text) in [("boot_file", &raw.boot_file), ("tftp_server_name", &raw.tftp_server_name)] {
        let is_option_data = option == "tftp_server_name" || raw.backend == Backend::Opnsense;
        if let Some(text) = text {
            check_text(option, text, is_option_data)?;
        }
    }
    let (mac, client_id) = match host {
        HostIdentifier::Mac(mac) => (mac.to_string(), String::new()),
        HostIdentifier::ClientId(client_id) => (String::new(), client_id.to_string()),
    };
    let asked = [
        (Field::HwAddress, Some(mac)),
        (Field::ClientId, Some(client_id)),
        (Field::IpAddress, ip.map(|ip| ip.to_string())),
        (Field::Hostname, hostname),
        (Field::NextServer, next_server),
        (Field::BootFileName, raw.boot_file.clone()),
        (Field::TftpServerName, raw.tftp_server_name.clone()),
        (
            Field::OptionData,
            raw.option_data.as_ref().map(|options| option_data(options, raw.backend)).transpose()?,
        ),
        (
            Field::ClientClasses,
            raw.client_classes.as_ref().map(|names| classes(names, raw.backend)).transpose()?,
        ),
        (Field::Description, raw.description.clone()),
    ];
    Ok(asked.into_iter().filter_map(|(field, text)| Some((field, text?))).collect())
}

/// Options with a field, and so an option of this module, of their own.
const OWN_FIELD: [(&str, u8, &str); 2] =
    [("tftp-server-name", 66, "tftp_server_name"), ("boot-file-name", 67, "boot_file")];

fn option_data(options: &[OptionData], backend: Backend) -> Result<String, Failure> {
    for (index, option) in options.iter().enumerate() {
        let refuse = |why: String| Err(Failure::bad_argument(format!("option_data[{index}]"), why));
        let named = option.name.as_deref().unwrap_or_default();
        let own = OWN_FIELD.iter().find(|(name, code, _)| *name == named || option.code == Some(*code));
        match own {
            // On plain Kea the boot file is the BOOTP field; option 67 may stand beside it.
            Some((.., "boot_file")) if backend == Backend::Kea => {
                check_text("option_data", &option.data, true)?
            }
            Some((.., own)) => return refuse(format!("that is the option `{own}` of this module")),
            None => {}
        }
        if option.data.is_empty() {
            return refuse("`data` is empty: to remove an option, leave it out of the list".to_owned());
        }
        let is_twice =
            options[..index].iter().any(|earlier| earlier.code == option.code && earlier.name == option.name);
        if is_twice {
            return refuse("the same option stands in the list before".to_owned());
        }
        if backend == Backend::Opnsense {
            let known = OPTIONS.map(name_in_kea);
            if !known.iter().any(|name| name == named) {
                return refuse(format!("OPNsense stores these by name: {}", known.join(", ")));
            }
            if option.always_send || !option.csv_format {
                return refuse("OPNsense has neither `always_send` nor `csv_format: false`".to_owned());
            }
        }
    }
    Ok(OptionData::to_text(options.to_vec()))
}

fn classes(names: &[String], backend: Backend) -> Result<String, Failure> {
    if backend == Backend::Opnsense && !names.is_empty() {
        return Err(Failure::bad_argument("client_classes", "OPNsense puts no reservation into a class"));
    }
    if names.iter().any(String::is_empty) {
        return Err(Failure::bad_argument("client_classes", "a class has a name, found an empty one"));
    }
    Ok(Field::list_text(names.iter().map(String::as_str)))
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
            "On plain Kea a reservation is added, removed or changed in place with a command of the hook host_cmds where that \
             is loaded. Without the hook, and when an address moves to another host or a host to another address, the whole \
             configuration is set at once; the rest of it stays as it is. Where Kea may not write its file (Debian 12 as \
             installed), the change is taken back and the failure says how to allow it; see O(persist).",
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
            .quoted("a MAC address")
            .aliases(&["hw_address"])
            .doc("MAC address of the host, in any spelling; it is sent in lower case with colons."),
        Opt::str("client_id")
            .quoted("a client identifier")
            .doc("Client identifier (option 61) of the host in hexadecimal, its type byte first, instead of O(mac). OPNsense \
                  stores it since 26.1.8."),
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
        Opt::list_of(
            "option_data",
            Table::new(vec![
                Opt::str("name").doc("Name of the option in Kea, such as V(routers)."),
                Opt::int("code").doc("Code of the option; plain Kea only."),
                Opt::str("data").required().doc("Value of the option, as Kea writes it."),
                Opt::bool("always_send")
                    .default(false)
                    .doc("Send it also to a client that does not ask for it; plain Kea only."),
                Opt::bool("csv_format")
                    .default(true)
                    .doc("With V(false), O(option_data[].data) is hexadecimal; plain Kea only."),
            ])
            .rule(Rule::RequiredOneOf(vec!["name", "code"]))
            .rule(Rule::MutuallyExclusive(vec!["name", "code"])),
        )
        .doc(format!(
            "All other DHCP options of the reservation; one that is not in the list is removed. OPNsense stores {} since 25.7.",
            OPTIONS.map(|field| format!("V({})", name_in_kea(field))).join(", ")
        )),
        Opt::list("client_classes", Kind::Str)
            .doc("All classes that Kea puts the host into; plain Kea only."),
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
        Opt::bool("netboot")
            .default(false)
            .doc("Assert what a client of O(architecture) needs to boot from the network, and fail otherwise: a boot server \
                  (siaddr) of the reservation or the subnet, a boot file that suits the architecture, and a subnet where a \
                  client identifier does not outrank the MAC address (C(match-client-id) off), since firmware and operating \
                  system send different ones."),
        Opt::str("architecture")
            .choices(&Architecture::NAMES)
            .default("uefi_x64")
            .doc("What O(netboot) is asserted for."),
        Opt::bool("apply")
            .default(true)
            .doc("Whether OPNsense makes Kea read the change. With V(false) it is stored and verified as stored, and \
                  RV(pending_apply) says that M(homelab.anvil.opnsense_reconfigure) has to run, once for a batch. Plain Kea \
                  applies at once."),
        Opt::str("persist")
            .choices(&["server", "file"])
            .default("server")
            .doc("How a change of plain Kea outlives a restart. With V(server), Kea writes its file itself (config-write). With \
                  V(file), this module does, as root on Kea's machine through O(kea_socket): for a Kea that may not write its \
                  file, as Debian 12 installs it. The file is replaced atomically, after Kea's own program (C(-t)) accepted it. \
                  Either way it holds the whole configuration without comments and includes."),
        Opt::path("kea_config_file").doc(
            "The file for O(persist=file), as a check: by default it is the one that the running Kea was started with.",
        ),
    ])
    .rule(Rule::RequiredIf { option: "persist", value: json!("file"), required: vec!["kea_socket"], any: false })
    .rule(Rule::MutuallyExclusive(vec!["mac", "client_id"]))
    .rule(Rule::RequiredOneOf(vec!["mac", "client_id"]))
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

const RETURNS: &str = concat!(
    r"
reservation:
  description: The reservation as the server holds it; in check mode as it would be. Null when there is none.
  returned: success
  type: dict
  contains:
",
    dhcp_reservations::object_doc!(),
    r"boot_file_sent_as:
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
"
);

#[cfg(test)]
mod tests;
