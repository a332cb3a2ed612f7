//! The messages between the two sides of a link.

use crate::proto::message::AttemptId;

/// Bytes of every message.
pub(super) const MESSAGE_BYTES: usize = 32;

/// One message, which may carry memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Message {
    /// The tensors of an attempt lie in the memory that comes with this.
    Body { ticket: u64, id: AttemptId },
    /// The memory of a ticket is not read any more.
    Done { ticket: u64 },
    /// The coordinator knows the worker: both may lend.
    Go,
}

impl Message {
    pub(super) fn encode(self) -> [u8; MESSAGE_BYTES] {
        let none = AttemptId { epoch: 0, seq: 0, attempt: 0 };
        let (code, ticket, id) = match self {
            Self::Body { ticket, id } => (1u32, ticket, id),
            Self::Done { ticket } => (2, ticket, none),
            Self::Go => (3, 0, none),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0..4].copy_from_slice(&code.to_le_bytes());
        bytes[4..8].copy_from_slice(&id.attempt.to_le_bytes());
        bytes[8..16].copy_from_slice(&ticket.to_le_bytes());
        bytes[16..24].copy_from_slice(&id.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&id.seq.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let (halves, _) = bytes.as_chunks::<4>();
        let (words, _) = bytes.as_chunks::<8>();
        let (&[code, attempt, ..], &[_, ticket, epoch, seq]) = (halves, words) else {
            return None;
        };
        let (ticket, attempt) = (u64::from_le_bytes(ticket), u32::from_le_bytes(attempt));
        let id =
            AttemptId { epoch: u64::from_le_bytes(epoch), seq: u64::from_le_bytes(seq), attempt };
        match u32::from_le_bytes(code) {
            1 => Some(Self::Body { ticket, id }),
            2 => Some(Self::Done { ticket }),
            3 => Some(Self::Go),
            _ => None,
        }
    }
}
