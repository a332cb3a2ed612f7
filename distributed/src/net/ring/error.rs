//! What can go wrong between the ranks of a ring.

use crate::net::transport::close::{self, Close};
use crate::proto::rendezvous::MeetingRefusal;
use quinn::ConnectionError;
use std::time::Duration;

/// Most bytes of a reason that goes round the ring.
const REASON_BYTES_MAX: usize = 300;

/// Errors of a [`Ring`](crate::Ring). Apart from bad arguments, the first error ends the ring:
/// every other rank is told, and each later call gets the same error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The ranks did not meet.
    #[error("the ranks did not meet: {0}")]
    Meeting(#[from] MeetingRefusal),
    /// An argument that no rank could serve. The ring goes on.
    #[error("{what} {given}, expected {expected}")]
    Argument {
        /// Which argument is wrong.
        what: &'static str,
        /// The value given.
        given: usize,
        /// The values that are possible.
        expected: String,
    },
    /// A neighbour was not reached in time.
    #[error("rank {rank} was not reached within {} ms", waited.as_millis())]
    Absent {
        /// The neighbour.
        rank: u32,
        /// How long it was tried.
        waited: Duration,
    },
    /// A neighbour does not trust this rank, or is not trusted.
    #[error("there is no trust between this rank and rank {rank}: {reason}")]
    Untrusted {
        /// The neighbour.
        rank: u32,
        /// What TLS says.
        reason: String,
    },
    /// The connection to a neighbour ended: its process died, or the network fell apart.
    #[error("rank {rank} was lost: {reason}")]
    Lost {
        /// The neighbour.
        rank: u32,
        /// What the connection says.
        reason: String,
    },
    /// Nothing came for too long, though the neighbour's process lives. It may itself wait for the
    /// rank before it.
    #[error("nothing came from rank {rank} for {} ms", waited.as_millis())]
    Stalled {
        /// The neighbour.
        rank: u32,
        /// How long this rank waited for it.
        waited: Duration,
    },
    /// A neighbour makes another call than this rank.
    #[error("rank {rank} sent {given}, expected {expected}")]
    Mismatch {
        /// The neighbour.
        rank: u32,
        /// Its call.
        given: String,
        /// This rank's call.
        expected: String,
    },
    /// A neighbour left in order, but is still needed.
    #[error("rank {rank} has left the ring")]
    Left {
        /// The neighbour.
        rank: u32,
    },
    /// Another rank ended the ring.
    #[error("rank {by} ended the ring: {reason}")]
    Ended {
        /// The rank that noticed the failure.
        by: u32,
        /// What that rank noticed.
        reason: String,
    },
    /// The ring of this rank was dropped without [`Ring::leave`](crate::Ring::leave), or a call
    /// before its end.
    #[error("its ring, or a call, was dropped before its end")]
    Dropped,
}

impl RingError {
    /// What other ranks are told of a failure: the rank that noticed it, and the failure.
    pub(super) fn told(&self, rank: u32) -> Vec<u8> {
        let (by, text) = match self {
            // Passed on unchanged.
            Self::Ended { by, reason } => (*by, reason.clone()),
            other => (rank, other.to_string()),
        };
        let cut = text.floor_char_boundary(REASON_BYTES_MAX);
        let text = text.get(..cut).unwrap_or_default();
        [&by.to_le_bytes()[..], text.as_bytes()].concat()
    }

    /// What the end of the connection to a neighbour means.
    pub(super) fn of(rank: u32, error: &ConnectionError) -> Self {
        if close::is_untrusted(error) {
            return Self::Untrusted { rank, reason: error.to_string() };
        }
        match (Close::given_by_peer(error), error) {
            (Some(Close::Farewell), _) => Self::Left { rank },
            (Some(Close::RingBroken), ConnectionError::ApplicationClosed(close)) => {
                match close.reason.split_first_chunk() {
                    Some((by, text)) => Self::Ended {
                        by: u32::from_le_bytes(*by),
                        reason: String::from_utf8_lossy(text).into_owned(),
                    },
                    None => Self::Lost { rank, reason: "it gave no reason".to_owned() },
                }
            }
            _ => Self::Lost { rank, reason: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn::ApplicationClose;

    fn closed(reason: Vec<u8>) -> ConnectionError {
        let error_code = Close::RingBroken.code();
        ConnectionError::ApplicationClosed(ApplicationClose { error_code, reason: reason.into() })
    }

    #[test]
    fn a_failure_goes_round_the_ring_with_its_origin() {
        let first = RingError::Lost { rank: 3, reason: "timed out".into() };
        let second = RingError::of(2, &closed(first.told(2)));
        let expected = RingError::Ended { by: 2, reason: "rank 3 was lost: timed out".into() };
        assert_eq!(second, expected);
        // A rank that passes it on changes nothing.
        assert_eq!(RingError::of(1, &closed(second.told(1))), expected);
        let long = RingError::Lost { rank: 3, reason: "ä".repeat(1000) };
        assert!(long.told(2).len() <= 4 + REASON_BYTES_MAX);
        assert!(matches!(RingError::of(1, &closed(vec![1; 3])), RingError::Lost { rank: 1, .. }));
    }
}
