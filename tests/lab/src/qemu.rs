//! Real machines: QEMU with UEFI firmware, without KVM, on a [`Network`].

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::qemu_network::{Network, Traffic, traffic};

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
const OVMF: &str = "/usr/share/OVMF";
/// A machine that neither says a word nor sends a packet for so much of its processor's time is stuck.
const STUCK_AFTER_BUSY: Duration = Duration::from_secs(60);
/// The same for one that waits for something.
const STUCK_AFTER: Duration = Duration::from_secs(240);
/// A machine that goes round in circles makes progress as well.
const LONGEST_WAIT: Duration = Duration::from_secs(900);
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Whether machines can run here.
#[must_use]
pub fn installed() -> bool {
    Path::new(QEMU).exists() && Path::new(OVMF).join("OVMF_CODE_4M.fd").exists()
}

/// What a machine tries to boot from, in this order. Like on Proxmox VE it is read when QEMU starts: a reset does not
/// look at it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    Network,
    Disk,
    NetworkThenDisk,
    DiskThenNetwork,
}

impl Boot {
    /// `bootindex` of the network card and of the disk.
    fn indexes(self) -> (Option<u8>, Option<u8>) {
        match self {
            Self::Network => (Some(0), None),
            Self::Disk => (None, Some(0)),
            Self::NetworkThenDisk => (Some(0), Some(1)),
            Self::DiskThenNetwork => (Some(1), Some(0)),
        }
    }
}

/// What a machine shall be.
#[derive(Debug, Clone)]
pub struct MachineBuilder {
    mac: String,
    firmware: PathBuf,
    has_rng: bool,
    ends_at_reset: bool,
    disk_mib: u64,
}

impl MachineBuilder {
    /// QEMU ends where the guest resets the machine, so that its next start can be with another boot order: a server
    /// of metal reads it at each boot.
    #[must_use]
    pub fn ends_at_reset(mut self) -> Self {
        self.ends_at_reset = true;
        self
    }

    /// Another firmware than Debian's: the directory of `OVMF_CODE_4M.fd` and `OVMF_VARS_4M.fd`.
    #[must_use]
    pub fn firmware(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.firmware);
        self
    }

    /// No virtio-rng; the processor has no RDRAND anyway.
    #[must_use]
    pub fn without_rng(mut self) -> Self {
        self.has_rng = false;
        self
    }

    /// The machine, off, with an empty disk and a tap of its own.
    ///
    /// # Errors
    /// No tap is to be had, or no temporary directory.
    pub fn build(self, network: &Network) -> Result<Machine> {
        ensure!(installed(), "expected {QEMU} and {OVMF}: install qemu-system-x86 and ovmf");
        let home = TempDir::with_prefix("lab-machine-")?;
        fs::copy(self.firmware.join("OVMF_VARS_4M.fd"), home.path().join("vars.fd"))?;
        fs::File::create(home.path().join("disk.img"))?.set_len(self.disk_mib << 20)?;
        fs::write(home.path().join("console.log"), "")?;
        Ok(Machine { home, tap: network.tap()?, process: None, seen: 0, shape: self })
    }
}

/// A machine that keeps its disk and its firmware's variables while it is off. It ends when this is dropped, and also
/// when the thread that started it ends.
#[derive(Debug)]
pub struct Machine {
    shape: MachineBuilder,
    home: TempDir,
    tap: String,
    process: Option<Child>,
    /// How much of the console [`Machine::wait_for`] has gone past.
    seen: usize,
}

impl Machine {
    /// A machine with this MAC address, virtio-net, virtio-scsi, virtio-rng and Debian's firmware.
    #[must_use]
    pub fn builder(mac: &str) -> MachineBuilder {
        MachineBuilder {
            mac: mac.to_owned(),
            firmware: OVMF.into(),
            has_rng: true,
            ends_at_reset: false,
            disk_mib: 256,
        }
    }

    /// Powers it on.
    ///
    /// # Errors
    /// It is on, or QEMU does not start.
    pub fn start(&mut self, boot: Boot) -> Result<()> {
        ensure!(self.process.is_none(), "the machine is on already");
        self.seen = self.console().len();
        let log = fs::File::create(self.file("qemu.log"))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "nice", "-n", "10", QEMU])
            .args(self.arguments(boot))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("running setpriv")?;
        self.process = Some(child);
        Ok(())
    }

    fn arguments(&self, boot: Boot) -> Vec<String> {
        let file = |name: &str| self.file(name).display().to_string();
        let (network, disk) = boot.indexes();
        let index = |index: Option<u8>| index.map_or_else(String::new, |index| format!(",bootindex={index}"));
        let code = self.shape.firmware.join("OVMF_CODE_4M.fd");
        let mut arguments = vec![
            "-machine q35,accel=tcg -cpu qemu64 -m 512 -nodefaults -display none".to_owned(),
            format!("-drive if=pflash,unit=0,format=raw,readonly=on,file={}", code.display()),
            format!("-drive if=pflash,unit=1,format=raw,file={}", file("vars.fd")),
            format!("-netdev tap,id=net0,ifname={},script=no,downscript=no", self.tap),
            format!("-device virtio-net-pci,netdev=net0,mac={},romfile={}", self.shape.mac, index(network)),
            "-device virtio-scsi-pci".to_owned(),
            format!("-drive if=none,id=scsi0,format=raw,cache=unsafe,file={}", file("disk.img")),
            format!("-device scsi-hd,drive=scsi0{}", index(disk)),
            format!(
                "-chardev file,id=console,append=on,path={} -serial chardev:console",
                file("console.log")
            ),
            format!("-qmp unix:{},server=on,wait=off", file("qmp")),
        ];
        if self.shape.has_rng {
            arguments.push(
                "-object rng-random,id=rng0,filename=/dev/urandom -device virtio-rng-pci,rng=rng0".to_owned(),
            );
        }
        if self.shape.ends_at_reset {
            arguments.push("-no-reboot".to_owned());
        }
        arguments.iter().flat_map(|line| line.split(' ').map(str::to_owned)).collect()
    }

    /// Takes the power away, as from a machine that hangs.
    ///
    /// # Errors
    /// QEMU cannot be waited for.
    pub fn cut_power(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// Whether it is on; a guest may have powered itself off.
    ///
    /// # Errors
    /// QEMU cannot be asked after.
    pub fn is_on(&mut self) -> Result<bool> {
        let ended = self.process.as_mut().map(Child::try_wait).transpose()?.flatten();
        if ended.is_some() {
            self.process = None;
        }
        Ok(self.process.is_some())
    }

    /// Presses the reset button: the same QEMU boots again.
    ///
    /// # Errors
    /// QEMU's monitor refuses.
    pub fn reset(&self) -> Result<()> {
        self.ask("system_reset").map(drop)
    }

    /// Waits until the console says `text` after what was waited for before. Patience goes with progress on the
    /// console and on the network, not with the clock: this machine may have little of its processor.
    ///
    /// # Errors
    /// The machine went off, got stuck, or went on for a quarter of an hour without it; with the end of its console.
    pub fn wait_for(&mut self, text: &str) -> Result<()> {
        self.wait_until(&format!("the console says {text:?}"), |machine| Ok(machine.says(text)))
    }

    /// Whether the console has said `text` after what was waited for before.
    pub fn says(&mut self, text: &str) -> bool {
        let console = self.console();
        let found = console.get(self.seen..).and_then(|new| new.find(text));
        if let Some(at) = found {
            self.seen += at + text.len();
        }
        found.is_some()
    }

    /// The same for anything that can be looked at.
    ///
    /// # Errors
    /// As for [`Machine::wait_for`], and what `done` says.
    pub fn wait_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        let (mut progress, mut moved, mut busy) = (self.progress()?, Instant::now(), self.processor_time());
        while !done(self)? {
            let now = self.progress()?;
            if now != progress {
                (progress, moved, busy) = (now, Instant::now(), self.processor_time());
            }
            let was_busy = self.processor_time().saturating_sub(busy);
            let trouble = if !self.is_on()? && !self.shape.ends_at_reset {
                "the machine went off"
            } else if was_busy > STUCK_AFTER_BUSY || moved.elapsed() > STUCK_AFTER {
                "the machine is stuck"
            } else if began.elapsed() > LONGEST_WAIT {
                "it takes too long"
            } else {
                std::thread::sleep(LOOKS_EVERY);
                continue;
            };
            bail!("waiting until {what}: {trouble}; {:?}\n{}", self.traffic()?, self.last_words());
        }
        Ok(())
    }

    /// What it receives is no progress: a bridge asks around by itself.
    fn progress(&self) -> Result<(usize, u64)> {
        Ok((self.console().len(), self.traffic()?.sent))
    }

    /// proc_pid_stat(5): after the name in parentheses come state and ten more, then user and system time in hundredths.
    fn processor_time(&self) -> Duration {
        let read = |process: &Child| fs::read_to_string(format!("/proc/{}/stat", process.id())).ok();
        let stat = self.process.as_ref().and_then(read).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks =
            after_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// What its network card sent and received, over all its starts.
    ///
    /// # Errors
    /// This thread is not in the machine's network.
    pub fn traffic(&self) -> Result<Traffic> {
        traffic(&self.tap)
    }

    /// Everything the serial console said, over all its starts, without control sequences.
    #[must_use]
    pub fn console(&self) -> String {
        let raw = fs::read(self.file("console.log")).unwrap_or_default();
        plain(&String::from_utf8_lossy(&raw))
    }

    fn last_words(&self) -> String {
        let console = self.console();
        let lines: Vec<&str> = console.lines().collect();
        let qemu = fs::read_to_string(self.file("qemu.log")).unwrap_or_default();
        format!("{qemu}{}", lines[lines.len().saturating_sub(30)..].join("\n"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// QEMU Machine Protocol, docs/interop/qmp-spec.txt: a greeting, negotiation, then a command.
    fn ask(&self, command: &str) -> Result<Value> {
        let mut stream = UnixStream::connect(self.file("qmp")).context("QEMU's monitor")?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        lines.next().context("QEMU's monitor says nothing")??;
        let mut answer = Value::Null;
        for execute in ["qmp_capabilities", command] {
            writeln!(stream, "{}", json!({"execute": execute}))?;
            answer = loop {
                let line: Value = serde_json::from_str(&lines.next().context("QEMU's monitor closed")??)?;
                if line.get("event").is_none() {
                    break line;
                }
            };
        }
        ensure!(answer.get("return").is_some(), "{command}: {answer}");
        Ok(answer["return"].clone())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.cut_power();
    }
}

/// Without the sequences that move cursors and set colours; firmware and GRUB draw with them.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else if character != '\r' && character != '\0' {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_draws_is_not_what_is_said() {
        assert_eq!(plain("\u{1b}[2J\u{1b}[01;01HBdsDxe: \u{1b}[0mloading\r\nx"), "BdsDxe: loading\nx");
        assert_eq!(plain("cut \u{1b}[3"), "cut ");
    }
}
