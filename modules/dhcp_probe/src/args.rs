//! The option table and the checked arguments made from it.

use std::net::Ipv4Addr;
use std::time::Duration;

use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use dhcp_client::{Architecture, Discover};
use net_types::{ClientId, MacAddress};
use serde::Deserialize;

pub(crate) fn spec() -> Spec {
    Spec::new("dhcp_probe", "Asks a network segment what DHCP would give a MAC address")
        .describe(
            "Sends a real DHCPDISCOVER with the MAC address of your choice out of an interface and returns the \
             DHCPOFFER that comes back: address, next server, boot file, options.",
        )
        .describe(
            "Tells in a second whether a reservation holds, which next server and boot file a client would get, \
             and whether a second DHCP server answers on the segment.",
        )
        .describe(
            "It stops after the offer. Nothing is requested, no lease is taken, nothing is written, so it does the \
             same in check mode and never reports a change.",
        )
        .requirement("Root or CAP_NET_RAW on the machine that runs the module, for a raw packet socket.")
        .note(
            "The MAC address is the DHCP field C(chaddr) only; the Ethernet source is the interface's own address, so \
             no switch learns a wrong port. A server that reserves by the Ethernet source would not see it.",
        )
        .note("The server must be on the segment of the interface, or a relay must.")
        .seealso(&["homelab.anvil.kea_reservation"])
        .timeout(10)
        .options(Table::new(vec![
            Opt::str("interface")
                .required()
                .doc("The Ethernet interface to ask through, on the segment of the client; it needs no address."),
            Opt::str("mac")
                .required()
                .quoted("a MAC address")
                .doc("The MAC address that asks, in any common spelling."),
            Opt::str("client_id")
                .quoted("a client identifier")
                .doc("Option 61 in hexadecimal with its type byte, such as V(01:02:a5:00:00:00:64).")
                .doc("Some servers prefer it to the MAC address; firmware and operating system often send different ones."),
            Opt::str("architecture")
                .doc("Asks as network-boot firmware does, with options 60, 93 and 94.")
                .doc(format!(
                    "One of {}, or the number of option 93.",
                    Architecture::names().map(|name| format!("V({name})")).collect::<Vec<_>>().join(", ")
                )),
            Opt::list("request", Kind::Int)
                .default(Vec::<u8>::new())
                .doc("Option codes to ask for in addition to those that every client asks for (1, 3, 6, 12, 15, 51, 54, 60, 66, 67)."),
            Opt::int("collect").default(0).doc(
                "Seconds to go on listening after the first offer, to see whether a second server answers; V(0) takes the first. \
             Less than O(timeout).",
            ),
            Opt::dict_of(
                "expect",
                Table::new(vec![
                    Opt::str("yiaddr").doc("The address that must be offered."),
                    Opt::str("siaddr").doc("The next server that must be offered; V(0.0.0.0) for none."),
                    Opt::str("file").doc("The BOOTP field C(file) that must be offered; empty for none."),
                    Opt::str("tftp_server_name").doc("Option 66 that must be offered; empty for none."),
                    Opt::str("boot_file_name").doc("Option 67 that must be offered; empty for none."),
                    Opt::str("server_id").doc("The server that must answer, option 54."),
                ]),
            )
            .doc("What the offer must say; the module fails and names each field that differs.")
            .doc("With O(collect), every offer must say it: a second server that disagrees is a failure."),
        ]))
        .examples(EXAMPLES)
        .returns(RETURNS)
}

const EXAMPLES: &str = r"
- name: What would this machine get?
  homelab.anvil.dhcp_probe:
    interface: vmbr0
    mac: '02:a5:00:00:00:64'
  become: true
  register: probe

- name: A UEFI client must get its reserved address, the next server and the boot file
  homelab.anvil.dhcp_probe:
    interface: vmbr0
    mac: '02:a5:00:00:00:64'
    architecture: uefi_x64
    expect:
      yiaddr: 10.20.10.30
      siaddr: 10.20.10.5
      file: grubx64.efi
  become: true

- name: Is there a second DHCP server on this segment?
  homelab.anvil.dhcp_probe:
    interface: vmbr0
    mac: '02:a5:00:00:00:64'
    collect: 3
  become: true
  register: probe
  failed_when: probe.offers | map(attribute='server_id') | unique | length != 1
";

const RETURNS: &str = r"
offer:
  description: The first offer.
  returned: success, and when RV(error_code) is V(offer_mismatch)
  type: dict
  contains:
    yiaddr:
      description: The offered address.
      type: str
    siaddr:
      description: The next server, V(0.0.0.0) when none is set.
      type: str
    giaddr:
      description: The relay that the offer came through, V(0.0.0.0) without one.
      type: str
    file:
      description: The BOOTP field C(file), empty when not set.
      type: str
    sname:
      description: The BOOTP field C(sname), empty when not set.
      type: str
    server_id:
      description: The server's identifier, option 54.
      type: str
    server_mac:
      description: The Ethernet address that the offer came from, of the server or of a relay.
      type: str
    lease_time:
      description: Option 51, seconds.
      type: int
    subnet_mask:
      description: Option 1.
      type: str
    routers:
      description: Option 3.
      type: list
      elements: str
    domain_name_servers:
      description: Option 6.
      type: list
      elements: str
    host_name:
      description: Option 12, empty when not set.
      type: str
    domain_name:
      description: Option 15, empty when not set.
      type: str
    tftp_server_name:
      description: Option 66, empty when not set.
      type: str
    boot_file_name:
      description: Option 67, empty when not set.
      type: str
    options:
      description: Every option by its code, in hexadecimal.
      type: dict
offers:
  description: Every offer that came, the first one included.
  returned: success, and when RV(error_code) is V(offer_mismatch)
  type: list
  elements: dict
";

/// What was asked for, field by field of the result's `offer`.
pub(crate) type Expected = Vec<(&'static str, String)>;

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) interface: String,
    pub(crate) discover: Discover,
    pub(crate) collect: Duration,
    pub(crate) expect: Expected,
}

#[derive(Deserialize)]
struct Raw {
    interface: String,
    mac: MacAddress,
    client_id: Option<ClientId>,
    architecture: Option<String>,
    request: Vec<i64>,
    collect: i64,
    expect: Option<Expect>,
}

#[derive(Deserialize)]
struct Expect {
    yiaddr: Option<Ipv4Addr>,
    siaddr: Option<Ipv4Addr>,
    file: Option<String>,
    tftp_server_name: Option<String>,
    boot_file_name: Option<String>,
    server_id: Option<Ipv4Addr>,
}

impl Args {
    /// `budget` is what the whole probe may take.
    pub(crate) fn check(arguments: &Arguments, budget: Duration) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if raw.mac.is_multicast() {
            return Err(Failure::bad_argument(
                "mac",
                format!("{} is a group address; no machine asks with it", raw.mac),
            ));
        }
        let request = raw
            .request
            .iter()
            .enumerate()
            .map(|(index, code)| match u8::try_from(*code) {
                Ok(code @ 1..=254) => Ok(code),
                _ => Err(Failure::bad_argument(
                    format!("request[{index}]"),
                    format!("expected an option code from 1 to 254, found {code}"),
                )),
            })
            .collect::<Result<_, _>>()?;
        let collect = u64::try_from(raw.collect).map(Duration::from_secs).map_err(|_| {
            Failure::bad_argument("collect", format!("expected 0 or more seconds, found {}", raw.collect))
        })?;
        if collect >= budget {
            let why = format!(
                "expected less than `timeout`, which ends the listening, found {} of at most {:.0} seconds",
                raw.collect,
                budget.as_secs_f64()
            );
            return Err(Failure::bad_argument("collect", why));
        }
        Ok(Self {
            interface: raw.interface,
            discover: Discover {
                mac: raw.mac,
                client_id: raw.client_id.map(|client_id| client_id.bytes().to_vec()),
                architecture: raw
                    .architecture
                    .map(|word| word.parse().map_err(|why| Failure::bad_argument("architecture", why)))
                    .transpose()?,
                request,
            },
            collect,
            expect: raw.expect.map(Expect::fields).unwrap_or_default(),
        })
    }
}

impl Expect {
    fn fields(self) -> Expected {
        let address = |address: Option<Ipv4Addr>| address.map(|address| address.to_string());
        [
            ("yiaddr", address(self.yiaddr)),
            ("siaddr", address(self.siaddr)),
            ("file", self.file),
            ("tftp_server_name", self.tftp_server_name),
            ("boot_file_name", self.boot_file_name),
            ("server_id", address(self.server_id)),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
        .collect()
    }
}
