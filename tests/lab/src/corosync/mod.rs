//! Nodes of a cluster: the real corosync, sshd, ssh and rsync on each, in namespaces of its own; root only.
//!
//! Stand-ins, because Debian has no Proxmox VE: `pvecm`, `pmxcfs` and `systemctl` (a file each beside this one, with
//! what they imitate), and `pveversion`, `timedatectl` and `date`, which say what a test wants. The nodes
//! hang on two switches, one a link, and reach nothing else. They die with the thread that made them.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use deadline::{Deadline, Expired};
use serde_json::Value;
use tempfile::TempDir;

use crate::guests::KeyPair;
use crate::program::{Outcome, Program};

const INIT: &str = include_str!("init.sh");
const STAND_INS: [(&str, &str); 6] = [
    ("pvecm", include_str!("pvecm")),
    ("pmxcfs", include_str!("pmxcfs")),
    ("systemctl", include_str!("systemctl")),
    ("pveversion", PVEVERSION),
    ("timedatectl", TIMEDATECTL),
    ("date", DATE),
];
/// STAND-IN: prints one line in the form of pve-manager's (PVE::pvecfg `version_text`).
const PVEVERSION: &str = "#!/bin/sh\necho \"pve-manager/$(cat /run/lab/version 2>/dev/null || echo 9.1.1)/42db4a6cf33dac83 \
                          (running kernel: 6.17.2-1-pve)\"\n";
/// STAND-IN: whether the clock is synchronized, `yes` unless the test wrote something else.
const TIMEDATECTL: &str = "#!/bin/sh\ncat /run/lab/synchronized 2>/dev/null || echo yes\n";
/// STAND-IN: the clock, shifted by the seconds that the test wrote.
const DATE: &str = "#!/bin/sh\n[ ! -e /run/lab/skew ] || set -- --date \"$(cat /run/lab/skew) seconds\" \"$@\"\nexec /bin/date \"$@\"\n";
const COMES_UP_WITHIN: Duration = Duration::from_secs(60);
/// One network a link.
const NETWORKS: [u8; 2] = [77, 78];

/// Whether [`Site::build`] can work here.
#[must_use]
pub fn possible() -> bool {
    let installed = ["/usr/sbin/corosync", "/usr/sbin/sshd", "/usr/bin/rsync", "/usr/bin/python3"];
    let unshared =
        Command::new("unshare").args(["--net", "--mount", "--uts", "--pid", "--fork", "true"]).output();
    installed.iter().all(|program| Path::new(program).exists())
        && unshared.is_ok_and(|output| output.status.success())
}

/// Some nodes and the two switches between them.
pub struct Site {
    nodes: Vec<Node>,
    /// Holds the switches' namespace.
    switches: Child,
    directory: TempDir,
}

/// A node: a fresh Proxmox VE in no cluster, until something makes it a member.
pub struct Node {
    name: String,
    number: u8,
    /// The process whose namespaces are the node's.
    pid: u32,
    child: Child,
    directory: PathBuf,
    path: String,
    host_key: String,
}

impl Site {
    /// Nodes with these names, numbered from 1, each with an address in both networks.
    ///
    /// # Panics
    /// When they do not come up: a test has nothing to go on with.
    #[must_use]
    pub fn build(names: &[&str]) -> Self {
        Self::try_build(names).unwrap_or_else(|error| panic!("the site of {names:?}: {error:#}"))
    }

    fn try_build(names: &[&str]) -> Result<Self> {
        let directory = TempDir::with_prefix("anvil-cluster-")?;
        let bin = directory.path().join("bin");
        for made in [&bin, &directory.path().join("shared")] {
            fs::create_dir(made)?;
        }
        for (name, text) in STAND_INS {
            fs::write(bin.join(name), text)?;
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755))?;
        }
        let switches = dying_with_us().args(["unshare", "--net", "sleep", "infinity"]).spawn()?;
        let mut site = Self { nodes: Vec::new(), switches, directory };
        site.wait("the switches have a namespace of their own", || {
            let own = fs::read_link(format!("/proc/{}/ns/net", site.switches.id())).ok()?;
            (own != fs::read_link("/proc/self/ns/net").ok()?).then_some(())
        })?;
        for network in NETWORKS {
            site.switch(&["link", "add", &format!("br{network}"), "type", "bridge"])?;
            site.switch(&["link", "set", &format!("br{network}"), "up"])?;
        }
        for (name, number) in names.iter().zip(1..) {
            let node = site.start_node(name, number, names, &bin)?;
            site.nodes.push(node);
        }
        for node in &site.nodes {
            site.plug_in(node)?;
            site.wait("sshd runs", || node.read("/run/lab/up").ok())?;
            node.sh("systemctl start pve-cluster pvedaemon pveproxy pvestatd");
        }
        Ok(site)
    }

    fn start_node(&self, name: &str, number: u8, names: &[&str], bin: &Path) -> Result<Node> {
        let directory = self.directory.path().join(name);
        for part in ["etc-ssh", "run", "root-ssh"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
        let host_key = KeyPair::make(&directory.join("etc-ssh"), "ssh_host_ed25519_key")?.public;
        // SHLVL: a bash that sshd starts at level 1 reads no .bashrc, which is this machine's and may wait for anything.
        let sshd_config = format!(
            "HostKey /etc/ssh/ssh_host_ed25519_key\nAuthorizedKeysFile /root/.ssh/authorized_keys\nStrictModes no\n\
             UsePAM no\nUseDNS no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin \
             prohibit-password\nPidFile /run/lab/sshd.pid\nSetEnv PATH={path} SHLVL=1\n"
        );
        fs::write(directory.join("etc-ssh/sshd_config"), sshd_config)?;
        make_rsa_key(&directory.join("root-ssh/id_rsa"))?;
        fs::write(directory.join("root-ssh/authorized_keys"), "")?;
        let hosts = names.iter().zip(1_u8..).map(|(name, number)| format!("{} {name}\n", address(0, number)));
        fs::write(directory.join("hosts"), format!("127.0.0.1 localhost\n{}", hosts.collect::<String>()))?;
        let child = dying_with_us()
            .args([
                "unshare",
                "--net",
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["sh", "-c", INIT, "init"])
            .args([&directory, Path::new(name), bin, &self.directory.path().join("shared")])
            .stderr(fs::File::create(directory.join("init.log"))?)
            .spawn()?;
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let pid = self.wait("the node's first process", || {
            fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
        })?;
        Ok(Node { name: name.to_owned(), number, pid, child, directory, path, host_key })
    }

    /// A cable from the node to each switch.
    fn plug_in(&self, node: &Node) -> Result<()> {
        for (link, network) in NETWORKS.iter().enumerate() {
            let (port, inside) = (node.port(link), format!("eth{link}"));
            let pid = node.pid.to_string();
            self.switch(&["link", "add", &port, "type", "veth", "peer", "name", &inside, "netns", &pid])?;
            self.switch(&["link", "set", &port, "master", &format!("br{network}"), "up"])?;
            let cidr = format!("{}/24", node.address(link));
            node.command("ip").args(["address", "add", &cidr, "dev", &inside]).done()?;
            node.command("ip").args(["link", "set", &inside, "up"]).done()?;
        }
        Ok(())
    }

    /// The node with this name.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).unwrap_or_else(|| panic!("no node {name}"))
    }

    /// Makes a cluster of these nodes with both links, as an administrator would with pvecm.
    ///
    /// # Panics
    /// It does not come to be.
    pub fn form(&self, cluster: &str, names: &[&str]) {
        self.form_with_votes(cluster, names, 1);
    }

    /// The same with more votes for the first.
    ///
    /// # Panics
    /// It does not come to be.
    pub fn form_with_votes(&self, cluster: &str, names: &[&str], votes: u32) {
        let (first, others) = names.split_first().expect("a cluster has a node");
        let founder = self.node(first);
        let links = |node: &Node| format!("--link0 {} --link1 {}", node.address(0), node.address(1));
        founder.sh(&format!("pvecm create {cluster} --votes {votes} {}", links(founder)));
        for name in others {
            founder.wait_for_quorum(true);
            let node = self.node(name);
            node.trust(founder);
            founder.authorize(node);
            node.sh(&format!("pvecm add {} --use_ssh {}", founder.address(0), links(node)));
        }
        founder.wait_for_quorum(true);
    }

    /// Takes a node's end of a link from its switch, or puts it back.
    ///
    /// # Panics
    /// `ip` fails.
    pub fn set_link(&self, node: &Node, link: usize, up: bool) {
        let set = self.switch(&["link", "set", &node.port(link), if up { "up" } else { "down" }]);
        set.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// A program where every node can be reached and every node's files can be found: between the switches.
    #[must_use]
    pub fn outside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.switches.id())).arg("--").arg(program);
        command
    }

    /// Gives the place of [`Self::outside`] an address on the first network.
    ///
    /// # Panics
    /// `ip` fails.
    pub fn join_outside(&self) {
        let cidr = format!("{}/24", address(0, 254));
        let added = self.switch(&["address", "add", &cidr, "dev", &format!("br{}", NETWORKS[0])]);
        added
            .and_then(|()| self.switch(&["link", "set", "lo", "up"]))
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// A directory that goes with the site.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn switch(&self, arguments: &[&str]) -> Result<()> {
        self.outside("ip").args(arguments).done()
    }

    fn wait<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T> {
        let asked = Deadline::after(COMES_UP_WITHIN).poll(|| Ok::<_, Expired>(ask()));
        asked.with_context(|| format!("{what}: {}", self.logs()))
    }

    fn logs(&self) -> String {
        let log = |node: &Node| fs::read_to_string(node.directory.join("init.log")).unwrap_or_default();
        self.nodes.iter().map(log).collect()
    }
}

impl Node {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on a link, 0 or 1.
    #[must_use]
    pub fn address(&self, link: usize) -> Ipv4Addr {
        address(link, self.number)
    }

    /// Its public host key, `ssh-ed25519 AAAA... lab`.
    #[must_use]
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    fn port(&self, link: usize) -> String {
        format!("port{}-{link}", self.number)
    }

    /// A program on this node, which finds the stand-ins first.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.pid))
            .args(["--net", "--mount", "--uts", "--ipc", "--pid", "--wd=/"]);
        command.arg("--").arg(program).env_clear();
        command.env("PATH", &self.path).env("HOME", "/root").env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// What a shell on this node prints.
    ///
    /// # Panics
    /// It fails.
    pub fn sh(&self, script: &str) -> String {
        let output = self.command("sh").args(["-ec", script]).output().expect("nsenter runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{}: {script}: {}{}",
            self.name,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// # Errors
    /// The node has no such file.
    pub fn read(&self, path: &str) -> Result<String> {
        let output = self.command("cat").arg(path).output()?;
        ensure!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Replaces a file's content.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, path: &str, text: &str) {
        let script = r#"printf '%s' "$2" > "$1""#;
        self.command("sh")
            .args(["-c", script, "sh", path, text])
            .done()
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Gives this node guests, none for `""`, and waits until pmxcfs shows them.
    ///
    /// # Panics
    /// It never does.
    pub fn set_guests(&self, vmids: &str) {
        self.write("/run/lab/guests", vmids);
        let shown = Deadline::after(COMES_UP_WITHIN).poll(|| {
            let list = self.read("/etc/pve/.vmlist").unwrap_or_default();
            let shown = match vmids.split_whitespace().next() {
                Some(vmid) => list.contains(&format!("\"{vmid}\"")),
                None => list.contains("version") && !list.contains("ids"),
            };
            Ok::<_, Expired>(shown.then_some(()))
        });
        shown.unwrap_or_else(|error| panic!("{}: guests: {error}", self.name));
    }

    /// Lets root of another node log in here.
    pub fn authorize(&self, other: &Node) {
        let key = other.read("/root/.ssh/id_rsa.pub").expect("a node has a key");
        self.sh(&format!("printf '%s' '{key}' >> /root/.ssh/authorized_keys"));
    }

    /// Lets this node's root know the host key of another.
    pub fn trust(&self, other: &Node) {
        self.write("/root/.ssh/known_hosts", &format!("{} {}\n", other.address(0), other.host_key()));
    }

    /// Runs a module's binary here.
    ///
    /// # Panics
    /// It cannot be copied to a place that the node sees.
    #[must_use]
    pub fn module(&self, program: &str, options: &Value) -> Outcome {
        self.program(program).run(options)
    }

    /// Starts a module's binary here and kills it when pvecm comes to `step`; what it started lives on.
    ///
    /// # Panics
    /// pvecm does not come to that step.
    pub fn kill_module_at(&self, step: &str, program: &str, options: &Value) {
        self.hold_at(step);
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let running = self.program(program);
        thread::scope(|scope| {
            scope.spawn(|| running.run_to_any_end(options));
            let held = Deadline::after(COMES_UP_WITHIN).poll(|| Ok::<_, Expired>(self.held().then_some(())));
            self.sh(&format!("kill -KILL $(pgrep -x {name})"));
            held.unwrap_or_else(|error| panic!("pvecm at `{step}`: {error}"));
        });
    }

    /// A module's binary, to be run here; its copy lies where the node sees it.
    ///
    /// # Panics
    /// It cannot be copied.
    #[must_use]
    pub fn program(&self, program: &str) -> Program {
        let name = Path::new(program).file_name().expect("a program has a name");
        let copy = self.directory.join(name);
        let entry = copy.with_extension("enter");
        if !copy.exists() {
            fs::copy(program, &copy).expect("the program is there");
        }
        let enter = format!(
            "#!/bin/sh\nexec nsenter --target={} --net --mount --uts --ipc --pid --wd=/ -- env PATH={} HOME=/root \
             XDG_STATE_HOME=/run/lab/state {}\n",
            self.pid,
            self.path,
            copy.display()
        );
        fs::write(&entry, enter).expect("a file is written");
        fs::set_permissions(&entry, fs::Permissions::from_mode(0o755)).expect("its mode is set");
        Program::new(entry)
    }

    /// Stops pvecm when it comes to a step, until [`Self::go_on`].
    pub fn hold_at(&self, step: &str) {
        self.sh("rm -f /run/lab/held");
        self.write("/run/lab/hold", step);
    }

    /// Whether pvecm stands at the step.
    #[must_use]
    pub fn held(&self) -> bool {
        self.read("/run/lab/held").is_ok_and(|held| !held.is_empty())
    }

    /// Lets pvecm go on.
    pub fn go_on(&self) {
        self.sh("rm -f /run/lab/hold /run/lab/held");
    }

    /// Waits until this node's corosync says that it has, or has not, got quorum. Returns how long it took.
    ///
    /// # Panics
    /// It does not come to that.
    pub fn wait_for_quorum(&self, quorate: bool) -> Duration {
        let began = Instant::now();
        let word = if quorate { "Quorate:          Yes" } else { "Quorate:          No" };
        let asked = Deadline::after(COMES_UP_WITHIN).poll(|| {
            let said = self.command("corosync-quorumtool").arg("-s").output().ok();
            let said = said.is_some_and(|output| String::from_utf8_lossy(&output.stdout).contains(word));
            Ok::<_, Expired>(said.then_some(()))
        });
        asked.unwrap_or_else(|error| panic!("{}: `{word}`: {error}", self.name));
        began.elapsed()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().map(|node| &mut node.child).chain([&mut self.switches]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command that ends with what has to be 0.
trait Done {
    fn done(&mut self) -> Result<()>;
}

impl Done for Command {
    fn done(&mut self) -> Result<()> {
        let Output { status, stderr, .. } = self.output().with_context(|| format!("{self:?}"))?;
        ensure!(status.success(), "{self:?}: {}", String::from_utf8_lossy(&stderr).trim());
        Ok(())
    }
}

/// The kernel kills what this starts when the thread that started it ends.
fn dying_with_us() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn address(link: usize, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, NETWORKS[link], 0, number)
}

/// pvecm copies this key by its name.
fn make_rsa_key(path: &Path) -> Result<()> {
    Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-C", "lab", "-f"])
        .arg(path)
        .done()
}
