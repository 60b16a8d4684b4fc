//! The two messages, as pure functions from and to Ethernet frames.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Decodable, Decoder, Encodable};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use net_types::MacAddress;

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
const BROADCAST: [u8; 6] = [0xff; 6];
/// What PXE firmware asks for besides the addresses: mask, router, DNS, host name, domain, lease,
/// server, TFTP server (66) and boot file (67).
const DEFAULT_REQUEST: [u8; 10] = [1, 3, 6, 12, 15, 51, 54, 60, 66, 67];

/// A client's system architecture, DHCP option 93 (IANA "Processor Architecture Types", RFC 5970).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture(pub u16);

impl Architecture {
    const NAMES: [(&'static str, u16); 6] = [
        ("bios", 0),
        ("uefi_ia32", 6),
        ("uefi_x64", 7),
        ("uefi_arm64", 11),
        ("uefi_x64_http", 16),
        ("uefi_arm64_http", 19),
    ];

    /// The words of the architectures that are known by name.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().map(|(name, _)| name)
    }

    /// 15 to 20 are the architectures that boot over HTTP; their vendor class says so.
    fn vendor_class(self) -> String {
        let client = if (15..=20).contains(&self.0) { "HTTPClient" } else { "PXEClient" };
        format!("{client}:Arch:{:05}:UNDI:003016", self.0)
    }
}

impl FromStr for Architecture {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::NAMES
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, code)| Self(code))
            .or_else(|| word.parse().ok().map(Self))
            .ok_or_else(|| {
                let names: Vec<&str> = Self::names().collect();
                format!("expected {} or a number of option 93, found `{word}`", names.join(", "))
            })
    }
}

/// What the client says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    pub mac: MacAddress,
    /// Option 61, the whole value with its type byte.
    pub client_id: Option<Vec<u8>>,
    pub architecture: Option<Architecture>,
    /// Option 55 in addition to what every client asks for.
    pub request: Vec<u8>,
}

impl Discover {
    /// The Ethernet frame; `source` is the interface's own address.
    #[must_use]
    pub fn frame(&self, source: [u8; 6], xid: u32) -> Vec<u8> {
        let payload = self.message(xid).to_vec().unwrap_or_default();
        let builder = PacketBuilder::ethernet2(source, BROADCAST)
            .ipv4(Ipv4Addr::UNSPECIFIED.octets(), Ipv4Addr::BROADCAST.octets(), 64)
            .udp(CLIENT_PORT, SERVER_PORT);
        let mut frame = Vec::with_capacity(builder.size(payload.len()));
        // Writing to a Vec cannot fail, and a DISCOVER is far below the size of a datagram.
        let _ = builder.write(&mut frame, &payload);
        frame
    }

    fn message(&self, xid: u32) -> Message {
        let zero = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(xid, zero, zero, zero, zero, &self.mac.bytes());
        message.set_opcode(Opcode::BootRequest).set_flags(Flags::default().set_broadcast());
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(MessageType::Discover));
        let mut codes = DEFAULT_REQUEST.to_vec();
        codes.extend(self.request.iter().filter(|code| !DEFAULT_REQUEST.contains(code)));
        options.insert(DhcpOption::ParameterRequestList(codes.into_iter().map(OptionCode::from).collect()));
        if let Some(client_id) = &self.client_id {
            options.insert(DhcpOption::ClientIdentifier(client_id.clone()));
        }
        if let Some(architecture) = self.architecture {
            options.insert(DhcpOption::ClientSystemArchitecture(architecture.0.into()));
            options.insert(DhcpOption::ClientNetworkInterface(1, 3, 16));
            options.insert(DhcpOption::ClassIdentifier(architecture.vendor_class().into_bytes()));
        }
        message
    }
}

/// What one server would give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The address for the client.
    pub yiaddr: Ipv4Addr,
    /// The next server of the boot; 0.0.0.0 when none is set. UEFI firmware reads this, not option 66.
    pub siaddr: Ipv4Addr,
    /// The relay that the answer came through; 0.0.0.0 without one.
    pub giaddr: Ipv4Addr,
    /// The BOOTP field `file`; empty when not set.
    pub file: String,
    /// The BOOTP field `sname`; empty when not set.
    pub sname: String,
    /// Option 54.
    pub server_id: Option<Ipv4Addr>,
    /// The Ethernet address that the answer came from: the server's, or the relay's.
    pub server_mac: [u8; 6],
    /// Every option by its code, the raw value.
    pub options: BTreeMap<u8, Vec<u8>>,
}

impl Offer {
    /// Reads an Ethernet frame; `None` unless it is the OFFER to this DISCOVER.
    #[must_use]
    pub fn from_frame(frame: &[u8], xid: u32, mac: MacAddress) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let Some(NetSlice::Ipv4(_)) = packet.net else { return None };
        let Some(TransportSlice::Udp(udp)) = packet.transport else { return None };
        if udp.source_port() != SERVER_PORT || udp.destination_port() != CLIENT_PORT {
            return None;
        }
        let message = Message::decode(&mut Decoder::new(udp.payload())).ok()?;
        let ours = message.opcode() == Opcode::BootReply
            && message.xid() == xid
            && message.chaddr() == mac.bytes()
            && message.opts().has_msg_type(MessageType::Offer);
        let server_mac = frame.get(6..12)?.try_into().ok()?;
        ours.then(|| Self::from_message(&message, server_mac))
    }

    fn from_message(message: &Message, server_mac: [u8; 6]) -> Self {
        let options: BTreeMap<u8, Vec<u8>> = message
            .opts()
            .iter()
            .filter_map(|(code, option)| Some((u8::from(*code), option_value(option)?)))
            .collect();
        Self {
            yiaddr: message.yiaddr(),
            siaddr: message.siaddr(),
            giaddr: message.giaddr(),
            file: until_nul(message.fname()),
            sname: until_nul(message.sname()),
            server_id: options
                .get(&54)
                .and_then(|value| <[u8; 4]>::try_from(value.as_slice()).ok())
                .map(Into::into),
            server_mac,
            options,
        }
    }

    /// An option that holds text (12 host name, 15 domain name, 66 TFTP server, 67 boot file).
    #[must_use]
    pub fn text(&self, code: u8) -> Option<String> {
        self.options.get(&code).map(|value| until_nul(Some(value)))
    }

    /// An option that holds addresses (1 mask, 3 routers, 6 DNS servers).
    #[must_use]
    pub fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let value = self.options.get(&code).map_or(&[][..], Vec::as_slice);
        value.chunks_exact(4).map(|four| Ipv4Addr::new(four[0], four[1], four[2], four[3])).collect()
    }

    /// Option 51, seconds.
    #[must_use]
    pub fn lease_time(&self) -> Option<u32> {
        self.options.get(&51).and_then(|value| value.as_slice().try_into().ok()).map(u32::from_be_bytes)
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server_id.unwrap_or(Ipv4Addr::UNSPECIFIED);
        write!(f, "{} from server {server}", self.yiaddr)
    }
}

/// The raw value: an encoded option is code, length, value; a long one repeats that (RFC 3396).
fn option_value(option: &DhcpOption) -> Option<Vec<u8>> {
    if let DhcpOption::Unknown(unknown) = option {
        return Some(UnknownOption::data(unknown).to_vec());
    }
    let encoded = option.to_vec().ok()?;
    let (mut value, mut rest) = (Vec::new(), encoded.as_slice());
    while let [_, length, tail @ ..] = rest {
        let (part, next) = tail.split_at_checked(usize::from(*length))?;
        value.extend_from_slice(part);
        rest = next;
    }
    Some(value)
}

fn until_nul(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: MacAddress = MacAddress::new([0x02, 0xa5, 0, 0, 0, 0x64]);

    fn discover() -> Discover {
        Discover { mac: MAC, client_id: None, architecture: None, request: Vec::new() }
    }

    /// The DISCOVER in a frame, as a server would read it.
    fn received(frame: &[u8]) -> Message {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP") };
        assert_eq!((udp.source_port(), udp.destination_port()), (68, 67));
        Message::decode(&mut Decoder::new(udp.payload())).unwrap()
    }

    fn offer_frame(change: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = discover().message(7);
        message
            .set_opcode(Opcode::BootReply)
            .set_yiaddr([10, 0, 0, 30])
            .set_siaddr([10, 0, 0, 2])
            .set_fname_str("grubx64.efi");
        message.opts_mut().insert(DhcpOption::MessageType(MessageType::Offer));
        message.opts_mut().insert(DhcpOption::ServerIdentifier([10, 0, 0, 1].into()));
        message.opts_mut().insert(DhcpOption::AddressLeaseTime(4000));
        message.opts_mut().insert(DhcpOption::Router(vec![[10, 0, 0, 1].into()]));
        message.opts_mut().insert(DhcpOption::BootfileName(b"grubx64.efi".to_vec()));
        change(&mut message);
        let payload = message.to_vec().unwrap();
        let builder =
            PacketBuilder::ethernet2([2; 6], BROADCAST).ipv4([10, 0, 0, 1], [255; 4], 64).udp(67, 68);
        let mut frame = Vec::new();
        builder.write(&mut frame, &payload).unwrap();
        frame
    }

    #[test]
    fn a_discover_says_who_asks_and_wants_a_broadcast_answer() {
        let mut discover = discover();
        discover.architecture = Some("uefi_x64".parse().unwrap());
        discover.client_id = Some(vec![1, 2, 3]);
        discover.request = vec![67, 119];
        let message = received(&discover.frame([9; 6], 0x1234));
        assert_eq!(message.xid(), 0x1234);
        assert_eq!(message.chaddr(), MAC.bytes());
        assert!(message.flags().broadcast());
        let value = |code: u8| option_value(message.opts().get(code.into()).unwrap()).unwrap();
        assert_eq!(value(53), [1]);
        assert_eq!(value(55), [1, 3, 6, 12, 15, 51, 54, 60, 66, 67, 119]);
        assert_eq!(value(60), b"PXEClient:Arch:00007:UNDI:003016");
        assert_eq!(value(61), [1, 2, 3]);
        assert_eq!(value(93), [0, 7]);
        assert_eq!(value(94), [1, 3, 16]);
    }

    #[test]
    fn an_http_boot_client_names_itself_so() {
        let http: Architecture = "uefi_x64_http".parse().unwrap();
        assert_eq!(http.vendor_class(), "HTTPClient:Arch:00016:UNDI:003016");
        assert_eq!("9".parse(), Ok(Architecture(9)));
        assert!("pc".parse::<Architecture>().unwrap_err().contains("bios"));
    }

    #[test]
    fn an_offer_is_read_whole() {
        let offer = Offer::from_frame(&offer_frame(|_| {}), 7, MAC).unwrap();
        assert_eq!(offer.yiaddr, Ipv4Addr::new(10, 0, 0, 30));
        assert_eq!(offer.siaddr, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(offer.file, "grubx64.efi");
        assert_eq!(offer.server_id, Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(offer.lease_time(), Some(4000));
        assert_eq!(offer.addresses(3), [Ipv4Addr::new(10, 0, 0, 1)]);
        assert_eq!(offer.text(67).as_deref(), Some("grubx64.efi"));
        assert_eq!(offer.text(66), None);
        assert_eq!(offer.server_mac, [2; 6]);
    }

    #[test]
    fn answers_to_others_are_not_ours() {
        let frame = offer_frame(|_| {});
        assert!(Offer::from_frame(&frame, 8, MAC).is_none(), "another transaction");
        assert!(
            Offer::from_frame(&frame, 7, MacAddress::new([2, 0, 0, 0, 0, 1])).is_none(),
            "another client"
        );
        let ack =
            offer_frame(|message| drop(message.opts_mut().insert(DhcpOption::MessageType(MessageType::Ack))));
        assert!(Offer::from_frame(&ack, 7, MAC).is_none(), "no offer");
        assert!(Offer::from_frame(&discover().frame([9; 6], 7), 7, MAC).is_none(), "our own question");
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_panic(mut frame in proptest::collection::vec(any::<u8>(), 0..600), keep in 0..600_usize) {
            let mut real = offer_frame(|_| {});
            real.truncate(keep);
            let _ = Offer::from_frame(&real, 7, MAC);
            frame.extend(&real);
            let _ = Offer::from_frame(&frame, 7, MAC);
        }
    }
}
