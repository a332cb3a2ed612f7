//! A certificate authority per cluster, made on the fly, and the identities it issues.

use crate::error::{Error, Result};
use crate::net::tls;
use crate::worker_info::WorkerId;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};

/// Certificate and key of one party, and whom it trusts.
///
/// Whoever has it can act as that party: hand it over by a private channel, such as the stdin
/// of a child process.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The worker's name, as the certificate states it.
    pub name: WorkerId,
    /// The cluster's certificate authority, PEM.
    pub ca_pem: String,
    /// The certificate, PEM.
    pub cert_pem: String,
    /// The private key, PEM (PKCS #8).
    pub key_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not reach a log.
        f.debug_struct("Identity").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A cluster's certificate authority. Its key never leaves this process.
pub struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki").finish_non_exhaustive()
    }
}

fn pki_error(error: impl std::fmt::Display) -> Error {
    Error::Pki { message: error.to_string() }
}

impl Pki {
    /// Makes a new authority.
    ///
    /// # Errors
    /// [`Error::Pki`] when the system gives no random numbers.
    pub fn generate() -> Result<Self> {
        let mut params = params(&[], "cluster authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(pki_error)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(pki_error)?;
        Ok(Self { issuer })
    }

    /// Issues an identity with the role of a worker.
    ///
    /// # Errors
    /// [`Error::Parse`] when `name` is not a worker's name; [`Error::Pki`].
    pub fn issue_worker(&self, name: &str) -> Result<Identity> {
        let name: WorkerId = name.parse()?;
        let names = [tls::WORKER_ROLE.to_owned(), tls::worker_name(&name)];
        let (cert_pem, key_pem) = self.issue(&names, ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(Identity { name, ca_pem: self.issuer.pem(), cert_pem, key_pem })
    }

    /// Certificate and key of the coordinator, PEM.
    pub(super) fn issue_coordinator(&self) -> Result<(String, String)> {
        let names = [tls::COORDINATOR_ROLE.to_owned()];
        self.issue(&names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// The authority's certificate, PEM.
    pub(super) fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    fn issue(&self, names: &[String], usage: ExtendedKeyUsagePurpose) -> Result<(String, String)> {
        let mut params = params(names, "cluster member")?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().map_err(pki_error)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(pki_error)?;
        Ok((cert.pem(), key.serialize_pem()))
    }
}

fn params(names: &[String], common_name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names).map_err(pki_error)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    // The authority lives as long as its coordinator, which bounds every certificate. A narrow
    // window would only lock out machines whose clock battery is empty.
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    Ok(params)
}
