//! The option table and the checked arguments.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use api_options::{ProxmoxOptions, proxmox_table};
use net_types::{MacAddress, MacPrefix, Vmid};
use serde::Deserialize;

use crate::observe::identity_file;

#[derive(Deserialize)]
struct Raw {
    host: String,
    inventory_dir: PathBuf,
    vmid_range: Option<Vec<String>>,
    mac_prefix: MacPrefix,
    hosts: Option<Vec<String>>,
    #[serde(flatten)]
    proxmox: ProxmoxOptions,
}

/// The arguments, checked as far as that goes without looking at the inventory.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) host: String,
    pub(crate) directory: PathBuf,
    pub(crate) range: Option<Range>,
    pub(crate) prefix: MacPrefix,
    /// This host among those that are allocated together; each once, in the order given.
    pub(crate) batch: Vec<String>,
    /// Nothing when no API was named.
    pub(crate) proxmox: Option<ProxmoxOptions>,
}

impl Args {
    pub(crate) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        check_host("host", &raw.host)?;
        let range = raw.vmid_range.as_deref().map(|words| parse_range(words, raw.mac_prefix)).transpose();
        Ok(Self {
            range: range.map_err(|why| Failure::bad_argument("vmid_range", why))?,
            prefix: raw.mac_prefix,
            batch: batch(&raw.host, raw.hosts)?,
            proxmox: raw.proxmox.is_given().then_some(raw.proxmox),
            host: raw.host,
            directory: raw.inventory_dir,
        })
    }

    /// The file that holds the identity.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join(identity_file(&self.host))
    }
}

/// VMIDs from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    first: Vmid,
    last: Vmid,
}

impl Range {
    pub(crate) fn vmids(self) -> impl Iterator<Item = Vmid> {
        (self.first.get()..=self.last.get()).filter_map(|number| Vmid::new(number).ok())
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("expected two VMIDs like 1000-1099, found \"{}\"", text.escape_debug());
        let (first, last) = text.split_once('-').ok_or_else(form)?;
        let vmid = |text: &str| text.trim().parse::<Vmid>().map_err(|error| error.to_string());
        let range = Self { first: vmid(first)?, last: vmid(last)? };
        if range.first > range.last {
            return Err(format!("expected the lower VMID first, found {range}"));
        }
        Ok(range)
    }
}

/// `1000-1099`, or the two ends as a list.
fn parse_range(words: &[String], prefix: MacPrefix) -> Result<Range, String> {
    let range: Range = match words {
        [one] => one.parse()?,
        [first, last] => format!("{first}-{last}").parse()?,
        words => return Err(format!("expected two VMIDs like 1000-1099, found {} of them", words.len())),
    };
    MacAddress::from_vmid(prefix, range.last).map_err(|error| error.to_string())?;
    Ok(range)
}

fn batch(host: &str, hosts: Option<Vec<String>>) -> Result<Vec<String>, Failure> {
    let Some(hosts) = hosts else { return Ok(vec![host.to_owned()]) };
    hosts.iter().try_for_each(|host| check_host("hosts", host))?;
    if !hosts.iter().any(|one| one == host) {
        let why =
            format!("expected `{host}`, the option `host`, to be among them, found {}", hosts.join(", "));
        return Err(Failure::bad_argument("hosts", why));
    }
    let mut seen = BTreeSet::new();
    Ok(hosts.into_iter().filter(|host| seen.insert(host.clone())).collect())
}

/// A name becomes a directory below `host_vars`, and must not lead anywhere else.
fn check_host(option: &str, host: &str) -> Result<(), Failure> {
    let found = match host {
        "" => "nothing".to_owned(),
        path if path.contains(['/', '\\']) || path == "." || path == ".." => format!("the path \"{path}\""),
        name if name.contains(|c: char| c.is_control()) => format!("\"{}\"", name.escape_debug()),
        // Hidden files and backups below host_vars are nobody's variables.
        name if name.starts_with('.') || name.ends_with('~') => {
            format!("`{name}`, a hidden file or a backup")
        }
        _ => return Ok(()),
    };
    Err(Failure::bad_argument(option, format!("expected the name of a host in the inventory, found {found}")))
}

pub(crate) fn spec() -> Spec {
    Spec::new("vm_identity", "Give a host of the inventory its VMID and its MAC address")
        .describe(
            "Takes the next free VMID of a range, makes the MAC address of it (a prefix of the site, then the VMID as 24 \
             bits, so that both name each other), and writes both to C(host_vars/HOST/identity.yml) as \
             C(anvil_assigned_vmid) and C(anvil_assigned_mac).",
        )
        .describe(
            "A VMID is free when no file below C(host_vars) declares it and, with access to the Proxmox API, no VM, \
             container or template of the cluster has it or its MAC address.",
        )
        .describe(
            "An identity that is written is never changed or removed; for such a host the module asks nobody. Comments \
             and other keys of the file survive.",
        )
        .note("Runs where the inventory is: delegate it to C(localhost).")
        .note(
            "Any number of tasks may run at once: the inventory is locked while an identity is allocated (among the \
             processes of one user on one machine).",
        )
        .note(
            "The cluster is asked once for the hosts in O(hosts): the first task leaves what it saw in \
             C(~/.cache/homelab-anvil), and every other host of the batch uses that once, within a minute.",
        )
        .note(
            "Ansible has read C(host_vars) when a play begins. The facts that this module returns (also with \
             C(delegate_to), and without C(delegate_facts)) win over C(host_vars) in the rest of the run. In check mode \
             an identity that is not written yet is returned in RV(identity) alone and never as a fact, which a fact \
             cache could keep. Where facts are not injected as variables, use \
             C(ansible.builtin.set_fact), as the role C(homelab.anvil.vm_identity) does.",
        )
        .note(
            "The API user needs C(VM.Audit) on C(/vms); otherwise guests would be hidden from it, and the module refuses.",
        )
        .options(
            Table::new(vec![
                Opt::str("host").required().doc("Name of the host in the inventory."),
                Opt::path("inventory_dir").required().doc("Directory that holds C(host_vars)."),
                Opt::list("vmid_range", Kind::Str)
                    .doc("The VMIDs to allocate from: first and last, as V(1000-1099) or V([1000, 1099]), up to 16777215.")
                    .doc("Needed only when the host has no identity yet."),
                Opt::str("mac_prefix")
                    .default("02:a5:00")
                    .quoted("a MAC prefix")
                    .doc("The first three bytes of every MAC address: locally administered, unicast."),
                Opt::list("hosts", Kind::Str)
                    .doc(
                        "All hosts that get an identity out of O(vmid_range) in this run, O(host) among them; the same \
                         list for each of them.",
                    )
                    .doc(
                        "Those without an identity get the free VMIDs in this order, whichever task comes first: so \
                         check mode predicts what a run does, and the cluster is asked once.",
                    )
                    .doc("Without it the host is alone, and check mode predicts the same identity for several hosts."),
            ])
            .with(proxmox_table(false)),
        )
        .examples(EXAMPLES)
        .returns(RETURNS)
}

const EXAMPLES: &str = r#"
- name: Every host of the play has its VMID and MAC address
  homelab.anvil.vm_identity:
    host: "{{ inventory_hostname }}"
    inventory_dir: "{{ inventory_dir }}"
    vmid_range: 1000-1099
    hosts: "{{ ansible_play_hosts_all }}"
    api_host: pve.example
    api_user: anvil@pve
    api_token_id: inventory
    api_token_secret: "{{ vault_proxmox_token_secret }}"
  delegate_to: localhost
  register: assigned

- name: The rest of the run knows them
  ansible.builtin.set_fact:
    anvil_assigned_vmid: "{{ assigned.identity.vmid }}"
    anvil_assigned_mac: "{{ assigned.identity.mac }}"

- name: A site with a prefix of its own, and no access to the cluster
  homelab.anvil.vm_identity:
    host: web01
    inventory_dir: "{{ inventory_dir }}"
    vmid_range: [2000, 2049]
    mac_prefix: "02:a5:07"
  delegate_to: localhost
"#;

const RETURNS: &str = r#"
identity:
  description:
    - The identity of the host; in check mode the one that it would get.
  returned: success
  type: dict
  sample: {host: web01, vmid: 1001, mac: "02:a5:00:00:03:e9", file: /srv/inventory/host_vars/web01/identity.yml}
  contains:
    host:
      description: The option O(host).
      type: str
    vmid:
      description: The VMID.
      type: int
    mac:
      description: The MAC address that is made of it.
      type: str
    file:
      description: The file that holds both.
      type: str
ansible_facts:
  description: The identity as variables of the host, when it is written.
  returned: success, but not when check mode predicts
  type: dict
  contains:
    anvil_assigned_vmid:
      description: The VMID.
      type: int
    anvil_assigned_mac:
      description: The MAC address.
      type: str
holders:
  description: Who has each VMID of O(vmid_range).
  returned: when no VMID of the range is free
  type: list
  elements: dict
  contains:
    vmid:
      description: The VMID.
      type: int
    holder:
      description: The host, VM or container that has it or its MAC address.
      type: str
hosts:
  description: The two hosts that share a VMID or a MAC address.
  returned: when hosts share one
  type: list
  elements: str
file:
  description: The file that cannot be used as it is.
  returned: when that is why the module refuses
  type: str
"#;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn args(more: Value) -> Result<Args, Failure> {
        let mut raw = json!({"host": "web01", "inventory_dir": "/inv"});
        raw.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Args::new(&Arguments::for_tests(&spec(), raw)?)
    }

    #[test]
    fn a_range_is_a_text_or_a_pair() {
        for range in [
            json!("1000-1099"),
            json!([1000, 1099]),
            json!(["1000-1099"]),
            json!("1000, 1099"),
            json!("1000 - 1099"),
        ] {
            let args = args(json!({"vmid_range": range})).unwrap();
            assert_eq!(args.range.unwrap().to_string(), "1000-1099", "{range}");
        }
        let one = args(json!({"vmid_range": "1000-1000"})).unwrap().range.unwrap();
        assert_eq!(one.vmids().map(Vmid::get).collect::<Vec<_>>(), [1000]);
    }

    #[test]
    fn a_batch_is_each_host_once_in_the_order_given() {
        let args = args(json!({"hosts": ["web02", "web01", "web02"]})).unwrap();
        assert_eq!(args.batch, ["web02", "web01"]);
    }

    #[test]
    fn without_a_host_to_ask_there_is_no_api() {
        assert!(args(json!({})).unwrap().proxmox.is_none());
    }

    #[test]
    fn wrong_arguments_say_what_is_wrong() {
        let errors: String = [
            json!({"host": "../web01"}),
            json!({"host": ".."}),
            json!({"host": ""}),
            json!({"host": "web\n01"}),
            json!({"host": ".web01"}),
            json!({"hosts": ["web01", "web01~"]}),
            json!({"hosts": ["web02"]}),
            json!({"hosts": ["web01", "a/b"]}),
            json!({"vmid_range": "1000"}),
            json!({"vmid_range": "1099-1000"}),
            json!({"vmid_range": "99-200"}),
            json!({"vmid_range": "x-200"}),
            json!({"vmid_range": [1, 2, 3]}),
            json!({"vmid_range": "1000-16777216"}),
            json!({"mac_prefix": "03:a5:00"}),
            json!({"mac_prefix": "00:50:56"}),
            json!({"mac_prefix": 12}),
        ]
        .into_iter()
        .map(|raw| args(raw).unwrap_err().to_string() + "\n")
        .collect();
        insta::assert_snapshot!(errors, @r#"
        option `host`: expected the name of a host in the inventory, found the path "../web01" (bad_argument)
        option `host`: expected the name of a host in the inventory, found the path ".." (bad_argument)
        option `host`: expected the name of a host in the inventory, found nothing (bad_argument)
        option `host`: expected the name of a host in the inventory, found "web\n01" (bad_argument)
        option `host`: expected the name of a host in the inventory, found `.web01`, a hidden file or a backup (bad_argument)
        option `hosts`: expected the name of a host in the inventory, found `web01~`, a hidden file or a backup (bad_argument)
        option `hosts`: expected `web01`, the option `host`, to be among them, found web02 (bad_argument)
        option `hosts`: expected the name of a host in the inventory, found the path "a/b" (bad_argument)
        option `vmid_range`: expected two VMIDs like 1000-1099, found "1000" (bad_argument)
        option `vmid_range`: expected the lower VMID first, found 1099-1000 (bad_argument)
        option `vmid_range`: "99" is not a VMID: expected a whole number from 100 to 999999999, found 99 (bad_argument)
        option `vmid_range`: "x" is not a VMID: expected a whole number from 100 to 999999999, found something else than digits (bad_argument)
        option `vmid_range`: expected two VMIDs like 1000-1099, found 3 of them (bad_argument)
        option `vmid_range`: "16777216" is not a VMID that a MAC address can hold: expected at most 16777215 (24 bits behind the prefix 02:a5:00), found 16777216 (bad_argument)
        option `mac_prefix`: "03:a5:00" is not a MAC prefix of a site: expected a locally administered unicast prefix (second hex digit 2, 6, a or e, like 02:a5:00), found a multicast prefix (bad_argument)
        option `mac_prefix`: "00:50:56" is not a MAC prefix of a site: expected a locally administered unicast prefix (second hex digit 2, 6, a or e, like 02:a5:00), found the prefix of a maker of network cards (bad_argument)
        option `mac_prefix`: expected a MAC prefix as text, found the number 12; quote it in the YAML (bad_argument)
        "#);
    }
}
