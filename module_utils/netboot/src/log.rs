//! What the servers of a network boot write into their logs: in.tftpd (tftp-hpa), dnsmasq, Kea and nginx.

use std::collections::HashMap;
use std::net::IpAddr;

use access_log::Hit;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use net_types::MacAddress;

/// Something that a server did for a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: Timestamp,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A DHCP server gave, or offered, this address.
    Lease { mac: MacAddress, ip: IpAddr },
    /// A file was asked for over TFTP; in.tftpd does not say whether all of it arrived.
    Tftp { ip: IpAddr, path: String },
    /// A file that was asked for over TFTP is not there, or could not be sent.
    Missing { ip: IpAddr, path: String },
    /// A request over HTTP, its query cut off.
    Http { ip: IpAddr, path: String, status: u16 },
}

/// Reads lines, whatever their server, in the order in which they were written.
#[derive(Debug)]
pub struct Reader {
    zone: TimeZone,
    now: Timestamp,
    /// What each process of in.tftpd was asked for: it names no file when it refuses one.
    asked: HashMap<String, String>,
}

impl Reader {
    /// `zone` is the local time of the machine that wrote the lines, and `now` is close to when it did: the
    /// time stamps of syslog know neither zone nor year.
    #[must_use]
    pub fn new(zone: TimeZone, now: Timestamp) -> Self {
        Self { zone, now, asked: HashMap::new() }
    }

    /// A line of a log file; `None` for whatever says nothing about a network boot.
    pub fn line(&mut self, line: &str) -> Option<Event> {
        let line = line.trim_end();
        if let Some(event) = web(line) {
            return Some(event);
        }
        let (at, rest) = self.stamp(line)?;
        self.said(at, rest)
    }

    /// An entry of the journal, in the words of `journalctl -o json` (systemd.journal-fields(7)): its time in microseconds, who
    /// says it, and what.
    pub fn entry(&mut self, microseconds: i64, identifier: &str, pid: &str, message: &str) -> Option<Event> {
        let at = Timestamp::from_microsecond(microseconds).ok()?;
        match web(message.trim_end()) {
            Some(event) => Some(Event { at, ..event }),
            None => self.said(at, &format!("{identifier}[{pid}]: {}", message.trim_end())),
        }
    }

    /// The time at a line's beginning, and the rest from the program's name on.
    fn stamp<'l>(&self, line: &'l str) -> Option<(Timestamp, &'l str)> {
        // syslog(3) itself begins with the priority.
        let line =
            line.strip_prefix('<').and_then(|rest| rest.split_once('>')).map_or(line, |(_, rest)| rest);
        let (word, rest) = line.split_once(' ')?;
        if let Ok(at) = word.parse::<Timestamp>() {
            return Some((at, rest));
        }
        if let Some((clock, rest)) = rest.split_once(' ')
            && let Ok(local) = format!("{word}T{clock}").parse::<DateTime>()
        {
            return Some((self.zone.to_timestamp(local).ok()?, rest));
        }
        let (clock, rest) = line.split_at_checked(15)?;
        let local = |year: i16| DateTime::strptime("%Y %b %d %H:%M:%S", format!("{year} {clock}")).ok();
        let year = self.now.to_zoned(self.zone.clone()).year();
        let at = self.zone.to_timestamp(local(year)?).ok()?;
        // In January the log still has December.
        let is_ahead = at.duration_since(self.now) > SignedDuration::from_hours(24);
        let at = if is_ahead { self.zone.to_timestamp(local(year - 1)?).ok()? } else { at };
        Some((at, rest.trim_start()))
    }

    fn said(&mut self, at: Timestamp, rest: &str) -> Option<Event> {
        let what = if let Some((_, lease)) = rest.split_once("DHCP4_LEASE_") {
            kea(lease)
        } else {
            let (head, message) = rest.split_once(": ")?;
            let program = head.rsplit(' ').next()?;
            let (name, pid) = program
                .split_once('[')
                .map_or((program, ""), |(name, pid)| (name, pid.trim_end_matches(']')));
            match name {
                "in.tftpd" | "tftpd" => self.tftpd(pid, message),
                "dnsmasq-tftp" => dnsmasq_tftp(message),
                "dnsmasq-dhcp" => dnsmasq_dhcp(message),
                _ => None,
            }
        };
        what.map(|what| Event { at, what })
    }

    /// tftp-hpa, tftpd/tftpd.c: `RRQ from IP filename NAME` from the first -v on, `sending NAK (CODE, TEXT) to IP` from the
    /// second.
    fn tftpd(&mut self, pid: &str, message: &str) -> Option<What> {
        if let Some(rest) = message.strip_prefix("RRQ from ") {
            let (ip, name) = rest.split_once(" filename ")?;
            let path = name.split_once(" remapped to ").map_or(name, |(_, path)| path).to_owned();
            self.asked.insert(pid.to_owned(), path.clone());
            return Some(What::Tftp { ip: address(ip)?, path });
        }
        let (_, ip) = message.strip_prefix("sending NAK ")?.rsplit_once(" to ")?;
        Some(What::Missing { ip: address(ip)?, path: self.asked.remove(pid)? })
    }
}

/// dnsmasq, src/tftp.c.
fn dnsmasq_tftp(message: &str) -> Option<What> {
    if let Some((path, ip)) = message.strip_prefix("sent ").and_then(|rest| rest.rsplit_once(" to ")) {
        return Some(What::Tftp { ip: address(ip)?, path: path.to_owned() });
    }
    let missing = message.strip_prefix("file ").and_then(|rest| rest.rsplit_once(" not found for "));
    let failed = || message.strip_prefix("failed sending ")?.rsplit_once(" to ");
    let (path, ip) = missing.or_else(failed)?;
    Some(What::Missing { ip: address(ip)?, path: path.to_owned() })
}

/// dnsmasq, src/rfc2131.c: `DHCPACK(eth0) IP MAC NAME`, with log-dhcp behind the number of the exchange.
fn dnsmasq_dhcp(message: &str) -> Option<What> {
    let mut words = message.split(' ').skip_while(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    let kind = words.next()?;
    if !["DHCPOFFER(", "DHCPACK(", "BOOTP("].iter().any(|start| kind.starts_with(start)) {
        return None;
    }
    Some(What::Lease { ip: address(words.next()?)?, mac: words.next()?.parse().ok()? })
}

/// Kea, src/bin/dhcp4/dhcp4_messages.mes: `ALLOC [hwtype=1 MAC], cid=..., tid=...: lease IP has been allocated for ...`.
fn kea(lease: &str) -> Option<What> {
    if !["ALLOC ", "ADVERT ", "OFFER "].iter().any(|start| lease.starts_with(start)) {
        return None;
    }
    let (_, rest) = lease.split_once("[hwtype=1 ")?;
    let (mac, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once("lease ")?;
    Some(What::Lease { mac: mac.parse().ok()?, ip: address(rest.split(' ').next()?)? })
}

/// A web server's line.
fn web(line: &str) -> Option<Event> {
    let Hit { client: ip, at, path, status, .. } = Hit::parse(line)?;
    Some(Event { at: Timestamp::from_second(at).ok()?, what: What::Http { ip, path, status } })
}

/// A server that listens on IPv6 writes IPv4 addresses as `::ffff:10.0.0.5`.
fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader() -> Reader {
        Reader::new(TimeZone::UTC, "2026-11-30T16:40:00Z".parse().unwrap())
    }

    /// Each event as `SECONDS-OF-THE-DAY WHAT`.
    fn events(lines: &str) -> Vec<String> {
        let mut reader = reader();
        lines.lines().filter_map(|line| reader.line(line)).map(|event| shown(&event)).collect()
    }

    fn shown(event: &Event) -> String {
        let at = event.at.to_zoned(TimeZone::UTC).strftime("%H:%M:%S").to_string();
        match &event.what {
            What::Lease { mac, ip } => format!("{at} {mac} has {ip}"),
            What::Tftp { ip, path } => format!("{at} {ip} {path}"),
            What::Missing { ip, path } => format!("{at} {ip} {path} missing"),
            What::Http { ip, path, status } => format!("{at} {ip} {path} {status}"),
        }
    }

    #[test]
    fn in_tftpd_as_rsyslog_and_as_journald_and_syslog_have_it() {
        insta::assert_debug_snapshot!(events(
            "<29>Nov 30 16:35:44 in.tftpd[10631]: RRQ from 10.77.0.50 filename grubx64.efi\n\
             \n\
             Nov 30 16:35:44 boot in.tftpd[10642]: RRQ from ::ffff:10.77.0.50 filename /grub/nothing\n\
             Nov 30 16:35:44 boot in.tftpd[10638]: RRQ from 10.77.0.50 filename /grub/grub.cfg-02:a5:00:00:03:e9\n\
             Nov 30 16:35:44 boot in.tftpd[10642]: sending NAK (1, File not found) to 10.77.0.50\n\
             2026-11-30T17:35:45.250000+01:00 boot in.tftpd[10647]: RRQ from fd00::1 filename a b remapped to /a_b\n\
             Nov 30 16:35:46 boot in.tftpd[1]: tftp: client does not accept options\n\
             Nov 30 16:35:46 boot in.tftpd[2]: sending NAK (0, x) to 10.77.0.50\n"
        ), @r#"
        [
            "16:35:44 10.77.0.50 grubx64.efi",
            "16:35:44 10.77.0.50 /grub/nothing",
            "16:35:44 10.77.0.50 /grub/grub.cfg-02:a5:00:00:03:e9",
            "16:35:44 10.77.0.50 /grub/nothing missing",
            "16:35:45 fd00::1 /a_b",
        ]
        "#);
        let mut reader = reader();
        let entry = reader.entry(
            1_796_056_672_536_516,
            "in.tftpd",
            "7",
            "RRQ from 10.77.0.50 filename grubx64.efi\n",
        );
        assert_eq!(entry.map(|event| shown(&event)).as_deref(), Some("16:37:52 10.77.0.50 grubx64.efi"));
    }

    #[test]
    fn dnsmasq_with_and_without_the_numbers_of_exchanges() {
        insta::assert_debug_snapshot!(events(
            "Nov 30 16:35:47 dnsmasq-tftp[10682]: sent /srv/tftp/grub/grub.cfg-02:a5:00:00:03:e9 to 10.77.0.50\n\
             Nov 30 16:35:47 dnsmasq-tftp[10682]: file /srv/tftp/grub/nothing not found for 10.77.0.50\n\
             Nov 30 16:35:47 dnsmasq-tftp[10682]: failed sending /srv/tftp/initrd.img to 10.77.0.50\n\
             Nov 30 16:36:20 dnsmasq-dhcp[1]: 3376725541 DHCPDISCOVER(v0) 02:a5:00:00:03:e9 \n\
             Nov 30 16:36:20 dnsmasq-dhcp[1]: 3376725541 DHCPOFFER(v0) 10.77.0.50 02:a5:00:00:03:e9 \n\
             Nov 30 16:36:20 dnsmasq-dhcp[1]: DHCPACK(v0) 10.77.0.50 02:a5:00:00:03:e9 web01\n\
             Nov 30 16:36:20 dnsmasq-dhcp[1]: 3376725541 next server: 10.77.0.1\n"
        ), @r#"
        [
            "16:35:47 10.77.0.50 /srv/tftp/grub/grub.cfg-02:a5:00:00:03:e9",
            "16:35:47 10.77.0.50 /srv/tftp/grub/nothing missing",
            "16:35:47 10.77.0.50 /srv/tftp/initrd.img missing",
            "16:36:20 02:a5:00:00:03:e9 has 10.77.0.50",
            "16:36:20 02:a5:00:00:03:e9 has 10.77.0.50",
        ]
        "#);
    }

    #[test]
    fn kea_and_nginx() {
        insta::assert_debug_snapshot!(events(
            "2026-11-30 16:36:19.270 INFO  [kea-dhcp4.leases/11807.140529657512448] DHCP4_LEASE_ADVERT [hwtype=1 02:a5:00:00:03:e9], \
             cid=[01:02:a5:00:00:03:e9], tid=0xf87e5304: lease 10.77.0.50 will be advertised\n\
             2026-11-30 16:36:19.302 INFO  [kea-dhcp4.leases/11807.1] DHCP4_LEASE_ALLOC [hwtype=1 02:a5:00:00:03:e9], cid=[no info], \
             tid=0xf87e5304: lease 10.77.0.50 has been allocated for 7200 seconds\n\
             2026-11-30 16:36:19.302 INFO  [kea-dhcp4.dhcp4/11807.1] DHCP4_STARTED Kea DHCPv4 server version 2.2.0 started\n\
             10.77.0.50 - - [30/Nov/2026:17:36:22 +0100] \"GET /ks/web01.ks?host=web01 HTTP/1.1\" 200 2 \"-\" \"Wget \\x22q\\x22\"\n\
             10.77.0.50 - - [30/Nov/2026:16:36:22 +0000] \"GET /Packages/b/bash-5.rpm HTTP/1.1\" 404 153 \"-\" \"curl\"\n\
             10.77.0.50 - - [30/Nov/2026:16:36:22 +0000] \"\\x16\\x03\" 400 157 \"-\" \"-\"\n"
        ), @r#"
        [
            "16:36:19 02:a5:00:00:03:e9 has 10.77.0.50",
            "16:36:19 02:a5:00:00:03:e9 has 10.77.0.50",
            "16:36:22 10.77.0.50 /ks/web01.ks 200",
            "16:36:22 10.77.0.50 /Packages/b/bash-5.rpm 404",
        ]
        "#);
    }

    #[test]
    fn a_december_line_read_in_january_is_of_last_year() {
        let mut reader = Reader::new(TimeZone::UTC, "2027-01-01T00:10:00Z".parse().unwrap());
        let at = |event: Option<Event>| event.unwrap().at.to_string();
        let line = "Dec 31 23:59:59 boot in.tftpd[1]: RRQ from 10.0.0.5 filename x";
        assert_eq!(at(reader.line(line)), "2026-12-31T23:59:59Z");
        assert_eq!(at(reader.line(&line.replace("Dec 31 23", "Jan  1 00"))), "2027-01-01T00:59:59Z");
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(line in "\\PC{0,120}", cut in 0_usize..90) {
            let known = "Nov 30 16:35:44 boot in.tftpd[10631]: RRQ from 10.77.0.50 filename grubx64.efi";
            let mut reader = reader();
            let _ = reader.line(&line);
            let _ = reader.line(&format!("{}{line}", known.get(..cut).unwrap_or(known)));
        }
    }
}
