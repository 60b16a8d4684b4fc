use std::fmt;

/// Where to boot from, as `ipmitool chassis bootdev` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootDevice {
    Pxe,
    Disk,
    Cdrom,
    Bios,
}

impl BootDevice {
    /// The device's bits in byte 2 of the boot flags (IPMI 2.0, table 28-14).
    fn selector(self) -> u8 {
        match self {
            Self::Pxe => 0x04,
            Self::Disk => 0x08,
            Self::Cdrom => 0x14,
            Self::Bios => 0x18,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pxe => "pxe",
            Self::Disk => "disk",
            Self::Cdrom => "cdrom",
            Self::Bios => "bios",
        }
    }
}

impl fmt::Display for BootDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Boot option parameter 5, as far as it decides the next start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootFlags {
    /// Without this bit the rest is what an earlier start left behind.
    pub valid: bool,
    pub persistent: bool,
    pub efi: bool,
    /// Bits 2 to 5 of byte 2.
    selector: u8,
}

impl BootFlags {
    /// From `Boot parameter data: a004000000`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let data = text.lines().find_map(|line| line.trim().strip_prefix("Boot parameter data:"))?.trim();
        let byte = |index: usize| u8::from_str_radix(data.get(2 * index..2 * index + 2)?, 16).ok();
        let (first, second) = (byte(0)?, byte(1)?);
        Some(Self {
            valid: first & 0x80 != 0,
            persistent: first & 0x40 != 0,
            efi: first & 0x20 != 0,
            selector: second & 0x3c,
        })
    }

    /// The device in `ipmitool`'s word; `none` without one, `other` for one that has no word here.
    #[must_use]
    pub fn device(&self) -> &'static str {
        let all = [BootDevice::Pxe, BootDevice::Disk, BootDevice::Cdrom, BootDevice::Bios];
        match all.into_iter().find(|device| device.selector() == self.selector) {
            Some(device) => device.word(),
            None if self.selector == 0 => "none",
            None => "other",
        }
    }

    /// Whether exactly the next start, and no other, comes from this device.
    #[must_use]
    pub fn is_once(&self, device: BootDevice, efi: bool) -> bool {
        self.valid && !self.persistent && self.efi == efi && self.selector == device.selector()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(data: &str) -> BootFlags {
        BootFlags::parse(&format!("Boot parameter version: 1\nBoot parameter data: {data}\n Boot Flags :\n"))
            .unwrap()
    }

    #[test]
    fn the_bits_are_read() {
        assert!(flags("a004000000").is_once(BootDevice::Pxe, true));
        assert!(flags("8004000000").is_once(BootDevice::Pxe, false));
        assert!(flags("a014000000").is_once(BootDevice::Cdrom, true));
        assert!(flags("8008000000").is_once(BootDevice::Disk, false));
        assert!(flags("8018000000").is_once(BootDevice::Bios, false));
    }

    #[test]
    fn what_is_not_once_from_there_is_not() {
        for data in ["2004000000", "0004000000", "e004000000", "8004000000", "a008000000", "0000000000"] {
            assert!(!flags(data).is_once(BootDevice::Pxe, true), "{data}");
        }
        assert_eq!([flags("0000000000").device(), flags("802c000000").device()], ["none", "other"]);
    }

    #[test]
    fn other_texts_are_no_flags() {
        for text in ["", "Boot parameter data:", "Boot parameter data: zz", "Boot parameter data: a"] {
            assert_eq!(BootFlags::parse(text), None, "{text}");
        }
    }
}
