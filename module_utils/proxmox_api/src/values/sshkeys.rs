use std::fmt;
use std::str::FromStr;

use http_client::percent_encode;

use super::ValueError;

/// `sshkeys`: public keys, one a line, stored percent-encoded. On the wire the stored text is encoded
/// once more like any form value (pve-common `PVE/JSONSchema.pm`, format `urlencoded`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshKeys(Vec<String>);

impl SshKeys {
    /// The keys of plain text lines; blank lines and surrounding space are dropped.
    #[must_use]
    pub fn from_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let keys = lines.into_iter().flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty());
        Self(keys.map(str::to_owned).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for SshKeys {
    type Err = ValueError;

    /// Reads the stored form.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let decoded = percent_decode(text)
            .ok_or_else(|| ValueError::new("a list of SSH keys", text, "it is badly encoded"))?;
        Ok(Self::from_lines([decoded.as_str()]))
    }
}

/// `None` for a broken escape or text that is not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            decoded.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

impl fmt::Display for SshKeys {
    /// The stored form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&percent_encode(&self.0.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn everything_that_has_caused_trouble_is_encoded() {
        let keys = SshKeys::from_lines(["ssh-ed25519 AA+/= cardno:000 a@b\n\n", "  ssh-rsa BBBB  "]);
        assert_eq!(keys.to_string(), "ssh-ed25519%20AA%2B%2F%3D%20cardno%3A000%20a%40b%0Assh-rsa%20BBBB");
        assert_eq!(
            http_client::form_encode(&[("sshkeys".into(), SshKeys::from_lines(["ssh-rsa A"]).to_string())]),
            "sshkeys=ssh-rsa%2520A"
        );
    }

    #[test]
    fn the_web_interface_leaves_a_line_break_at_the_end() {
        let stored: SshKeys = "ssh-rsa%20AAAA%0A".parse().unwrap();
        assert_eq!(stored, SshKeys::from_lines(["ssh-rsa AAAA"]));
        assert!("%zz".parse::<SshKeys>().is_err());
        assert!("%+1".parse::<SshKeys>().is_err());
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(lines in proptest::collection::vec("[!-~][ -~éß]{0,30}[!-~]", 0..4)) {
            let keys = SshKeys::from_lines(lines.iter().map(String::as_str));
            prop_assert_eq!(keys.to_string().parse::<SshKeys>(), Ok(keys));
        }
    }
}
