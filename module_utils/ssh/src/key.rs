use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

/// A server's public key in the form of the wire (RFC 4253, 6.6), which names its own kind.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey {
    blob: Vec<u8>,
    kind: String,
}

impl HostKey {
    /// `None` when the bytes do not begin with the name of a kind of key.
    #[must_use]
    pub fn from_blob(blob: &[u8]) -> Option<Self> {
        let (length, rest) = blob.split_first_chunk::<4>()?;
        let name = rest.get(..u32::from_be_bytes(*length) as usize)?;
        let kind = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?.to_owned();
        Some(Self { blob: blob.to_vec(), kind })
    }

    /// Reads the key as a known_hosts or `.pub` file has it.
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        Self::from_blob(&STANDARD.decode(text).ok()?)
    }

    /// `ssh-ed25519`, `ecdsa-sha2-nistp256`, `ssh-rsa` ...
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    #[must_use]
    pub fn base64(&self) -> String {
        STANDARD.encode(&self.blob)
    }

    /// The fingerprint as `ssh-keygen -l` shows it: `SHA256:` and base64 without padding.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&self.blob)))
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.fingerprint())
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_kind_and_fingerprint() {
        let text = "AAAAC3NzaC1lZDI1NTE5AAAAIPOOoDQIL+fxfhF70nD41UPP0gFjEyB1hDTgrjtMVMlz";
        let key = HostKey::from_base64(text).unwrap();
        assert_eq!(key.kind(), "ssh-ed25519");
        assert_eq!(key.base64(), text);
        assert_eq!(key.fingerprint(), "SHA256:A+JxDdHS8BKnRw6Tqx17h1naYI0FJdQu8yIZ7lePJ4g");
    }

    #[test]
    fn bytes_without_a_kind_are_no_key() {
        for blob in [&b""[..], b"\0\0", b"\0\0\0\0", b"\0\0\0\x09short", b"\0\0\0\x01\xff"] {
            assert_eq!(HostKey::from_blob(blob), None);
        }
    }
}
