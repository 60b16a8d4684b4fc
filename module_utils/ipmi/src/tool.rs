use std::cell::Cell;
use std::fmt;

use deadline::{Deadline, Expired};
use host::{Command, CommandError, Host, Output};
use secrecy::{ExposeSecret, SecretString};

use crate::boot::{BootDevice, BootFlags};
use crate::error::Error;

/// Tried in this order where the user names none: 17 is the only one that newer BMCs allow, 3 the only one that older
/// ones have.
const CIPHER_SUITES: [u8; 2] = [17, 3];
/// What ipmitool says where another suite may help. A wrong password reads the same.
const NO_SESSION: [&str; 5] = [
    "Unable to establish IPMI v2",
    "Unsupported cipher suite ID",
    "no matching cipher suite",
    "invalid role",
    "invalid authentication algorithm",
];

/// How a BMC is reached.
#[derive(Clone, Debug)]
pub struct Connection {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: SecretString,
    /// One cipher suite, or those that are usual, one after the other.
    pub cipher_suite: Option<u8>,
}

/// The chassis' power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    On,
    Off,
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// One BMC, by way of `ipmitool`.
#[derive(Debug)]
pub struct Ipmitool {
    machine: Host,
    connection: Connection,
    /// The suite that worked.
    cipher_suite: Cell<Option<u8>>,
}

impl Ipmitool {
    /// Nothing is run yet.
    #[must_use]
    pub fn new(machine: Host, connection: Connection) -> Self {
        Self { machine, cipher_suite: Cell::new(connection.cipher_suite), connection }
    }

    /// # Errors
    /// [`Error`]
    pub fn power(&self, deadline: &Deadline) -> Result<Power, Error> {
        let output = self.run("chassis power status", deadline)?;
        match output.stdout_text().trim() {
            "Chassis Power is on" => Ok(Power::On),
            "Chassis Power is off" => Ok(Power::Off),
            _ => Err(unexpected("chassis power status", "Chassis Power is on|off", &output)),
        }
    }

    /// `Product Serial` of FRU 0; `None` when there is none.
    ///
    /// # Errors
    /// [`Error`]
    pub fn product_serial(&self, deadline: &Deadline) -> Result<Option<String>, Error> {
        let output = self.run("fru print 0", deadline)?;
        let text = output.stdout_text();
        let serial = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "Product Serial").then(|| value.trim().to_owned())
        });
        Ok(serial)
    }

    /// # Errors
    /// [`Error`]
    pub fn boot_flags(&self, deadline: &Deadline) -> Result<BootFlags, Error> {
        let command = "chassis bootparam get 5";
        let output = self.run(command, deadline)?;
        BootFlags::parse(&output.stdout_text())
            .ok_or_else(|| unexpected(command, "Boot parameter data:", &output))
    }

    /// Sets where the next start comes from. A BMC forgets it after 60 seconds unless the server starts; it is asked not
    /// to, which not every one knows.
    ///
    /// # Errors
    /// [`Error`]
    pub fn boot_once(&self, device: BootDevice, efi: bool, deadline: &Deadline) -> Result<(), Error> {
        let _refused_by_some = self.run(KEEP_VALID, deadline)?;
        self.expect(&boot_once(device, efi), "Set Boot Device to", deadline)
    }

    /// Switches on, and waits until it is on.
    ///
    /// # Errors
    /// [`Error`]
    pub fn power_on(&self, deadline: &Deadline) -> Result<(), Error> {
        self.expect(POWER_ON, "Chassis Power Control: Up/On", deadline)?;
        self.wait_for(Power::On, deadline)
    }

    /// Asks the operating system to shut down (ACPI), and waits until it is off. Nothing is forced.
    ///
    /// # Errors
    /// [`Error`]
    pub fn power_soft(&self, deadline: &Deadline) -> Result<(), Error> {
        self.expect(POWER_SOFT, "Chassis Power Control: Soft", deadline)?;
        self.wait_for(Power::Off, deadline)
    }

    /// Waits until the power is as wanted; a BMC that does not answer for a while is waited for as well.
    ///
    /// # Errors
    /// [`Error::PowerStuck`] with the last state seen.
    pub fn wait_for(&self, wanted: Power, deadline: &Deadline) -> Result<(), Error> {
        let mut found = self.power(deadline)?;
        let outcome = deadline.poll(|| {
            if found == wanted {
                return Ok(Some(()));
            }
            match self.power(deadline) {
                Ok(power) => found = power,
                Err(Error::Command(error @ CommandError::NotFound { .. })) => {
                    return Err(Wait::Failed(error.into()));
                }
                Err(_) => {}
            }
            Ok((found == wanted).then_some(()))
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(Wait::Over(why)) => Err(Error::PowerStuck { wanted, found, why }),
            Err(Wait::Failed(error)) => Err(error),
        }
    }

    fn expect(&self, command: &str, success: &'static str, deadline: &Deadline) -> Result<(), Error> {
        let output = self.run(command, deadline)?;
        let said = output.stdout_text();
        let refused = [said.as_str(), &output.stderr_text()].concat().contains("failed");
        if said.contains(success) && !refused { Ok(()) } else { Err(unexpected(command, success, &output)) }
    }

    /// Runs ipmitool with the cipher suite that works.
    fn run(&self, command: &str, deadline: &Deadline) -> Result<Output, Error> {
        let suites = match self.cipher_suite.get() {
            Some(suite) => vec![suite],
            None => CIPHER_SUITES.to_vec(),
        };
        let mut said = String::new();
        for suite in suites {
            let output = self.machine.run(&self.command(suite, command), deadline)?;
            let text = output.stderr_text();
            if !NO_SESSION.iter().any(|sign| text.contains(sign)) {
                self.cipher_suite.set(Some(suite));
                return Ok(output);
            }
            said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        Err(Error::NoSession { host: self.connection.host.clone(), said })
    }

    fn command(&self, suite: u8, command: &str) -> Command {
        let Connection { host, port, user, password, .. } = &self.connection;
        let (port, suite) = (port.to_string(), suite.to_string());
        let arguments =
            ["-I", "lanplus", "-H", host, "-p", &port, "-U", user, "-E", "-C", &suite, "-N", "1", "-R", "4"];
        Command::new("ipmitool")
            .args(arguments)
            .args(command.split(' '))
            // Of the two that ipmitool reads, the second wins, whatever the user's environment has in it.
            .env("IPMI_PASSWORD", password.expose_secret())
            .env("IPMITOOL_PASSWORD", password.expose_secret())
    }
}

/// Boot option parameter 3: do not clear the valid bit of the boot flags after 60 seconds.
const KEEP_VALID: &str = "raw 0x00 0x08 0x03 0x08";
const POWER_ON: &str = "chassis power on";
const POWER_SOFT: &str = "chassis power soft";

fn boot_once(device: BootDevice, efi: bool) -> String {
    let options = if efi { " options=efiboot" } else { "" };
    format!("chassis bootdev {device}{options}")
}

/// The commands of the writes, for a plan.
impl Ipmitool {
    #[must_use]
    pub fn boot_once_commands(device: BootDevice, efi: bool) -> Vec<String> {
        vec![KEEP_VALID.to_owned(), boot_once(device, efi)]
    }

    #[must_use]
    pub fn power_on_command() -> &'static str {
        POWER_ON
    }

    #[must_use]
    pub fn power_soft_command() -> &'static str {
        POWER_SOFT
    }
}

enum Wait {
    Over(Expired),
    Failed(Error),
}

impl From<Expired> for Wait {
    fn from(expired: Expired) -> Self {
        Self::Over(expired)
    }
}

fn unexpected(command: &str, expected: &'static str, output: &Output) -> Error {
    let said = format!("{} {}", output.stdout_text().trim(), output.stderr_text().trim());
    Error::Unexpected { command: format!("ipmitool {command}"), expected, said: said.trim().to_owned() }
}

#[cfg(test)]
mod tests;
