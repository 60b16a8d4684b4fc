//! The option table and the checked arguments.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use jiff::{SignedDuration, Timestamp};
use net_types::MacAddress;
use netboot::chain::{Machine, State};
use serde::Deserialize;
use serde_json::json;

/// How far back the logs are read when nobody says since when.
const USUAL: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Deserialize)]
struct Raw {
    mac: MacAddress,
    ip: Ipv4Addr,
    logs: Vec<PathBuf>,
    journal: bool,
    since: Option<String>,
    wait_for: Option<WaitFor>,
    kernel: String,
    initrd: String,
    kickstart: Vec<String>,
    packages: Vec<String>,
    completion: Vec<String>,
}

/// What the run goes on until.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitFor {
    /// Kernel and initrd were asked for.
    Served,
    #[serde(untagged)]
    State(State),
}

impl WaitFor {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::State(state) => state.name(),
        }
    }
}

/// What the task asks for.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) machine: Machine,
    pub(crate) logs: Vec<PathBuf>,
    pub(crate) journal: bool,
    pub(crate) since: Timestamp,
    pub(crate) wait_for: Option<WaitFor>,
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if raw.logs.is_empty() && !raw.journal {
            return Err(Failure::bad_argument(
                "logs",
                "expected a log file, or `journal: true`: nothing is left to read",
            ));
        }
        if let Some(path) = raw.logs.iter().find(|path| !path.is_absolute()) {
            return Err(Failure::bad_argument(
                "logs",
                format!("expected absolute paths, found `{}`", path.display()),
            ));
        }
        for (option, name) in [("kernel", &raw.kernel), ("initrd", &raw.initrd)] {
            if name.is_empty() || name.ends_with('/') {
                return Err(Failure::bad_argument(
                    option,
                    format!("expected the name of a file, found `{name}`"),
                ));
            }
        }
        let since = match raw.since.as_deref() {
            Some(text) => parse_time(text).map_err(|why| Failure::bad_argument("since", why))?,
            None => Timestamp::now() - USUAL,
        };
        let machine = Machine {
            mac: raw.mac,
            ip: raw.ip.into(),
            kernel: raw.kernel,
            initrd: raw.initrd,
            kickstart: raw.kickstart,
            packages: raw.packages,
            completion: raw.completion,
        };
        Ok(Self { machine, logs: raw.logs, journal: raw.journal, since, wait_for: raw.wait_for })
    }
}

/// Ansible has the time as seconds (`ansible_date_time.epoch`, `now().timestamp()`) and as RFC 3339.
fn parse_time(text: &str) -> Result<Timestamp, String> {
    let seconds =
        text.parse::<f64>().ok().and_then(|seconds| Timestamp::from_microsecond((seconds * 1e6) as i64).ok());
    seconds.or_else(|| text.parse().ok()).ok_or_else(|| {
        format!("expected seconds since 1970 or a time such as 2026-11-30T16:00:00Z, found `{text}`")
    })
}

pub(crate) fn spec() -> Spec {
    Spec::new("netboot_watch", "Say where a machine's network boot stands, from the logs of the servers")
        .describe(
            "Runs on the boot server and changes nothing. Follows the chain lease, loader, C(grub.cfg), the machine's own file, \
             kernel, initrd, kickstart, packages, key through the logs of in.tftpd, dnsmasq, Kea and nginx, and gives the state \
             a name, with what it was concluded from and what to do about it.",
        )
        .describe(
            "With O(wait_for) it goes on until that state, or until O(timeout), and then fails with the state it is in. It \
             fails at once when waiting cannot help: the machine has a wrong address, or installs itself again and again.",
        )
        .note(
            "in.tftpd names the files only with C(-v), and those that are missing only with a second one: run it with C(-v -v -v). \
             A virtual host of nginx usually has a log of its own, such as C(artifacts.access.log).",
        )
        .note(
            "C(wait_for: served) ends as soon as kernel and initrd were asked for: GRUB has read everything by then, and the \
             machine's file can be changed to C(local_disk).",
        )
        .note("Without a log of the DHCP server nobody can tell V(no_dhcp) from V(no_tftp): the state is V(no_dhcp) then.")
        .note("What rotation made of a log is read from C(PATH.1).")
        .requirement("On the boot server: journalctl for O(journal); the right to read the logs")
        .seealso(&["homelab.anvil.grub_mac_config", "homelab.anvil.grub_dispatcher"])
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
        .timeout(300)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("mac").required().quoted("a MAC address").doc("MAC address of the machine."),
        Opt::str("ip").required().aliases(&["address"]).doc("The address that is reserved for it."),
        Opt::list("logs", Kind::Path).default(json!([])).doc(
            "Log files, in any order and of any of the servers: nginx (formats combined and common), rsyslog's files, dnsmasq's and \
             Kea's own.",
        ),
        Opt::bool("journal").default(true).doc(
            "Whether the journal is read too: what in.tftpd, dnsmasq, kea-dhcp4 and nginx said there, whatever their units are called.",
        ),
        Opt::str("since").doc(
            "From when on the logs count: seconds since 1970, or a time with its zone, such as V(2026-11-30T16:00:00Z). An hour \
             ago by default. Take it before the machine is started.",
        ),
        Opt::str("wait_for")
            .choices(&[
                "served",
                "no_dhcp",
                "no_tftp",
                "menu_instead_of_install",
                "installing",
                "reinstalling",
                "wrong_address",
                "healthy_but_no_key",
                "done",
            ])
            .doc(
                "Go on until this state, or with V(served) until kernel and initrd of the last boot were asked for. Left out, and \
                 in check mode, the logs are read once.",
            ),
        Opt::str("kernel").default("vmlinuz").doc("The kernel's name; of a path the last part counts."),
        Opt::str("initrd").default("initrd.img").doc("The initrd's name; of a path the last part counts."),
        Opt::list("kickstart", Kind::Str).default(json!(["*.ks", "*ks.cfg", "*preseed.cfg"])).doc(
            "Patterns of the path that the installation's answers come from. C(*) is anything; a pattern without a slash or a star \
             at its beginning matches at any depth.",
        ),
        Opt::list("packages", Kind::Str).default(json!(["*.rpm", "*.deb"])).doc("Patterns of the packages' paths."),
        Opt::list("completion", Kind::Str).default(json!(["keys/ssh/*.pub"])).doc(
            "Patterns of what the installation fetches at its very end.",
        ),
    ])
}

const EXAMPLES: &str = r#"
- name: Kernel and initrd of web01 are served
  homelab.anvil.netboot_watch:
    mac: "02:a5:00:00:03:e9"
    ip: 10.20.30.20
    since: "{{ web01_started }}"
    wait_for: served
    timeout: 300
  become: true

- name: Its installation is done
  homelab.anvil.netboot_watch:
    mac: "02:a5:00:00:03:e9"
    ip: 10.20.30.20
    logs: [/var/log/nginx/artifacts.access.log]
    since: "{{ web01_started }}"
    wait_for: done
    timeout: 3600
  become: true
"#;

const RETURNS: &str = r"
netboot:
  description: Where the boot stands.
  returned: success, and when waiting came to nothing
  type: dict
  contains:
    state:
      description:
        - V(no_dhcp), V(no_tftp), V(menu_instead_of_install), V(installing), V(reinstalling), V(wrong_address), V(healthy_but_no_key)
          or V(done); see docs/troubleshooting.md of the collection.
      type: str
      sample: installing
    symptom:
      description: What that was concluded from.
      type: str
    cure:
      description: What to do about it.
      type: str
    served:
      description: When kernel and initrd of the last boot had both been asked for; null before.
      type: str
      sample: '2026-11-30T16:00:05Z'
    lease:
      description: The machine's last lease; null where no log tells.
      type: str
    addresses:
      description: Every address that the machine was seen with.
      type: list
      elements: str
    rounds:
      description: Its boots, each with the times of its steps, the number of its packages, and the names of its own file that are missing.
      type: list
      elements: dict
    since:
      description: From when on the logs were read.
      type: str
";

#[cfg(test)]
mod tests {
    use ansible_module::Module;
    use serde_json::Value;

    use super::*;
    use crate::NetbootWatch;

    fn check(further: Value) -> Result<Args, Failure> {
        let mut raw = json!({"mac": "02:a5:00:00:03:e9", "ip": "10.77.0.50"});
        raw.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        Args::check(&Arguments::for_tests(&NetbootWatch::spec(), raw)?)
    }

    #[test]
    fn times_come_as_ansible_has_them() {
        let at = |text: &str| check(json!({"since": text})).unwrap().since.to_string();
        assert_eq!(at("1796054400"), "2026-11-30T16:00:00Z");
        assert_eq!(at("1796054400.25"), "2026-11-30T16:00:00.25Z");
        assert_eq!(at("2026-11-30T17:00:00+01:00"), "2026-11-30T16:00:00Z");
        let usual = check(json!({})).unwrap().since;
        let ago = Timestamp::now().duration_since(usual);
        assert!(ago >= USUAL && ago < USUAL * 2, "{ago}");
    }

    #[test]
    fn every_choice_is_a_state_or_served() {
        for state in State::ALL {
            let args = check(json!({"wait_for": state.name()})).unwrap();
            assert_eq!(args.wait_for, Some(WaitFor::State(state)));
        }
        assert_eq!(check(json!({"wait_for": "served"})).unwrap().wait_for, Some(WaitFor::Served));
    }

    #[test]
    fn wrong_arguments_are_refused_by_name() {
        for (wrong, option) in [
            (json!({"mac": 2}), "mac"),
            (json!({"ip": "10.77.0"}), "ip"),
            (json!({"journal": false}), "logs"),
            (json!({"logs": ["access.log"]}), "logs"),
            (json!({"since": "yesterday"}), "since"),
            (json!({"since": "1e400"}), "since"),
            (json!({"wait_for": "finished"}), "wait_for"),
            (json!({"kernel": ""}), "kernel"),
            (json!({"initrd": "/fedora/"}), "initrd"),
        ] {
            let failure = check(wrong.clone()).unwrap_err();
            assert!(failure.msg.contains(&format!("`{option}`")), "{wrong}: {failure}");
        }
    }
}
