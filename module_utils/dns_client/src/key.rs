//! The shared key that signs updates (TSIG, RFC 8945).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hickory_proto::rr::TSigner;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::error::Error;
use crate::name;

/// Seconds that the clocks of both ends may differ; what RFC 8945 (10.) recommends.
const FUDGE: u16 = 300;

/// The hash under the signature. The older ones, MD5 and SHA-1, are left out: servers drop them too.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Algorithm {
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    #[serde(rename = "hmac-sha384")]
    HmacSha384,
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}

impl Algorithm {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha384 => "hmac-sha384",
            Self::HmacSha512 => "hmac-sha512",
        }
    }

    fn code(self) -> TsigAlgorithm {
        match self {
            Self::HmacSha256 => TsigAlgorithm::HmacSha256,
            Self::HmacSha384 => TsigAlgorithm::HmacSha384,
            Self::HmacSha512 => TsigAlgorithm::HmacSha512,
        }
    }
}

/// A key that a server knows under the same name.
#[derive(Clone)]
pub struct Key {
    name: String,
    algorithm: Algorithm,
    pub(crate) signer: TSigner,
}

impl Key {
    /// `secret` is base64, as in the server's configuration.
    ///
    /// # Errors
    /// [`Error::Key`] when the secret is no base64 or the name is none; the secret is not in it.
    pub fn new(name: &str, algorithm: Algorithm, secret: &SecretString) -> Result<Self, Error> {
        let octets = STANDARD.decode(secret.expose_secret().trim()).ok().filter(|octets| !octets.is_empty());
        let octets = octets.ok_or(Error::Key { why: "expected base64, as in the server's configuration" })?;
        let unusable = Error::Key { why: "it cannot be used to sign" };
        let signer =
            TSigner::new(octets, algorithm.code(), name::parse(name)?, FUDGE).map_err(|_| unusable)?;
        Ok(Self { name: name.trim_end_matches('.').to_owned(), algorithm, signer })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key {{ name: {:?}, algorithm: {} }}", self.name, self.algorithm.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_no_secret() {
        let key = Key::new("anvil.", Algorithm::HmacSha256, &"c2VjcmV0LXNlY3JldA==".into()).unwrap();
        assert_eq!(format!("{key:?}"), "Key { name: \"anvil\", algorithm: hmac-sha256 }");
        for wrong in ["not base64!", ""] {
            let error = Key::new("anvil", Algorithm::HmacSha512, &wrong.into()).unwrap_err().to_string();
            assert_eq!(error, "the key cannot be used: expected base64, as in the server's configuration");
        }
        assert!(matches!(Key::new("", Algorithm::HmacSha512, &"c2VjcmV0".into()), Err(Error::Name { .. })));
    }
}
