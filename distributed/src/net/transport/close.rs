//! Why a connection is closed: codes that both ends understand.

mod refusal;

pub(crate) use refusal::final_error;

use quinn::{ConnectionError, VarInt};

/// Code of a stream whose answer was taken, with the tensors that it names by their digest.
pub(crate) const TAKEN: VarInt = VarInt::from_u32(2);
/// Code of a stream whose answer is not wanted any more.
pub(crate) const CANCELLED: VarInt = VarInt::from_u32(1);

/// Reasons for closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// The coordinator stops.
    Stopping,
    /// The worker has finished its tasks and leaves.
    Farewell,
    /// The same worker connected anew.
    Superseded,
    /// No protocol version in common.
    Version,
    /// The certificate is not that of the worker it claims to be.
    Identity,
    /// A frame that this protocol does not have.
    Malformed,
    /// No hello, or no welcome, in time.
    Late,
    /// The worker was silent for too long.
    Abandoned,
    /// The worker's reports ended, so its state is unknown.
    Silent,
    /// The certificate does not allow what the peer wants to speak.
    Role,
    /// Too many peers want the same at once.
    Busy,
    /// The ring of a collective has failed; the reason says where and how.
    RingBroken,
    /// An administrator has revoked the certificate.
    Revoked,
    /// A run at the worker does not stop: its process has to end, and another takes its place.
    Replaced,
    /// The certificate in force has expired. Its holder renews it and comes back.
    Expired,
}

impl Close {
    const TABLE: [(u32, Self, &'static str); 15] = [
        (1, Self::Stopping, "the coordinator stops"),
        (2, Self::Farewell, "the worker leaves"),
        (3, Self::Superseded, "another worker connected under the same name"),
        (4, Self::Version, "no protocol version in common"),
        (5, Self::Identity, "the certificate does not state the worker's name"),
        (6, Self::Malformed, "malformed frame"),
        (7, Self::Late, "the greeting took too long"),
        (8, Self::Abandoned, "no heartbeat came in time"),
        (9, Self::Silent, "the reports ended"),
        (10, Self::Role, "the certificate does not state the role that this needs"),
        (11, Self::Busy, "too many come at once"),
        (12, Self::RingBroken, "the ring is broken"),
        (13, Self::Revoked, "the certificate was revoked"),
        (14, Self::Replaced, "a run at the worker does not stop: its process is to be replaced"),
        (15, Self::Expired, "the certificate has expired"),
    ];

    /// The code on the wire.
    pub(crate) fn code(self) -> VarInt {
        // Each variant is in the table.
        let code = Self::TABLE.iter().find(|(_, c, _)| *c == self).map_or(0, |(code, ..)| *code);
        VarInt::from_u32(code)
    }

    /// What it means, for people.
    pub(crate) fn reason(self) -> &'static str {
        Self::TABLE.iter().find(|(_, c, _)| *c == self).map_or("", |(_, _, reason)| reason)
    }

    /// The reason that the peer gave, if it closed the connection itself.
    pub(crate) fn given_by_peer(error: &ConnectionError) -> Option<Self> {
        let ConnectionError::ApplicationClosed(close) = error else { return None };
        let code = close.error_code.into_inner();
        Self::TABLE.iter().find(|(c, ..)| u64::from(*c) == code).map(|(_, close, _)| *close)
    }

    /// Whether a worker that gets this reason must not come back.
    pub(crate) fn is_final(self) -> bool {
        matches!(
            self,
            Self::Superseded
                | Self::Version
                | Self::Identity
                | Self::Malformed
                | Self::Role
                | Self::Revoked
        )
    }
}

/// Whether the TLS handshake failed: trust does not come by trying again.
pub(crate) fn is_untrusted(error: &ConnectionError) -> bool {
    alert(error).is_some()
}

/// The TLS alert that ended a connection, given or received.
fn alert(error: &ConnectionError) -> Option<u64> {
    let code: u64 = match error {
        ConnectionError::TransportError(e) => e.code.into(),
        ConnectionError::ConnectionClosed(e) => e.error_code.into(),
        _ => return None,
    };
    // RFC 9001, section 4.8: 0x100 plus the TLS alert.
    (0x100..0x200).contains(&code).then(|| code - 0x100)
}
