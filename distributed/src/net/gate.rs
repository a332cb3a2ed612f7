//! Where connections come in: which protocol each speaks, and whether its certificate allows it.

use crate::net::call::{self, Callers, Supervisor};
use crate::net::close::Close;
use crate::net::coordinator::Coordinator;
use crate::net::enrol::{self, Limits};
use crate::net::lane::Door;
use crate::net::pki::Pki;
use crate::net::present::{Present, Visit};
use crate::net::ring::meet::{self, Meetings};
use crate::net::role::Protocol;
use crate::net::shared::Shared;
use crate::net::tls::Member;
use crate::net::token::Tokens;
use crate::net::{attend, blob, session, tls, transport};
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, Endpoint, Incoming};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Time for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes at once, and of those, how many before addresses are made to prove themselves:
/// packets with made-up senders must not take the places of others.
const HANDSHAKES_MAX: usize = 512;
const HANDSHAKES_TRUSTING: usize = 64;

/// What a coordinator offers besides running tasks.
#[derive(Clone, Default)]
pub struct Services {
    /// The tokens that let machines join; without, none can.
    pub tokens: Option<Tokens>,
    /// The model files that workers may fetch; without, there are none.
    pub models: Option<Arc<dyn blob::BlobSource>>,
    /// Worker names that begin like this are the coordinator's own, and no machine may join as one.
    pub reserved_prefix: Option<String>,
    /// Who starts and ends local workers when an administrator asks for it; without, nobody does.
    pub supervisor: Option<Arc<dyn Supervisor>>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services")
            .field("tokens", &self.tokens.is_some())
            .field("models", &self.models.is_some())
            .field("reserved_prefix", &self.reserved_prefix)
            .field("supervisor", &self.supervisor.is_some())
            .finish()
    }
}

/// A connection that may speak what it wants to.
struct Admitted {
    protocol: Protocol,
    connection: Connection,
    member: Option<Member>,
    _visit: Option<Visit>,
}

/// What all connections share.
pub(super) struct Gate {
    pub(super) coordinator: Coordinator,
    pub(super) shared: Arc<Shared>,
    pub(super) services: Services,
    pub(super) pki: Pki,
    pub(super) limits: Arc<Limits>,
    pub(super) callers: Callers,
    present: Arc<Present>,
    meetings: Arc<Meetings>,
    epoch: u64,
    heartbeat: Duration,
    door: Option<Arc<Door>>,
}

impl Gate {
    pub(super) fn new(
        coordinator: Coordinator,
        services: Services,
        (epoch, heartbeat): (u64, Duration),
        door: Option<Arc<Door>>,
    ) -> Arc<Self> {
        let (shared, present) = (coordinator.shared(), coordinator.present());
        Arc::new(Self {
            shared: Arc::clone(shared),
            present: Arc::clone(present),
            pki: coordinator.pki().clone(),
            limits: Arc::clone(coordinator.limits()),
            coordinator,
            services,
            callers: Callers::default(),
            meetings: Arc::default(),
            epoch,
            heartbeat,
            door,
        })
    }

    /// Serves every connection until the endpoint closes.
    pub(super) async fn accept(self: Arc<Self>, endpoint: Endpoint) {
        let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        while let Some(incoming) = endpoint.accept().await {
            let busy = HANDSHAKES_MAX.saturating_sub(places.available_permits());
            if busy >= HANDSHAKES_TRUSTING && incoming.may_retry() {
                // It may, so this cannot fail.
                let _ = incoming.retry();
                continue;
            }
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                incoming.refuse();
                continue;
            };
            let gate = Arc::clone(&self);
            tokio::spawn(async move {
                let admitted = gate.admit(incoming).await;
                drop(place);
                if let Some(admitted) = admitted {
                    gate.serve(admitted).await;
                }
            });
        }
    }

    /// Finishes the handshake, and refuses who may not speak what it wants to.
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
        let member = tls::shown_by(&connection).first().and_then(Member::of);
        let allowed = |protocol: &Protocol| match protocol.required_role() {
            Some(role) => member.as_ref().is_some_and(|member| member.role.may(role)),
            None => true,
        };
        // Before it is looked whether it was revoked, so that no revocation comes between.
        let enter = |member| self.present.enter(member, connection.clone());
        let visit = member.clone().map(enter);
        let close = match protocol.filter(allowed) {
            None => Close::Role,
            Some(_) if member.as_ref().is_some_and(|m| self.pki.is_revoked(m)) => Close::Revoked,
            Some(protocol) => {
                return Some(Admitted { protocol, connection, member, _visit: visit });
            }
        };
        tracing::warn!(%addr, ?protocol, ?member, reason = close.reason(), "refused");
        connection.close(close.code(), close.reason().as_bytes());
        None
    }

    async fn serve(self: Arc<Self>, admitted: Admitted) {
        let Admitted { protocol, connection, member, _visit } = admitted;
        match protocol {
            Protocol::Work => {
                transport::trust(&connection);
                // Ends with the connection.
                tokio::spawn(attend::serve(Arc::clone(&self), connection.clone()));
                let shared = Arc::clone(&self.shared);
                let door = self.door.clone();
                session::serve(shared, connection, self.epoch, self.heartbeat, door).await;
            }
            Protocol::Join => enrol::serve(self, connection).await,
            Protocol::Ring => meet::serve(Arc::clone(&self.meetings), connection).await,
            Protocol::Call => {
                // It was let in by its certificate.
                let Some(member) = member else { return };
                call::serve(self, connection, member).await;
            }
        }
    }
}
