//! A controller and its targets, in a folder of their own.
//!
//! Every program runs in a mount and PID namespace with its own users, sudo rules and /var/tmp: nothing
//! of this machine is changed, and nothing outlives the test.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fmt::Write};

use anyhow::{Error, bail};
use deadline::Deadline;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::core::Core;

/// An ordinary user of the targets who may become anybody without a password.
pub(crate) const DEPLOY: u32 = 47001;
/// The same with [`PASSWORD`].
pub(crate) const GUARDED: u32 = 47002;
pub(crate) const PASSWORD: &str = "Zugang-4711";
/// [`PASSWORD`] as crypt(3) keeps it.
const PASSWORD_HASH: &str =
    "$6$anviltests$6Z1NG07utISK9IfptpRP9Ie4T0txAAQ5dznb.ol0FhP3iUg5TqTavZeXRGtKAZg6yuBB.rENWg79CEMqfd3MP.";
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A site, or the end of the test, which then says why.
macro_rules! isolated {
    ($site:expr) => {{
        let what =
            "what this test needs (root's right to namespaces, sudo, strace, OpenSSH's server and strip)";
        if !lab::present($crate::site::can_isolate(), what) {
            return;
        }
        $site
    }};
}
pub(crate) use isolated;

/// Whether programs may have namespaces of their own here, and whether the programs are there.
pub(crate) fn can_isolate() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let script = "for program in sudo strace strip ssh ssh-keygen /usr/sbin/sshd; do command -v $program || exit 1; done";
        // In a user namespace of an ordinary user there are no other users to become.
        let try_it = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script])
            .output();
        try_it.is_ok_and(|output| output.status.success())
    })
}

pub(crate) struct Site {
    folder: TempDir,
    /// Shell commands that prepare the namespace of every program.
    mounts: String,
    /// Environment of ansible-playbook besides the usual.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Put before ansible-playbook (strace and its arguments).
    pub(crate) wrapper: Vec<String>,
    sshd: Option<Sshd>,
}

impl Site {
    /// With the real bundle of this checkout.
    pub(crate) fn new() -> Self {
        let site = Self::without_bundle();
        site.install(bundle());
        site
    }

    /// With a shell script in the bundle's place.
    pub(crate) fn with_script(script: &str) -> Self {
        let site = Self::without_bundle();
        let program = site.path("script");
        executable(&program, script);
        site.install(&program);
        site
    }

    pub(crate) fn without_bundle() -> Self {
        let folder = tempfile::Builder::new().prefix("anvil-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let site = Self { folder, mounts: String::new(), environment: vec![], wrapper: vec![], sshd: None };
        site.lay_out_collection();
        site.lay_out_users();
        for folder in ["bin", "callback", "cp", "ssh", "var-tmp"] {
            fs::create_dir(site.path(folder)).unwrap();
        }
        fs::set_permissions(site.path("var-tmp"), Permissions::from_mode(0o1777)).unwrap();
        fs::write(site.path("callback/record.py"), include_str!("record.py")).unwrap();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn collection(&self, name: &str) -> PathBuf {
        self.path("collections/ansible_collections/homelab/anvil").join(name)
    }

    /// Everything of this checkout's collection but the bundle.
    fn lay_out_collection(&self) {
        fs::create_dir_all(self.collection("plugins/modules")).unwrap();
        for name in
            ["galaxy.yml", "meta", "plugins/action", "plugins/plugin_utils", "plugins/modules/anvil_ping.py"]
        {
            symlink(lab::checkout().join(name), self.collection(name)).unwrap();
        }
    }

    /// As `make build` installs it.
    fn install(&self, program: &Path) {
        let libexec = format!("libexec/{}-linux", env::consts::ARCH);
        let modules = format!("plugins/modules/{}", env::consts::ARCH);
        fs::create_dir_all(self.collection(&libexec)).unwrap();
        fs::create_dir_all(self.collection(&modules)).unwrap();
        let installed = self.collection(&libexec).join("anvil-modules");
        symlink(program, &installed).unwrap();
        fs::write(installed.with_extension("sha256"), format!("{}  anvil-modules\n", digest(program)))
            .unwrap();
        symlink(&installed, self.collection(&modules).join("anvil_modules")).unwrap();
    }

    fn lay_out_users(&self) {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let mut users: String = passwd
            .lines()
            .filter(|line| !line.starts_with("root:"))
            .map(|line| format!("{line}\n"))
            .collect();
        let mut shadow = "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n".to_owned();
        for (name, uid, hash) in
            [("root", 0, "*"), ("deploy", DEPLOY, "*"), ("guarded", GUARDED, PASSWORD_HASH)]
        {
            let home = self.path("home").join(name);
            fs::create_dir_all(&home).unwrap();
            std::os::unix::fs::chown(&home, Some(uid), Some(uid)).unwrap();
            writeln!(users, "{name}:x:{uid}:{uid}::{}:/bin/sh", home.display()).unwrap();
            writeln!(shadow, "{name}:{hash}:19000:0:99999:7:::").unwrap();
        }
        fs::create_dir(self.path("etc")).unwrap();
        fs::write(self.path("etc/passwd"), users).unwrap();
        fs::write(self.path("etc/shadow"), shadow).unwrap();
        fs::write(
            self.path("etc/sudoers"),
            format!(
                "Defaults secure_path=\"{PATH}\"\nroot ALL=(ALL) ALL\n\
                 deploy ALL=(ALL) NOPASSWD: ALL\nguarded ALL=(ALL) ALL\n"
            ),
        )
        .unwrap();
        fs::set_permissions(self.path("etc/sudoers"), Permissions::from_mode(0o440)).unwrap();
    }

    /// A directory for bundles on the targets: its own file system of this kind, anybody may write to it.
    pub(crate) fn mount(&mut self, name: &str, options: &str) -> String {
        let path = self.text(name);
        fs::create_dir(&path).unwrap();
        writeln!(self.mounts, "mount -t tmpfs -o mode=1777,{options} tmpfs {path}").unwrap();
        path
    }

    /// An ordinary directory for bundles on the targets.
    pub(crate) fn base(&self, name: &str) -> String {
        let path = self.text(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
        path
    }

    /// A program that ssh logins find before the system's.
    pub(crate) fn fake(&self, name: &str, script: &str) {
        executable(&self.path("bin").join(name), script);
    }

    /// A command inside the namespaces; the environment is empty but for what a login has.
    fn inside(&self) -> Command {
        let script = format!(
            "set -e\n\
             for file in passwd shadow sudoers; do mount --bind {etc}/$file /etc/$file; done\n\
             mount --bind {var_tmp} /var/tmp\n{mounts}exec \"$@\"",
            etc = self.text("etc"),
            var_tmp = self.text("var-tmp"),
            mounts = self.mounts,
        );
        let mut command = Command::new("setpriv");
        command
            .args([
                "--pdeathsig",
                "KILL",
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["sh", "-c", &script, "sh"])
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", self.path("home/root"))
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }

    /// The inventory's variables of a target on this machine, reached without ssh.
    pub(crate) fn local(&self) -> Value {
        json!({"ansible_connection": "local", "ansible_python_interpreter": "/nonexistent/python"})
    }

    /// The inventory's variables of a target behind a real sshd, logged in as this user.
    pub(crate) fn ssh(&mut self, user: &str) -> Value {
        if self.sshd.is_none() {
            self.sshd = Some(Sshd::start(self, &[]));
        }
        let port = self.sshd.as_ref().map(|sshd| sshd.port);
        json!({
            "ansible_connection": "ssh",
            "ansible_host": "127.0.0.1",
            "ansible_port": port,
            "ansible_user": user,
            "ansible_ssh_private_key_file": self.text("ssh/id"),
            "ansible_ssh_common_args": "-F /dev/null -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o IdentitiesOnly=yes",
            "ansible_python_interpreter": "/nonexistent/python",
        })
    }

    /// Starts sshd under another program (strace and its arguments).
    pub(crate) fn sshd_under(&mut self, wrapper: &[String]) {
        self.sshd = Some(Sshd::start(self, wrapper));
    }

    /// Runs tasks (YAML) on one target, `target`.
    pub(crate) fn run(&self, core: &Core, target: &Value, tasks: &str) -> Outcome {
        self.run_on(core, &json!({"target": target}), tasks)
    }

    /// Runs tasks on every target of the map.
    pub(crate) fn run_on(&self, core: &Core, targets: &Value, tasks: &str) -> Outcome {
        let record = self.path("record.jsonl");
        let _ = fs::remove_file(&record);
        let inventory = json!({"all": {"hosts": targets}});
        fs::write(self.path("inventory.json"), inventory.to_string()).unwrap();
        let indented: String = tasks.lines().map(|line| format!("    {line}\n")).collect();
        let play = format!("- hosts: all\n  gather_facts: false\n  tasks:\n{indented}");
        fs::write(self.path("play.yml"), play).unwrap();
        fs::write(self.path("vault-password"), "vaultpass").unwrap();
        fs::write(self.path("ansible.cfg"), "").unwrap();

        let output = self
            .inside()
            .args(&self.wrapper)
            .arg(core.program("ansible-playbook"))
            .args(["-i", &self.text("inventory.json"), &self.text("play.yml")])
            .args(["--vault-password-file", &self.text("vault-password")])
            .env("ANSIBLE_CONFIG", self.path("ansible.cfg"))
            .env("ANSIBLE_COLLECTIONS_PATH", self.path("collections"))
            .env("ANSIBLE_CALLBACK_PLUGINS", self.path("callback"))
            .env("ANSIBLE_CALLBACKS_ENABLED", "record")
            .env("ANSIBLE_SSH_CONTROL_PATH_DIR", self.path("cp"))
            .env("ANVIL_RECORD", &record)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let tasks = fs::read_to_string(record)
            .unwrap_or_default()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        Outcome { output: text, tasks }
    }
}

/// What ansible-playbook printed, and the results of its tasks.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) output: String,
    tasks: Vec<Value>,
}

impl Outcome {
    /// The results of the task of this name, one a host.
    pub(crate) fn all(&self, task: &str) -> Vec<&Value> {
        self.tasks.iter().filter(|entry| entry["task"] == task).collect()
    }

    /// The result of the task of this name on this host, whatever came of it.
    pub(crate) fn on(&self, host: &str, task: &str) -> &Value {
        let found = self.all(task).into_iter().find(|entry| entry["host"] == host);
        &found.unwrap_or_else(|| panic!("no result of {task:?} on {host}:\n{}", self.output))["result"]
    }

    fn only(&self, task: &str, status: &str) -> &Value {
        let found = self.all(task);
        let [entry] = found.as_slice() else {
            panic!("expected one result of {task:?}, found {}:\n{}", found.len(), self.output)
        };
        assert_eq!(entry["status"], status, "{task:?}: {entry}\n{}", self.output);
        &entry["result"]
    }

    /// The result of the one task of this name, which succeeded.
    pub(crate) fn ok(&self, task: &str) -> &Value {
        self.only(task, "ok")
    }

    /// The `ping` of the one task of this name, which succeeded.
    pub(crate) fn ping(&self, task: &str) -> &Value {
        &self.ok(task)["ping"]
    }

    /// The result of the one task of this name, which failed.
    pub(crate) fn failed(&self, task: &str) -> &Value {
        self.only(task, "failed")
    }

    /// Its `error_code` and `msg`.
    pub(crate) fn failure(&self, task: &str) -> (&str, &str) {
        let result = self.failed(task);
        (result["error_code"].as_str().unwrap_or_default(), result["msg"].as_str().unwrap_or_default())
    }
}

struct Sshd {
    process: Child,
    port: u16,
}

impl Sshd {
    fn start(site: &Site, wrapper: &[String]) -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        for key in ["host", "id"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &site.text(&format!("ssh/{key}"))])
                .status();
            assert!(made.unwrap().success());
        }
        fs::create_dir_all("/run/sshd").unwrap();
        fs::write(
            site.path("ssh/sshd_config"),
            format!(
                "ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/ssh/host\nPidFile none\n\
                 AuthorizedKeysFile {folder}/ssh/id.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
                 MaxStartups 100\nSubsystem sftp internal-sftp\nSetEnv PATH={folder}/bin:{PATH}\n",
                folder = site.folder.path().display(),
            ),
        )
        .unwrap();
        let process = site
            .inside()
            .args(wrapper)
            .args(["/usr/sbin/sshd", "-D", "-f", &site.text("ssh/sshd_config"), "-E", &site.text("ssh/log")])
            .spawn()
            .unwrap();
        let sshd = Self { process, port };
        let up =
            Deadline::after(Duration::from_secs(20)).poll(|| match TcpStream::connect(("127.0.0.1", port)) {
                Ok(_) => Ok::<_, Error>(Some(())),
                Err(_) => Ok(None),
            });
        if let Err(error) = up {
            panic!("sshd: {error}: {}", fs::read_to_string(site.path("ssh/log")).unwrap_or_default());
        }
        sshd
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn executable(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn digest(path: &Path) -> String {
    Sha256::digest(fs::read(path).unwrap()).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// This checkout's bundle: what `make build` left, where that is not stale, else built now.
fn bundle() -> &'static Path {
    static BUNDLE: OnceLock<PathBuf> = OnceLock::new();
    BUNDLE.get_or_init(|| {
        let left = lab::checkout().join(format!("libexec/{}-linux/anvil-modules", env::consts::ARCH));
        let ours = Path::new(env!("CARGO_TARGET_TMPDIR")).join("anvil-modules");
        let new = ours.with_extension(std::process::id().to_string());
        if is_fresh(&left) {
            fs::copy(left, &new).unwrap();
        } else {
            let built = build().unwrap_or_else(|error| panic!("cargo build of the bundle: {error:#}"));
            let strip = Command::new("strip").arg("-o").args([&new, &built]).status();
            assert!(strip.is_ok_and(|status| status.success()), "strip failed on {}", built.display());
        }
        fs::rename(new, &ours).unwrap();
        ours
    })
}

/// Whether it was built from the sources as they are now, judged as the playbooks judge it.
fn is_fresh(bundle: &Path) -> bool {
    let sources = Command::new(Core::newest().program("python"))
        .arg(lab::checkout().join("playbooks/lookup_plugins/anvil_collection.py"))
        .output()
        .unwrap();
    let built_from = fs::read_to_string(lab::checkout().join("libexec/build.json")).unwrap_or_default();
    let hash = String::from_utf8_lossy(&sources.stdout).trim().to_owned();
    bundle.exists() && !hash.is_empty() && built_from.contains(&hash)
}

fn build() -> Result<PathBuf, Error> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--package", "anvil-modules", "--bin", "anvil-modules", "--message-format", "json"])
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut executables = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| {
        let message: Value = serde_json::from_slice(line).ok()?;
        (message["target"]["name"] == "anvil-modules")
            .then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executables.next_back().ok_or_else(|| Error::msg("cargo named no executable"))
}
