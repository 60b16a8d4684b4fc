//! The hook host_cmds (src/hooks/dhcp/host_cmds; doc/sphinx/arm/hooks-host-cmds.rst): one host at a time.
//!
//! Everything goes to `operation-target: memory`, the hosts of the running configuration: without a hosts database the
//! default target refuses. `reservation-update` replaces a host whole, and erases it before it sees that the new address
//! belongs to another (`CfgHosts::update` in src/lib/dhcpsrv/cfg_hosts.cc): it is only used where the address stays.

use deadline::Deadline;
use net_types::HostIdentifier;
use serde_json::{Value, json};

use crate::channel::is_passing;
use crate::{Error, Reservation, Server};

/// A change of one host that a single command makes.
#[derive(Clone, Debug, PartialEq)]
pub enum HostChange {
    Add(Reservation),
    Del(Reservation),
    /// Identifier and address are the same in both.
    Update {
        old: Reservation,
        new: Reservation,
    },
}

impl HostChange {
    /// The change that takes this one back.
    fn inverse(&self) -> Self {
        match self {
            Self::Add(new) => Self::Del(new.clone()),
            Self::Del(old) => Self::Add(old.clone()),
            Self::Update { old, new } => Self::Update { old: new.clone(), new: old.clone() },
        }
    }

    fn command(&self) -> &'static str {
        match self {
            Self::Add(_) => "reservation-add",
            Self::Del(_) => "reservation-del",
            Self::Update { .. } => "reservation-update",
        }
    }

    fn subject(&self) -> &Reservation {
        match self {
            Self::Add(one) | Self::Del(one) | Self::Update { new: one, .. } => one,
        }
    }

    fn arguments(&self, subnet_id: u64) -> Value {
        match self {
            Self::Del(one) => identified(subnet_id, one.host().as_ref()),
            Self::Add(one) | Self::Update { new: one, .. } => {
                let mut reservation = one.clone().into_value();
                reservation["subnet-id"] = json!(subnet_id);
                json!({"reservation": reservation, "operation-target": "memory"})
            }
        }
    }
}

fn identified(subnet_id: u64, host: Option<&HostIdentifier>) -> Value {
    let (kind, identifier) = match host {
        Some(HostIdentifier::Mac(mac)) => ("hw-address", mac.to_string()),
        Some(HostIdentifier::ClientId(client_id)) => ("client-id", client_id.to_string()),
        None => ("hw-address", String::new()),
    };
    json!({
        "subnet-id": subnet_id, "identifier-type": kind, "identifier": identifier, "operation-target": "memory",
    })
}

impl Server {
    /// Makes one change in the running configuration, and keeps it in the server's file. When it cannot be kept, it is
    /// taken back.
    ///
    /// # Errors
    /// [`Error::Refused`] when Kea does not make it, [`Error::NotPersisted`].
    pub fn change_host(&self, subnet_id: u64, change: &HostChange, deadline: &Deadline) -> Result<(), Error> {
        self.send_change(subnet_id, change, deadline)?;
        self.persist_or(deadline, || self.send_change(subnet_id, &change.inverse(), deadline))
    }

    /// After a broken exchange the host itself tells whether the command has to be sent again.
    fn send_change(&self, subnet_id: u64, change: &HostChange, deadline: &Deadline) -> Result<(), Error> {
        let send = || self.command(change.command(), &change.arguments(subnet_id), deadline);
        let answer = match send() {
            Err(error) if is_passing(&error) => {
                let is_there = self.has_host(subnet_id, change.subject(), deadline)?;
                match change {
                    HostChange::Add(_) if is_there => return Ok(()),
                    HostChange::Del(_) if !is_there => return Ok(()),
                    _ => send()?,
                }
            }
            outcome => outcome?,
        };
        if answer.empty && !matches!(change, HostChange::Del(_)) {
            return Err(Error::Refused { command: change.command().to_owned(), text: answer.text });
        }
        Ok(())
    }

    /// Kea answers 3 for one that is not there, older documents say 0 without arguments.
    fn has_host(&self, subnet_id: u64, one: &Reservation, deadline: &Deadline) -> Result<bool, Error> {
        let arguments = identified(subnet_id, one.host().as_ref());
        let answer = self.read("reservation-get", &arguments, deadline)?;
        Ok(!answer.empty && answer.arguments.is_object())
    }
}

#[cfg(test)]
mod tests {
    use net_types::MacAddress;

    use super::*;

    #[test]
    fn each_change_as_kea_wants_it_and_back() {
        let mut old = Reservation::new("02:a5:00:00:00:65".parse::<MacAddress>().unwrap());
        old.set_ip("10.20.0.21".parse().unwrap());
        let mut new = old.clone();
        new.set_hostname("web01");
        let told = |change: &HostChange| format!("{} {}", change.command(), change.arguments(1));
        insta::assert_snapshot!(told(&HostChange::Add(new.clone())), @r#"reservation-add {"reservation":{"hw-address":"02:a5:00:00:00:65","ip-address":"10.20.0.21","hostname":"web01","subnet-id":1},"operation-target":"memory"}"#);
        insta::assert_snapshot!(told(&HostChange::Add(new.clone()).inverse()), @r#"reservation-del {"subnet-id":1,"identifier-type":"hw-address","identifier":"02:a5:00:00:00:65","operation-target":"memory"}"#);
        assert_eq!(HostChange::Del(old.clone()).inverse(), HostChange::Add(old.clone()));
        let update = HostChange::Update { old, new };
        insta::assert_snapshot!(told(&update.inverse()), @r#"reservation-update {"reservation":{"hw-address":"02:a5:00:00:00:65","ip-address":"10.20.0.21","subnet-id":1},"operation-target":"memory"}"#);
    }
}
