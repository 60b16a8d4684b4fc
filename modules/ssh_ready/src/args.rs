//! The option table and the checked arguments.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use ansible_module::{Arguments, Failure, Opt, Rule, Spec, Table};
use api_options::{OpnsenseOptions, opnsense_table};
use net_types::{DomainName, MacAddress};
use secrecy::SecretString;
use serde::Deserialize;
use ssh::{Address, Identity, Login};

/// What a file system needs for itself, and what boot partitions take, of a disk.
const OWN_NEEDS_GIB: f64 = 1.5;
const OWN_NEEDS_SHARE: f64 = 0.05;

#[derive(Debug, Deserialize)]
struct Raw {
    host: String,
    port: u16,
    user: String,
    private_key_file: Option<PathBuf>,
    private_key_passphrase: Option<SecretString>,
    known_hosts: PathBuf,
    replace_host_key: bool,
    expected_address: Option<IpAddr>,
    expected_hostname: Option<DomainName>,
    root_size_gib: Option<f64>,
    root_size_tolerance_gib: Option<f64>,
    settle: u64,
    mac: Option<MacAddress>,
    #[serde(flatten)]
    opnsense: OpnsenseOptions,
}

/// What the task asks for.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) known_hosts: PathBuf,
    pub(crate) replace_host_key: bool,
    pub(crate) expected: Expected,
    pub(crate) settle: Duration,
    pub(crate) leases: Option<(MacAddress, OpnsenseOptions)>,
}

/// What the guest must turn out to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) address: Option<IpAddr>,
    pub(crate) hostname: Option<DomainName>,
    pub(crate) root: Option<RootSize>,
}

/// A declared disk size and how far below it the root file system may stay, in GiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RootSize {
    pub(crate) declared: f64,
    pub(crate) tolerance: f64,
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if !is_name_or_address(&raw.host) {
            let why = format!(
                "expected a name, or an address without brackets and port, found `{}`",
                raw.host.escape_debug()
            );
            return Err(Failure::bad_argument("host", why));
        }
        if raw.user.is_empty() || raw.user.contains(char::is_control) {
            let why = format!("expected the name of a user, found `{}`", raw.user.escape_debug());
            return Err(Failure::bad_argument("user", why));
        }
        if raw.port == 0 {
            return Err(Failure::bad_argument("port", "expected 1 to 65535, found 0"));
        }
        let expected = Expected {
            address: raw.expected_address,
            hostname: raw.expected_hostname,
            root: root_size(raw.root_size_gib, raw.root_size_tolerance_gib)?,
        };
        let identity = match raw.private_key_file {
            Some(path) => {
                check_private_key(&path).map_err(|why| {
                    Failure::bad_argument("private_key_file", format!("{}: {why}", path.display()))
                })?;
                Identity::File { path, passphrase: raw.private_key_passphrase }
            }
            None => Identity::Agent,
        };
        check_known_hosts(&raw.known_hosts).map_err(|why| Failure::bad_argument("known_hosts", why))?;
        let leases = raw.mac.filter(|_| raw.opnsense.is_given()).map(|mac| (mac, raw.opnsense));
        if let Some((_, opnsense)) = &leases {
            opnsense.connect()?;
        }
        Ok(Self {
            address: Address::new(raw.host, raw.port),
            login: Login { user: raw.user, identity },
            known_hosts: raw.known_hosts,
            replace_host_key: raw.replace_host_key,
            expected,
            settle: Duration::from_secs(raw.settle),
            leases,
        })
    }
}

/// As known_hosts files and the resolver take it: `web01`, `10.20.0.40`, `fd00::1`, `fe80::1%eth0`.
fn is_name_or_address(host: &str) -> bool {
    let address = host.split_once('%').map_or(host, |(address, _zone)| address);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-%".contains(c);
    !host.is_empty() && (host.chars().all(is_part) || address.parse::<Ipv6Addr>().is_ok())
}

/// The text of a file, which a pipe or a device is not: it may never end.
fn text_of(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What can be seen without the passphrase, before a guest is waited for.
fn check_private_key(path: &Path) -> Result<(), String> {
    let text = text_of(path).map_err(|error| error.to_string())?;
    if text.contains("PRIVATE KEY-----") {
        return Ok(());
    }
    Err("expected a private key (-----BEGIN ... PRIVATE KEY-----), found something else; is it the public one?".into())
}

fn check_known_hosts(path: &Path) -> Result<(), String> {
    let error = match text_of(path) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::NotFound {
        return Err(format!("{} cannot be used: {error}", path.display()));
    }
    match path.parent() {
        None => Err(format!("expected the path of a file, found `{}`", path.display())),
        Some(here) if here.as_os_str().is_empty() => Ok(()),
        Some(directory) if directory.is_dir() => Ok(()),
        Some(directory) => Err(format!("the directory {} does not exist", directory.display())),
    }
}

fn root_size(declared: Option<f64>, tolerance: Option<f64>) -> Result<Option<RootSize>, Failure> {
    let positive = |option: &str, value: f64| {
        if value.is_finite() && value >= 0.0 {
            return Ok(value);
        }
        Err(Failure::bad_argument(option, format!("expected a size in GiB, found {value}")))
    };
    let Some(declared) = declared else { return Ok(None) };
    let declared = positive("root_size_gib", declared)?;
    let tolerance = match tolerance {
        Some(tolerance) => positive("root_size_tolerance_gib", tolerance)?,
        None => OWN_NEEDS_GIB + declared * OWN_NEEDS_SHARE,
    };
    Ok(Some(RootSize { declared, tolerance }))
}

pub(crate) fn spec() -> Spec {
    Spec::new("ssh_ready", "Wait until a guest answers SSH with a key, pin its host keys, prove what it is")
        .describe(
            "Runs on the controller. Waits until the address answers SSH and lets the key in, writes the guest's host \
             keys into a known_hosts file, and proves that the guest is the one that was declared: its address, its \
             hostname, the size of its root file system.",
        )
        .describe(
            "A host that is not in O(known_hosts) yet is believed at first sight, as a new guest has to be. A host whose \
             key is another one than there is an RV(error_code) of V(host_key_mismatch), before any login.",
        )
        .describe(
            "What keeps a guest from being ready is told apart by RV(error_code). V(timeout) means that nothing answered, \
             with the last reason; V(auth) that the guest is up and refuses the key (an install whose key fetch failed \
             looks just so); V(wrong_address) that the guest holds another address than the reserved one; \
             V(read_back_mismatch) that it came up as something else than declared.",
        )
        .note("In check mode everything is read and proved as always, only O(known_hosts) is not written. A guest that does not exist yet is a V(timeout) there too: leave the task out for one.")
        .note("Only public keys are used for the login; a password is never sent.")
        .note("The server's host keys are asked for with one connection for each kind of key.")
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
        .timeout(300)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("host").required().aliases(&["address"]).doc(
            "Name or address of the guest, as Ansible is going to use it: the host keys are pinned for this name.",
        ),
        Opt::int("port").default(22).doc("Port of the SSH server."),
        Opt::str("user").required().doc("Who logs in."),
        Opt::path("private_key_file")
            .doc("The private key to log in with. Without it the keys of the SSH agent (E(SSH_AUTH_SOCK)) are tried."),
        Opt::str("private_key_passphrase").no_log().doc("Passphrase of O(private_key_file)."),
        Opt::path("known_hosts")
            .default("~/.ssh/known_hosts")
            .doc("The file to pin the host keys in; made when it does not exist, in a directory that does.")
            .doc("Lines of other hosts, comments and hashed names stay as they are."),
        Opt::bool("replace_host_key").default(false).doc(
            "Takes the host keys of an older machine out of O(known_hosts) and pins those of the new one. Set it for a \
             guest that was just rebuilt, and only then.",
        ),
        Opt::str("expected_address").doc("The address the guest must be reached on, for an O(host) that is a name."),
        Opt::str("expected_hostname").doc(
            "What the guest must call itself. Without a dot only the first label of the guest's own answer counts.",
        ),
        Opt::float("root_size_gib").doc(
            "The size that was declared for the OS disk, in GiB. A root file system that is smaller by more than \
             O(root_size_tolerance_gib) did not grow with its disk, although Proxmox shows the new size.",
        ),
        Opt::float("root_size_tolerance_gib").doc(
            "By how much the root file system may be smaller than O(root_size_gib). The default, 1.5 GiB and 5 percent, \
             covers boot partitions and what a file system keeps for itself.",
        ),
        Opt::int("settle").default(30).doc(
            "Seconds that a guest gets from its first answer until it has to be right: a refused key, another hostname \
             and a root file system that is too small are looked at again until then, since they may still be set up.",
        ),
        Opt::str("mac").quoted("a MAC address").doc(
            "MAC address of the guest. While the guest does not answer (or refuses the key), the firewall O(api_host), \
             if one is named, is asked for the leases of this address; a guest that sits on another address than \
             O(host) is then its own failure at once.",
        ),
    ])
    .with(opnsense_table(false))
    .rule(Rule::RequiredBy { option: "root_size_tolerance_gib", required: vec!["root_size_gib"] })
    .rule(Rule::RequiredBy { option: "private_key_passphrase", required: vec!["private_key_file"] })
}

const EXAMPLES: &str = r#"
- name: The guest is up and is the one that was declared
  homelab.anvil.ssh_ready:
    host: 10.20.0.40
    user: fedora
    private_key_file: ~/.ssh/id_ed25519
    expected_hostname: web01
    root_size_gib: 64
  delegate_to: localhost
  register: ready

- name: A rebuilt guest has new host keys; a guest on a pool lease is told from one that is down
  homelab.anvil.ssh_ready:
    host: 10.20.0.40
    user: fedora
    private_key_file: ~/.ssh/id_ed25519
    replace_host_key: true
    mac: "02:a5:00:00:00:8c"
    api_host: opnsense.example.net
    api_key: "{{ vault_opnsense_key }}"
    api_secret: "{{ vault_opnsense_secret }}"
    timeout: 600
  delegate_to: localhost
"#;

const RETURNS: &str = r"
guest:
  description: The guest that answered.
  returned: success
  type: dict
  contains:
    address:
      description: The address it was reached on.
      type: str
      sample: 10.20.0.40
    hostname:
      description: What it calls itself.
      type: str
      sample: web01
    root_size_gib:
      description: The size of its root file system in GiB.
      type: float
      sample: 62.7
    host_keys:
      description: Every host key it proved to own.
      type: list
      elements: dict
      contains:
        type:
          description: The kind of the key.
          type: str
          sample: ssh-ed25519
        sha256:
          description: The fingerprint, as C(ssh-keygen -l) shows it.
          type: str
          sample: SHA256:A+JxDdHS8BKnRw6Tqx17h1naYI0FJdQu8yIZ7lePJ4g
        key:
          description: The public key in base64.
          type: str
known_host:
  description: The known host key that the guest does not have.
  returned: when RV(error_code) is V(host_key_mismatch)
  type: dict
  contains:
    type:
      description: The kind of the key.
      type: str
    sha256:
      description: The fingerprint.
      type: str
    line:
      description: Where it stands in O(known_hosts).
      type: int
offered:
  description: The host key that the guest has instead, in the form of RV(known_host).
  returned: when RV(error_code) is V(host_key_mismatch)
  type: dict
lease_address:
  description: The address that the guest holds.
  returned: when RV(error_code) is V(wrong_address)
  type: str
last_reason:
  description: What was in the way at the last try.
  returned: when RV(error_code) is V(timeout)
  type: str
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_alone() {
        for host in ["web01", "web_01.example.net.", "10.20.0.40", "fd00::1", "fe80::1%eth0"] {
            assert!(is_name_or_address(host), "{host}");
        }
        for host in
            ["", "[fd00::1]", "fd00::1::2", "web01:22", "a b", "web*", "web?", "#web", "!web", "a,b", "wéb"]
        {
            assert!(!is_name_or_address(host), "{host}");
        }
    }

    #[test]
    fn a_known_hosts_file_may_be_new_in_a_directory_that_is_there() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(check_known_hosts(&directory.path().join("known_hosts")), Ok(()));
        assert_eq!(check_known_hosts(Path::new("a-known-hosts-file-that-is-not-here")), Ok(()));
        for path in [directory.path().join("no/known_hosts"), directory.path().to_owned(), "".into()] {
            assert!(check_known_hosts(&path).is_err(), "{}", path.display());
        }
    }
}
