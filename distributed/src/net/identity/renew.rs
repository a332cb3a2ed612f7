//! Renewal: a new certificate for a new key, by proof of the old one's key. A connected member asks
//! over its connection; one whose certificate expired while it was away has its own protocol.

mod identity;
mod request;

pub(crate) use identity::{RenewingIdentity, is_final};
pub use request::renew;
pub(crate) use request::renewed;

use crate::clock::now_s;
use crate::error::Result;
use crate::net::coordinator::gate::Gate;
use crate::net::identity::certificate::Member;
use crate::net::identity::enrol::{self, JoinRefusal};
use crate::net::identity::members::Connected;
use crate::net::transport::rpc::{self, Certification, Certified, Renewal};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::SystemTime;

/// Serves a member whose certificate may have expired, and that may only ask for a new one.
pub(crate) async fn serve(gate: Arc<Gate>, visit: &Connected) {
    enrol::within(&gate.renewals, visit.connection(), exchange(&gate, visit)).await;
}

async fn exchange(gate: &Gate, visit: &Connected) -> Result<()> {
    let (Renewal { csr }, mut send) = rpc::accept(visit.connection()).await?;
    let answer = match gate.pki.is_lapsed(visit.member(), now_s()) {
        true => Err(JoinRefusal::CertificateLapsed),
        false => certify(gate, visit, csr).await,
    };
    rpc::respond(&mut send, &answer).await
}

/// Certifies a new key of a connected member, as long as its certificate in force is valid. Name and
/// role stay what they are.
pub(crate) async fn certify(gate: &Gate, visit: &Connected, csr: Vec<u8>) -> Certification {
    let certified = sign(gate, visit, csr).await;
    let (Member { role, name, .. }, addr) = (visit.member(), visit.connection().remote_address());
    match &certified {
        Ok(_) => tracing::info!(%role, %name, %addr, "certificate renewed"),
        Err(refusal) => tracing::warn!(%role, %name, %addr, %refusal, "not renewed"),
    }
    certified
}

async fn sign(gate: &Gate, visit: &Connected, csr: Vec<u8>) -> Certification {
    let member = visit.member();
    if gate.pki.is_revoked(member) {
        return Err(JoinRefusal::CertificateRevoked);
    }
    if visit.is_expired() {
        return Err(JoinRefusal::CertificateExpired);
    }
    let (pki, role, name) = (gate.pki.clone(), member.role, member.name.clone());
    // Signing may wait for the disk.
    let signing =
        tokio::task::spawn_blocking(move || pki.sign(role, &name, &csr, SystemTime::now()));
    let signed = signing.await.map_err(|_| JoinRefusal::Unavailable)?;
    let cert_pem = signed.map_err(|error| {
        tracing::warn!(%error, "no certificate is renewed");
        JoinRefusal::unsigned(&error)
    })?;
    let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes()).ok();
    if let Some(Member { until_s, .. }) = cert.as_ref().and_then(Member::of) {
        visit.extend(until_s);
    }
    Ok(Certified { cert_pem, ca_pem: gate.pki.ca_pem().to_owned() })
}
