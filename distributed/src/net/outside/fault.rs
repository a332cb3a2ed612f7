//! Faults that can be planted in the network code: each must be noticed by its simulation.

/// A fault of the network code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlueFault {
    /// A caller that waits for a task and goes away is not forgotten.
    KeepWaiters,
    /// A durable task is acknowledged before the journal has it.
    AcknowledgeEarly,
    /// A caller is not told that the journal refused its task.
    ForgetRejected,
    /// The timer sleeps on when something is due sooner.
    LateTimers,
    /// A session does not end with its connection.
    KeepSessions,
    /// Attempts that have ended stay with their session.
    KeepAttempts,
    /// A certificate that has expired is of no use, however short a time ago.
    RefuseExpired,
    /// The log takes writes of a deposed leader.
    DeposedWrites,
    /// The authority gives a lead the epoch of an earlier one.
    EpochAgain,
    /// A deposed leader answers from what it knew.
    FollowerRemembers,
    /// A follower accepts durable tasks itself.
    FollowerAccepts,
    /// A deposed leader lets durable tasks run to an end of its own.
    KeepRunning,
    /// A leader goes on answering alone when its lease may be over.
    OldLease,
}

impl GlueFault {
    /// Every fault that one coordinator can have.
    pub const ALL: [Self; 7] = [
        Self::KeepWaiters,
        Self::AcknowledgeEarly,
        Self::ForgetRejected,
        Self::LateTimers,
        Self::KeepSessions,
        Self::KeepAttempts,
        Self::RefuseExpired,
    ];

    /// Faults that take several coordinators: in the code, in what keeps the lead, or in the log.
    pub const AMONG: [Self; 6] = [
        Self::DeposedWrites,
        Self::EpochAgain,
        Self::FollowerRemembers,
        Self::FollowerAccepts,
        Self::KeepRunning,
        Self::OldLease,
    ];
}
