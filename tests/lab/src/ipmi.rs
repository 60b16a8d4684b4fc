//! IPMI for tests: the real `ipmitool` with OpenIPMI's simulator or pyghmi's behind it, or a scripted one.
//!
//! `ipmi_sim` has a FRU, and power and boot device by way of a script. It speaks cipher suite 3 only, and of the boot
//! flags it keeps nothing but the device ([`Tool::RealWithFlags`] adds the rest). pyghmi's `fakebmc` keeps power and boot
//! device by itself, drops the UEFI flag, and has no FRU ([`Tool::RealWithFru`] adds a serial).

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use deadline::{Deadline, Expired};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The user of the simulator.
pub const USER: &str = "admin";
/// That user's password; IPMI 2.0 takes up to 20 bytes.
pub const PASSWORD: &str = "lab-ipmi-password";

/// Whether `ipmi_sim` and `ipmitool` are installed.
#[must_use]
pub fn installed() -> bool {
    ["/usr/bin/ipmi_sim", "/usr/bin/ipmitool"].iter().all(|program| Path::new(program).exists())
}

/// Which `ipmitool` a module finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool<'a> {
    Real,
    /// The real one; flags that the simulator dropped read back as set.
    RealWithFlags,
    /// The real one; the FRU has the product serial SIM0001.
    RealWithFru,
    /// One that does what this shell script says for a call `$*`.
    Scripted(&'a str),
}

/// A directory for PATH with an `ipmitool` that logs its calls. Whatever a test does with it, it panics when it is dropped if
/// a call would have taken the power from a server by force.
#[derive(Debug)]
pub struct Tools(TempDir);

impl Drop for Tools {
    /// # Panics
    /// `ipmitool` was asked for what takes the power away or restarts a server.
    fn drop(&mut self) {
        let forced = ["power off", "power cycle", "power reset", "power diag", "chassis power down"];
        let calls: Vec<String> =
            self.log().into_iter().filter(|call| forced.iter().any(|force| call.contains(force))).collect();
        if !std::thread::panicking() {
            assert!(calls.is_empty(), "what no BMC may ever be asked for was asked for: {calls:#?}");
        }
    }
}

impl Tools {
    /// # Panics
    /// There is no room for it.
    #[must_use]
    pub fn new(tool: Tool<'_>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = match tool {
            Tool::Real => "tests/lab/ipmitool_logged",
            Tool::RealWithFlags => "tests/lab/ipmitool_with_flags",
            Tool::RealWithFru => "tests/lab/ipmitool_with_fru",
            Tool::Scripted(_) => "module_utils/ipmi/tests/ipmitool",
        };
        symlink(crate::checkout().join(program), directory.path().join("ipmitool")).expect("a link");
        if let Tool::Scripted(script) = tool {
            fs::write(directory.path().join("script"), script).expect("a script");
        }
        Self(directory)
    }

    /// PATH with this directory in front.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap_or_default())
    }

    /// The calls, each with its arguments.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The calls that could change something: those that do not only read.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let reads = ["power status", "fru print", "bootparam get"];
        self.log().into_iter().filter(|call| !reads.iter().any(|read| call.contains(read))).collect()
    }
}

/// Waits until a BMC on loopback answers.
fn wait_for(port: u16, password: &str) -> Result<()> {
    let port = port.to_string();
    let how =
        ["-I", "lanplus", "-H", "localhost", "-U", USER, "-E", "-C", "3", "-N", "1", "-R", "1", "-p", &port];
    let answers = || {
        let output = Command::new("/usr/bin/ipmitool")
            .args(how)
            .args(["power", "status"])
            .env("IPMI_PASSWORD", password)
            .env("IPMITOOL_PASSWORD", password)
            .output();
        let said = output.is_ok_and(|output| output.stdout.starts_with(b"Chassis Power is"));
        Ok::<_, Expired>(said.then_some(()))
    };
    let started = Deadline::after(Duration::from_secs(20)).poll(answers);
    ensure!(started.is_ok(), "it does not answer on port {port}");
    Ok(())
}

/// pyghmi's `fakebmc`, written by others than we: a server that is off.
#[derive(Debug)]
pub struct FakeBmc {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Drop for FakeBmc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// It listens on every address otherwise.
const FAKEBMC: &str = "
import functools, sys
import pyghmi.cmd.fakebmc as fakebmc, pyghmi.ipmi.bmc as bmc
bmc.Bmc.__init__ = functools.partialmethod(bmc.Bmc.__init__, address='::ffff:127.0.0.1')
sys.exit(fakebmc.main())
";
/// The one account it has, with [`USER`].
const FAKEBMC_PASSWORD: &str = "password";

impl FakeBmc {
    /// Whether pyghmi and `ipmitool` are installed.
    #[must_use]
    pub fn installed() -> bool {
        let has_pyghmi = crate::pve::python().is_ok_and(|python| {
            let import =
                Command::new(python).args(["-c", "import pyghmi.cmd.fakebmc"]).stderr(Stdio::null()).status();
            import.is_ok_and(|status| status.success())
        });
        has_pyghmi && Path::new("/usr/bin/ipmitool").exists()
    }

    /// # Panics
    /// When it does not start: a test has nothing to go on with.
    #[must_use]
    pub fn start() -> Self {
        Self::try_start().unwrap_or_else(|error| panic!("fakebmc: {error:#}"))
    }

    fn try_start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let port = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(crate::pve::python()?)
            .args(["-u", "-c", FAKEBMC, "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(fs::File::create(directory.path().join("said"))?)
            .stderr(Stdio::null())
            .spawn()
            .context("starting fakebmc")?;
        let bmc = Self { child, port, directory };
        wait_for(port, FAKEBMC_PASSWORD)?;
        Ok(bmc)
    }

    /// The options by which a module reaches it.
    #[must_use]
    pub fn options(&self) -> Value {
        json!({
            "api_host": "localhost", "api_port": self.port, "api_user": USER, "api_password": FAKEBMC_PASSWORD,
            "timeout": 60, "_ansible_inject_invocation": false,
        })
    }

    /// What happened to its server, in its words: `powered on`, `politely shut down the system`.
    #[must_use]
    pub fn done(&self) -> Vec<String> {
        let said = fs::read_to_string(self.directory.path().join("said")).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
    }
}

/// A running `ipmi_sim`.
#[derive(Debug)]
pub struct IpmiSim {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Drop for IpmiSim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl IpmiSim {
    /// A server that is off, with this product serial. With `obedient` it goes down when it is asked to.
    ///
    /// # Panics
    /// When it does not start: a test has nothing to go on with.
    #[must_use]
    pub fn start(serial: &str, obedient: bool) -> Self {
        Self::try_start(serial, obedient).unwrap_or_else(|error| panic!("ipmi_sim: {error:#}"))
    }

    fn try_start(serial: &str, obedient: bool) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let home = directory.path();
        let port = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        fs::create_dir(home.join("state"))?;
        fs::write(home.join("power"), "0\n")?;
        fs::write(home.join("boot"), "none\n")?;
        fs::write(home.join("chassis.sh"), chassis_script(home, obedient))?;
        fs::write(home.join("lan.conf"), lan_conf(home, port))?;
        fs::write(home.join("fru.bin"), fru(serial))?;
        fs::write(home.join("sim.emu"), emulator(home))?;
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                "ipmi_sim",
                "-n",
                "-c",
                "lan.conf",
                "-f",
                "sim.emu",
                "-s",
                "state",
            ])
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting ipmi_sim")?;
        let sim = Self { child, port, directory };
        wait_for(port, PASSWORD)?;
        Ok(sim)
    }

    /// The options by which a module reaches it.
    #[must_use]
    pub fn options(&self) -> Value {
        json!({
            "api_host": "localhost", "api_port": self.port, "api_user": USER, "api_password": PASSWORD,
            "timeout": 30, "_ansible_inject_invocation": false,
        })
    }

    /// `on` or `off`.
    #[must_use]
    pub fn power(&self) -> &'static str {
        if self.file("power") == "1" { "on" } else { "off" }
    }

    /// Somebody presses a button.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn set_power(&self, on: bool) {
        fs::write(self.directory.path().join("power"), if on { "1\n" } else { "0\n" })
            .expect("the power file");
    }

    /// What was done to the chassis, in order: `boot pxe`, `power 1`, `shutdown 1`.
    #[must_use]
    pub fn done(&self) -> Vec<String> {
        self.file("done").lines().map(str::to_owned).collect()
    }

    fn file(&self, name: &str) -> String {
        let path: PathBuf = self.directory.path().join(name);
        fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    }
}

/// What `ipmi_sim` asks about the chassis: `get power boot`, `set power 1`.
fn chassis_script(home: &Path, obedient: bool) -> String {
    let goes_down = if obedient { "echo 0 >power" } else { ":" };
    format!(
        r#"cd '{}' || exit 1
shift
operation=$1
shift
while [ $# -gt 0 ]; do
    if [ "$operation" = get ]; then
        echo "$1:$(cat "$1")"
        shift
        continue
    fi
    echo "$1 $2" >>done
    echo "$2" >"$1"
    if [ "$1" = shutdown ]; then {goes_down}; fi
    shift 2
done
"#,
        home.display()
    )
}

fn lan_conf(home: &Path, port: u16) -> String {
    let levels = ["callback", "user", "operator", "admin"];
    let auths: String =
        levels.iter().map(|level| format!("allowed_auths_{level} none md2 md5 straight\n")).collect();
    format!(
        "name \"lab\"\nset_working_mc 0x20\nstartlan 1\naddr localhost {port}\npriv_limit admin\n{auths}\
         guid a123456789abcdefa123456789abcdef\nendlan\nchassis_control \"/bin/sh {}/chassis.sh 0x20\"\n\
         startnow false\nuser 1 true \"\" \"test\" user 10 none md2 md5 straight\n\
         user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 none md2 md5 straight\n",
        home.display()
    )
}

fn emulator(home: &Path) -> String {
    format!(
        "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nsel_enable 0x20 1000 0x0a\n\
         mc_add_fru_data 0x20 0 256 file 0 \"{}/fru.bin\"\nmc_enable 0x20\n",
        home.display()
    )
}

/// A FRU with a product area (IPMI Platform Management FRU Information Storage Definition).
fn fru(serial: &str) -> Vec<u8> {
    let mut product = vec![1, 0, 0];
    for field in ["Contoso", "Model 7", "PN7", "1.0", serial, "", ""] {
        product.push(0xc0 | u8::try_from(field.len()).expect("a short field"));
        product.extend_from_slice(field.as_bytes());
    }
    product.push(0xc1);
    product.resize((product.len() + 1).next_multiple_of(8) - 1, 0);
    product[1] = u8::try_from((product.len() + 1) / 8).expect("a short area");
    let mut whole = vec![1, 0, 0, 0, 1, 0, 0];
    whole.push(checksum(&whole));
    product.push(checksum(&product));
    whole.extend(product);
    whole.resize(256, 0);
    whole
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte))
}
