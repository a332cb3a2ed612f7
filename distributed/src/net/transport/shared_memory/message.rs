//! What the two sides of a link tell each other.

use crate::proto::message::AttemptId;

/// The start of every message; only those with a frame are longer.
pub(super) const MESSAGE_BYTES: usize = 32;

/// One message, with which memory or a frame may come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Message {
    /// The tensors of an attempt lie in the memory that comes with this.
    Body { ticket: u64, id: AttemptId },
    /// The memory of a ticket is not read any more.
    Done { ticket: u64 },
    /// The coordinator knows the worker: both may lend.
    Go,
    /// An attempt for the worker; its frame follows.
    Task { id: AttemptId },
    /// Nobody waits for an attempt any more.
    Cancel { id: AttemptId },
    /// What an attempt came to; its frame follows.
    Outcome { id: AttemptId },
    /// The worker has given an attempt up.
    Broken { id: AttemptId },
}

impl Message {
    /// Whether a frame follows.
    pub(super) fn has_frame(self) -> bool {
        matches!(self, Self::Task { .. } | Self::Outcome { .. })
    }

    pub(super) fn encode(self) -> [u8; MESSAGE_BYTES] {
        let none = AttemptId { epoch: 0, seq: 0, attempt: 0 };
        let (code, ticket, id) = match self {
            Self::Body { ticket, id } => (1u32, ticket, id),
            Self::Done { ticket } => (2, ticket, none),
            Self::Go => (3, 0, none),
            Self::Task { id } => (4, 0, id),
            Self::Cancel { id } => (5, 0, id),
            Self::Outcome { id } => (6, 0, id),
            Self::Broken { id } => (7, 0, id),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0..4].copy_from_slice(&code.to_le_bytes());
        bytes[4..8].copy_from_slice(&id.attempt.to_le_bytes());
        bytes[8..16].copy_from_slice(&ticket.to_le_bytes());
        bytes[16..24].copy_from_slice(&id.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&id.seq.to_le_bytes());
        bytes
    }

    /// Reads the start of a message, and sees that something follows it only where it may.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (start, frame) = bytes.split_first_chunk::<MESSAGE_BYTES>()?;
        let (halves, _) = start.as_chunks::<4>();
        let (words, _) = start.as_chunks::<8>();
        let (&[code, attempt, ..], &[_, ticket, epoch, seq]) = (halves, words) else {
            return None;
        };
        let (ticket, attempt) = (u64::from_le_bytes(ticket), u32::from_le_bytes(attempt));
        let id =
            AttemptId { epoch: u64::from_le_bytes(epoch), seq: u64::from_le_bytes(seq), attempt };
        let message = match u32::from_le_bytes(code) {
            1 => Self::Body { ticket, id },
            2 => Self::Done { ticket },
            3 => Self::Go,
            4 => Self::Task { id },
            5 => Self::Cancel { id },
            6 => Self::Outcome { id },
            7 => Self::Broken { id },
            _ => return None,
        };
        (message.has_frame() || frame.is_empty()).then_some(message)
    }
}
