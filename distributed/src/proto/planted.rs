//! Faults that can be planted in the core, with the cargo feature `planted`: each must be noticed by
//! the simulation. Without the feature the core has neither the field nor the branches.

/// Faults that tests plant to see that the simulation catches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Completions of attempts that are no longer current are accepted.
    AcceptStale,
    /// Tasks of a lost worker are not retried.
    ForgetLost,
    /// Workers get more attempts than they have slots.
    IgnoreSlots,
    /// Answers of an earlier epoch count.
    IgnoreEpoch,
    /// A failed attempt is not repeated.
    ForgetRetry,
    /// A durable task is acknowledged before the journal has it.
    AcceptEarly,
    /// Runs that do not stop are ignored.
    IgnoreHangs,
    /// Workers count as lost because of silence that the coordinator's own stop made.
    NoGrace,
    /// Lost workers use up a task's own attempts.
    CountLosses,
    /// The attempts that a worker comes back with are not known to go on there.
    ForgetResumed,
    /// The tasks of a submission are recorded one by one.
    SplitBatch,
    /// The end of a durable task is shown before the journal has it.
    EndEarly,
    /// An end whose outputs lie outside the journal is not sent to the journal.
    ForgetStored,
    /// Tasks run before those that they depend on have ended.
    IgnoreDependencies,
    /// A failed dependency fails nothing.
    KeepDependants,
    /// Breakers never open.
    IgnoreBreakers,
    /// Retries are not limited.
    IgnoreBudget,
    /// Deadlines are not watched.
    IgnoreDeadlines,
    /// Priorities never age.
    Starve,
    /// Results that no caller has read are dropped, though there is room for them.
    ForgetUnread,
    /// A key is forgotten with its first task's end.
    ForgetKeys,
    /// A silent worker is never given up.
    TrustSilence,
    /// Tasks of an earlier coordinator are not taken from the journal.
    ForgetJournal,
    /// The loser of two rivals keeps running.
    KeepRival,
    /// Records are dropped while later coordinators may need them to understand others.
    ForgetPins,
    /// Models are loaded where there is no room for them.
    IgnoreMemory,
    /// Models are evicted while tasks use them.
    EvictBusy,
    /// Models are loaded before those that make room for them are gone.
    LoadEarly,
    /// Models on workers that the core did not place there are ignored.
    ForgetStrays,
    /// A recalled task that came back unbegun is not queued again.
    ForgetRecalled,
    /// Coming back unbegun counts as a failure.
    RecallFails,
    /// The same attempt is recalled again and again.
    RecallTwice,
    /// A recalled task is sent elsewhere before its worker has agreed.
    RecallAssumed,
    /// A recalled task goes to the end of the queue.
    RecallLosesPlace,
    /// Running tasks stay where they are when another coordinator takes the lead. It takes several.
    KeepRunning,
}

impl Planted {
    /// Every fault that one coordinator can have.
    pub const ALL: [Self; 34] = [
        Self::AcceptStale,
        Self::ForgetLost,
        Self::IgnoreSlots,
        Self::IgnoreEpoch,
        Self::ForgetRetry,
        Self::AcceptEarly,
        Self::SplitBatch,
        Self::ForgetResumed,
        Self::IgnoreHangs,
        Self::NoGrace,
        Self::CountLosses,
        Self::EndEarly,
        Self::ForgetStored,
        Self::IgnoreDependencies,
        Self::KeepDependants,
        Self::IgnoreBreakers,
        Self::IgnoreBudget,
        Self::IgnoreDeadlines,
        Self::Starve,
        Self::ForgetUnread,
        Self::ForgetKeys,
        Self::TrustSilence,
        Self::ForgetJournal,
        Self::KeepRival,
        Self::ForgetPins,
        Self::IgnoreMemory,
        Self::EvictBusy,
        Self::LoadEarly,
        Self::ForgetStrays,
        Self::ForgetRecalled,
        Self::RecallFails,
        Self::RecallTwice,
        Self::RecallAssumed,
        Self::RecallLosesPlace,
    ];
}
