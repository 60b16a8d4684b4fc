//! The option table and the checked arguments.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use ansible_module::{Arguments, Failure, Kind, Opt, Spec, Table};
use net_types::MacAddress;
use netboot::{Entry, GrubPath, Mode, Ownership, file_names, kernel_arguments, relative_path};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Presence {
    Present,
    Absent,
}

#[derive(Debug, Deserialize)]
struct Raw {
    host: Option<String>,
    #[serde(default)]
    mac: Vec<MacAddress>,
    state: Presence,
    prefix_dir: PathBuf,
    mode: Option<Mode>,
    single_shot: bool,
    kernel: Option<String>,
    initrd: Option<Value>,
    arguments: Option<Value>,
    template: Option<String>,
    menu_title: Option<String>,
    menu_timeout: u32,
    loaders: Vec<String>,
    prune: bool,
    hosts: Option<Vec<String>>,
}

/// What the task asks for.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    /// None when only other hosts' files are pruned.
    pub(crate) host: Option<String>,
    pub(crate) prefix_dir: PathBuf,
    pub(crate) mode: Option<Mode>,
    /// The files that shall be there, those that a loader is known to ask for first.
    pub(crate) wanted: Vec<WantedFile>,
    /// The hosts that may have files; none when other hosts are left alone.
    pub(crate) listed: Option<BTreeSet<String>>,
}

/// One file of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedFile {
    pub(crate) name: String,
    pub(crate) mac: MacAddress,
    pub(crate) content: String,
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let raw: Raw = arguments.parse()?;
        if !raw.prefix_dir.is_absolute() {
            let why = format!("expected an absolute path, found `{}`", raw.prefix_dir.display());
            return Err(Failure::bad_argument("prefix_dir", why));
        }
        let listed = check_listed(&raw)?;
        let wanted = match (&raw.state, &raw.host) {
            (Presence::Present, Some(host)) => wanted(&raw, host)?,
            (Presence::Absent, Some(_)) => Vec::new(),
            (_, None) if listed.is_some() && raw.mac.is_empty() && raw.mode.is_none() => Vec::new(),
            (_, None) => {
                return Err(Failure::bad_argument(
                    "host",
                    "expected the host whose files these are, found nothing",
                ));
            }
        };
        if let Some(host) = raw.host.as_deref().filter(|host| !Ownership::can_name(host)) {
            let why = format!("expected letters, digits, `-`, `_` and `.`, found `{host}`");
            return Err(Failure::bad_argument("host", why));
        }
        let mode = raw.mode.filter(|_| !wanted.is_empty());
        Ok(Self { host: raw.host, prefix_dir: raw.prefix_dir, mode, wanted, listed })
    }

    /// Every address of the host, in the order given.
    pub(crate) fn macs(&self) -> Vec<MacAddress> {
        let mut macs: Vec<MacAddress> = self.wanted.iter().map(|file| file.mac).collect();
        macs.dedup();
        macs
    }
}

/// An empty list would take every machine's file away, and usually is a variable that came to nothing.
fn check_listed(raw: &Raw) -> Result<Option<BTreeSet<String>>, Failure> {
    let hosts = match (&raw.hosts, raw.prune) {
        (Some(hosts), true) if !hosts.is_empty() => hosts,
        (None, false) => return Ok(None),
        (Some(_), false) => return Err(Failure::bad_argument("hosts", "is only for `prune: true`")),
        (_, true) => {
            let why = "with `prune: true` expected every host that may have files, found none";
            return Err(Failure::bad_argument("hosts", why));
        }
    };
    let is_present = matches!(raw.state, Presence::Present);
    if let Some(host) = raw.host.as_ref().filter(|host| is_present && !hosts.contains(host)) {
        let why =
            format!("expected the full list of hosts, found one without `{host}`, whose files are written");
        return Err(Failure::bad_argument("hosts", why));
    }
    Ok(Some(hosts.iter().cloned().collect()))
}

fn wanted(raw: &Raw, host: &str) -> Result<Vec<WantedFile>, Failure> {
    if raw.mac.is_empty() {
        return Err(Failure::bad_argument(
            "mac",
            format!("expected the MAC address of {host}, found nothing"),
        ));
    }
    if let Some(group) = raw.mac.iter().find(|mac| mac.is_multicast()) {
        let why = format!("expected the address of one network card, found the group address {group}");
        return Err(Failure::bad_argument("mac", why));
    }
    let Some(mode) = raw.mode else {
        return Err(Failure::bad_argument("mode", "expected `install` or `local_disk`, found nothing"));
    };
    let script = match mode {
        Mode::Install => install(raw, host)?,
        Mode::LocalDisk => local_disk(raw, host)?,
    };
    let mut files: Vec<WantedFile> = Vec::new();
    for mac in &raw.mac {
        let ownership = Ownership { host: host.to_owned(), mac: *mac, mode };
        let content = format!("{ownership}\n{script}");
        for name in file_names(*mac) {
            if files.iter().all(|file| file.name != name) {
                files.push(WantedFile { name, mac: *mac, content: content.clone() });
            }
        }
    }
    Ok(files)
}

fn install(raw: &Raw, host: &str) -> Result<String, Failure> {
    if !raw.single_shot {
        return Err(Failure::bad_argument(
            "single_shot",
            "an install entry asks nobody: a machine that finds it at every reboot is installed again at every reboot. \
             Expected `single_shot: true`, by which the play promises to change to `mode: local_disk` as soon as kernel and \
             initrd are served (netboot_watch tells when), found false",
        ));
    }
    let structured = raw.kernel.is_some() || raw.initrd.is_some() || raw.arguments.is_some();
    match &raw.template {
        Some(_) if structured => {
            Err(Failure::bad_argument("template", "stands alone, without kernel, initrd and arguments"))
        }
        Some(text) => own_text(text),
        None => {
            let missing =
                |option| Failure::bad_argument(option, "needed by `mode: install` (or give `template`)");
            let kernel = raw.kernel.as_deref().ok_or_else(|| missing("kernel"))?;
            let initrd = raw.initrd.as_ref().ok_or_else(|| missing("initrd"))?;
            let entry = Entry::Install {
                kernel: parse("kernel", kernel)?,
                initrd: one_or_more("initrd", initrd)?
                    .iter()
                    .map(|path| parse("initrd", path))
                    .collect::<Result<_, _>>()?,
                arguments: arguments(raw.arguments.as_ref())?,
            };
            let title = raw.menu_title.clone().unwrap_or_else(|| format!("Install {host}"));
            entry.script(&title, raw.menu_timeout).map_err(bad("arguments"))
        }
    }
}

fn local_disk(raw: &Raw, host: &str) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+".contains(c);
    if raw.loaders.is_empty() {
        return Err(Failure::bad_argument(
            "loaders",
            "expected at least one path on the EFI system partition",
        ));
    }
    if let Some(bad) = raw.loaders.iter().find(|path| !path.starts_with('/') || !path.chars().all(plain)) {
        let why = format!("expected absolute paths on the EFI system partition, with `/`, found `{bad}`");
        return Err(Failure::bad_argument("loaders", why));
    }
    let title = raw.menu_title.clone().unwrap_or_else(|| format!("{host} from its local disk"));
    let entry = Entry::LocalDisk { loaders: raw.loaders.clone() };
    entry.script(&title, raw.menu_timeout).map_err(bad("menu_title"))
}

fn own_text(text: &str) -> Result<String, Failure> {
    if text.trim().is_empty() || text.contains('\0') {
        return Err(Failure::bad_argument("template", "expected a GRUB script, found nothing that is one"));
    }
    if let Some((command, path)) = relative_path(text) {
        let why = format!(
            "`{command}` names `{path}` by a relative path, which cannot be fetched over HTTP: expected `/{path}`, \
             `$prefix/{path}` or `(http,SERVER)/{path}`"
        );
        return Err(Failure::bad_argument("template", why));
    }
    Ok(if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") })
}

fn arguments(given: Option<&Value>) -> Result<Vec<String>, Failure> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let mut words = Vec::new();
    for text in one_or_more("arguments", given)? {
        words.extend(kernel_arguments(&text).map_err(bad("arguments"))?);
    }
    Ok(words)
}

fn parse(option: &str, text: &str) -> Result<GrubPath, Failure> {
    GrubPath::from_str(text).map_err(bad(option))
}

fn bad<E: Display>(option: &str) -> impl Fn(E) -> Failure {
    move |why| Failure::bad_argument(option, why)
}

/// Ansible would split a text at its commas, and `(http,10.0.0.2)/vmlinuz` and `console=ttyS0,115200` have some.
fn one_or_more(option: &str, value: &Value) -> Result<Vec<String>, Failure> {
    let texts = match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    match texts {
        Some(texts) if !texts.is_empty() => Ok(texts),
        _ => Err(Failure::bad_argument(option, format!("expected a text or a list of texts, found {value}"))),
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("grub_mac_config", "Say what one machine boots over the network, by its MAC address")
        .describe(
            "Runs on the boot server. Writes for each MAC address of a host the six names that loaders ask for, beside \
             C(grub.cfg): C(grub.cfg-01-52-54-00-ab-cd-ef), C(grub.cfg-52:54:00:ab:cd:ef), C(grub.cfg-52-54-00-ab-cd-ef) \
             and the three of them in upper case; all with the same content, each replaced whole, mode 0644, with owner \
             and group of C(grub.cfg) and the SELinux label of the place.",
        )
        .describe(
            "The first line names the host and the MAC address. Files of this host under another address are removed. A file \
             without that line, and C(grub.cfg) itself, are never touched.",
        )
        .describe(
            "Every content is checked with C(grub-script-check) (C(grub2-script-check)) where it is installed, and read back.",
        )
        .note(
            "An install entry is for one boot. Whoever writes it changes it to O(mode=local_disk) as soon as kernel and initrd \
             were served; M(homelab.anvil.netboot_watch) waits for that. Then a reboot, for whatever reason, goes to the disk.",
        )
        .note(
            "A loader must ask for the file. GRUB searches by itself under some prefixes only, and the signed image of Debian \
             under none: M(homelab.anvil.grub_dispatcher) makes C(grub.cfg) look it up.",
        )
        .note("Two controllers may work on one server at once: the directory is locked.")
        .requirement("On the boot server: nothing; grub-common (Debian) or grub2-tools (Fedora) for the check of the script")
        .seealso(&["homelab.anvil.grub_dispatcher", "homelab.anvil.netboot_watch"])
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
}

fn table() -> Table {
    Table::new(vec![
        Opt::str("host").aliases(&["hostname"]).doc(
            "The host, by its name in the inventory: what its files are known by. May be left out when only O(prune) is asked for.",
        ),
        Opt::list("mac", Kind::Raw).aliases(&["macs"]).doc(
            "The MAC address of the host, or all of them, quoted; needed with O(state=present). Files of the host under any \
             other address are removed.",
        ),
        Opt::str("state").default("present").choices(&["present", "absent"]).doc(
            "With V(absent) every file of the host is removed, whatever its address.",
        ),
        Opt::path("prefix_dir").required().aliases(&["prefix"]).doc(
            "Directory of C(grub.cfg) on the boot server, such as C(/var/lib/tftpboot/grub) or C(/srv/tftp/grub).",
        ),
        Opt::str("mode").choices(&["install", "local_disk"]).doc(
            "V(install) loads O(kernel) and O(initrd) without asking; V(local_disk) goes on to what is installed. Needed with \
             O(state=present).",
        ),
        Opt::bool("single_shot").default(false).doc(
            "The promise that this install entry is changed to O(mode=local_disk) once it was served. Without it \
             O(mode=install) is refused.",
        ),
        Opt::str("kernel").doc(
            "Kernel for O(mode=install): C(/PATH) on the server that GRUB itself came from, C($prefix/PATH), \
             C((http,SERVER)/PATH), or a URL with http or tftp. A relative path is refused. A port other than 80 takes GRUB \
             2.12 or newer, or Fedora's.",
        ),
        Opt::raw("initrd").doc("Initrd for O(mode=install), in the same forms; or a list of them."),
        Opt::raw("arguments").doc(
            "Arguments of the kernel, one text or a list of texts, without quotes and backslashes. GRUB's variables have no meaning \
             in them.",
        ),
        Opt::str("template").doc(
            "A GRUB script of your own for O(mode=install), instead of O(kernel), O(initrd) and O(arguments). Paths in it are \
             absolute. The entry of O(mode=local_disk) is always the module's own: a task in which only the mode changes \
             cannot leave an install behind.",
        ),
        Opt::str("menu_title").doc("Title of the entry; by default it names the host and what happens."),
        Opt::int("menu_timeout").default(0).doc("Seconds that GRUB shows the entry before it takes it."),
        Opt::list("loaders", Kind::Str).default(json!(LOADERS)).doc(
            "What O(mode=local_disk) looks for on the EFI system partitions, first found wins. When there is none, control goes \
             back to the firmware.",
        ),
        Opt::bool("prune").default(false).doc("Whether files of hosts that are not in O(hosts) are removed."),
        Opt::list("hosts", Kind::Str).doc("With O(prune): every host that may have files here."),
    ])
}

/// Installed systems first: the last one is also on installation media.
const LOADERS: [&str; 9] = [
    "/EFI/fedora/shimx64.efi",
    "/EFI/debian/shimx64.efi",
    "/EFI/ubuntu/shimx64.efi",
    "/EFI/redhat/shimx64.efi",
    "/EFI/centos/shimx64.efi",
    "/EFI/rocky/shimx64.efi",
    "/EFI/almalinux/shimx64.efi",
    "/EFI/debian/grubx64.efi",
    "/EFI/BOOT/BOOTX64.EFI",
];

const EXAMPLES: &str = r#"
- name: The next network boot of web01 installs it
  homelab.anvil.grub_mac_config:
    host: web01
    mac: "02:a5:00:00:03:e9"
    prefix_dir: /var/lib/tftpboot/grub
    mode: install
    single_shot: true
    kernel: /fedora/vmlinuz
    initrd: /fedora/initrd.img
    arguments:
      - ip=dhcp
      - inst.ks=http://10.20.30.2/ks/web01.ks
  become: true

- name: Every later one goes to its disk
  homelab.anvil.grub_mac_config:
    host: web01
    mac: "02:a5:00:00:03:e9"
    prefix_dir: /var/lib/tftpboot/grub
    mode: local_disk
  become: true

- name: It has no file any more
  homelab.anvil.grub_mac_config:
    host: web01
    prefix_dir: /var/lib/tftpboot/grub
    state: absent
  become: true

- name: Only these hosts have files
  homelab.anvil.grub_mac_config:
    prefix_dir: /var/lib/tftpboot/grub
    prune: true
    hosts: [web01, db01]
  become: true
"#;

const RETURNS: &str = r"
grub_mac:
  description: The files of the host as they are; in check mode as they would be.
  returned: success
  type: dict
  contains:
    host:
      description: The host; null when only others were pruned.
      type: str
      sample: web01
    macs:
      description: Its MAC addresses.
      type: list
      elements: str
      sample: ['02:a5:00:00:03:e9']
    mode:
      description: What its files do; null when it has none.
      type: str
      sample: local_disk
    prefix_dir:
      description: Where they are.
      type: str
      sample: /var/lib/tftpboot/grub
    files:
      description: Their names.
      type: list
      elements: str
      sample: [grub.cfg-01-02-a5-00-00-03-e9]
    other_hosts:
      description: Other hosts that have files in the same place, with what these do (V(install) wins).
      type: dict
      sample: {db01: local_disk}
    script_checked:
      description: Whether C(grub-script-check) found the script sound; false where it is not installed or nothing was written.
      type: bool
";
