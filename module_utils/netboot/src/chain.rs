//! Where a network boot stands: from a machine's events to one state with a name, and what to do about it.
//!
//! The chain: a lease → the loader → `grub.cfg` → the machine's own file → kernel → initrd → kickstart → packages → the
//! key, which the installation fetches at its very end.

use std::collections::BTreeSet;
use std::net::IpAddr;

use access_log::Pattern;
use jiff::Timestamp;
use net_types::MacAddress;
use serde::{Deserialize, Serialize};

use crate::log::{Event, What};
use crate::mac_file::file_names;

/// The machine that boots, and by what its files are known.
#[derive(Clone, Debug)]
pub struct Machine {
    pub mac: MacAddress,
    /// The address that is reserved for it.
    pub ip: IpAddr,
    /// Names of kernel and initrd, of which the last parts count.
    pub kernel: String,
    pub initrd: String,
    /// Patterns (`*` is anything) of whole paths; without a `/` or `*` at the beginning they match at any depth.
    pub kickstart: Vec<String>,
    pub packages: Vec<String>,
    /// What is fetched when everything else is done.
    pub completion: Vec<String>,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    NoDhcp,
    NoTftp,
    MenuInsteadOfInstall,
    Installing,
    Reinstalling,
    WrongAddress,
    HealthyButNoKey,
    Done,
}

impl State {
    pub const ALL: [Self; 8] = [
        Self::NoDhcp,
        Self::NoTftp,
        Self::MenuInsteadOfInstall,
        Self::Installing,
        Self::Reinstalling,
        Self::WrongAddress,
        Self::HealthyButNoKey,
        Self::Done,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoDhcp => "no_dhcp",
            Self::NoTftp => "no_tftp",
            Self::MenuInsteadOfInstall => "menu_instead_of_install",
            Self::Installing => "installing",
            Self::Reinstalling => "reinstalling",
            Self::WrongAddress => "wrong_address",
            Self::HealthyButNoKey => "healthy_but_no_key",
            Self::Done => "done",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn cure(self) -> &'static str {
        match self {
            Self::NoDhcp => {
                "not one packet of the machine arrived. A UEFI guest without a random number generator has no network boot at \
                 all: give it `rng0: source=/dev/urandom` (its console says `BdsDxe: No bootable option or device was found`). Else \
                 look at its VLAN and bridge. Neither the model of the card nor a stale NVRAM is the reason"
            }
            Self::NoTftp => {
                "the machine has an address and asks somebody else for its loader: set next_server of its reservation to the boot \
                 server. Firmware reads the header field siaddr and not option 66; where that is empty it asks the DHCP server, \
                 which is the router"
            }
            Self::MenuInsteadOfInstall => {
                "GRUB came up without an install entry for this machine: see whether its file lies beside grub.cfg under the \
                 name that was asked for, in mode install (grub_mac_config), and whether grub.cfg looks it up (grub_dispatcher)"
            }
            Self::Installing => {
                "nothing: kernel and initrd were asked for, and the installation has not ended"
            }
            Self::Reinstalling => {
                "every round succeeded, the reboot is the problem: the machine comes back to an install entry. Change its file \
                 to mode local_disk (grub_mac_config), and pin its boot order to the disk; a reboot from inside does not read \
                 a new boot order, only stop and start does"
            }
            Self::WrongAddress => {
                "the reservation is missing, duplicated or not in effect: make it anew (kea_reservation), see that Kea runs with it, \
                 and free the address if another machine still holds a lease on it; then start the machine again"
            }
            Self::HealthyButNoKey => {
                "the installation looks fine and nobody will get in: the key could not be fetched. See that its file exists on the \
                 web server and may be read, then install again or put the key in by hand over the console"
            }
            Self::Done => "nothing: the installation fetched its key, which is the last thing it does",
        }
    }
}

/// One boot: from the loader to the next loader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Round {
    pub loader: Option<Timestamp>,
    pub grub_cfg: Option<Timestamp>,
    /// The machine's own file, when it was there.
    pub mac_file: Option<Timestamp>,
    pub kernel: Option<Timestamp>,
    pub initrd: Option<Timestamp>,
    pub kickstart: Option<Timestamp>,
    pub packages: u32,
    pub last_package: Option<Timestamp>,
    pub key: Option<Timestamp>,
    /// The status that the key was refused with.
    pub key_refused: Option<u16>,
    /// Names of the machine's own file that were asked for and are not there.
    pub missing: Vec<String>,
}

impl Round {
    /// Kernel and initrd were asked for: GRUB has read everything it needs of the machine's own file.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.kernel.is_some() && self.initrd.is_some()
    }

    fn is_past_the_loader(&self) -> bool {
        self.grub_cfg.is_some()
            || self.mac_file.is_some()
            || self.kernel.is_some()
            || !self.missing.is_empty()
    }
}

/// Everything that is known about one machine's network boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub state: State,
    /// What the state was concluded from.
    pub symptom: String,
    /// The last lease that the DHCP server gave it, where a log tells.
    pub lease: Option<Timestamp>,
    pub rounds: Vec<Round>,
    /// Every address that the machine was seen with.
    pub addresses: BTreeSet<IpAddr>,
}

impl Chain {
    /// The moment at which kernel and initrd of the last boot were asked for.
    #[must_use]
    pub fn served(&self) -> Option<Timestamp> {
        let round = self.rounds.last().filter(|round| round.is_served())?;
        round.kernel.max(round.initrd)
    }

    /// Judges a machine's boots by its events.
    #[must_use]
    pub fn of(machine: &Machine, events: &[Event]) -> Self {
        let mut events: Vec<&Event> = events.iter().collect();
        // A web server's log knows whole seconds only; within one, the boot comes before what it fetches.
        events.sort_by_key(|event| (event.at.as_second(), matches!(event.what, What::Http { .. }), event.at));
        let names = file_names(machine.mac);
        let addresses = addresses(machine, &names, &events);
        let mut rounds: Vec<Round> = Vec::new();
        let mut lease = None;
        for event in &events {
            match &event.what {
                What::Lease { mac, .. } if *mac == machine.mac => lease = Some(event.at),
                What::Lease { .. } => {}
                What::Tftp { ip, path } if addresses.contains(ip) => {
                    machine.file(&names, &mut rounds, path, event.at);
                }
                What::Missing { ip, path } if addresses.contains(ip) => {
                    machine.missing(&names, &mut rounds, path)
                }
                What::Http { ip, path, status } if addresses.contains(ip) => {
                    machine.fetched(&names, &mut rounds, path, *status, event.at);
                }
                What::Tftp { .. } | What::Missing { .. } | What::Http { .. } => {}
            }
        }
        let stranger = stranger(machine, &events);
        let (state, symptom) = judge(machine, &rounds, lease, &addresses, stranger);
        Self { state, symptom, lease, rounds, addresses }
    }
}

impl Machine {
    fn file(&self, names: &[String], rounds: &mut Vec<Round>, path: &str, at: Timestamp) {
        let name = path.rsplit('/').next().unwrap_or(path);
        if name.to_ascii_lowercase().ends_with(".efi") {
            if rounds.last().is_none_or(Round::is_past_the_loader) {
                rounds.push(Round::default());
            }
            current(rounds).loader.get_or_insert(at);
        } else if name == "grub.cfg" {
            current(rounds).grub_cfg.get_or_insert(at);
        } else if names.iter().any(|known| known == name) {
            current(rounds).mac_file = Some(at);
        } else if name == last_part(&self.kernel) {
            current(rounds).kernel.get_or_insert(at);
        } else if name == last_part(&self.initrd) {
            current(rounds).initrd.get_or_insert(at);
        }
    }

    /// in.tftpd says first that a file is asked for, and then that it is not there.
    fn missing(&self, names: &[String], rounds: &mut Vec<Round>, path: &str) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let round = current(rounds);
        if names.iter().any(|known| known == name) {
            round.mac_file = None;
            if !round.missing.iter().any(|known| known == name) {
                round.missing.push(name.to_owned());
            }
        } else if name == last_part(&self.kernel) {
            round.kernel = None;
        } else if name == last_part(&self.initrd) {
            round.initrd = None;
        }
    }

    fn fetched(&self, names: &[String], rounds: &mut Vec<Round>, path: &str, status: u16, at: Timestamp) {
        let is_there = (200..400).contains(&status);
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, path));
        if any(&self.completion) {
            let round = current(rounds);
            if is_there {
                round.key = Some(at);
                round.key_refused = None;
            } else if round.key.is_none() {
                round.key_refused = Some(status);
            }
        } else if !is_there {
            self.missing(names, rounds, path);
        } else if any(&self.packages) {
            let round = current(rounds);
            round.packages += 1;
            round.last_package = Some(at);
        } else if any(&self.kickstart) {
            current(rounds).kickstart.get_or_insert(at);
        } else {
            self.file(names, rounds, path, at);
        }
    }
}

/// The boot under way; the log may begin in its middle.
fn current(rounds: &mut Vec<Round>) -> &mut Round {
    if rounds.is_empty() {
        rounds.push(Round::default());
    }
    let last = rounds.len() - 1;
    &mut rounds[last]
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The reserved address, those of its leases, and those from which its own file was asked for.
fn addresses(machine: &Machine, names: &[String], events: &[&Event]) -> BTreeSet<IpAddr> {
    let is_own = |path: &str| names.iter().any(|name| name == last_part(path));
    let seen = events.iter().filter_map(|event| match &event.what {
        What::Lease { mac, ip } => (*mac == machine.mac).then_some(*ip),
        What::Tftp { ip, path } | What::Missing { ip, path } | What::Http { ip, path, .. } => {
            (*ip == machine.ip || is_own(path)).then_some(*ip)
        }
    });
    seen.collect()
}

/// Another machine that was given the reserved address.
fn stranger(machine: &Machine, events: &[&Event]) -> Option<MacAddress> {
    events.iter().rev().find_map(|event| match event.what {
        What::Lease { mac, ip } if ip == machine.ip => Some(mac).filter(|mac| *mac != machine.mac),
        _ => None,
    })
}

fn judge(
    machine: &Machine,
    rounds: &[Round],
    lease: Option<Timestamp>,
    addresses: &BTreeSet<IpAddr>,
    stranger: Option<MacAddress>,
) -> (State, String) {
    let reserved = machine.ip;
    if let Some(other) = addresses.iter().find(|ip| **ip != reserved) {
        return (State::WrongAddress, format!("{} came up with {other} instead of {reserved}", machine.mac));
    }
    if let Some(stranger) = stranger {
        return (
            State::WrongAddress,
            format!("{reserved} was given to {stranger}, and is reserved for {}", machine.mac),
        );
    }
    let installs: Vec<&Round> = rounds.iter().filter(|round| round.is_served()).collect();
    let Some((last, before)) = installs.split_last() else {
        return before_the_install(rounds, lease, reserved);
    };
    let succeeded = before.iter().filter(|round| round.key.is_some()).count();
    if succeeded > 0 {
        let counts: Vec<String> = installs.iter().map(|round| round.packages.to_string()).collect();
        let symptom = format!(
            "{succeeded} installations fetched their key, and one more began after that (packages in each: {})",
            counts.join(", ")
        );
        return (State::Reinstalling, symptom);
    }
    if last.key.is_some() {
        return (State::Done, format!("the key was fetched after {} packages", last.packages));
    }
    if let Some(status) = last.key_refused {
        return (
            State::HealthyButNoKey,
            format!("the key was refused with status {status} after {} packages", last.packages),
        );
    }
    let went_on = rounds.last().is_some_and(|round| !round.is_served() && round.is_past_the_loader());
    if went_on && last.packages > 0 {
        let symptom =
            format!("the machine rebooted after {} packages and had not asked for a key", last.packages);
        return (State::HealthyButNoKey, symptom);
    }
    let restarts =
        if before.is_empty() { String::new() } else { format!(", after {} that did not end", before.len()) };
    (State::Installing, format!("{} packages were fetched so far{restarts}", last.packages))
}

fn before_the_install(rounds: &[Round], lease: Option<Timestamp>, reserved: IpAddr) -> (State, String) {
    let Some(last) = rounds.last() else {
        return match lease {
            Some(_) => (State::NoTftp, format!("{reserved} was leased, and no file was asked for here")),
            None => (
                State::NoDhcp,
                format!("no server here was asked for anything, by {reserved} or for its MAC address"),
            ),
        };
    };
    let symptom = if let Some(asked) = last.kernel.or(last.initrd) {
        return (
            State::Installing,
            format!("kernel or initrd was asked for at {asked}, the other was not yet"),
        );
    } else if last.mac_file.is_some() {
        "its own file was read, and no kernel was asked for: the entry in it is no installation".to_owned()
    } else if let Some(name) = last.missing.first() {
        format!("{name} was asked for and is not there")
    } else if last.grub_cfg.is_some() {
        "grub.cfg was read, and no file of the machine's own was asked for".to_owned()
    } else {
        "the loader was asked for, and no grub.cfg".to_owned()
    };
    (State::MenuInsteadOfInstall, symptom)
}

/// Whether a pattern matches a whole path. One that begins with neither `/` nor `*` matches at any depth.
#[must_use]
pub fn matches(pattern: &str, path: &str) -> bool {
    let is_anchored = pattern.starts_with(['/', '*']);
    Pattern::new(if is_anchored { pattern.to_owned() } else { format!("*/{pattern}") }).matches(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Reader;
    use jiff::tz::TimeZone;

    const LEASE: &str = "Nov 30 16:00:00 dnsmasq-dhcp[1]: DHCPACK(v0) 10.77.0.50 02:a5:00:00:03:e9";
    const LOADER: &str = "Nov 30 16:00:01 in.tftpd[1]: RRQ from 10.77.0.50 filename grubx64.efi";
    const GRUB_CFG: &str = "Nov 30 16:00:02 in.tftpd[2]: RRQ from 10.77.0.50 filename /grub/grub.cfg";
    const MAC_FILE: &str =
        "Nov 30 16:00:03 in.tftpd[3]: RRQ from 10.77.0.50 filename /grub/grub.cfg-02:a5:00:00:03:e9";
    const NO_MAC_FILE: &str = "Nov 30 16:00:03 in.tftpd[3]: sending NAK (1, File not found) to 10.77.0.50";
    const KERNEL: &str = "Nov 30 16:00:04 in.tftpd[4]: RRQ from 10.77.0.50 filename /fedora/vmlinuz";
    const INITRD: &str = "Nov 30 16:00:05 in.tftpd[5]: RRQ from 10.77.0.50 filename /fedora/initrd.img";
    const NO_INITRD: &str = "Nov 30 16:00:05 in.tftpd[5]: sending NAK (1, File not found) to 10.77.0.50";
    const KICKSTART: &str =
        r#"10.77.0.50 - - [30/Nov/2026:16:01:00 +0000] "GET /ks/web01.ks?x=1 HTTP/1.1" 200 2 "-" "-""#;
    const PACKAGE: &str =
        r#"10.77.0.50 - - [30/Nov/2026:16:02:00 +0000] "GET /f/Packages/b/bash.rpm HTTP/1.1" 200 2 "-" "-""#;
    const KEY: &str =
        r#"10.77.0.50 - - [30/Nov/2026:16:03:00 +0000] "GET /keys/ssh/admin.pub HTTP/1.1" 200 2 "-" "-""#;
    const BOOT: [&str; 5] = [LOADER, GRUB_CFG, MAC_FILE, KERNEL, INITRD];

    fn machine() -> Machine {
        let list = |pattern: &str| vec![pattern.to_owned()];
        Machine {
            mac: "02:a5:00:00:03:e9".parse().unwrap(),
            ip: "10.77.0.50".parse().unwrap(),
            kernel: "/fedora/vmlinuz".into(),
            initrd: "initrd.img".into(),
            kickstart: list("*.ks"),
            packages: list("*.rpm"),
            completion: list("keys/ssh/*.pub"),
        }
    }

    /// Every line is of a minute later than in the first round when it stands in the second, and so on.
    fn chain(rounds: &[&[&str]]) -> Chain {
        let now = "2026-11-30T20:00:00Z".parse().unwrap();
        let mut reader = Reader::new(TimeZone::UTC, now);
        let mut events = Vec::new();
        for (number, lines) in rounds.iter().enumerate() {
            let of_the_round = lines.iter().map(|line| line.replace("16:0", &format!("16:{number}")));
            events.extend(of_the_round.filter_map(|line| reader.line(&line)));
        }
        Chain::of(&machine(), &events)
    }

    fn state(rounds: &[&[&str]]) -> (State, String) {
        let chain = chain(rounds);
        (chain.state, chain.symptom)
    }

    #[test]
    fn each_symptom_has_its_name() {
        let whole = [&BOOT[..], &[KICKSTART, PACKAGE, PACKAGE, KEY]].concat();
        let no_key = KEY.replace(" 200 ", " 404 ");
        let elsewhere: Vec<String> =
            BOOT.iter().map(|line| line.replace("10.77.0.50", "10.77.0.200")).collect();
        let elsewhere: Vec<&str> = elsewhere.iter().map(String::as_str).collect();
        let other_lease = LEASE.replace("10.77.0.50", "10.77.0.200");
        let stranger = LEASE.replace("03:e9", "03:ea");
        let cases: [(State, &[&[&str]], &str); 17] = [
            (State::NoDhcp, &[], "no server here was asked"),
            (State::NoTftp, &[&[LEASE]], "10.77.0.50 was leased"),
            (State::MenuInsteadOfInstall, &[&[LEASE, LOADER]], "no grub.cfg"),
            (
                State::MenuInsteadOfInstall,
                &[&[LOADER, GRUB_CFG]],
                "no file of the machine's own was asked for",
            ),
            (
                State::MenuInsteadOfInstall,
                &[&[LOADER, GRUB_CFG, MAC_FILE, NO_MAC_FILE]],
                "grub.cfg-02:a5:00:00:03:e9 was asked for",
            ),
            (State::MenuInsteadOfInstall, &[&[LOADER, GRUB_CFG, MAC_FILE]], "is no installation"),
            (State::Installing, &[&BOOT[..4]], "the other was not yet"),
            (State::Installing, &[&[&BOOT[..], &[NO_INITRD]].concat()], "the other was not yet"),
            (State::Installing, &[&BOOT], "0 packages"),
            (State::Installing, &[&BOOT, &BOOT], "after 1 that did not end"),
            (State::Done, &[&whole], "after 2 packages"),
            (State::Done, &[&whole, &BOOT[..3]], "after 2 packages"),
            (
                State::Reinstalling,
                &[&whole, &BOOT],
                "1 installations fetched their key, and one more began after that (packages in each: 2, 0)",
            ),
            (State::Reinstalling, &[&whole, &whole, &whole], "2 installations"),
            (
                State::HealthyButNoKey,
                &[&[&whole[..8], &[no_key.as_str()]].concat()],
                "status 404 after 2 packages",
            ),
            (State::HealthyButNoKey, &[&whole[..8], &BOOT[..3]], "rebooted after 2 packages"),
            (
                State::WrongAddress,
                &[&[&whole[..], &[stranger.as_str()]].concat()],
                "was given to 02:a5:00:00:03:ea",
            ),
        ];
        for (expected, rounds, why) in cases {
            let (found, symptom) = state(rounds);
            assert!(found == expected && symptom.contains(why), "{expected:?}, {why}: {found:?}, {symptom}");
        }
        for rounds in [&[&elsewhere[..]], &[&[other_lease.as_str()][..]]] {
            assert_eq!(state(rounds).0, State::WrongAddress);
            assert!(
                state(rounds).1.contains("came up with 10.77.0.200 instead of 10.77.0.50"),
                "{}",
                state(rounds).1
            );
        }
    }

    #[test]
    fn a_key_that_comes_at_the_second_try_is_there() {
        let refused = KEY.replace(" 200 ", " 503 ");
        assert_eq!(state(&[&[&BOOT[..], &[refused.as_str(), KEY]].concat()]).0, State::Done);
        assert_eq!(state(&[&[&BOOT[..], &[KEY, refused.as_str()]].concat()]).0, State::Done);
    }

    #[test]
    fn kernel_and_initrd_are_served_when_both_were_asked_for_and_are_there() {
        assert_eq!(chain(&[&BOOT[..4]]).served(), None);
        assert_eq!(chain(&[&[&BOOT[..], &[NO_INITRD]].concat()]).served(), None);
        assert_eq!(chain(&[&BOOT]).served(), Some("2026-11-30T16:00:05Z".parse().unwrap()));
        assert_eq!(chain(&[&BOOT, &BOOT[..3]]).served(), None, "of the last boot only");
        let over_http =
            r#"10.77.0.50 - - [30/Nov/2026:16:00:09 +0000] "GET /fedora/initrd.img HTTP/1.1" 200 2 "-" "-""#;
        assert!(chain(&[&[&BOOT[..4], &[over_http]].concat()]).served().is_some());
    }

    #[test]
    fn what_a_web_server_writes_is_of_the_whole_second() {
        let boot: Vec<String> = BOOT
            .iter()
            .zip(1..)
            .map(|(line, number)| {
                line.replacen(&line[..15], &format!("2026-11-30T16:03:00.{number}00000+00:00 boot"), 1)
            })
            .collect();
        let lines: Vec<&str> = boot.iter().map(String::as_str).chain([KEY]).collect();
        assert_eq!(state(&[&lines]).0, State::Done);
    }

    #[test]
    fn other_machines_do_not_count() {
        let others: Vec<String> =
            BOOT.iter().map(|line| line.replace("0.50", "0.51").replace("03:e9", "03:ea")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        assert_eq!(state(&[&others]).0, State::NoDhcp);
        assert_eq!(state(&[&[&others[..], &BOOT].concat()]).0, State::Installing);
    }

    #[test]
    fn firmware_asks_for_the_loader_twice_and_that_is_one_boot() {
        assert_eq!(chain(&[&[LOADER, LOADER, GRUB_CFG]]).rounds.len(), 1);
        assert_eq!(chain(&[&BOOT, &BOOT]).rounds.len(), 2);
    }

    #[test]
    fn every_state_has_a_name_and_a_cure() {
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
            assert!(state.cure().len() > 20);
        }
    }

    #[test]
    fn patterns() {
        for (pattern, path, is_match) in [
            ("*.rpm", "/f/Packages/b/bash-5.rpm", true),
            ("*.rpm", "/f/bash.rpm.asc", false),
            ("keys/ssh/*.pub", "/www/keys/ssh/a.pub", true),
            ("keys/ssh/*.pub", "/keys/ssh/a.pub", true),
            ("keys/ssh/*.pub", "/keys/gpg/a.pub", false),
            ("/keys/ssh/*.pub", "/www/keys/ssh/a.pub", false),
            ("/done", "/done", true),
            ("/done", "/done/x", false),
        ] {
            assert_eq!(matches(pattern, path), is_match, "{pattern} {path}");
        }
    }
}
