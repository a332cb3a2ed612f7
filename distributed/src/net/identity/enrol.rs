//! Joining: a machine gives a token's secret and a certificate request, for a certificate.
//!
//! The joiner is unknown, so everything is bounded: sizes, time, how many at once, how many in a
//! second, and how many from one address.

mod limits;
mod refusal;
mod request;

pub(crate) use limits::{JOINING, Limits, RENEWING};
pub use refusal::JoinRefusal;
pub(crate) use request::patiently;
pub use request::{enrol, join};

use crate::clock::now_s;
use crate::error::{Error, Result};
use crate::net::coordinator::gate::Gate;
use crate::net::identity::certificate::SKEW;
use crate::net::identity::role::Role;
use crate::net::transport::close::Close;
use crate::net::transport::rpc::{self, Certification, Certified, Enrol};
use crate::worker_info::{WorkerId, WorkerState};
use quinn::Connection;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time from the handshake to the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the answer to arrive.
const DELIVERY: Duration = Duration::from_secs(2);

impl JoinRefusal {
    /// Why a certificate is not made. A failure to write something down is no fault of the request:
    /// a coordinator that does not lead cannot write.
    pub(crate) fn unsigned(error: &Error) -> Self {
        match error {
            Error::File { .. } | Error::Led { .. } | Error::Deposed { .. } => Self::Unavailable,
            _ => Self::Malformed,
        }
    }
}

/// Serves one joiner.
pub(crate) async fn serve(gate: Arc<Gate>, connection: Connection) {
    within(&gate.limits, &connection, exchange(&gate, &connection)).await;
}

/// Serves a request for a certificate, within bounds of number and time.
pub(crate) async fn within(
    limits: &Arc<Limits>,
    connection: &Connection,
    exchange: impl Future<Output = Result<()>>,
) {
    let addr = connection.remote_address();
    let Some(_place) = limits.admit(addr.ip()) else {
        return connection.close(Close::Busy.code(), Close::Busy.reason().as_bytes());
    };
    let close = match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(Ok(())) => {
            // The machine closes the connection once it has the answer.
            let _ = tokio::time::timeout(DELIVERY, connection.closed()).await;
            Close::Farewell
        }
        Ok(Err(error)) => {
            tracing::warn!(%addr, %error, "no proper request for a certificate");
            Close::Malformed
        }
        Err(_) => Close::Late,
    };
    connection.close(close.code(), close.reason().as_bytes());
}

async fn exchange(gate: &Arc<Gate>, connection: &Connection) -> Result<()> {
    let addr = connection.remote_address();
    let (request, mut send): (Enrol, _) = rpc::accept(connection).await?;
    let (name, role): (String, _) = (request.name.chars().take(64).collect(), request.role);
    let deciding = Arc::clone(gate);
    // Deciding waits for the disk.
    let decided = tokio::task::spawn_blocking(move || decide(&deciding, &request));
    let answer: Certification = decided.await.map_err(crate::net::transport::wire::lost)?;
    match &answer {
        Ok(_) => tracing::info!(%addr, name, %role, "a machine joined the cluster"),
        Err(refusal) => tracing::warn!(%addr, name, %refusal, "a machine was not let in"),
    }
    rpc::respond(&mut send, &answer).await
}

/// Checks everything before it takes a use of the token, and takes it before the final signature.
fn decide(gate: &Gate, request: &Enrol) -> Certification {
    let tokens = gate.services.tokens.as_ref().ok_or(JoinRefusal::Unavailable)?;
    // Checked first, so that a joiner without a token learns nothing else.
    tokens.check(&request.secret, request.role)?;
    let (apart_s, limit_s) = (now_s().abs_diff(request.now_s), SKEW.as_secs());
    if apart_s > limit_s {
        return Err(JoinRefusal::Clock { apart_s, limit_s });
    }
    let given = || request.name.chars().take(64).collect();
    let name: WorkerId =
        request.name.parse().map_err(|_| JoinRefusal::NameInvalid { name: given() })?;
    let sign = |now| gate.pki.sign(request.role, &name, &request.csr, now);
    let now = SystemTime::now();
    // A member that was just revoked must wait: a certificate made now would count as revoked, and
    // must not cost a use of its token.
    if gate.pki.is_too_early(request.role, &name, now) {
        return Err(JoinRefusal::Busy);
    }
    // A machine that cannot be certified must not cost a use. This certificate is discarded.
    sign(now).map_err(|error| JoinRefusal::unsigned(&error))?;
    let taken = || JoinRefusal::NameTaken { name: given() };
    let own = gate.services.reserved_prefix.as_deref();
    let is_own = || own.is_some_and(|prefix| name.as_str().starts_with(prefix));
    let reservation = match request.role {
        Role::Worker if is_own() || is_live(gate, &name) => return Err(taken()),
        Role::Worker => Some(gate.limits.reserve(&name).ok_or_else(taken)?),
        // Workers get tasks by name; other members may connect from several places at once.
        Role::Client | Role::Admin => None,
    };
    tokens.consume(&request.secret, request.role)?;
    let cert_pem = sign(now).map_err(|error| JoinRefusal::unsigned(&error))?;
    if let Some(reservation) = reservation {
        reservation.keep();
    }
    Ok(Certified { cert_pem, ca_pem: gate.pki.ca_pem().to_owned() })
}

fn is_live(gate: &Gate, name: &WorkerId) -> bool {
    let workers = gate.shared.read(crate::proto::core::Core::workers);
    workers.iter().any(|w| w.id == *name && w.state != WorkerState::Lost)
}
