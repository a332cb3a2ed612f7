//! Answers what workers ask besides their work: new certificates, models' files and large inputs.

use crate::error::Result;
use crate::net::ask::{self, Ask, Certification, Certified};
use crate::net::enrol::JoinRefusal;
use crate::net::gate::Gate;
use crate::net::pki::validity;
use crate::net::role::Role;
use crate::net::tls::Member;
use crate::net::{blob, large, tls, wire};
use crate::worker_info::WorkerId;
use quinn::{Connection, RecvStream, SendStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Questions that a worker may have open at once.
pub(super) const ASKS_MAX: u32 = 4;
/// Time for a question to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a worker's questions until its connection ends.
pub(super) async fn serve(gate: Arc<Gate>, connection: Connection) {
    while let Ok((send, recv)) = connection.accept_bi().await {
        let (gate, connection) = (Arc::clone(&gate), connection.clone());
        tokio::spawn(async move {
            if let Err(error) = answer(&gate, &connection, send, recv).await {
                let addr = connection.remote_address();
                tracing::warn!(%addr, %error, "a question was not answered");
            }
        });
    }
}

async fn answer(
    gate: &Gate,
    connection: &Connection,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<()> {
    let question = tokio::time::timeout(TIMEOUT, ask::read(&mut recv)).await;
    match question.map_err(|_| wire::lost("a question took too long"))?? {
        Ask::Renew { name, csr } => {
            let answer = renew(gate, connection, Role::Worker, &name, csr).await;
            match &answer {
                Ok(_) => tracing::info!(worker = %name, "certificate renewed"),
                Err(refusal) => tracing::warn!(worker = %name, %refusal, "not renewed"),
            }
            wire::taken(ask::write(&mut send, &answer)).await?;
            send.finish().map_err(wire::lost)
        }
        Ask::Blob { sha256, offset } => {
            blob::send(gate.services.models.clone(), sha256, offset, send).await
        }
        Ask::Inputs { sha256, offset } => {
            large::send(&gate.shared.offers, sha256, offset, send).await
        }
    }
}

/// Certifies a new key of the member at the other end, as long as its present certificate is valid:
/// a connection may outlive it.
pub(super) async fn renew(
    gate: &Gate,
    connection: &Connection,
    role: Role,
    name: &WorkerId,
    csr: Vec<u8>,
) -> Certification {
    let now = SystemTime::now();
    let shown = tls::shown_by(connection);
    let member = shown.first().and_then(|cert| Some((cert, Member::of(cert)?)));
    let member = member.filter(|(_, member)| (member.role, &member.name) == (role, name));
    let (cert, member) = member.ok_or_else(|| JoinRefusal::NameTaken { name: name.to_string() })?;
    if gate.pki.is_revoked(&member) {
        return Err(JoinRefusal::CertificateRevoked);
    }
    if validity(cert).map_or(true, |(_, until)| now >= until) {
        return Err(JoinRefusal::CertificateExpired);
    }
    let (pki, name) = (gate.pki.clone(), name.clone());
    // It may wait for the disk.
    let signing = tokio::task::spawn_blocking(move || pki.sign(role, &name, &csr, now));
    let signed = signing.await.map_err(|_| JoinRefusal::Unavailable)?;
    let cert_pem = signed.map_err(|_| JoinRefusal::Malformed)?;
    Ok(Certified { cert_pem, ca_pem: gate.pki.ca_pem().to_owned() })
}
