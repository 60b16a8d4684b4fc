//! A QEMU guest with a real kernel, real OpenZFS and disks of every kind. `tests/zfs/image` builds its image.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use tempfile::TempDir;

/// A minute or two on an idle machine; a busy one, without hardware's help, takes ten times as long.
const BOOTS_WITHIN: Duration = Duration::from_secs(900);
/// No script of a test takes a tenth of it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(240);

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// With a serial number and a WWN.
    Scsi,
    ReadOnly,
    Removable,
    /// Behind a RAID controller, as the one disk of a volume.
    Raid,
    Usb,
    Nvme,
    /// With a serial number only.
    Virtio,
    /// One LUN on two controllers.
    TwoPaths,
}

/// A disk of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Its serial number.
    pub serial: &'static str,
    pub mib: u64,
    pub attach: Attach,
}

/// A running guest; it ends when dropped, and with the program that started it.
#[derive(Debug)]
pub struct ZfsGuest {
    qemu: Child,
    directory: TempDir,
    writer: UnixStream,
    reader: BufReader<UnixStream>,
    /// Keeps the thread that started QEMU, with whose end QEMU ends.
    _keeper: mpsc::Sender<()>,
}

impl ZfsGuest {
    /// Where the image of this checkout's recipe is; none when it is not built.
    #[must_use]
    pub fn image() -> Option<PathBuf> {
        let output = Command::new(crate::checkout().join("tests/zfs/image")).arg("--cached").output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| PathBuf::from(path.trim()))
    }

    /// Boots, with `files` below `/run/handed` in the guest, and waits until it answers.
    ///
    /// # Errors
    /// QEMU is not installed, or the guest does not answer in time; with the end of its console.
    pub fn start(image: &Path, files: &[(&str, &Path)], disks: &[Disk]) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("zfs-guest-").tempdir()?;
        let at = |name: &str| directory.path().join(name);
        for disk in disks {
            File::create(at(&format!("{}.img", disk.serial)))?.set_len(disk.mib << 20)?;
        }
        hand(&at("handed.tar"), files)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nice", "-n", "5", "qemu-system-x86_64"]);
        command.args(arguments(image, disks)).current_dir(directory.path());
        command
            .stdin(Stdio::null())
            .stdout(File::create(at("qemu.log"))?)
            .stderr(File::create(at("qemu.err"))?);
        let (keeper, ends) = mpsc::channel::<()>();
        let (started, child) = mpsc::channel();
        thread::spawn(move || {
            let _ = started.send(command.spawn());
            let _ = ends.recv();
        });
        let mut qemu = child.recv()?.context("qemu-system-x86_64 is installed")?;
        let log = || {
            ["qemu.err", "console.log"]
                .map(|name| fs::read_to_string(at(name)).unwrap_or_default())
                .join("\n")
        };
        let end = Instant::now() + BOOTS_WITHIN;
        let socket = loop {
            if let Ok(socket) = UnixStream::connect(at("agent.sock")) {
                break socket;
            }
            if qemu.try_wait()?.is_some() || Instant::now() > end {
                bail!("QEMU did not start: {}", log());
            }
            thread::sleep(Duration::from_millis(50));
        };
        socket.set_read_timeout(Some(BOOTS_WITHIN))?;
        let mut reader = BufReader::new(socket.try_clone()?);
        let mut line = String::new();
        let greeted = reader.read_line(&mut line);
        if greeted.is_err() || line.trim() != "ready" {
            let _ = qemu.kill();
            let _ = qemu.wait();
            bail!("the guest did not come up: {}", log());
        }
        socket.set_read_timeout(Some(ANSWERS_WITHIN))?;
        Ok(Self { qemu, directory, writer: socket, reader, _keeper: keeper })
    }

    /// Runs a script; its exit code, and what it printed.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn try_sh(&mut self, script: &str) -> anyhow::Result<(i32, String)> {
        self.writer.write_all(format!("{}\n", BASE64.encode(script)).as_bytes())?;
        let mut line = String::new();
        self.reader.read_line(&mut line).with_context(|| format!("no answer to: {script}"))?;
        let (code, said) = line.trim_end().split_once(' ').context("the guest is gone")?;
        Ok((code.parse()?, String::from_utf8_lossy(&BASE64.decode(said)?).into_owned()))
    }

    /// What a script prints that must end with 0.
    ///
    /// # Panics
    /// It ends otherwise.
    pub fn sh(&mut self, script: &str) -> String {
        match self.try_sh(script) {
            Ok((0, said)) => said,
            other => panic!("{script}: {other:?}"),
        }
    }

    /// SHA-256 of every byte of a disk, read from outside.
    ///
    /// # Panics
    /// There is no such disk.
    pub fn checksum(&mut self, serial: &str) -> String {
        self.sh("sync");
        let image = self.directory.path().join(format!("{serial}.img"));
        let output = Command::new("sha256sum").arg(&image).output().expect("coreutils are installed");
        assert!(output.status.success(), "{}", image.display());
        String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned()
    }
}

impl Drop for ZfsGuest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The archive that the image's first process unpacks, padded to whole sectors by tar itself.
fn hand(archive: &Path, files: &[(&str, &Path)]) -> anyhow::Result<()> {
    let own = crate::checkout().join("tests/zfs/handed");
    let mut all = vec![("init", own.join("init")), ("agent", own.join("agent"))];
    all.extend(files.iter().map(|(name, path)| (*name, path.to_path_buf())));
    let staging = tempfile::tempdir()?;
    for (name, path) in &all {
        fs::copy(path, staging.path().join(name)).with_context(|| path.display().to_string())?;
    }
    let status =
        Command::new("tar").arg("-cf").arg(archive).arg("-C").arg(staging.path()).arg(".").status()?;
    ensure!(status.success(), "tar failed");
    Ok(())
}

fn arguments(image: &Path, disks: &[Disk]) -> Vec<String> {
    let image = image.display();
    let mut text = format!(
        "-accel tcg,thread=multi -machine q35 -cpu max -smp 2 -m 1536 -display none -vga none -nodefaults -no-reboot \
         -kernel {image}/vmlinuz -initrd {image}/initrd.img -serial file:console.log \
         -drive file={image}/root.img,format=raw,if=none,id=root,snapshot=on -device virtio-blk-pci,drive=root,serial=ROOT \
         -drive file=handed.tar,format=raw,if=none,id=handed,readonly=on -device virtio-blk-pci,drive=handed,serial=handed \
         -chardev socket,id=agent,path=agent.sock,server=on,wait=off \
         -device virtio-serial-pci -device virtserialport,chardev=agent,name=anvil \
         -device virtio-scsi-pci,id=first -device virtio-scsi-pci,id=second -device megasas,id=raid -device qemu-xhci,id=usb"
    );
    for (number, disk) in disks.iter().enumerate() {
        let Disk { serial, attach, .. } = disk;
        let drive = |id: &str, more: &str| {
            format!(" -drive file={serial}.img,format=raw,if=none,id={serial}{id},discard=unmap{more}")
        };
        let device = |kind: &str, id: &str, more: &str| {
            format!(" -device {kind},drive={serial}{id},serial={serial}{more}")
        };
        let wwn = format!(",wwn=0x5000c500000000{number:02x}");
        let scsi =
            |bus: &str, id: &str, more: &str| device("scsi-hd", id, &format!(",bus={bus}.0{wwn}{more}"));
        text += &match attach {
            Attach::Scsi => drive("", "") + &scsi("first", "", ""),
            Attach::ReadOnly => drive("", ",readonly=on") + &scsi("first", "", ""),
            Attach::Removable => drive("", "") + &scsi("first", "", ",removable=on"),
            Attach::Raid => drive("", "") + &scsi("raid", "", ""),
            Attach::Usb => drive("", "") + &device("usb-storage", "", ",bus=usb.0"),
            Attach::Nvme => drive("", "") + &device("nvme", "", ""),
            Attach::Virtio => drive("", "") + &device("virtio-blk-pci", "", ""),
            Attach::TwoPaths => ["first", "second"].into_iter().fold(String::new(), |mut both, bus| {
                let _ = write!(both, "{}{}", drive(bus, ",file.locking=off"), scsi(bus, bus, ",share-rw=on"));
                both
            }),
        };
    }
    let kernel = "root=/dev/vda rw init=/sbin/anvil-init console=ttyS0 quiet panic=-1 mitigations=off";
    text.split_whitespace().map(str::to_owned).chain(["-append".to_owned(), kernel.to_owned()]).collect()
}
