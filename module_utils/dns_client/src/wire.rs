//! Octets to the server and back: UDP with a few tries, TCP with one.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use deadline::Deadline;

use crate::error::Error;
use crate::server::Server;

/// Longest wait for one answer over UDP before it is asked again.
const UDP_TRY: Duration = Duration::from_secs(2);
const UDP_TRIES: u32 = 3;
/// Longest time for a TCP connection, and for the answer on it.
const TCP_TRY: Duration = Duration::from_secs(15);
/// A signal ends a wait this soon.
const INTERRUPT_TICK: Duration = Duration::from_millis(50);
const LONGEST_MESSAGE: usize = 65_535;

impl Server {
    /// The first answer that `fits`; others, late or forged, are passed over.
    pub(crate) fn over_udp(
        &self,
        message: &[u8],
        fits: impl Fn(&[u8]) -> bool,
        deadline: &Deadline,
    ) -> Result<Vec<u8>, Error> {
        let told = |error: &io::Error| Error::unreachable(&self.to_string(), error);
        let any: SocketAddr = match self.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).map_err(|error| told(&error))?;
        socket.connect(self.address).map_err(|error| told(&error))?;
        socket.set_read_timeout(Some(INTERRUPT_TICK)).map_err(|error| told(&error))?;
        let mut answer = vec![0; LONGEST_MESSAGE];
        for _ in 0..UDP_TRIES {
            deadline.check()?;
            self.count("QUERY");
            socket.send(message).map_err(|error| told(&error))?;
            let patience = deadline.at_most(UDP_TRY);
            while !patience.remaining().is_zero() {
                patience.check()?;
                match socket.recv(&mut answer) {
                    Ok(length) if fits(&answer[..length]) => return Ok(answer[..length].to_vec()),
                    Ok(_) => {}
                    Err(error) if is_a_tick(&error) => {}
                    Err(error) => return Err(told(&error)),
                }
            }
        }
        Err(told(&io::ErrorKind::TimedOut.into()))
    }

    /// One exchange on a connection of its own.
    pub(crate) fn over_tcp(&self, message: &[u8], deadline: &Deadline) -> Result<Vec<u8>, Error> {
        deadline.check()?;
        let told = |error: io::Error| Error::unreachable(&self.to_string(), &error);
        let patience = deadline.at_most(TCP_TRY);
        let length = u16::try_from(message.len())
            .map_err(|_| Error::protocol(&self.to_string(), "what is asked is too long for DNS"))?;
        let mut stream = TcpStream::connect_timeout(&self.address, patience.remaining().max(INTERRUPT_TICK))
            .map_err(told)?;
        stream.set_read_timeout(Some(INTERRUPT_TICK)).map_err(told)?;
        stream.set_write_timeout(Some(TCP_TRY)).map_err(told)?;
        stream.write_all(&[&length.to_be_bytes(), message].concat()).map_err(told)?;
        let mut length = [0; 2];
        self.fill(&mut stream, &mut length, &patience)?;
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        self.fill(&mut stream, &mut answer, &patience)?;
        Ok(answer)
    }

    fn fill(&self, stream: &mut TcpStream, buffer: &mut [u8], patience: &Deadline) -> Result<(), Error> {
        let told = |error: io::Error| Error::unreachable(&self.to_string(), &error);
        let mut filled = 0;
        while filled < buffer.len() {
            patience.check()?;
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(told(io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => filled += length,
                Err(error) if is_a_tick(&error) => {}
                Err(error) => return Err(told(error)),
            }
        }
        Ok(())
    }
}

fn is_a_tick(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
