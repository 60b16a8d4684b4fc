//! A real sshd with the host keys a test wants; it ends with the test.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ssh::Address;
use tempfile::TempDir;

pub(crate) struct Sshd {
    pub(crate) address: Address,
    /// A private key that may log in.
    pub(crate) user_key: PathBuf,
    directory: TempDir,
    child: Child,
}

/// Who runs the tests: the only user whom an sshd without privileges can log in.
pub(crate) fn user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn make_key(directory: &Path, name: &str, kind: &str, passphrase: &str) -> PathBuf {
    let path = directory.join(name);
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", kind, "-N", passphrase, "-C", name, "-f"])
        .arg(&path)
        .status()
        .expect("ssh-keygen (openssh-client) is installed");
    assert!(made.success());
    path
}

impl Sshd {
    pub(crate) fn start(kinds: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut config = format!(
            "ListenAddress 127.0.0.1:{port}\nAuthorizedKeysFile {0}/authorized_keys\nPidFile none\n\
             StrictModes no\nUsePAM no\nUseDNS no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSetEnv HOME={0}\n",
            path.display()
        );
        for kind in kinds {
            let key = make_key(path, &format!("host_{kind}"), kind, "");
            config.push_str(&format!("HostKey {}\n", key.display()));
        }
        let user_key = make_key(path, "user", "ed25519", "");
        fs::copy(path.join("user.pub"), path.join("authorized_keys")).unwrap();
        fs::write(path.join("sshd_config"), config).unwrap();
        // sshd insists on it when it runs as root.
        let _ = fs::create_dir_all("/run/sshd");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "/usr/sbin/sshd", "-D", "-e", "-f"])
            .arg(path.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(path.join("log")).unwrap())
            .spawn()
            .expect("setpriv (util-linux) is installed");
        let mut server = Self { address: Address::new("127.0.0.1", port), user_key, directory, child };
        server.wait();
        server
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Makes one more key that may log in.
    pub(crate) fn authorize_key(&self, name: &str, passphrase: &str) -> PathBuf {
        let key = make_key(self.directory(), name, "ed25519", passphrase);
        let file = self.directory().join("authorized_keys");
        let known = fs::read_to_string(&file).unwrap();
        let new = fs::read_to_string(self.directory().join(format!("{name}.pub"))).unwrap();
        fs::write(file, known + &new).unwrap();
        key
    }

    /// What `ssh-keyscan` finds.
    pub(crate) fn keyscan(&self) -> String {
        let port = self.address.port().to_string();
        let output = Command::new("ssh-keyscan").args(["-p", &port, self.address.host()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether ssh(1) logs in when it trusts nothing but this known_hosts file.
    pub(crate) fn openssh_accepts(&self, known_hosts: &Path) -> bool {
        Command::new("ssh")
            .args(["-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"])
            .args(["-o", "GlobalKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes"])
            .arg("-o")
            .arg(format!("UserKnownHostsFile={}", known_hosts.display()))
            .arg("-i")
            .arg(&self.user_key)
            .args(["-p", &self.address.port().to_string(), self.address.host(), "true"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    }

    fn wait(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect((self.address.host(), self.address.port())).is_err() {
            let log = || fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(self.child.try_wait().unwrap().is_none(), "sshd ended: {}", log());
            assert!(Instant::now() < until, "sshd does not listen: {}", log());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
