//! The files of one machine beside `grub.cfg`: their names, and the line that says whose they are.

use std::fmt;

use net_types::MacAddress;
use serde::{Deserialize, Serialize};

/// What every machine's file begins with.
pub const FILE_PREFIX: &str = "grub.cfg-";

/// The names a machine's file is asked for under, those that a program is known to ask for first: GRUB's own search
/// (grub-core/net/net.c, grub_net_search_config_file), `$net_default_mac`, the form of GRUB's manual, and the
/// three of them in upper case. An address without letters has three.
#[must_use]
pub fn file_names(mac: MacAddress) -> Vec<String> {
    let colons = mac.to_string();
    let dashes = colons.replace(':', "-");
    let shapes = [format!("01-{dashes}"), colons, dashes];
    let mut names: Vec<String> = Vec::new();
    for form in shapes.iter().cloned().chain(shapes.iter().map(|shape| shape.to_uppercase())) {
        let name = format!("{FILE_PREFIX}{form}");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What a machine's file makes it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Load a kernel and an initrd over the network, without asking.
    Install,
    /// Go on to what is installed.
    LocalDisk,
}

impl Mode {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::LocalDisk => "local_disk",
        }
    }
}

const MARK: &str = "# Managed by homelab.anvil.grub_mac_config: ";

/// Whose file it is: the first line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The host's name in the inventory.
    pub host: String,
    pub mac: MacAddress,
    pub mode: Mode,
}

impl Ownership {
    /// Reads a file's first line; `None` for a file of somebody else.
    #[must_use]
    pub fn of(content: &[u8]) -> Option<Self> {
        let line = content.split(|byte| *byte == b'\n').next()?;
        let fields = std::str::from_utf8(line).ok()?.strip_prefix(MARK)?;
        let mut fields = fields.split(", ");
        let host = fields.next()?.strip_prefix("host ").filter(|host| is_host(host))?.to_owned();
        let mac = fields.next()?.strip_prefix("MAC ")?.parse().ok()?;
        let mode = match fields.next()?.strip_prefix("mode ")? {
            "install" => Mode::Install,
            "local_disk" => Mode::LocalDisk,
            _ => return None,
        };
        fields.next().is_none().then_some(Self { host, mac, mode })
    }

    /// Whether a line can name this host: the letters, digits and marks of an inventory name.
    #[must_use]
    pub fn can_name(host: &str) -> bool {
        is_host(host)
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

impl fmt::Display for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}host {}, MAC {}, mode {}", self.host, self.mac, self.mode.name())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn six_names_those_that_are_asked_for_first() {
        assert_eq!(
            file_names("52:54:00:ab:cd:ef".parse().unwrap()),
            [
                "grub.cfg-01-52-54-00-ab-cd-ef",
                "grub.cfg-52:54:00:ab:cd:ef",
                "grub.cfg-52-54-00-ab-cd-ef",
                "grub.cfg-01-52-54-00-AB-CD-EF",
                "grub.cfg-52:54:00:AB:CD:EF",
                "grub.cfg-52-54-00-AB-CD-EF",
            ]
        );
    }

    #[test]
    fn an_address_without_letters_has_three_names() {
        assert_eq!(file_names("02:00:00:00:00:64".parse().unwrap()).len(), 3);
    }

    #[test]
    fn what_is_not_exactly_our_line_is_somebody_elses() {
        let line =
            "# Managed by homelab.anvil.grub_mac_config: host web01, MAC 02:a5:00:00:03:e9, mode install";
        let ours = Ownership::of(format!("{line}\nset timeout=0\n").as_bytes()).unwrap();
        assert_eq!((ours.host.as_str(), ours.mode, ours.to_string()), ("web01", Mode::Install, line.into()));
        for other in [
            "",
            "set timeout=0\n",
            "# Managed by homelab.anvil.grub_mac_config: host web01\n",
            "\n# Managed by homelab.anvil.grub_mac_config: host web01, MAC 02:a5:00:00:03:e9, mode install\n",
            "# Managed by homelab.anvil.grub_mac_config: host , MAC 02:a5:00:00:03:e9, mode install\n",
            "# Managed by homelab.anvil.grub_mac_config: host web01, MAC 02:a5, mode install\n",
            "# Managed by homelab.anvil.grub_mac_config: host web01, MAC 02:a5:00:00:03:e9, mode rescue\n",
            "# Managed by homelab.anvil.grub_mac_config: host web01, MAC 02:a5:00:00:03:e9, mode install, x\n",
        ] {
            assert_eq!(Ownership::of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Ownership::of(b"\xff\xfe\n"), None);
    }

    proptest! {
        #[test]
        fn the_line_names_the_host_and_the_address(host in "[A-Za-z0-9._-]{1,40}", bytes: [u8; 6], install: bool) {
            let mode = if install { Mode::Install } else { Mode::LocalDisk };
            let ownership = Ownership { host, mac: MacAddress::new(bytes), mode };
            prop_assert_eq!(Ownership::of(format!("{ownership}\nrest").as_bytes()), Some(ownership));
        }

        #[test]
        fn a_name_names_one_address(a: [u8; 6], b: [u8; 6]) {
            let (a, b) = (MacAddress::new(a), MacAddress::new(b));
            let shared = file_names(a).iter().any(|name| file_names(b).contains(name));
            prop_assert_eq!(shared, a == b);
        }
    }
}
