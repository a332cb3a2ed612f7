//! Faults that can be planted in the network code: each must be noticed by its simulation.

/// A fault of the network code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlueFault {
    /// Who waits for a task and goes away is not forgotten.
    KeepWaiters,
    /// A durable task is acknowledged before the journal's word.
    AcknowledgeEarly,
    /// Who waits for the journal's word on a task is not told of its refusal.
    ForgetRejected,
    /// The timer sleeps on when something is due sooner.
    LateTimers,
    /// A session does not end with its connection.
    KeepSessions,
    /// Attempts that have ended stay with their session.
    KeepAttempts,
    /// A certificate that has expired opens nothing, however short a time ago.
    RefuseExpired,
}

impl GlueFault {
    /// Every fault that can be planted.
    pub const ALL: [Self; 7] = [
        Self::KeepWaiters,
        Self::AcknowledgeEarly,
        Self::ForgetRejected,
        Self::LateTimers,
        Self::KeepSessions,
        Self::KeepAttempts,
        Self::RefuseExpired,
    ];
}
