use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::{ErrorKind, HttpError};

/// Which servers to believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// The certificate authorities of this machine; `SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured.
    SystemStore,
    /// The certificate authorities of a PEM file. A leaf that is itself in the file is taken too, even
    /// when it is marked as a CA; its name and dates are checked all the same.
    CaPath(PathBuf),
    /// Only the server whose leaf certificate has this SHA-256; names, dates and issuer do not matter.
    Fingerprint([u8; 32]),
    /// Every server. Anybody on the way can read the credentials.
    NoVerification,
}

/// Text that is not the SHA-256 fingerprint of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintError(String);

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a SHA-256 fingerprint: 64 hexadecimal digits are expected, as in `AB:CD:...` or `abcd...` \
             (openssl x509 -noout -fingerprint -sha256 -in FILE)",
            self.0
        )
    }
}

impl std::error::Error for FingerprintError {}

/// Reads `AA:BB:...` or plain hexadecimal digits in either case.
///
/// # Errors
/// [`FingerprintError`] for anything but 32 bytes.
pub fn parse_fingerprint(text: &str) -> Result<[u8; 32], FingerprintError> {
    let wrong = || FingerprintError(text.to_owned());
    let trimmed = text.trim();
    let digits = if trimmed.contains(':') {
        let pairs: Vec<&str> = trimmed.split(':').collect();
        if pairs.iter().any(|pair| pair.len() != 2) {
            return Err(wrong());
        }
        pairs.concat()
    } else {
        trimmed.to_owned()
    };
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// Where the verifier leaves its words: rustls and hyper would cut and wrap them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusal(Arc<Mutex<Option<String>>>);

impl Refusal {
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, message: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }
}

/// The rustls configuration that judges servers by `policy`.
pub(crate) fn tls_config(policy: &TlsPolicy, refusal: &Refusal) -> Result<ClientConfig, HttpError> {
    let provider = Arc::new(ring::default_provider());
    let judge = match policy {
        TlsPolicy::NoVerification => Judge::Nobody,
        TlsPolicy::Fingerprint(expected) => Judge::Pin(*expected),
        TlsPolicy::CaPath(path) => {
            let listed = read_bundle(path)?;
            let web_pki = web_pki(listed.iter().cloned(), &provider);
            Judge::Authorities { web_pki, listed, of: format!("the certificates in {}", path.display()) }
        }
        TlsPolicy::SystemStore => Judge::Authorities {
            web_pki: web_pki(rustls_native_certs::load_native_certs().certs, &provider),
            listed: Vec::new(),
            of: "the certificate authorities of this machine".to_owned(),
        },
    };
    let verifier = Verifier { judge, provider: Arc::clone(&provider), refusal: refusal.clone() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError::new(ErrorKind::Tls, format!("TLS is not usable: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(config)
}

fn read_bundle(path: &Path) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let wrong = |what: String| HttpError::new(ErrorKind::Tls, format!("ca_path {}: {what}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let listed: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("this is not a PEM file: {error:?}")))?;
    if listed.is_empty() {
        return Err(wrong(
            "no certificate is in this file; PEM (-----BEGIN CERTIFICATE-----) is expected".into(),
        ));
    }
    Ok(listed)
}

/// `None` when there is no usable authority at all.
fn web_pki(
    authorities: impl IntoIterator<Item = CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Option<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().ok()
}

#[derive(Debug)]
enum Judge {
    Nobody,
    Pin([u8; 32]),
    Authorities {
        web_pki: Option<Arc<WebPkiServerVerifier>>,
        listed: Vec<CertificateDer<'static>>,
        /// Whose authorities these are, for messages.
        of: String,
    },
}

#[derive(Debug)]
struct Verifier {
    judge: Judge,
    provider: Arc<CryptoProvider>,
    refusal: Refusal,
}

impl Verifier {
    /// The reason to refuse, if there is one.
    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), String> {
        match &self.judge {
            Judge::Nobody => Ok(()),
            Judge::Pin(expected) if Sha256::digest(leaf).as_slice() == expected => Ok(()),
            Judge::Pin(expected) => Err(format!("its fingerprint is not the pinned {}", hex(expected))),
            Judge::Authorities { listed, .. } if listed.contains(leaf) => {
                check_name_and_dates(leaf, name, now)
            }
            Judge::Authorities { web_pki: Some(web_pki), of, .. } => web_pki
                .verify_server_cert(leaf, intermediates, name, &[], now)
                .map(|_| ())
                .map_err(|error| explain(&error, name, of)),
            Judge::Authorities { web_pki: None, of, .. } => {
                Err(format!("none of {of} is usable (is the package ca-certificates installed?)"))
            }
        }
    }
}

fn explain(error: &rustls::Error, name: &ServerName<'_>, authorities: &str) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!("it is not signed by {authorities}")
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => not_valid_for(name),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "it has expired".to_owned(),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "it is not valid yet; is the clock of this machine right?".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if other.to_string().contains("CaUsed") =>
        {
            format!("it is a self-signed certificate marked as a CA and is not among {authorities}")
        }
        other => other.to_string(),
    }
}

fn not_valid_for(name: &ServerName<'_>) -> String {
    format!("it is not valid for the name {}", name.to_str())
}

/// What remains to be checked of a leaf that the user listed: it may be marked as a CA, which webpki refuses.
fn check_name_and_dates(
    leaf: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), String> {
    let unreadable = |error: String| format!("it cannot be read: {error}");
    let parsed = EndEntityCert::try_from(leaf).map_err(|error| unreadable(error.to_string()))?;
    parsed.verify_is_valid_for_subject_name(name).map_err(|_| not_valid_for(name))?;
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|error| unreadable(error.to_string()))?;
    let validity = certificate.validity();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < validity.not_before.timestamp() {
        return Err("it is not valid yet; is the clock of this machine right?".to_owned());
    }
    if now > validity.not_after.timestamp() {
        return Err("it has expired".to_owned());
    }
    Ok(())
}

fn refusal_message(reason: &str, judge: &Judge, leaf: &CertificateDer<'_>) -> String {
    let fingerprint = hex(&Sha256::digest(leaf));
    let cure = match judge {
        Judge::Pin(_) => {
            "If the server's certificate was renewed on purpose, put the new fingerprint into tls_fingerprint"
        }
        _ => {
            "Name the CA (or this certificate) as a PEM file in ca_path, or pin the server with tls_fingerprint"
        }
    };
    format!(
        "the server's certificate was refused: {reason}. Presented: {}; SHA-256 {fingerprint}. {cure}. \
         No credential was sent",
        describe(leaf)
    )
}

/// Subject, issuer, alternative names and validity, for a person to recognise.
fn describe(leaf: &CertificateDer<'_>) -> String {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
        return "a certificate that cannot be read".to_owned();
    };
    let names = match certificate.subject_alternative_name() {
        Ok(Some(extension)) => {
            extension.value.general_names.iter().map(alternative_name).collect::<Vec<_>>().join(", ")
        }
        _ => "none".to_owned(),
    };
    let validity = certificate.validity();
    format!(
        "subject {}, issuer {}, alternative names {names}, valid {} to {}",
        certificate.subject(),
        certificate.issuer(),
        validity.not_before,
        validity.not_after
    )
}

fn alternative_name(name: &x509_parser::extensions::GeneralName<'_>) -> String {
    use x509_parser::extensions::GeneralName;
    match name {
        GeneralName::DNSName(dns) => (*dns).to_owned(),
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => std::net::Ipv4Addr::new(a, b, c, d).to_string(),
            _ => <[u8; 16]>::try_from(*bytes)
                .map_or_else(|_| format!("{bytes:?}"), |octets| std::net::Ipv6Addr::from(octets).to_string()),
        },
        other => other.to_string(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.judge(end_entity, intermediates, server_name, now).map_err(|reason| {
            self.refusal.set(refusal_message(&reason, &self.judge, end_entity));
            rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
        })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self.judge {
            Judge::Nobody => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self.judge {
            Judge::Nobody => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn a_fingerprint_is_read_in_both_spellings() {
        let bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index).unwrap());
        assert_eq!(parse_fingerprint(DIGITS), Ok(bytes));
        assert_eq!(parse_fingerprint(&DIGITS.to_uppercase()), Ok(bytes));
        assert_eq!(parse_fingerprint(&hex(&bytes)), Ok(bytes));
        assert_eq!(parse_fingerprint(&format!(" {DIGITS}\n")), Ok(bytes));
    }

    #[test]
    fn anything_else_is_no_fingerprint() {
        for text in [
            "",
            "AA:BB",
            &DIGITS[1..],
            &format!("{DIGITS}0"),
            &DIGITS.replace('0', "g"),
            &DIGITS.replace("01", "0:1"),
            "é".repeat(32).as_str(),
        ] {
            assert!(parse_fingerprint(text).is_err(), "{text}");
        }
    }
}
