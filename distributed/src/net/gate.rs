//! Where connections come in: which protocol each speaks, and whether its certificate allows it.

use crate::net::close::Close;
use crate::net::enrol::{self, Limits};
use crate::net::lane::Door;
use crate::net::pki::Pki;
use crate::net::ring::meet::{self, Meetings};
use crate::net::role::Protocol;
use crate::net::shared::Shared;
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
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services")
            .field("tokens", &self.tokens.is_some())
            .field("models", &self.models.is_some())
            .field("reserved_prefix", &self.reserved_prefix)
            .finish()
    }
}

/// What all connections share.
pub(super) struct Gate {
    pub(super) shared: Arc<Shared>,
    pub(super) services: Services,
    pub(super) pki: Pki,
    pub(super) limits: Arc<Limits>,
    meetings: Arc<Meetings>,
    epoch: u64,
    heartbeat: Duration,
    door: Option<Arc<Door>>,
}

impl Gate {
    pub(super) fn new(
        shared: Arc<Shared>,
        services: Services,
        pki: Pki,
        epoch: u64,
        heartbeat: Duration,
        door: Option<Arc<Door>>,
    ) -> Arc<Self> {
        let (limits, meetings) = (Limits::new(), Arc::default());
        Arc::new(Self { shared, services, pki, limits, meetings, epoch, heartbeat, door })
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
                if let Some((protocol, connection)) = admitted {
                    gate.serve(protocol, connection).await;
                }
            });
        }
    }

    /// Finishes the handshake, and refuses who may not speak what it wants to.
    async fn admit(&self, incoming: Incoming) -> Option<(Protocol, Connection)> {
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
        let shown = tls::shown_by(&connection);
        let allowed = |protocol: &Protocol| match protocol.required_role() {
            Some(role) => shown.first().is_some_and(|cert| tls::has_role(cert, role)),
            None => true,
        };
        if let Some(protocol) = protocol.filter(allowed) {
            return Some((protocol, connection));
        }
        tracing::warn!(%addr, ?protocol, "refused: its certificate does not allow it");
        connection.close(Close::Role.code(), Close::Role.reason().as_bytes());
        None
    }

    async fn serve(self: Arc<Self>, protocol: Protocol, connection: Connection) {
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
        }
    }
}
