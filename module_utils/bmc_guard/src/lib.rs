//! Which server may be switched or booted through its BMC, and which never.
//!
//! The guard fails closed: a server that does not say who it is, is refused. The machine that runs all this is
//! always refused, by its addresses, its BMC's, its network cards and serials.

mod here;
mod own_bmc;
mod serial;

use std::fmt;
use std::net::IpAddr;

use net_types::MacAddress;

pub use here::Machine;
pub use serial::Serial;

/// What the user allows and forbids.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// The serial that the target must report.
    pub serial: Option<Serial>,
    pub refuse_serials: Vec<Serial>,
    /// Addresses of BMCs that must not be talked to.
    pub refuse_addresses: Vec<IpAddr>,
    pub refuse_macs: Vec<MacAddress>,
    /// Whether every target is refused while `refuse_serials` or `refuse_macs` is empty.
    pub lists_required: bool,
    pub here: Machine,
}

/// The server behind a BMC, as far as the BMC tells.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// How the user knows it, for messages.
    pub name: String,
    /// Serials as they are reported: padded, blank or placeholders as they may be.
    pub serials: Vec<String>,
    /// The server's network cards; empty when the BMC does not tell.
    pub macs: Vec<MacAddress>,
}

/// Why a target is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule's stable name: the option that decided, or `this_machine`, `unknown_serial`.
    pub rule: &'static str,
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl Guard {
    /// What can be judged before the BMC is talked to.
    ///
    /// # Errors
    /// [`Refusal`] when lists are missing, or the BMC's address is refused or belongs to this machine.
    pub fn check_addresses(&self, name: &str, addresses: &[IpAddr]) -> Result<(), Refusal> {
        for (option, is_empty) in
            [("refuse_serials", self.refuse_serials.is_empty()), ("refuse_macs", self.refuse_macs.is_empty())]
        {
            if self.lists_required && is_empty {
                return refuse(
                    option,
                    format!(
                        "{name}: refused: `{option}` is empty and the guard is on: name the servers that must never be \
                         touched"
                    ),
                );
            }
        }
        if let Some(address) = addresses.iter().find(|address| self.refuse_addresses.contains(address)) {
            return refuse(
                "refuse_addresses",
                format!("{name}: refused: its address {address} is in `refuse_addresses`"),
            );
        }
        if let Some(address) = addresses.iter().find(|address| self.here.addresses.contains(address)) {
            return refuse(
                "this_machine",
                format!("{name}: refused: {address} is an address of the machine this runs on"),
            );
        }
        if let Some(address) = addresses.iter().find(|address| self.here.bmc_addresses.contains(address)) {
            return refuse(
                "this_machine",
                format!("{name}: refused: {address} is the BMC of the machine this runs on"),
            );
        }
        Ok(())
    }

    /// Judges the server behind the BMC. The text returned on success is a warning, if there is one.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn check(&self, candidate: &Candidate) -> Result<Option<String>, Refusal> {
        let name = &candidate.name;
        let known: Vec<Serial> =
            candidate.serials.iter().filter_map(|serial| Serial::known(serial)).collect();
        if known.is_empty() {
            return refuse(
                "unknown_serial",
                format!(
                    "{name}: refused: the BMC reports no usable serial ({}), so nobody can tell which server this is",
                    shown(&candidate.serials)
                ),
            );
        }
        if let Some(wanted) = &self.serial
            && !known.contains(wanted)
        {
            return refuse(
                "serial",
                format!(
                    "{name}: refused: expected the serial {wanted}, the BMC reports {}",
                    shown(&candidate.serials)
                ),
            );
        }
        if let Some(serial) = known.iter().find(|serial| self.refuse_serials.contains(serial)) {
            return refuse(
                "refuse_serials",
                format!("{name}: refused: its serial {serial} is in `refuse_serials`"),
            );
        }
        if let Some(serial) = known.iter().find(|serial| self.here.serials.contains(serial)) {
            return refuse(
                "this_machine",
                format!("{name}: refused: its serial {serial} is that of the machine this runs on"),
            );
        }
        self.check_macs(candidate)
    }

    fn check_macs(&self, candidate: &Candidate) -> Result<Option<String>, Refusal> {
        let name = &candidate.name;
        if let Some(mac) = candidate.macs.iter().find(|mac| self.refuse_macs.contains(mac)) {
            return refuse(
                "refuse_macs",
                format!("{name}: refused: its network card {mac} is in `refuse_macs`"),
            );
        }
        if let Some(mac) = candidate.macs.iter().find(|mac| self.here.macs.contains(mac)) {
            return refuse(
                "this_machine",
                format!("{name}: refused: its network card {mac} is one of the machine this runs on"),
            );
        }
        if !candidate.macs.is_empty() || self.refuse_macs.is_empty() {
            return Ok(None);
        }
        if self.serial.is_none() {
            return refuse(
                "refuse_macs",
                format!(
                    "{name}: refused: the BMC does not tell the server's MAC addresses, so `refuse_macs` cannot be \
                     compared; give `serial`"
                ),
            );
        }
        Ok(Some(format!(
            "{name}: the BMC does not tell the server's MAC addresses: `refuse_macs` could not be compared, the serial \
             matched"
        )))
    }
}

fn refuse<T>(rule: &'static str, message: String) -> Result<T, Refusal> {
    Err(Refusal { rule, message })
}

fn shown(serials: &[String]) -> String {
    match serials {
        [] => "none".to_owned(),
        serials => serials.iter().map(|serial| format!("`{serial}`")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serials(texts: &[&str]) -> Vec<Serial> {
        texts.iter().filter_map(|text| Serial::known(text)).collect()
    }

    fn macs(texts: &[&str]) -> Vec<MacAddress> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn guard() -> Guard {
        Guard {
            serial: Serial::known("ABC1234"),
            refuse_serials: serials(&["PROD001"]),
            refuse_addresses: vec!["192.0.2.9".parse().unwrap()],
            refuse_macs: macs(&["00:11:22:33:44:55"]),
            lists_required: true,
            here: Machine {
                addresses: vec!["192.0.2.1".parse().unwrap()],
                bmc_addresses: vec!["192.0.2.7".parse().unwrap()],
                serials: serials(&["HERE777"]),
                macs: macs(&["00:aa:00:aa:00:aa"]),
            },
        }
    }

    fn server(serials: &[&str], cards: &[&str]) -> Candidate {
        Candidate {
            name: "bmc1".into(),
            serials: serials.iter().map(|&one| one.into()).collect(),
            macs: macs(cards),
        }
    }

    #[test]
    fn each_rule_refuses_by_itself() {
        let open = Guard { serial: None, ..guard() };
        let card = "00:01:02:03:04:05";
        for (guard, candidate, rule) in [
            (guard(), server(&["XYZ"], &[card]), "serial"),
            (guard(), server(&[], &[card]), "unknown_serial"),
            (guard(), server(&["", "To be filled by O.E.M."], &[card]), "unknown_serial"),
            (guard(), server(&["ABC1234"], &["00-11-22-33-44-55"]), "refuse_macs"),
            (guard(), server(&["ABC1234"], &[card, "00:AA:00:AA:00:AA"]), "this_machine"),
            (open.clone(), server(&["prod001 "], &[card]), "refuse_serials"),
            (open.clone(), server(&["XYZ", "HERE777"], &[card]), "this_machine"),
            (open.clone(), server(&["XYZ"], &[]), "refuse_macs"),
        ] {
            assert_eq!(guard.check(&candidate).unwrap_err().rule, rule, "{candidate:?}");
        }
    }

    #[test]
    fn the_right_server_passes() {
        assert_eq!(guard().check(&server(&[" abc1234 "], &["00:01:02:03:04:05"])), Ok(None));
        let open = Guard { here: guard().here, ..Guard::default() };
        assert_eq!(open.check(&server(&["XYZ"], &[])), Ok(None));
    }

    #[test]
    fn a_server_without_cards_passes_by_its_serial_and_says_so() {
        let warning = guard().check(&server(&["ABC1234"], &[])).unwrap();
        assert!(warning.unwrap().contains("`refuse_macs` could not be compared"));
    }

    #[test]
    fn a_bmc_is_refused_by_its_address_before_it_is_talked_to() {
        let refused = |address: &str| guard().check_addresses("bmc1", &[address.parse().unwrap()]);
        assert_eq!(refused("192.0.2.9").unwrap_err().rule, "refuse_addresses");
        assert_eq!(refused("192.0.2.1").unwrap_err().rule, "this_machine");
        let own_bmc = refused("192.0.2.7").unwrap_err();
        assert_eq!(own_bmc.rule, "this_machine");
        assert!(own_bmc.message.contains("the BMC of the machine this runs on"), "{own_bmc}");
        assert_eq!(refused("192.0.2.2"), Ok(()));
    }

    #[test]
    fn with_the_guard_on_no_list_may_be_empty() {
        for (guard, rule) in [
            (Guard { refuse_serials: Vec::new(), ..guard() }, "refuse_serials"),
            (Guard { refuse_macs: Vec::new(), ..guard() }, "refuse_macs"),
        ] {
            assert_eq!(guard.check_addresses("bmc1", &[]).unwrap_err().rule, rule);
            let off = Guard { lists_required: false, ..guard };
            assert_eq!(off.check_addresses("bmc1", &[]), Ok(()));
        }
    }
}
