//! The guest with its disks, the program in it, and stand-ins for what it calls.

use std::path::Path;

use lab::zfs_guest::{Attach, Disk, ZfsGuest};
use serde_json::{Value, json};

const fn disk(serial: &'static str, attach: Attach) -> Disk {
    Disk { serial, mib: 128, attach }
}

const DISKS: [Disk; 13] = [
    disk("A", Attach::Scsi),
    disk("B", Attach::Scsi),
    disk("C", Attach::Scsi),
    disk("D", Attach::Scsi),
    disk("E", Attach::Scsi),
    Disk { serial: "LARGER", mib: 145, attach: Attach::Scsi },
    disk("READONLY", Attach::ReadOnly),
    disk("REMOVABLE", Attach::Removable),
    disk("RAID", Attach::Raid),
    disk("USB", Attach::Usb),
    disk("NVME", Attach::Nvme),
    disk("VIRTIO", Attach::Virtio),
    disk("LUN", Attach::TwoPaths),
];

/// One line for each command that the program runs, the real one behind it.
const COUNTED: &str = r"
for program in lsblk zpool zfs zdb wipefs blkid udevadm blockdev systemctl; do
  printf '#!/bin/sh\necho %s \042$@\042 >>/run/count\nexec %s \042$@\042\n' $program $(command -v $program) >/run/stand/$program
done
chmod 755 /run/stand/*
";

/// Every pool away, every writable disk blank, no stand-in left.
const RESET: &str = r"
rm -rf /run/stand /run/count /run/reached /run/go /etc/pve /tank /data; mkdir -p /run/stand
umount /mnt 2>/dev/null; swapoff -a; vgchange -qq -an 2>/dev/null; mdadm --quiet --stop --scan 2>/dev/null
for pool in $(zpool list -H -o name); do zpool destroy -f $pool; done
multipath -q -F 2>/dev/null; rm -f /etc/multipath/wwids; dmsetup remove_all 2>/dev/null
zgenhostid -f 0x00a1b2c3
for link in /dev/disk/by-id/*; do case $link in *-part*) continue ;; esac; readlink -f $link; done | sort -u | while read -r device; do
  case $device in /dev/vda | /dev/vdb | /dev/dm-*) continue ;; esac
  [ $(cat /sys/class/block/${device##*/}/ro) = 0 ] || continue
  blkdiscard -f -z $device && blockdev --rereadpt $device 2>/dev/null
done
udevadm settle
true
";

pub(crate) struct Bench {
    guest: ZfsGuest,
}

impl Bench {
    /// None, said aloud, where there is no image or no QEMU.
    pub(crate) fn start() -> Option<Self> {
        let image = ZfsGuest::image();
        if !lab::present(image.is_some(), "the guest's image (make zfs-image)") {
            return None;
        }
        let files = [("zfs_pool", Path::new(env!("CARGO_BIN_EXE_zfs_pool")))];
        let guest = ZfsGuest::start(&image.unwrap(), &files, &DISKS).unwrap();
        Some(Self { guest })
    }

    pub(crate) fn reset(&mut self) {
        self.sh(RESET);
    }

    pub(crate) fn version(&mut self) -> String {
        self.sh("cat /sys/module/zfs/version").trim().to_owned()
    }

    pub(crate) fn sh(&mut self, script: &str) -> String {
        self.guest.sh(&format!("cd /; {script}"))
    }

    /// Ends with 0 after udev has seen everything.
    pub(crate) fn prepare(&mut self, script: &str) {
        self.sh(&format!("set -e\n{script}\nudevadm settle"));
    }

    pub(crate) fn checksums(&mut self, serials: &[&str]) -> Vec<String> {
        serials.iter().map(|serial| self.guest.checksum(serial)).collect()
    }

    /// A command of the stand-in's own in the program's way.
    pub(crate) fn stand_in(&mut self, program: &str, script: &str) {
        let real = self.guest.sh(&format!("command -v {program} || true"));
        let script = format!("#!/bin/bash\nREAL={}\n{script}\n", real.trim());
        self.sh(&format!("cat >/run/stand/{program} <<'END'\n{script}\nEND\nchmod 755 /run/stand/{program}"));
    }

    pub(crate) fn without_stand_ins(&mut self) {
        self.sh("rm -rf /run/stand; mkdir /run/stand");
    }

    fn command(arguments: &Value) -> String {
        format!(
            "cat >/run/arguments <<'END'\n{arguments}\nEND\nexport PATH=/run/stand:$PATH\nexec /run/handed/zfs_pool /run/arguments\n"
        )
    }

    /// A whole run; its result.
    pub(crate) fn run(&mut self, arguments: &Value) -> Value {
        let (_, said) = self.guest.try_sh(&Self::command(arguments)).unwrap();
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    pub(crate) fn check(&mut self, arguments: &Value) -> Value {
        let mut arguments = arguments.clone();
        arguments["_ansible_check_mode"] = json!(true);
        arguments["_ansible_diff"] = json!(true);
        self.run(&arguments)
    }

    pub(crate) fn makes(&mut self, arguments: &Value) -> Value {
        let result = self.run(arguments);
        assert_eq!(result["changed"], true, "{result:#}");
        assert!(result.get("failed").is_none(), "{result:#}");
        result
    }

    pub(crate) fn leaves(&mut self, arguments: &Value) -> Value {
        let result = self.run(arguments);
        assert!(result.get("failed").is_none() && result["changed"] == false, "{result:#}");
        result
    }

    /// The message of a refusal; of the disks with these serials no byte changed.
    pub(crate) fn refuses(&mut self, arguments: &Value, serials: &[&str]) -> String {
        let before = self.checksums(serials);
        for result in [self.check(arguments), self.run(arguments)] {
            assert_eq!(
                (&result["failed"], &result["error_code"]),
                (&json!(true), &json!("refused")),
                "{result:#}"
            );
        }
        assert_eq!(self.checksums(serials), before, "a refused disk was written to");
        self.run(arguments)["msg"].as_str().unwrap().to_owned()
    }

    /// The commands that a run needs.
    pub(crate) fn counted(&mut self, arguments: &Value) -> Vec<String> {
        self.sh(COUNTED);
        self.leaves(arguments);
        self.sh("cat /run/count").lines().map(str::to_owned).collect()
    }

    /// Starts the program, waits until the stand-in of a command writes `/run/reached`, and kills the program.
    pub(crate) fn killed_when_reached(&mut self, arguments: &Value) {
        let command = Self::command(arguments);
        self.sh(&format!(
            "cat >/run/start <<'SCRIPT'\n{command}SCRIPT\nsetsid bash /run/start >/run/killed 2>&1 &\nprogram=$!\n\
             for i in $(seq 600); do [ -e /run/reached ] && break; sleep 0.1; done\n\
             [ -e /run/reached ] || {{ cat /run/killed; exit 1; }}\nkill -KILL $program; wait $program; true"
        ));
    }
}

/// A mirror of two disks by serial number, as a task declares it.
pub(crate) fn mirror(disks: [&str; 2]) -> Value {
    json!({"pools": [{"name": "tank", "layout": "mirror", "disks": disks.map(by_id)}]})
}

/// `wipe: [tank]` besides.
pub(crate) fn wiping(mut arguments: Value) -> Value {
    arguments["wipe"] = json!(["tank"]);
    arguments
}

/// The lasting name of a disk by its serial number.
pub(crate) fn by_id(serial: &str) -> String {
    match serial {
        "NVME" => "nvme-QEMU_NVMe_Ctrl_NVME".into(),
        "VIRTIO" | "ROOT" => format!("virtio-{serial}"),
        "USB" => "usb-QEMU_QEMU_HARDDISK_USB-0:0".into(),
        serial => format!("scsi-0QEMU_QEMU_HARDDISK_{serial}"),
    }
}

/// Its path, for scripts.
pub(crate) fn path(serial: &str) -> String {
    format!("/dev/disk/by-id/{}", by_id(serial))
}
