//! Faults that can be planted in the network code: each must be noticed by its simulation.

/// A fault of the network code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlueFault {
    /// Who waits for a task and goes away is not forgotten.
    KeepWaiters,
    /// A durable task is acknowledged before the journal's word.
    AcknowledgeEarly,
    /// An outcome that a coordinator has taken is brought to it again.
    DeliverAgain,
    /// An outcome that comes over another connection than its attempt's is taken and not counted.
    LoseOutcome,
    /// A session does not end with its connection.
    KeepSessions,
    /// Attempts that have ended stay with their session.
    KeepAttempts,
}

impl GlueFault {
    /// Every fault that can be planted.
    pub(crate) const ALL: [Self; 6] = [
        Self::KeepWaiters,
        Self::AcknowledgeEarly,
        Self::DeliverAgain,
        Self::LoseOutcome,
        Self::KeepSessions,
        Self::KeepAttempts,
    ];
}
