//! The reasons for which a machine is not certified.

use crate::net::identity::role::Role;
use serde::{Deserialize, Serialize};

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
