//! A DHCPv4 server behind a channel: the commands this collection needs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use deadline::Deadline;
use http_client::Client;
use net_types::{ClientId, MacAddress};
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::channel::{Channel, is_passing};
use crate::{ConfigFile, Dhcp4Config, Error};

const READ_TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(150);

/// `state` of a lease that is over and only remembered for a while (Kea `src/lib/dhcpsrv/lease.h`).
const EXPIRED_RECLAIMED: u64 = 2;

/// A Kea DHCPv4 server that takes commands.
#[derive(Debug)]
pub struct Server {
    channel: Channel,
    /// Written in the place of `config-write`.
    file: Option<ConfigFile>,
}

/// A lease as `lease4-get` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub ip: Ipv4Addr,
    /// `None` when the stored address is not six bytes.
    pub mac: Option<MacAddress>,
    pub client_id: Option<ClientId>,
    pub hostname: String,
}

impl Server {
    /// A control agent, or the server's own HTTP socket (Kea 3).
    #[must_use]
    pub fn http(client: Client) -> Self {
        Self { channel: Channel::Http(Box::new(client)), file: None }
    }

    /// The server's UNIX control socket on this host.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self { channel: Channel::Unix(path.into()), file: None }
    }

    /// From now on a change is kept by writing this file, not by `config-write`: for a server that may not write it.
    pub fn keep_in(&mut self, file: ConfigFile) {
        self.file = Some(file);
    }

    /// The file given to [`keep_in`](Self::keep_in).
    #[must_use]
    pub fn kept_in(&self) -> Option<&ConfigFile> {
        self.file.as_ref()
    }

    /// The number of the server's process.
    ///
    /// # Errors
    /// As the server answers.
    pub fn pid(&self, deadline: &Deadline) -> Result<u64, Error> {
        let answer = self.read("status-get", &Value::Null, deadline)?;
        answer.arguments["pid"].as_u64().ok_or_else(|| Error::protocol("status-get", "a pid", "none"))
    }

    /// Requests sent so far, by method; `None` over a UNIX socket.
    #[must_use]
    pub fn calls(&self) -> Option<BTreeMap<String, u64>> {
        match &self.channel {
            Channel::Http(client) => Some(client.calls()),
            Channel::Unix(_) => None,
        }
    }

    /// Sends any command once. `arguments` may be `Null`.
    ///
    /// # Errors
    /// As the server answers; [`Error::Unsupported`] for a command it does not know.
    pub fn command(&self, command: &str, arguments: &Value, deadline: &Deadline) -> Result<Answer, Error> {
        answer::parse(command, self.channel.exchange(command, arguments, deadline)?)
    }

    /// A command that changes nothing: tried again when the exchange broke.
    pub(crate) fn read(
        &self,
        command: &str,
        arguments: &Value,
        deadline: &Deadline,
    ) -> Result<Answer, Error> {
        for _ in 1..READ_TRIES {
            match self.command(command, arguments, deadline) {
                Err(error) if is_passing(&error) => deadline.pause(RETRY_PAUSE).map_err(|_| error)?,
                outcome => return outcome,
            }
        }
        self.command(command, arguments, deadline)
    }

    /// The names of the commands this server knows with its hooks.
    ///
    /// # Errors
    /// As the server answers.
    pub fn list_commands(&self, deadline: &Deadline) -> Result<Vec<String>, Error> {
        let answer = self.read("list-commands", &Value::Null, deadline)?;
        let names = answer.arguments.as_array().into_iter().flatten();
        Ok(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
    }

    /// The running configuration.
    ///
    /// # Errors
    /// As the server answers; [`Error::Protocol`] when it is not a DHCPv4 server's.
    pub fn config_get(&self, deadline: &Deadline) -> Result<Dhcp4Config, Error> {
        Dhcp4Config::from_config_get(self.read("config-get", &Value::Null, deadline)?.arguments)
    }

    /// Makes `after` the running configuration and writes it to the server's file.
    ///
    /// `before` is what the change was made from: nothing is written when that is not what runs any more.
    /// The caller holds a lock against its own kind; Kea has no compare-and-swap.
    ///
    /// # Errors
    /// [`Error::Refused`] when Kea does not take the configuration (the old one runs on), [`Error::Raced`],
    /// [`Error::NotPersisted`].
    pub fn replace(
        &self,
        before: &Dhcp4Config,
        after: &Dhcp4Config,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        self.read("config-test", &after.arguments(), deadline)?;
        if let Some(file) = &self.file {
            file.check(after, deadline)?;
        }
        if !self.config_get(deadline)?.same_as(before) {
            return Err(Error::Raced);
        }
        self.config_set(before, after, deadline)?;
        self.persist_or(deadline, || self.command("config-set", &before.arguments(), deadline).map(drop))
    }

    /// Keeps what runs in the server's file; when that fails, `restore` takes the change back.
    pub(crate) fn persist_or(
        &self,
        deadline: &Deadline,
        restore: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Err(error) = self.persist(deadline) else { return Ok(()) };
        let text = match error {
            Error::Refused { text, .. } | Error::NoFile(text) => text,
            other => other.to_string(),
        };
        Err(Error::NotPersisted { text, restored: restore().map_err(|error| error.to_string()) })
    }

    /// `config-set` is atomic, and the same one twice is the same as once: after a broken exchange the running
    /// configuration tells whether it has to be sent again.
    fn config_set(
        &self,
        before: &Dhcp4Config,
        after: &Dhcp4Config,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        match self.command("config-set", &after.arguments(), deadline) {
            Err(error) if is_passing(&error) => {
                if self.config_get(deadline)?.same_as(before) {
                    self.command("config-set", &after.arguments(), deadline)?;
                }
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    /// Writes the running configuration to the file the server was started with; writing it twice does no harm.
    ///
    /// # Errors
    /// As the server answers; [`Error::NoFile`] when the file of [`keep_in`](Self::keep_in) cannot be written.
    pub fn persist(&self, deadline: &Deadline) -> Result<(), Error> {
        match &self.file {
            None => self.read("config-write", &Value::Null, deadline).map(drop),
            Some(file) => file.write(&self.config_get(deadline)?).map_err(Error::NoFile),
        }
    }

    /// The lease of an address, if there is one (hook lease_cmds); one that is over is none.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the hook.
    pub fn lease4_get(&self, ip: Ipv4Addr, deadline: &Deadline) -> Result<Option<Lease>, Error> {
        let answer = self.read("lease4-get", &json!({"ip-address": ip.to_string()}), deadline)?;
        let is_remembered = answer.arguments["state"] == EXPIRED_RECLAIMED;
        if answer.empty || answer.arguments.is_null() || is_remembered {
            return Ok(None);
        }
        let text = |key: &str| answer.arguments[key].as_str().unwrap_or_default().to_owned();
        Ok(Some(Lease {
            ip,
            mac: text("hw-address").parse().ok(),
            client_id: text("client-id").parse().ok(),
            hostname: text("hostname"),
        }))
    }

    /// Forgets the lease of an address; nothing happens when there is none (hook lease_cmds).
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the hook.
    pub fn lease4_del(&self, ip: Ipv4Addr, deadline: &Deadline) -> Result<(), Error> {
        self.read("lease4-del", &json!({"ip-address": ip.to_string()}), deadline).map(drop)
    }
}
