//! A DHCP client that speaks as a relay agent on loopback: what would this MAC address get from that server?
//!
//! The packet carries the relay's address 127.0.0.1, where the answer then goes, and the link selection sub-option (RFC
//! 3527), by which the server picks the subnet. So no privilege, no raw socket and no network of its own is needed.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};

/// A server on loopback drops what it has no address for: this long without an answer means none.
const PATIENCE: Duration = Duration::from_secs(2);
const MAGIC: [u8; 4] = [99, 130, 83, 99];
const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;
const ROUTERS: u8 = 3;
const REQUESTED_ADDRESS: u8 = 50;
const MESSAGE_TYPE: u8 = 53;
const SERVER_ID: u8 = 54;
const WANTED_OPTIONS: u8 = 55;
const TFTP_SERVER_NAME: u8 = 66;
const BOOT_FILE_NAME: u8 = 67;
const RELAY_INFORMATION: u8 = 82;
const LINK_SELECTION: u8 = 5;
const FILE: std::ops::Range<usize> = 108..236;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// DHCP message type: 2 offer, 5 acknowledgement, 6 refusal.
    pub message: u8,
    /// `yiaddr`.
    pub address: Ipv4Addr,
    /// `siaddr`, from which a firmware loads; unspecified when unset.
    pub next_server: Ipv4Addr,
    /// The BOOTP `file` field.
    pub file: String,
    /// Option 67.
    pub boot_file_name: Option<String>,
    /// Option 66.
    pub tftp_server_name: Option<String>,
    /// Option 3.
    pub routers: Vec<Ipv4Addr>,
    server: Option<Vec<u8>>,
}

/// One client of one server.
#[derive(Debug)]
pub struct Client {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Client {
    /// A client on a free port of 127.0.0.1. The server has to answer to [`Client::port`] (Kea: `-P`).
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn new(server: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, server })
    }

    /// Where the server is asked.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// The port that answers have to come to.
    ///
    /// # Errors
    /// The socket has none.
    pub fn port(&self) -> Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// DHCPDISCOVER from `mac` on the network of `subnet` (its network address); `None` when nothing is offered.
    ///
    /// # Errors
    /// The answer is no DHCP, or the socket fails.
    pub fn discover(&self, mac: [u8; 6], subnet: Ipv4Addr) -> Result<Option<Answer>> {
        self.exchange(DISCOVER, mac, subnet, &[])
    }

    /// DHCPDISCOVER and, for what was offered, DHCPREQUEST: the lease is then given out.
    ///
    /// # Errors
    /// As for [`Client::discover`].
    pub fn lease(&self, mac: [u8; 6], subnet: Ipv4Addr) -> Result<Option<Answer>> {
        let Some(offer) = self.discover(mac, subnet)? else { return Ok(None) };
        let server = offer.server.as_deref().context("the offer names no server")?;
        let chosen = [&[SERVER_ID, 4], server, &[REQUESTED_ADDRESS, 4], &offer.address.octets()].concat();
        self.exchange(REQUEST, mac, subnet, &chosen)
    }

    fn exchange(
        &self,
        message: u8,
        mac: [u8; 6],
        subnet: Ipv4Addr,
        options: &[u8],
    ) -> Result<Option<Answer>> {
        self.socket.send_to(&packet(message, mac, subnet, options), self.server)?;
        let mut buffer = [0; 1500];
        match self.socket.recv_from(&mut buffer) {
            Ok((length, _)) => parse(&buffer[..length]).context("the answer is no DHCP packet").map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// RFC 2131, figure 1.
fn packet(message: u8, mac: [u8; 6], subnet: Ipv4Addr, options: &[u8]) -> Vec<u8> {
    let (request, ethernet, length, hops) = (1, 1, 6, 1);
    let transaction = [mac[2], mac[3], mac[4], mac[5]];
    let mut packet = vec![request, ethernet, length, hops];
    packet.extend(transaction);
    packet.extend([0; 4 + 12]);
    packet.extend(Ipv4Addr::LOCALHOST.octets());
    packet.extend(mac);
    packet.resize(FILE.end, 0);
    packet.extend(MAGIC);
    packet.extend([MESSAGE_TYPE, 1, message]);
    packet.extend([WANTED_OPTIONS, 3, ROUTERS, TFTP_SERVER_NAME, BOOT_FILE_NAME]);
    packet.extend(options);
    packet.extend([RELAY_INFORMATION, 6, LINK_SELECTION, 4]);
    packet.extend(subnet.octets());
    packet.push(255);
    packet
}

fn parse(packet: &[u8]) -> Option<Answer> {
    let options = packet.get(FILE.end..)?.strip_prefix(&MAGIC)?;
    let address = |from: usize| packet.get(from..from + 4).and_then(ipv4);
    let text = |code| {
        option(options, code).map(|data| String::from_utf8_lossy(data).trim_end_matches('\0').to_owned())
    };
    Some(Answer {
        message: *option(options, MESSAGE_TYPE)?.first()?,
        address: address(16)?,
        next_server: address(20)?,
        file: String::from_utf8_lossy(packet.get(FILE)?).trim_end_matches('\0').to_owned(),
        boot_file_name: text(BOOT_FILE_NAME),
        tftp_server_name: text(TFTP_SERVER_NAME),
        routers: option(options, ROUTERS).unwrap_or_default().chunks(4).filter_map(ipv4).collect(),
        server: option(options, SERVER_ID).map(<[u8]>::to_vec),
    })
}

fn ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from)
}

fn option(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        match options {
            [0, rest @ ..] => options = rest,
            [255, ..] | [] | [_] => return None,
            [code, length, rest @ ..] => {
                let (data, rest) = rest.split_at_checked(usize::from(*length))?;
                if *code == wanted {
                    return Some(data);
                }
                options = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(options: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; FILE.end];
        packet[16..20].copy_from_slice(&[10, 0, 0, 5]);
        packet[20..24].copy_from_slice(&[10, 0, 0, 2]);
        packet[FILE.start..FILE.start + 4].copy_from_slice(b"grub");
        [packet, MAGIC.to_vec(), options.to_vec()].concat()
    }

    #[test]
    fn an_answer_is_read_whatever_the_order_of_its_options() {
        let options =
            [&[0, 0, 67, 3], &b"a.b"[..], &[53, 1, 5, 3, 8, 10, 0, 0, 1, 10, 0, 0, 9, 255, 66, 1, 65]]
                .concat();
        let read = parse(&answer(&options)).unwrap();
        assert_eq!(
            (read.message, read.address, read.next_server),
            (5, [10, 0, 0, 5].into(), [10, 0, 0, 2].into())
        );
        assert_eq!((read.file.as_str(), read.boot_file_name.as_deref()), ("grub", Some("a.b")));
        assert_eq!(read.routers, [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 9)]);
        assert_eq!(read.tftp_server_name, None);
    }

    #[test]
    fn what_is_cut_short_is_no_answer() {
        let whole = answer(&[53, 1, 2, 255]);
        assert!(parse(&whole).is_some());
        for length in [0, 240, whole.len() - 2] {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
        assert_eq!(parse(&answer(&[255])), None);
    }

    #[test]
    fn a_request_is_a_relayed_one() {
        let packet = packet(DISCOVER, [0x52, 0x54, 0, 1, 2, 3], Ipv4Addr::new(10, 0, 0, 0), &[]);
        assert_eq!(packet[..4], [1, 1, 6, 1]);
        assert_eq!(packet[24..34], [127, 0, 0, 1, 0x52, 0x54, 0, 1, 2, 3]);
        let options = packet[FILE.end..].strip_prefix(&MAGIC).unwrap();
        assert_eq!(option(options, MESSAGE_TYPE), Some(&[DISCOVER][..]));
        assert_eq!(option(options, RELAY_INFORMATION), Some(&[LINK_SELECTION, 4, 10, 0, 0, 0][..]));
    }
}
