//! A cluster's certificate authority, kept in the data folder, and the certificates it issues.

mod ca_hash;
mod identity;
mod revoked;
mod server;
mod store;

pub use ca_hash::CaHash;
pub use identity::Identity;
pub use revoked::Revocation;
pub use server::ServerIdentity;
pub(crate) use store::{make_with, read_authority};

use crate::clock::now_s;
#[cfg(any(test, feature = "planted"))]
use crate::control::authority::Authority;
use crate::control::authority::{InMemory, Lead};
use crate::control::persisted::Persisted;
use crate::error::{Error, Result};
use crate::net::identity::certificate::{Member, SKEW, member_san};
use crate::net::identity::role::{COORDINATOR_SAN, Role};
use crate::worker_info::WorkerId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use revoked::Revoked;
use ring::hmac;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest life of a certificate: beyond the authority's own life, a certificate would be useless
/// and its dates not representable.
const LIFE_MAX: Duration = Duration::from_secs(3600 * 24 * 3650);
/// How long a member's certificate is valid unless [`Pki::with_certificate_life`] says otherwise.
const LIFE: Duration = Duration::from_secs(24 * 3600);
/// How long ago a member's certificate may have expired unless [`Pki::with_absence_max`] says otherwise.
const ABSENCE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// A cluster's certificate authority. Its key never leaves this process and its data folder.
/// Clones share it.
#[derive(Clone)]
pub struct Pki {
    authority: Arc<Signer>,
    life: Duration,
    absence_max: Duration,
}

/// The authority's key and what is kept with it.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    ca: CertificateDer<'static>,
    ca_pem: String,
    hash: CaHash,
    lead: Arc<Lead>,
    revoked: Persisted<Revoked>,
    /// When the newest certificate of this process was made, in seconds since 1970: later than now
    /// where the clock was set back.
    newest_s: AtomicU64,
}

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key must not reach a log.
        f.debug_struct("Pki").field("hash", &self.authority.hash).finish_non_exhaustive()
    }
}

fn pki_error(error: impl fmt::Display) -> Error {
    Error::Pki { message: error.to_string() }
}

impl Pki {
    /// Makes a new authority that lives in memory only.
    ///
    /// # Errors
    /// [`Error::Pki`] when the system gives no random numbers.
    pub fn generate() -> Result<Self> {
        let mut params = params(&[], "cluster authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // The authority and its coordinator do not expire: a narrow window would only lock out
        // machines whose clock battery is empty.
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2120, 1, 1);
        let key = KeyPair::generate().map_err(pki_error)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(pki_error)?;
        let key_pem = issuer.key().serialize_pem();
        let lead = Arc::new(Lead::new(Box::new(InMemory::default())));
        let revoked = Persisted::open(&lead, store::REVOKED, "", Revoked::default())?;
        Self::from_parts(issuer.der().clone(), issuer.pem(), &key_pem, (lead, revoked))
    }

    /// The same certificate and key, with state that `authority` keeps.
    #[cfg(any(test, feature = "planted"))]
    pub(crate) fn with_authority(&self, authority: Box<dyn Authority>) -> Result<Self> {
        let lead = Arc::new(Lead::new(authority));
        let revoked = Persisted::open(&lead, store::REVOKED, "", Revoked::default())?;
        let Signer { ca, ca_pem, issuer, .. } = &*self.authority;
        Self::from_parts(ca.clone(), ca_pem.clone(), &issuer.key().serialize_pem(), (lead, revoked))
    }

    fn from_parts(
        ca: CertificateDer<'static>,
        ca_pem: String,
        key_pem: &str,
        (lead, revoked): (Arc<Lead>, Persisted<Revoked>),
    ) -> Result<Self> {
        let key = KeyPair::from_pem(key_pem).map_err(pki_error)?;
        let issuer = Issuer::from_ca_cert_der(&ca, key).map_err(pki_error)?;
        let hash = CaHash::of(&ca);
        let newest_s = AtomicU64::new(0);
        let authority = Arc::new(Signer { issuer, ca, ca_pem, hash, lead, revoked, newest_s });
        Ok(Self { authority, life: LIFE, absence_max: ABSENCE_MAX })
    }

    /// The same authority, whose certificates for members are valid for `life` from now on. The
    /// default is a day. Workers renew theirs by themselves when two thirds of the life have
    /// passed. A [`Client`](crate::Client) does not: its owner calls
    /// [`Client::renew`](crate::Client::renew) in time, or [`renew`](crate::renew) later.
    #[must_use]
    pub fn with_certificate_life(self, life: Duration) -> Self {
        Self { life, ..self }
    }

    /// The same authority, whose members may be away for `absence_max` after their certificates
    /// have expired. Within that time, a member that was not revoked renews by proof of its key;
    /// later, it joins anew with a token. The default is 30 days; with zero, no expired certificate
    /// can be renewed. An expired certificate is good for nothing but renewal.
    #[must_use]
    pub fn with_absence_max(self, absence_max: Duration) -> Self {
        Self { absence_max: absence_max.min(LIFE_MAX), ..self }
    }

    /// The value that is stored beside the authority as `name`, or `absent` where there is none.
    /// `remedy` says what to do about one that does not parse. A name has one owner in a process.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the value does not parse, [`Error::File`] where it cannot be read.
    pub fn persisted<T: Clone + Serialize + DeserializeOwned + Send + 'static>(
        &self,
        name: &'static str,
        remedy: &str,
        absent: T,
    ) -> Result<Persisted<T>> {
        Persisted::open(self.lead(), name, remedy, absent)
    }

    /// The cluster's lead, and the state that its coordinators share.
    pub(crate) fn lead(&self) -> &Arc<Lead> {
        &self.authority.lead
    }

    pub(crate) fn absence_max(&self) -> Duration {
        self.absence_max
    }

    /// The hash by which joiners recognise the cluster.
    #[must_use]
    pub fn hash(&self) -> CaHash {
        self.authority.hash
    }

    /// Issues an identity with the role of a worker.
    ///
    /// # Errors
    /// [`Error::Parse`] when `name` is not a worker's name; [`Error::Pki`].
    pub fn issue_worker(&self, name: &str) -> Result<Identity> {
        self.issue(Role::Worker, name)
    }

    /// Issues an identity, key included, valid from now.
    ///
    /// # Errors
    /// [`Error::Parse`] when `name` is not a member's name; [`Error::Pki`].
    pub fn issue(&self, role: Role, name: &str) -> Result<Identity> {
        self.issue_at(role, name, SystemTime::now())
    }

    /// Issues an identity that is valid from `now`.
    pub(crate) fn issue_at(&self, role: Role, name: &str, now: SystemTime) -> Result<Identity> {
        let name: WorkerId = name.parse()?;
        let key = KeyPair::generate().map_err(pki_error)?;
        let params = self.member(role, &name, now)?;
        let cert = params.signed_by(&key, &self.authority.issuer).map_err(pki_error)?;
        let ca_pem = self.authority.ca_pem.clone();
        Ok(Identity { name, ca_pem, cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }

    /// Signs the key of a request, and nothing else of it: name, role and times come from the
    /// caller. May wait for the disk.
    pub(crate) fn sign(
        &self,
        role: Role,
        name: &WorkerId,
        csr: &[u8],
        now: SystemTime,
    ) -> Result<String> {
        let csr = CertificateSigningRequestDer::from(csr);
        let mut request = CertificateSigningRequestParams::from_der(&csr).map_err(pki_error)?;
        request.params = self.member(role, name, now)?;
        Ok(request.signed_by(&self.authority.issuer).map_err(pki_error)?.pem())
    }

    fn member(&self, role: Role, name: &WorkerId, now: SystemTime) -> Result<CertificateParams> {
        let names = [role.san().to_owned(), member_san(role, name)];
        let mut params = params(&names, "cluster member")?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let since = now.duration_since(UNIX_EPOCH).map_err(pki_error)?;
        let (epoch, life) = (date_time_ymd(1970, 1, 1), self.life.min(LIFE_MAX));
        params.not_before = epoch + since.saturating_sub(SKEW);
        params.not_after = epoch + (since + life);
        self.remember_life(life.as_secs().saturating_add(1))?;
        self.authority.newest_s.fetch_max(since.as_secs(), Ordering::SeqCst);
        Ok(params)
    }

    /// Notes the life of certificates that followers will issue: a follower cannot write it down.
    pub(crate) fn foresee_life(&self) -> Result<()> {
        self.remember_life(self.life.min(LIFE_MAX).as_secs().saturating_add(1))
    }

    /// Notes the life of a certificate that is about to be made, if none lived longer.
    fn remember_life(&self, life_s: u64) -> Result<()> {
        let revoked = &self.authority.revoked;
        let known = revoked.read().longest_life_s;
        if life_s <= known {
            return Ok(());
        }
        let noted = revoked.change(|revoked| {
            revoked.longest_life_s = life_s.max(revoked.longest_life_s);
            Ok(())
        });
        match noted {
            Err(Error::Led { .. }) => {
                // The leader notes it when it takes the lead, perhaps a moment ago.
                self.authority.lead.reread()?;
                let is_noted = revoked.read().longest_life_s >= life_s;
                if is_noted { Ok(()) } else { noted? }
            }
            noted => noted?,
        }
    }

    /// Revokes the certificates that a member has, and then writes that down: if the second result
    /// is `Ok`, no restart forgets the revocation. Waits for the disk.
    pub(crate) fn revoke(&self, role: Role, name: WorkerId) -> Result<(Revocation, Result<()>)> {
        let newest_s = self.authority.newest_s.load(Ordering::SeqCst);
        let absence_s = self.absence_max.as_secs();
        let times = (now_s(), newest_s);
        self.authority.revoked.insist(|revoked| revoked.add(role, name, times, absence_s))
    }

    /// Whether a certificate that a member gets at `now` would count as revoked: the member's last
    /// revocation is of the same second, or the clock was set back since.
    pub(crate) fn is_too_early(&self, role: Role, name: &WorkerId, now: SystemTime) -> bool {
        let issued_s = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.is_revoked(&Member { role, name: name.clone(), issued_s, until_s: u64::MAX })
    }

    /// Whether a member's certificate expired too long ago to be renewed.
    pub(crate) fn is_lapsed(&self, member: &Member, now_s: u64) -> bool {
        let away_s = now_s.saturating_sub(member.until_s);
        let is_forgotten = || self.authority.revoked.read().has_forgotten(member);
        away_s > self.absence_max.as_secs() || now_s >= member.until_s && is_forgotten()
    }

    /// Whether a member's certificate was revoked.
    pub(crate) fn is_revoked(&self, member: &Member) -> bool {
        self.authority.revoked.read().has(member)
    }

    /// Every member whose certificates were revoked, in the order in which they were.
    #[must_use]
    pub fn revoked(&self) -> Vec<Revocation> {
        self.authority.revoked.read().members.clone()
    }

    /// A secret that only coordinators of this authority have; restarts do not change it.
    pub(crate) fn secret(&self, label: &str) -> hmac::Key {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.authority.issuer.key().serialized_der());
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, label.as_bytes()).as_ref())
    }

    /// Certificates (its own and the authority's) and key of the coordinator, PEM.
    pub(crate) fn issue_coordinator(&self) -> Result<(String, String)> {
        let mut params = params(&[COORDINATOR_SAN.to_owned()], "cluster coordinator")?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2120, 1, 1);
        let key = KeyPair::generate().map_err(pki_error)?;
        let cert = params.signed_by(&key, &self.authority.issuer).map_err(pki_error)?;
        Ok((cert.pem(), key.serialize_pem()))
    }

    /// The authority's certificate, PEM: what others need to know to trust it.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.authority.ca_pem
    }
}

fn params(names: &[String], common_name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names).map_err(pki_error)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

/// A new key, and the request to certify it (DER). Only the key in the request counts.
pub fn request() -> Result<(KeyPair, Vec<u8>)> {
    let key = KeyPair::generate().map_err(pki_error)?;
    let request = params(&[], "cluster member")?.serialize_request(&key).map_err(pki_error)?;
    Ok((key, request.der().to_vec()))
}
