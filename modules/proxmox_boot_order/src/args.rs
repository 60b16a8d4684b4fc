//! The option table, and the checked arguments made from it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use access_log::Pattern;
use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use api_options::{ProxmoxOptions, proxmox_table};
use net_types::{DomainName, Vmid};
use proxmox_vm::refuse_twice;
use serde::Deserialize;

use crate::window::Rules;

#[derive(Debug, Deserialize)]
struct Raw {
    #[serde(flatten)]
    connection: ProxmoxOptions,
    vmid: Vmid,
    name: DomainName,
    boot_order: Vec<String>,
    log: Option<PathBuf>,
    client: Option<IpAddr>,
    completion: String,
    packages: Vec<String>,
    settle: u64,
    now: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) connection: ProxmoxOptions,
    pub(crate) vmid: Vmid,
    pub(crate) name: DomainName,
    pub(crate) boot_order: Vec<String>,
    /// None when the virtual machine is known to be idle.
    pub(crate) log: Option<Log>,
}

/// Where to see whether it may be stopped.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) path: PathBuf,
    pub(crate) rules: Rules,
}

impl Args {
    pub(crate) fn parse(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if raw.boot_order.is_empty() {
            return Err(Failure::bad_argument("boot_order", "expected the devices to boot from, found none"));
        }
        let mut seen = BTreeSet::new();
        for (index, device) in raw.boot_order.iter().enumerate() {
            refuse_twice(&mut seen, &format!("boot_order[{index}]"), device)?;
        }
        let log = if raw.now { None } else { Some(log(&raw)?) };
        let Raw { connection, vmid, name, boot_order, .. } = raw;
        Ok(Self { connection, vmid, name, boot_order, log })
    }
}

fn log(raw: &Raw) -> Result<Log, Failure> {
    let missing = |option, what| {
        let why = format!("needed, {what}; or say `now: true` of a virtual machine that is known to be idle");
        Failure::bad_argument(option, why)
    };
    let path = raw.log.clone().ok_or_else(|| missing("log", "to see when the guest may be stopped"))?;
    let client = raw.client.ok_or_else(|| missing("client", "to know the guest's requests by"))?;
    for (option, patterns) in
        [("completion", vec![&raw.completion]), ("packages", raw.packages.iter().collect())]
    {
        if patterns.is_empty() || patterns.iter().any(|pattern| !pattern.starts_with(['/', '*'])) {
            let why = "expected patterns of paths that begin with `/` or `*`, such as `/keys/ssh/*.pub`";
            return Err(Failure::bad_argument(option, why));
        }
    }
    let rules = Rules {
        client,
        completion: Pattern::new(&raw.completion),
        packages: raw.packages.iter().map(Pattern::new).collect(),
        settle: raw.settle,
    };
    Ok(Log { path, rules })
}

pub(crate) fn spec() -> Spec {
    Spec::new("proxmox_boot_order", "Pins what a virtual machine boots from, and power-cycles it when that is safe")
        .describe(
            "The order in which the firmware tries the devices is given to QEMU when it is started. A reboot from inside \
             the guest, or the button Reboot, does not change it; only a stop and a start do. So the order is written, the \
             virtual machine is stopped and started, and what it then runs with is read back.",
        )
        .describe(
            "A guest that installs itself over the network again and again, because it still boots from there first, may be \
             stopped only in the moment between two rounds. It runs on the web server that the guest installs from, and reads \
             its log: the guest must have fetched O(completion), after packages, and nothing since. The log is read again \
             immediately before the stop. When no such moment comes before the deadline, it refuses and says what it saw. \
             Stopped while packages are written, the guest would be left with a half-written disk.",
        )
        .describe(
            "Lines from before the virtual machine was started do not count. A stopped one is started without any window; \
             if nothing says that it is installed, it is refused.",
        )
        .describe(
            "The mark that M(homelab.anvil.proxmox_vm_shell) puts into the description is taken off: from now on the disk has \
             data.",
        )
        .note(
            "It runs on the web server and talks to the API from there, so that the log and the stop are close together. The \
             log has the format C(combined). What logrotate put aside as C(.1) is read as well.",
        )
        .note(
            "A token needs C(VM.Audit), C(VM.PowerMgmt), C(VM.Config.Disk), and for the mark C(VM.Config.Options).",
        )
        .seealso(&["homelab.anvil.proxmox_vm_shell"])
        .options(proxmox_table(true).with(table()))
        .timeout(3600)
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::int("vmid").required().doc("Number of the virtual machine."),
        Opt::str("name").required().doc("Name of the virtual machine. It must agree with O(vmid)."),
        Opt::list("boot_order", Kind::Str)
            .default(vec!["scsi0", "net0"])
            .doc("Devices to boot from, first one first."),
        Opt::path("log").doc(
            "The log of the web server that the guest installs from. A virtual host has a file of its own, such as \
             C(/var/log/nginx/artifacts.access.log). Needed unless O(now=true).",
        ),
        Opt::str("client").doc("Address that the guest has in the log. Needed unless O(now=true)."),
        Opt::str("completion").default("/keys/ssh/*.pub").doc(
            "Path that the guest asks for when everything is written, at the very end of the last script; V(*) stands for any \
             characters. Nothing that it asks for after that may belong to the installation.",
        ),
        Opt::list("packages", Kind::Str)
            .default(vec!["*.rpm"])
            .doc("Paths that the guest asks for while it writes. A completion counts only after one of them."),
        Opt::int("settle").default(10).doc(
            "Seconds that must have passed since the completion, in which the guest writes out what it has in memory and \
             unmounts. The window closes with the first request of the next round, about a minute after the completion.",
        ),
        Opt::bool("now").default(false).doc(
            "Stops the virtual machine at once, without looking at a log: for one that is known to be idle.",
        ),
    ])
}

const EXAMPLES: &str = r#"
- name: From now on it boots from its disk
  homelab.anvil.proxmox_boot_order:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    vmid: 1101
    name: web01
    boot_order: [scsi0, net0]
    log: /var/log/nginx/artifacts.access.log
    client: 10.20.30.21
  delegate_to: artifacts.example.net
  become: true

- name: It idles at a prompt, nothing can break
  homelab.anvil.proxmox_boot_order:
    api_host: pve1.example.net
    api_user: anvil@pve
    api_token_id: automation
    api_token_secret: "{{ vault_proxmox_token }}"
    vmid: 1101
    name: web01
    now: true
"#;

const RETURNS: &str = r#"
vm:
  description: The virtual machine as it runs; in check mode as it would.
  returned: success
  type: dict
  contains:
    vmid:
      description: Its number.
      type: int
    name:
      description: Its name.
      type: str
    node:
      description: The node it lives on.
      type: str
    status:
      description: V(running) or V(stopped).
      type: str
    boot:
      description: The boot order it runs with.
      type: list
      elements: str
    uptime:
      description: Seconds since it was started.
      type: int
  sample: {"vmid": 1101, "name": "web01", "node": "pve1", "status": "running", "boot": ["scsi0", "net0"], "uptime": 2}
power_cycled:
  description: Whether it was stopped and started; in check mode whether it would be.
  returned: success
  type: bool
window:
  description: What the log said about the guest.
  returned: when it was looked at, also when RV(error_code) is V(no_window)
  type: dict
  contains:
    open:
      description: Whether the guest may be stopped.
      type: bool
    packages:
      description: Packages of the round that the last request belongs to.
      type: int
    last_package:
      description: The last package, with its time.
      type: str
    completion:
      description: The last completion that was served after packages.
      type: str
    saw:
      description: All of it in words.
      type: str
  sample:
    open: true
    packages: 812
    last_package: GET /fedora/Packages/z/zlib-1.3.rpm (200) at 2026-11-30 15:50:12 UTC
    completion: GET /keys/ssh/web01.pub (200) at 2026-11-30 15:51:27 UTC
    saw: an installation of 812 packages complete, and no request since
"#;
