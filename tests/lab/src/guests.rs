//! Guests of the lab: a real OpenSSH sshd on a loopback address stands for a machine that booted there.
//!
//! Each guest has its own host key and, where the system allows it, its own UTS namespace, so that it has
//! its own hostname. It runs as the user who started the lab. What it cannot have is its own root file
//! system: `df /` is answered by a stand-in that tells the size of the VM's OS disk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use deadline::{Deadline, Expired};
use tempfile::TempDir;

const SSHD: &str = "/usr/sbin/sshd";
/// sshd insists on it when it runs as root; the distribution's service makes it at boot.
const PRIVSEP_DIRECTORY: &str = "/run/sshd";
const COMES_UP_WITHIN: Duration = Duration::from_secs(10);

/// What a guest shall be.
pub struct GuestBuilder {
    name: String,
    address: SocketAddr,
    authorized_keys: String,
    root_size_gib: Option<u64>,
}

impl GuestBuilder {
    /// Public keys that may log in, a line each (default: none, so every key is refused).
    #[must_use]
    pub fn authorized_keys(mut self, keys: &str) -> Self {
        keys.clone_into(&mut self.authorized_keys);
        self
    }

    /// The size its root file system claims to have (default: that of the machine it runs on).
    #[must_use]
    pub fn root_size_gib(mut self, size: u64) -> Self {
        self.root_size_gib = Some(size);
        self
    }

    /// Starts sshd and waits until it answers.
    ///
    /// # Panics
    /// When it cannot: a test has nothing to go on with.
    #[must_use]
    pub fn start(self) -> Guest {
        self.try_start().unwrap_or_else(|error| panic!("guest {}: {error:#}", self.name))
    }

    /// # Errors
    /// When OpenSSH's server is missing or the address is taken.
    pub fn try_start(&self) -> Result<Guest> {
        ensure!(Path::new(SSHD).exists(), "expected {SSHD}: run `make setup`, or install openssh-server");
        let directory = TempDir::with_prefix("anvil-guest-")?;
        let host_key = KeyPair::make(directory.path(), "host_key")?;
        let config = self.write_files(directory.path(), &host_key)?;
        if is_root() {
            fs::create_dir_all(PRIVSEP_DIRECTORY)?;
        }
        let log = directory.path().join("sshd.log");
        let mut sshd = Command::new("sh");
        sshd.arg("-c").arg(launch_script()).arg("sh").arg(&self.name).arg(SSHD).arg(&config);
        let child =
            sshd.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(fs::File::create(&log)?).spawn()?;
        let mut guest = Guest {
            name: self.name.clone(),
            address: self.address,
            host_key: host_key.public,
            log,
            child,
            _directory: directory,
        };
        guest.wait_until_it_answers()?;
        Ok(guest)
    }

    fn write_files(&self, directory: &Path, host_key: &KeyPair) -> Result<PathBuf> {
        let bin = directory.join("bin");
        fs::create_dir(&bin)?;
        write_script(&bin.join("hostname"), &format!("echo {}", self.name))?;
        if let Some(size) = self.root_size_gib {
            write_script(&bin.join("df"), &df_stand_in(size))?;
        }
        let keys = directory.join("authorized_keys");
        fs::write(&keys, &self.authorized_keys)?;
        let config = directory.join("sshd_config");
        fs::write(&config, self.sshd_config(directory, &host_key.private, &keys, &bin))?;
        Ok(config)
    }

    fn sshd_config(&self, directory: &Path, host_key: &Path, keys: &Path, bin: &Path) -> String {
        format!(
            "ListenAddress {address}\nHostKey {host_key}\nAuthorizedKeysFile {keys}\nPidFile {pid}\n\
             StrictModes no\nUsePAM no\nUseDNS no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\n\
             Subsystem sftp internal-sftp\nMaxStartups 100\n\
             SetEnv PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME={home}\n",
            // Not this user's: what their shell runs at its start is no part of a guest, and may wait for anything.
            home = directory.display(),
            address = self.address,
            host_key = host_key.display(),
            keys = keys.display(),
            pid = directory.join("sshd.pid").display(),
            bin = bin.display(),
        )
    }
}

/// Runs sshd ($2, $3) in its own UTS and PID namespaces: the hostname ($1) is its own, and its sessions die
/// with it. Without namespaces (containers often forbid them) the guest keeps the machine's hostname, but for
/// the command `hostname`, and a session lives as long as its client. The pipe on stdin is how the guest
/// notices that the lab is gone, however that went.
fn launch_script() -> String {
    let (user, drop_capabilities) = if is_root() {
        ("", "")
    } else {
        ("--user --map-current-user --keep-caps", "setpriv --inh-caps=-all --ambient-caps=-all")
    };
    format!(
        r#"exec 3<&0
{{ cat <&3 >/dev/null; kill -KILL $$; }} 2>/dev/null &
exec 3<&- 0</dev/null
own="unshare {user} --uts --pid --fork --kill-child"
if $own true 2>/dev/null; then
    exec $own sh -c 'hostname "$1" && exec {drop_capabilities} "$2" -D -e -f "$3"' sh "$@"
fi
exec "$2" -D -e -f "$3""#
    )
}

fn write_script(path: &Path, body: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{body}\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Answers every question about `/` with a disk of this size, in 1024-byte or in 1-byte blocks.
fn df_stand_in(size_gib: u64) -> String {
    let bytes = size_gib << 30;
    format!(
        "for word; do case $word in -B1|--block-size=1|-*B1*) bytes=1;; --output=size) only_size=1;; esac; done\n\
         size={kib}; [ -z \"$bytes\" ] || size={bytes}\n\
         if [ -n \"$only_size\" ]; then echo 1B-blocks; echo $size; exit; fi\n\
         echo 'Filesystem     blocks Used Available Capacity Mounted on'\n\
         echo \"/dev/sda1 $size 0 $size 0% /\"",
        kib = bytes >> 10,
    )
}

fn is_root() -> bool {
    // The owner of /proc/self is the effective user.
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// An ed25519 key pair in two files.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// The file with the private key.
    pub private: PathBuf,
    /// The public key as one line.
    pub public: String,
}

impl KeyPair {
    /// Makes `NAME` and `NAME.pub` in `directory`.
    ///
    /// # Errors
    /// When `ssh-keygen` is missing or refuses.
    pub fn make(directory: &Path, name: &str) -> Result<Self> {
        let private = directory.join(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"])
            .arg(&private)
            .output()
            .context("cannot run ssh-keygen: install openssh-client")?;
        ensure!(made.status.success(), "ssh-keygen: {}", String::from_utf8_lossy(&made.stderr));
        let public = fs::read_to_string(private.with_extension("pub"))?.trim().to_owned();
        Ok(Self { private, public })
    }
}

/// A guest that is up; it goes down when this is dropped, or when this process dies.
pub struct Guest {
    name: String,
    address: SocketAddr,
    host_key: String,
    log: PathBuf,
    child: Child,
    _directory: TempDir,
}

impl Guest {
    /// A guest with this hostname on this loopback address.
    #[must_use]
    pub fn builder(name: &str, address: Ipv4Addr, port: u16) -> GuestBuilder {
        GuestBuilder {
            name: name.to_owned(),
            address: SocketAddr::from((address, port)),
            authorized_keys: String::new(),
            root_size_gib: None,
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its public host key, `ssh-ed25519 AAAA... lab`.
    #[must_use]
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// What sshd has said so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let end = Instant::now() + COMES_UP_WITHIN;
        while !self.answers() {
            if let Some(status) = self.child.try_wait()? {
                bail!("sshd ended ({status}): {}", self.log());
            }
            ensure!(Instant::now() < end, "sshd does not answer on {}: {}", self.address, self.log());
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        let Ok(stream) = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)) else {
            return false;
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let mut banner = String::new();
        BufReader::new(stream).read_line(&mut banner).is_ok() && banner.starts_with("SSH-")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The first process of the namespace dies with its parent, but a moment later.
        let _ = Deadline::after(Duration::from_secs(5)).poll(|| {
            let is_closed = TcpStream::connect(self.address).is_err();
            Ok::<_, Expired>(is_closed.then_some(()))
        });
    }
}
