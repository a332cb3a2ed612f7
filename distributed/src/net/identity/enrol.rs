//! Joining: a machine gives a token's secret and a certificate request, for a certificate.
//!
//! The joiner is unknown, so everything is bounded: sizes, time, how many at once, how many in a
//! second, and how many from one address.

mod limits;
mod request;

pub(crate) use limits::{JOINING, Limits, RENEWING};
pub(crate) use request::patiently;
pub use request::{enrol, join};

use crate::error::{Error, Result};
use crate::net::coordinator::gate::Gate;
use crate::net::identity::pki;
use crate::net::identity::role::Role;
use crate::net::identity::token;
use crate::net::transport::close::Close;
use crate::net::transport::rpc::{self, Certification, Certified, Enrol};
use crate::worker_info::{WorkerId, WorkerState};
use quinn::Connection;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time from the handshake to the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the answer to arrive.
const DELIVERY: Duration = Duration::from_secs(2);

/// Why a coordinator does not certify a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum JoinRefusal {
    /// The token was never given out, or was taken back.
    #[error("the join token is not known: it was never given out here, or was revoked")]
    TokenUnknown,
    /// The time of the token is over.
    #[error("the join token has expired")]
    TokenExpired,
    /// The token's uses are used up.
    #[error("the join token is used up")]
    TokenUsedUp,
    /// The token is for another role.
    #[error("the join token makes a member of role {makes}, not {wanted}")]
    TokenRole {
        /// The role that the token makes.
        makes: Role,
        /// The role that was asked for.
        wanted: Role,
    },
    /// A live worker has the name, or it is one that the coordinator keeps for itself.
    #[error("the worker name {name:?} is taken")]
    NameTaken {
        /// The name asked for.
        name: String,
    },
    /// The name is not valid.
    #[error(
        "{name:?} is no worker name, expected 1 to 63 lowercase letters, digits and inner hyphens"
    )]
    NameInvalid {
        /// The beginning of the name asked for.
        name: String,
    },
    /// The clocks are too far apart for certificates to mean anything.
    #[error(
        "the clocks are {apart_s} s apart, at most {limit_s} s are accepted: set this machine's or \
         the coordinator's"
    )]
    Clock {
        /// Seconds between the joiner's clock and the coordinator's.
        apart_s: u64,
        /// Seconds that are accepted.
        limit_s: u64,
    },
    /// The certificate has expired, but can still be [renewed](crate::renew), which workers do by
    /// themselves.
    #[error("the certificate has expired and is to be renewed")]
    CertificateExpired,
    /// The certificate that was to be renewed is revoked.
    #[error("the certificate was revoked: join anew with a token")]
    CertificateRevoked,
    /// The certificate request does not parse, or its signature is wrong.
    #[error("the certificate request is malformed")]
    Malformed,
    /// Others are joining, or this member was revoked within the same second.
    #[error("too many machines join at once: try again in a moment")]
    Busy,
    /// The coordinator takes no joiners, or cannot for now; its log has the reason.
    #[error("the coordinator lets no machines join for now")]
    Unavailable,
    /// The certificate expired longer ago than members may be away.
    #[error("the certificate expired too long ago to be renewed: join anew with a token")]
    CertificateLapsed,
    /// By this machine's clock the certificate has not expired. By the coordinator's it is not
    /// valid yet, or expired longer ago than members may be away.
    #[error(
        "the certificate is not valid by the coordinator's clock, though by this machine's it has \
         not expired: set the clock that is wrong"
    )]
    ClocksDiffer,
}

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
    let (apart_s, limit_s) = (token::now_s().abs_diff(request.now_s), pki::SKEW.as_secs());
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
