//! Which boot files a client of an architecture can run.

use serde::Deserialize;

/// A client's architecture (option 93, RFC 4578 and its IANA registry).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Architecture {
    Bios,
    UefiIa32,
    UefiX64,
    UefiArm64,
    UefiX64Http,
    UefiArm64Http,
}

/// What in a file's name tells the architecture of a UEFI program.
const MARKS: [(Architecture, &[&str]); 3] = [
    (Architecture::UefiX64, &["x64", "x86_64", "amd64"]),
    (Architecture::UefiArm64, &["aa64", "arm64", "aarch64"]),
    (Architecture::UefiIa32, &["ia32", "i386"]),
];

impl Architecture {
    pub(crate) const NAMES: [&'static str; 6] =
        ["bios", "uefi_ia32", "uefi_x64", "uefi_arm64", "uefi_x64_http", "uefi_arm64_http"];

    /// Why its firmware cannot boot the file; `None` when nothing in the name speaks against it.
    pub(crate) fn objection(self, file: &str) -> Option<String> {
        let name = file.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let is_url = file.starts_with("http://") || file.starts_with("https://");
        let is_efi = name.contains(".efi");
        match self {
            Self::Bios if is_efi => Some("is a UEFI program, which a BIOS cannot run".to_owned()),
            Self::Bios => None,
            Self::UefiX64Http | Self::UefiArm64Http if !is_url => {
                Some("is no URL, and UEFI HTTP Boot takes nothing else".to_owned())
            }
            Self::UefiX64 | Self::UefiArm64 | Self::UefiIa32 if is_url => {
                Some("is a URL, which a client that boots by TFTP cannot fetch".to_owned())
            }
            _ if !is_efi => Some("is no UEFI program (.efi)".to_owned()),
            _ => self.mark_of_another(&name).map(|mark| format!("is for another architecture (`{mark}`)")),
        }
    }

    fn mark_of_another(self, name: &str) -> Option<&'static str> {
        let own = match self {
            Self::UefiX64Http => Self::UefiX64,
            Self::UefiArm64Http => Self::UefiArm64,
            other => other,
        };
        let marks = |of_own: bool| {
            let fitting = MARKS.into_iter().filter(move |(architecture, _)| (*architecture == own) == of_own);
            fitting.flat_map(|(_, marks)| marks).copied().filter(|mark| name.contains(mark))
        };
        if marks(true).next().is_some() { None } else { marks(false).next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_files_an_architecture_boots() {
        use Architecture::{Bios, UefiArm64, UefiArm64Http, UefiIa32, UefiX64, UefiX64Http};
        let told = |architecture: Architecture, file: &str| {
            architecture.objection(file).unwrap_or_else(|| "boots".to_owned())
        };
        for (architecture, file, expected) in [
            (UefiX64, "grubnetx64.efi.signed", "boots"),
            (UefiX64, "grub/x86_64-efi/core.efi", "boots"),
            (UefiX64, "ipxe.efi", "boots"),
            (UefiX64, "pxelinux.0", "is no UEFI program (.efi)"),
            (UefiX64, "undionly.kpxe", "is no UEFI program (.efi)"),
            (UefiX64, "GRUBAA64.EFI", "is for another architecture (`aa64`)"),
            (UefiX64, "bootia32.efi", "is for another architecture (`ia32`)"),
            (UefiX64, "http://boot/grubx64.efi", "is a URL, which a client that boots by TFTP cannot fetch"),
            (UefiX64Http, "http://boot/grubx64.efi", "boots"),
            (UefiX64Http, "grubx64.efi", "is no URL, and UEFI HTTP Boot takes nothing else"),
            (UefiArm64Http, "https://boot/shimx64.efi", "is for another architecture (`x64`)"),
            (UefiArm64, "shimaa64.efi", "boots"),
            (UefiIa32, "i386-efi/core.efi", "boots"),
            (Bios, "pxelinux.0", "boots"),
            (Bios, "grubx64.efi", "is a UEFI program, which a BIOS cannot run"),
        ] {
            assert_eq!(told(architecture, file), expected, "{file} on {architecture:?}");
        }
    }
}
