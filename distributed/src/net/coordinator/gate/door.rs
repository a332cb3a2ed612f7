//! Lets connections in, and hands each to its protocol.

use super::Gate;
use crate::net::call;
use crate::net::coordinator::requests;
use crate::net::coordinator::session;
use crate::net::identity::certificate::{Member, shown_by};
use crate::net::identity::enrol;
use crate::net::identity::members::Connected;
use crate::net::identity::renew;
use crate::net::identity::role::Protocol;
use crate::net::outside;
use crate::net::ring::meet;
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, Endpoint, Incoming};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Time for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes at once, and from how many on addresses must be validated: packets with made-up
/// senders must not take the places of others.
const HANDSHAKES_MAX: usize = 512;
const HANDSHAKES_TRUSTING: usize = 64;

/// A connection whose certificate allows its protocol.
struct Admitted {
    protocol: Protocol,
    connection: Connection,
    /// The member, if it has shown a certificate.
    visit: Option<Arc<Connected>>,
}

impl Gate {
    /// Serves every connection until the endpoint closes, and ends those whose certificate expires.
    pub(crate) async fn run(self: Arc<Self>, endpoint: Endpoint) {
        let present = Arc::clone(&self.present);
        tokio::select! {
            () = self.accept(endpoint) => {}
            () = present.send_expired_away() => {}
        }
    }

    async fn accept(self: Arc<Self>, endpoint: Endpoint) {
        let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        while let Some(incoming) = endpoint.accept().await {
            let busy = HANDSHAKES_MAX.saturating_sub(places.available_permits());
            if busy >= HANDSHAKES_TRUSTING && incoming.may_retry() {
                // `may_retry` says so, so this cannot fail.
                let _ = incoming.retry();
                continue;
            }
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                incoming.refuse();
                continue;
            };
            let gate = Arc::clone(&self);
            tokio::spawn(outside::here(async move {
                let admitted = gate.admit(incoming).await;
                drop(place);
                if let Some(admitted) = admitted {
                    gate.serve(admitted).await;
                }
            }));
        }
    }

    /// Finishes the handshake, and refuses a peer that may not speak its protocol.
    async fn admit(&self, incoming: Incoming) -> Option<Admitted> {
        let addr = incoming.remote_address();
        let connection = match tokio::time::timeout(HANDSHAKE_TIMEOUT, incoming).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                tracing::warn!(%addr, %error, "handshake failed");
                return None;
            }
            Err(_) => {
                tracing::warn!(%addr, "handshake took too long");
                return None;
            }
        };
        let agreed = connection.handshake_data().and_then(|data| data.downcast().ok());
        let alpn = agreed.and_then(|data: Box<HandshakeData>| data.protocol);
        let protocol = alpn.and_then(|alpn| Protocol::from_alpn(&alpn));
        let member = shown_by(&connection).first().and_then(Member::of);
        // Entered before the check for revocation, so that no revocation comes between.
        let visit = member.map(|member| {
            let until_s = match protocol {
                // Its certificate has expired; the renewal has its own bounds.
                Some(Protocol::Renew) => u64::MAX,
                _ => member.until_s,
            };
            Arc::new(self.present.enter(member, connection.clone(), until_s))
        });
        let role = visit.as_ref().map(|visit| visit.member().role);
        let close = match protocol.filter(|protocol| protocol.is_open_to(role)) {
            None => Close::Role,
            Some(_) if visit.as_ref().is_some_and(|v| self.pki.is_revoked(v.member())) => {
                Close::Revoked
            }
            Some(_) if visit.as_ref().is_some_and(|visit| visit.is_expired()) => Close::Expired,
            Some(protocol) => return Some(Admitted { protocol, connection, visit }),
        };
        let member = visit.as_ref().map(|visit| visit.member());
        tracing::warn!(%addr, ?protocol, ?member, reason = close.reason(), "refused");
        connection.close(close.code(), close.reason().as_bytes());
        None
    }

    async fn serve(self: Arc<Self>, admitted: Admitted) {
        let Admitted { protocol, connection, visit } = admitted;
        match (protocol, visit) {
            (Protocol::Work, Some(visit)) => {
                endpoint::trust(&connection);
                // This task ends with the connection.
                tokio::spawn(outside::here(requests::serve(Arc::clone(&self), visit)));
                let shared = Arc::clone(&self.shared);
                let lender = self.lender.clone();
                session::serve(shared, connection, self.epoch, self.heartbeat, lender).await;
            }
            (Protocol::Join, _) => enrol::serve(self, connection).await,
            (Protocol::Ring, _visit) => {
                meet::serve(Arc::clone(&self.meetings), connection).await;
            }
            (Protocol::Call, Some(visit)) => call::serve(self, connection, visit).await,
            (Protocol::Renew, Some(visit)) => renew::serve(self, &visit).await,
            // These protocols need a certificate, so this does not happen.
            (Protocol::Work | Protocol::Call | Protocol::Renew, None) => {}
        }
    }
}
