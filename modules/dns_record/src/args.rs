//! The option table and the checked arguments.

use std::net::IpAddr;

use ansible_module::{Arguments, Failure, Opt, Rule, Spec, Table};
use api_options::{OpnsenseOptions, opnsense_table};
use dns_client::{Algorithm, RecordData, RecordType, reverse_name};
use net_types::{DomainName, Fqdn, HostName};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

/// OPNsense keeps at most this many characters in a description, and in a text.
const LONGEST_DESCRIPTION: usize = 255;
/// The longest time to live (RFC 2181, 8).
const LONGEST_TTL: i64 = 2_147_483_647;
/// The hostname that stands for the domain itself, as in a zone file.
const DOMAIN_ITSELF: &str = "@";

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Present,
    Absent,
}

/// Where the record is kept, and how that is reached.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Opnsense(OpnsenseOptions),
    Rfc2136(UpdateOptions),
}

/// A DNS server that takes signed updates.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct UpdateOptions {
    pub(crate) dns_server: String,
    pub(crate) dns_port: u16,
    pub(crate) key_name: String,
    pub(crate) key_algorithm: Algorithm,
    pub(crate) key_secret: SecretString,
    zone: Option<String>,
}

/// What the task asks for, checked as far as nobody has to be asked.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) state: State,
    /// A label, `*`, or empty for the domain itself.
    pub(crate) hostname: String,
    pub(crate) domain: String,
    pub(crate) rr: RecordType,
    /// `None` with `state: absent`.
    pub(crate) value: Option<RecordData>,
    pub(crate) ptr: bool,
    pub(crate) ttl: Option<u32>,
    pub(crate) description: Option<String>,
    pub(crate) repair_duplicates: bool,
    pub(crate) apply: bool,
    pub(crate) resolver: Option<(String, u16)>,
    pub(crate) backend: Backend,
}

#[derive(Deserialize)]
struct Raw {
    backend: String,
    state: State,
    hostname: String,
    domain: Option<String>,
    #[serde(rename = "type")]
    rr: Option<RecordType>,
    value: Option<String>,
    ptr: bool,
    ttl: Option<i64>,
    description: Option<String>,
    repair_duplicates: bool,
    apply: bool,
    resolver: Option<String>,
    resolver_port: u16,
}

impl Args {
    /// # Errors
    /// `bad_argument`
    pub(crate) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        let rr = match (raw.rr, &raw.value) {
            (Some(rr), _) => rr,
            (None, Some(value)) => RecordType::of_address(address(value)?),
            (None, None) => RecordType::A,
        };
        let value = raw.value.as_deref().map(|text| data(rr, text)).transpose()?;
        let (hostname, domain) = name(&raw, rr)?;
        let backend = match raw.backend.as_str() {
            "rfc2136" => Backend::Rfc2136(arguments.parse()?),
            _ => Backend::Opnsense(arguments.parse()?),
        };
        let args = Self {
            hostname,
            domain,
            state: raw.state,
            rr,
            value,
            ptr: raw.ptr,
            ttl: raw.ttl.map(ttl).transpose()?,
            description: raw.description,
            repair_duplicates: raw.repair_duplicates,
            apply: raw.apply,
            resolver: raw.resolver.map(|host| (host, raw.resolver_port)),
            backend,
        };
        match &args.backend {
            Backend::Opnsense(_) => args.refuse_what_opnsense_lacks()?,
            Backend::Rfc2136(options) => args.refuse_what_dns_lacks(options)?,
        }
        Ok(args)
    }

    /// `web01.example.net`
    pub(crate) fn fqdn(&self) -> String {
        format!("{}.{}", self.hostname, self.domain).trim_matches('.').to_owned()
    }

    /// The address that the name gets.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.value.as_ref().and_then(RecordData::address)
    }

    /// Whether a PTR record comes with it: an address gives back one name, not a pattern of names.
    pub(crate) fn has_ptr(&self) -> bool {
        self.ptr && self.rr.is_address() && self.hostname != "*"
    }

    /// The zone that the task names.
    pub(crate) fn zone(&self) -> Option<&str> {
        match &self.backend {
            Backend::Rfc2136(options) => options.zone.as_deref().map(|zone| zone.trim_end_matches('.')),
            Backend::Opnsense(_) => None,
        }
    }

    fn refuse_what_opnsense_lacks(&self) -> Result<(), Failure> {
        let refuse = |option: &str, why: &str| Err(Failure::bad_argument(option, why));
        let text = |option: &str, text: Option<&str>| match text {
            Some(text) if text.chars().count() > LONGEST_DESCRIPTION => {
                Err(Failure::bad_argument(option, format!("OPNsense keeps {LONGEST_DESCRIPTION} characters")))
            }
            _ => Ok(()),
        };
        text("description", self.description.as_deref())?;
        match (self.rr, &self.value) {
            (RecordType::Ptr, _) => refuse(
                "type",
                "OPNsense keeps no PTR record by itself: it makes one for the first name of an address, with type A or AAAA",
            ),
            (RecordType::Cname, _) if self.ttl.is_some() => {
                refuse("ttl", "an alias on OPNsense has the time to live of its host")
            }
            (RecordType::Txt, Some(value)) if value.as_str().contains(['"', '\'', '\\', '\n']) => refuse(
                "value",
                "Unbound's file on OPNsense would break at a quotation mark, an apostrophe, a backslash or a line break",
            ),
            (RecordType::Txt, Some(value)) => text("value", Some(value.as_str())),
            _ => Ok(()),
        }
    }

    fn refuse_what_dns_lacks(&self, options: &UpdateOptions) -> Result<(), Failure> {
        if self.description.is_some() {
            return Err(Failure::bad_argument("description", "a DNS server keeps none"));
        }
        if !self.apply {
            return Err(Failure::bad_argument("apply", "an update of a DNS server is in effect at once"));
        }
        let Some(zone) = &options.zone else { return Ok(()) };
        let zone: DomainName = zone.parse().map_err(|why| Failure::bad_argument("zone", why))?;
        let name = self.fqdn();
        if name == zone.as_str() || name.ends_with(&format!(".{}", zone.as_str())) {
            return Ok(());
        }
        Err(Failure::bad_argument("zone", format!("{name} is not in the zone {}", zone.as_str())))
    }
}

/// Name and domain. A PTR record may be asked for by the address.
fn name(raw: &Raw, rr: RecordType) -> Result<(String, String), Failure> {
    let address = raw.hostname.parse::<IpAddr>().ok().filter(|_| rr == RecordType::Ptr);
    match (address, &raw.domain) {
        (Some(address), None) => {
            let name = reverse_name(address);
            let (hostname, domain) = name.split_once('.').unwrap_or_default();
            Ok((hostname.to_owned(), domain.to_owned()))
        }
        (Some(_), Some(_)) => {
            Err(Failure::bad_argument("domain", "the address in `hostname` says it already: leave it out"))
        }
        (None, None) => Err(Failure::bad_argument("domain", "missing: the domain of the host")),
        (None, Some(text)) => Ok((hostname(&raw.hostname, rr)?, domain(text, rr)?)),
    }
}

/// Whether names of the type may begin with an underscore, which those of hosts may not (RFC 8552).
fn takes_underscores(rr: RecordType) -> bool {
    matches!(rr, RecordType::Txt | RecordType::Cname)
}

fn without_underscore(label: &str, rr: RecordType) -> &str {
    if takes_underscores(rr) { label.strip_prefix('_').unwrap_or(label) } else { label }
}

fn hostname(text: &str, rr: RecordType) -> Result<String, Failure> {
    match text {
        DOMAIN_ITSELF if rr == RecordType::Cname => {
            Err(Failure::bad_argument("hostname", "the domain itself cannot be an alias (RFC 1034, 3.6.2)"))
        }
        DOMAIN_ITSELF => Ok(String::new()),
        "*" => Ok(text.to_owned()),
        _ if text.contains('.') => {
            let why = format!(
                "expected one label, found `{text}`: what comes behind the first dot belongs into `domain`"
            );
            Err(Failure::bad_argument("hostname", why))
        }
        _ => {
            let checked = without_underscore(text, rr).parse::<HostName>();
            checked.map_err(|why| Failure::bad_argument("hostname", why))?;
            Ok(text.to_ascii_lowercase())
        }
    }
}

/// A dot at the end is understood; it is not sent, as Unbound's file would hold two.
fn domain(text: &str, rr: RecordType) -> Result<String, Failure> {
    let labels: Vec<&str> = text.split('.').map(|label| without_underscore(label, rr)).collect();
    let checked = labels.join(".").parse::<DomainName>();
    checked.map_err(|why| Failure::bad_argument("domain", why))?;
    Ok(text.trim_end_matches('.').to_ascii_lowercase())
}

fn data(rr: RecordType, text: &str) -> Result<RecordData, Failure> {
    if rr.is_address() {
        let address = address(text)?;
        if rr != RecordType::of_address(address) {
            let needed = RecordType::of_address(address);
            let why = format!("{address} does not fit type {rr}: that address needs type {needed}");
            return Err(Failure::bad_argument("value", why));
        }
        return Ok(RecordData::of_address(address));
    }
    if matches!(rr, RecordType::Cname | RecordType::Ptr) {
        let labels: Vec<&str> = text.split('.').map(|label| without_underscore(label, rr)).collect();
        labels.join(".").parse::<Fqdn>().map_err(|why| Failure::bad_argument("value", why))?;
    }
    RecordData::parse(rr, text).map_err(|why| Failure::bad_argument("value", why))
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

fn ttl(seconds: i64) -> Result<u32, Failure> {
    let fits = u32::try_from(seconds).ok().filter(|_| seconds <= LONGEST_TTL);
    fits.ok_or_else(|| {
        Failure::bad_argument("ttl", format!("expected 0 to {LONGEST_TTL} seconds, found {seconds}"))
    })
}

pub(crate) fn spec() -> Spec {
    Spec::new("dns_record", "Name an address in the DNS of OPNsense, or of a server that takes dynamic updates")
        .describe(
            "Adds, changes or removes one record with the PTR record that leads back, reads back what was stored, and asks a \
             resolver until it answers the same.",
        )
        .describe(
            "A record is known by its name and type. Another value changes that record; it never adds a second one.",
        )
        .describe(
            "With O(backend=opnsense) an A, AAAA or TXT record is a host override of Unbound. CNAME is an alias of the host \
             overrides of O(value), which must be there: Unbound answers it with their addresses, not with a CNAME. TXT needs \
             OPNsense 25.7.4. PTR comes of A and AAAA only: O(ptr).",
        )
        .describe(
            "With O(backend=rfc2136) any of the types is a record set of a zone, changed by updates that are signed with TSIG \
             and that the server refuses when somebody else changed the set meanwhile; then C(error_code) is \
             V(conflict) and nothing was changed. It works with BIND, Knot and PowerDNS, on the primary server of the zone.",
        )
        .note("OPNsense needs the privilege C(Services: Unbound) for the user of the key, as only that may apply. With \
               O(apply=false), C(Services: Unbound DNS: Edit Host and Domain Override) is enough.")
        .note(
            "A run that was killed after it stored a record on OPNsense and before it applied it leaves a mark in \
             C(~/.local/state/homelab.anvil) of the user the module runs as; the next run there sees it and applies.",
        )
        .note(
            "Questions to a server with O(backend=rfc2136) are not signed: a zone that answers only to those who have a key, or \
             whose view is chosen by the key, cannot be read.",
        )
        .note(
            "In check mode, the server is sent the update without its changes, which proves the key and that the zone takes \
             updates from it. Rights to single names (C(update-policy) of BIND) show only in the real run.",
        )
        .seealso(&["homelab.anvil.opnsense_reconfigure", "homelab.anvil.kea_reservation"])
        .timeout(120)
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("backend")
            .choices(&["opnsense", "rfc2136"])
            .default("opnsense")
            .doc("Where the record is kept: Unbound on OPNsense, or a DNS server that takes dynamic updates."),
        Opt::str("state").choices(&["present", "absent"]).default("present").doc("V(absent) removes the record."),
        Opt::str("hostname").required().doc(
            "Name of the host, one label without the domain; V(*) for every name, V(@) for the domain itself. For a PTR record, \
             the address itself will do.",
        ),
        Opt::str("domain").doc("Domain of the host; left out only when O(hostname) is the address of a PTR record."),
        Opt::str("type")
            .choices(&["A", "AAAA", "CNAME", "TXT", "PTR"])
            .aliases(&["rr"])
            .doc("Type of the record; by default the one that the address in O(value) fits, and V(A) without a value."),
        Opt::str("value").quoted("an address").aliases(&["server", "ip"]).doc(
            "What the record says: the address of the host, for CNAME and PTR a full name, for TXT a text. Required with \
             O(state=present).",
        ),
        Opt::bool("ptr").default(true).doc(
            "Whether the address also gets a PTR record. OPNsense gives one to the first name of an address only; RV(ptr_name) \
             says which. There, V(false) needs OPNsense 26.1.3. With O(backend=rfc2136) the server must keep the reverse zone, \
             and an address whose PTR record gives another name that still has it is refused; with the name goes its PTR record.",
        ),
        Opt::int("ttl").doc(
            "Seconds that resolvers may keep the record. Left out, it stays as it is, and a new one gets the default of OPNsense, \
             or 3600 with O(backend=rfc2136).",
        ),
        Opt::str("description").doc("Free text, on OPNsense; left out, it stays as it is."),
        Opt::bool("repair_duplicates")
            .default(false)
            .doc("There can be any number of records of one name and type. When there is more than one, the module refuses; \
                  with V(true) it keeps one, the one with O(value) if there is such, and removes the others."),
        Opt::bool("apply")
            .default(true)
            .doc("Whether Unbound on OPNsense reads the change. With V(false) it is stored and verified as stored, and \
                  RV(pending_apply) says that M(homelab.anvil.opnsense_reconfigure) has to run, once for a batch."),
        Opt::str("resolver").doc(
            "Name or address of the resolver that clients use, OPNsense itself for instance. When nothing is left to store or \
             apply, it is asked until it answers what is stored or O(timeout) passes, which is a failure. Left out, none is asked. \
             A resolver that keeps an old answer goes on to give it until the time to live of that is over. A plain Unbound \
             answers nothing for the PTR records of private addresses, unless C(unblock-lan-zones) is set.",
        ),
        Opt::int("resolver_port").default(53).doc("Port of O(resolver)."),
        Opt::str("dns_server")
            .env(&["RFC2136_NAMESERVER"])
            .doc("Name or address of the primary server of the zone; required with O(backend=rfc2136)."),
        Opt::int("dns_port").default(53).doc("Port of O(dns_server), TCP for updates and UDP for questions."),
        Opt::str("key_name")
            .env(&["RFC2136_TSIG_KEY"])
            .doc("Name of the TSIG key, as the server knows it; required with O(backend=rfc2136)."),
        Opt::str("key_secret")
            .env(&["RFC2136_TSIG_SECRET"])
            .no_log()
            .doc("The TSIG key itself in base64; required with O(backend=rfc2136)."),
        Opt::str("key_algorithm")
            .choices(&["hmac-sha256", "hmac-sha384", "hmac-sha512"])
            .default("hmac-sha256")
            .env(&["RFC2136_TSIG_ALGORITHM"])
            .doc("Algorithm of the TSIG key."),
        Opt::str("zone").doc("Zone of the name; left out, the server is asked for it. That of a PTR record is always asked for."),
    ])
    .rule(Rule::RequiredIf { option: "state", value: json!("present"), required: vec!["value"], any: false })
    .rule(Rule::RequiredIf {
        option: "backend",
        value: json!("rfc2136"),
        required: vec!["dns_server", "key_name", "key_secret"],
        any: false,
    })
    .with(opnsense_table(false))
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

- name: Name web01 in a zone of BIND, and prove that the resolver of the clients knows it
  homelab.anvil.dns_record:
    backend: rfc2136
    dns_server: ns1.example.net
    key_name: anvil
    key_secret: "{{ tsig_secret }}"
    hostname: web01
    domain: example.net
    value: 10.20.0.21
    ttl: 300
    resolver: 10.20.0.1
  delegate_to: localhost

- name: Answer a challenge for a certificate
  homelab.anvil.dns_record:
    backend: rfc2136
    dns_server: ns1.example.net
    key_name: anvil
    key_secret: "{{ tsig_secret }}"
    hostname: _acme-challenge
    domain: web01.example.net
    type: TXT
    value: "{{ challenge }}"
    ttl: 60
  delegate_to: localhost
"#;

const RETURNS: &str = r"
record:
  description: The record as it is kept; in check mode as it would be. Null when there is none.
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
    value:
      description: What it says; a list when it says several things.
      type: raw
      sample: 10.20.0.21
    ttl:
      description: Seconds that resolvers may keep it; null where OPNsense's default holds.
      type: int
    zone:
      description: The zone, with O(backend=rfc2136).
      type: str
    server:
      description: The address of a host override, with O(backend=opnsense).
      type: str
      sample: 10.20.0.21
    addptr:
      description: Whether a PTR record is asked for, with O(backend=opnsense).
      type: bool
    enabled:
      description: Whether Unbound gets to see the record, with O(backend=opnsense).
      type: bool
    description:
      description: The description, with O(backend=opnsense).
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
resolver:
  description: What O(resolver) answered; null when none was asked, since none is given or something is left to store or apply.
  returned: success
  type: dict
  contains:
    address:
      description: Address and port that were asked.
      type: str
      sample: 10.20.0.1:53
    answers:
      description: Each question (C(name), C(type)) and its C(answer), a list.
      type: list
      elements: dict
holder:
  description: The name that holds the address or is in the way of the record.
  returned: failure
  type: str
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
