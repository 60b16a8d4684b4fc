//! A network with its servers: Kea on the router's address, TFTP and HTTP on the boot server's.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::kea::RealKea;
use lab::program::Program;
use lab::qemu::{self, Machine};
use lab::qemu_network::{self, Network};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub(crate) const ROUTER: &str = "10.77.0.1";
pub(crate) const BOOT_SERVER: &str = "10.77.0.2";
pub(crate) const LOADER: &str = "grubnetx64.efi";
const TFTPD: &str = "/usr/sbin/in.tftpd";
const NGINX: &str = "/usr/sbin/nginx";
const SIGNED_GRUB: &str = "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed";
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// What the installer fetches, and where on the new disk it belongs.
const PACKAGES: [(&str, &str, &str); 3] = [
    ("bootx64.efi", "mirror/Packages/g/grub2-efi-x64-2.06-1.x86_64.rpm", "EFI/BOOT/BOOTX64.EFI"),
    ("vmlinuz", "mirror/Packages/k/kernel-core-6.1.0-1.x86_64.rpm", "vmlinuz"),
    ("initrd.img", "mirror/Packages/d/dracut-059-1.x86_64.rpm", "initrd.img"),
];

/// Everything runs and is reached inside the network that the test's thread entered; it ends with this.
pub(crate) struct Site {
    pub(crate) kea: RealKea,
    pub(crate) network: Network,
    /// Debian 13's, which wants entropy.
    pub(crate) firmware: PathBuf,
    _services: [Service; 2],
    home: TempDir,
}

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    /// `None`, said so, where a program is missing.
    pub(crate) fn open() -> Option<Self> {
        let programs = [TFTPD, NGINX, SIGNED_GRUB, "/usr/bin/grub-mkimage"];
        let is_there = qemu::installed()
            && lab::kea::installed()
            && qemu_network::possible()
            && programs.iter().all(|program| Path::new(program).exists());
        let what = "what network boots need (root, qemu-system-x86, ovmf, Kea, tftpd-hpa, nginx, grub-efi-amd64-signed)";
        lab::present(is_there, what).then(|| Self::try_open().unwrap())
    }

    fn try_open() -> Result<Self> {
        // Before the network is entered: from there, no package archive is reached.
        let (system, firmware) = (built("system")?, built("firmware")?);
        let network = Network::enter(&format!("{ROUTER}/24"))?;
        network.add_address(&format!("{BOOT_SERVER}/24"))?;
        let home = TempDir::with_prefix("e2e-site-")?;
        furnish(home.path(), &system)?;
        log_for(home.path())?;
        let services = [Service(start_tftpd(home.path())?), Service(start_nginx(home.path())?)];
        let kea = RealKea::start(&json!({"Dhcp4": {
            "interfaces-config": {"interfaces": [format!("br0/{ROUTER}")]},
            // Firmware and installed system send different ones, and are one host.
            "match-client-id": false,
            "subnet4": [{"id": 1, "subnet": "10.77.0.0/24", "pools": [{"pool": "10.77.0.100-10.77.0.199"}]}],
        }}))?;
        let site = Self { kea, network, firmware, _services: services, home };
        site.wait_for_services()?;
        Ok(site)
    }

    fn wait_for_services(&self) -> Result<()> {
        let began = Instant::now();
        // proc_pid_net(5): address in host order, so backwards here, and port, in hexadecimal digits.
        let tftp_listens = || {
            fs::read_to_string("/proc/thread-self/net/udp")
                .is_ok_and(|table| table.contains(" 02004D0A:0045 "))
        };
        while !tftp_listens() || TcpStream::connect((BOOT_SERVER, 80)).is_err() {
            let log = || fs::read_to_string(self.home.path().join("services.log")).unwrap_or_default();
            ensure!(began.elapsed() < STARTS_WITHIN, "TFTP or HTTP server did not start: {}", log());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// A module of the collection as it was built last.
    pub(crate) fn module(&self, name: &str) -> Program {
        let bundle = lab::checkout().join(format!("libexec/{}-linux/anvil-modules", std::env::consts::ARCH));
        assert!(bundle.exists(), "expected {}: make rebuild PROFILE=dev", bundle.display());
        let link = self.home.path().join(name);
        if !link.exists() {
            symlink(bundle, &link).unwrap();
        }
        Program::new(link)
    }

    /// Options of `kea_reservation` for a host that boots from the network, from `next_server` if that is not empty.
    pub(crate) fn reservation(&self, mac: &str, ip: &str, next_server: &str) -> Value {
        json!({
            "backend": "kea", "kea_socket": self.kea.socket(), "mac": mac, "ip": ip,
            "next_server": next_server, "boot_file": LOADER,
        })
    }

    /// The machine, off.
    pub(crate) fn machine(&self, mac: &str) -> Machine {
        Machine::builder(mac).build(&self.network).unwrap()
    }

    /// GRUB's prefix: where its configuration is.
    pub(crate) fn grub(&self) -> PathBuf {
        self.home.path().join("tftp/grub")
    }

    /// A file of this site's own.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A menu for everybody, which leads who has a MAC file to that.
    pub(crate) fn offer_menu(&self) {
        let module = self.module("grub_dispatcher");
        let options = json!({"prefix_dir": self.grub()});
        assert_eq!(module.run(&options).done()["changed"], true);
        assert_eq!(module.run(&options).done()["changed"], false);
    }

    /// What this machine boots: `install` or `local_disk`.
    pub(crate) fn write_mac_file(&self, mac: &str, mode: &str) {
        let options = json!({
            "host": "web01", "mac": mac, "prefix_dir": self.grub(), "mode": mode, "single_shot": true,
            "kernel": "/vmlinuz", "initrd": "/initrd.img",
            "arguments": ["console=ttyS0", "quiet", "panic=-1", format!("anvil.server=http://{BOOT_SERVER}")],
        });
        assert_eq!(self.module("grub_mac_config").run(&options).done()["changed"], true);
    }

    /// Both, for a machine that is to be installed.
    pub(crate) fn offer_install(&self, mac: &str) {
        self.offer_menu();
        self.write_mac_file(mac, "install");
    }

    /// Where the boot of this machine stands, by the logs; when `wait_for` is given, once it got there.
    pub(crate) fn watch(&self, mac: &str, ip: &str, wait_for: Option<&str>) -> Value {
        let logs = [self.kea_log(), self.file("tftpd.log"), self.http_log_path()];
        let mut options = json!({"mac": mac, "ip": ip, "logs": logs, "journal": false, "timeout": 600});
        if let Some(state) = wait_for {
            options["wait_for"] = json!(state);
        }
        self.module("netboot_watch").run(&options).done()["netboot"].clone()
    }

    fn kea_log(&self) -> PathBuf {
        self.kea.config_path().with_file_name("kea-dhcp4.log")
    }

    pub(crate) fn http_log_path(&self) -> PathBuf {
        self.file("artifacts.access.log")
    }

    /// What in.tftpd told the system's log, as rsyslog would write it.
    pub(crate) fn tftp_log(&self) -> String {
        fs::read_to_string(self.file("tftpd.log")).unwrap_or_default()
    }

    /// The names of the files that `address` asked the TFTP server for, in order.
    pub(crate) fn tftp_requests(&self, address: &str) -> Vec<String> {
        let begin = format!("RRQ from {address} filename ");
        let requests = self.tftp_log();
        let names = requests.lines().filter_map(|line| Some(line.split_once(&begin)?.1.trim()));
        names.map(str::to_owned).collect()
    }

    /// What nginx answered, in the combined format.
    pub(crate) fn http_log(&self) -> String {
        fs::read_to_string(self.http_log_path()).unwrap_or_default()
    }
}

/// The files that are served.
fn furnish(home: &Path, system: &Path) -> Result<()> {
    let (tftp, www) = (home.join("tftp"), home.join("www"));
    fs::create_dir_all(tftp.join("grub"))?;
    fs::copy(SIGNED_GRUB, tftp.join(LOADER))?;
    for name in ["vmlinuz", "initrd.img"] {
        fs::copy(system.join(name), tftp.join(name))?;
    }
    let mut kickstart = String::new();
    for (source, package, target) in PACKAGES {
        let path = www.join(package);
        fs::create_dir_all(path.parent().context("a package has a folder")?)?;
        fs::copy(system.join(source), path)?;
        kickstart.push_str(&format!("{package} {target}\n"));
    }
    fs::write(www.join("ks.cfg"), kickstart)?;
    fs::create_dir_all(www.join("keys/ssh"))?;
    fs::write(www.join("keys/ssh/anvil.pub"), "ssh-ed25519 AAAA anvil\n")?;
    Ok(())
}

/// What `tests/e2e/machine/build PART` made, out of the cache; the cache goes by the recipe.
fn built(part: &str) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let recipe = lab::checkout().join("tests/e2e/machine");
    let mut hash = Sha256::new();
    for file in ["build", "init", "udhcpc", "grub.cfg"] {
        hash.update(fs::read(recipe.join(file))?);
    }
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let caches = caches.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let cache = caches.context("neither XDG_CACHE_HOME nor HOME is set")?.join("homelab-anvil/machines");
    let folder = cache.join(format!("{part}-{hash}"));
    if !folder.exists() {
        fs::create_dir_all(&cache)?;
        let unfinished = TempDir::with_prefix_in(".unfinished-", &cache)?;
        let output = Command::new(recipe.join("build")).arg(part).arg(unfinished.path()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tests/e2e/machine/build {part}: {said}");
        fs::rename(unfinished.keep(), &folder)?;
    }
    Ok(folder)
}

/// The system's log, for a program that sees this socket as /dev/log (syslog(3): `<29>Nov 30 16:00:00 in.tftpd[7]: …`).
fn log_for(home: &Path) -> Result<()> {
    let socket = UnixDatagram::bind(home.join("log"))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (home, mut file) = (home.to_owned(), fs::File::create(home.join("tftpd.log"))?);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while home.exists() {
            let Ok(length) = socket.recv(&mut buffer) else { continue };
            let text = String::from_utf8_lossy(&buffer[..length]);
            let message = text.split_once('>').map_or(&*text, |(_, message)| message);
            // The time has 15 characters and is followed by a blank.
            if let Some((time, rest)) = message.split_at_checked(16) {
                let _ = writeln!(file, "{time}boot {}", rest.trim_end());
            }
        }
    });
    Ok(())
}

/// It has a /dev of its own, where its log goes here.
fn start_tftpd(home: &Path) -> Result<Child> {
    let script = r#"mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && ln -s "$1/log" /dev/log &&
        exec "$2" --foreground --listen --address "$3:69" --secure -v -v -v "$1/tftp""#;
    let arguments = ["unshare", "--mount", "--", "sh", "-c", script, "sh"];
    service(home, &arguments)?.arg(home).args([TFTPD, BOOT_SERVER]).spawn().context("running setpriv")
}

fn start_nginx(home: &Path) -> Result<Child> {
    let folder = home.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {folder}/nginx-{kind};\n"))
        .collect();
    let config = format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/services.log;\n\
         events {{}}\n\
         http {{\n{temporary}access_log {folder}/artifacts.access.log;\n\
         server {{ listen {BOOT_SERVER}:80; root {folder}/www; }}\n}}\n"
    );
    fs::write(home.join("nginx.conf"), config)?;
    service(home, &[NGINX, "-e", "stderr", "-c"])?
        .arg(home.join("nginx.conf"))
        .spawn()
        .context("running setpriv")
}

fn service(home: &Path, program: &[&str]) -> Result<Command> {
    let log = fs::OpenOptions::new().create(true).append(true).open(home.join("services.log"))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(program);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}
