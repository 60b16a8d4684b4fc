//! Certificates for doubles: self-signed, fresh for every server.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

/// A self-signed certificate for one loopback address and `localhost`.
pub struct Certificate {
    der: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    key_pem: String,
    pem: PathBuf,
    fingerprint: String,
    _directory: Option<TempDir>,
}

impl Certificate {
    /// Makes one; its PEM goes to `server.pem` in `directory`, or in a temporary one that goes with it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn make(address: Ipv4Addr, directory: Option<&Path>) -> Result<Self> {
        let (own, directory) = match directory {
            Some(directory) => (None, directory.to_owned()),
            None => {
                let own = TempDir::with_prefix("anvil-lab-")?;
                let path = own.path().to_owned();
                (Some(own), path)
            }
        };
        let mut names = vec![String::from("localhost"), address.to_string()];
        names.dedup();
        let made = rcgen::generate_simple_self_signed(names)?;
        let pem = directory.join("server.pem");
        std::fs::write(&pem, made.cert.pem()).with_context(|| format!("cannot write {}", pem.display()))?;
        let der = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let key_pem = made.signing_key.serialize_pem();
        Ok(Self { fingerprint: fingerprint(&der), der, key, key_pem, pem, _directory: own })
    }

    /// The certificate as a PEM file.
    #[must_use]
    pub fn pem_path(&self) -> &Path {
        &self.pem
    }

    /// Writes the private key to `server.key` in `directory`, readable by this user alone.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_key(&self, directory: &Path) -> Result<PathBuf> {
        let path = directory.join("server.key");
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
        file.write_all(self.key_pem.as_bytes())?;
        Ok(path)
    }

    /// SHA-256 of the DER form, upper-case hex pairs with colons.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What a tokio server wraps its accepted streams with.
    ///
    /// # Errors
    /// When rustls refuses the certificate.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], self.key.clone_key())?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn fingerprint(der: &[u8]) -> String {
    let mut text = String::new();
    for (index, byte) in Sha256::digest(der).iter().enumerate() {
        let colon = if index == 0 { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A client that takes any certificate: between a proxy and the double behind it, both on loopback.
pub(crate) fn trust_anything() -> Result<ClientConfig> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything(provider())))
        .with_no_client_auth())
}

#[derive(Debug)]
struct Anything(Arc<CryptoProvider>);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
