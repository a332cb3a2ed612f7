//! Faults that can be planted in the core, with the cargo feature `planted`: each must be noticed by
//! the simulation. Without the feature the core has neither the field nor the branches.

/// Faults that tests plant to see that the simulation catches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Completions of attempts that are no longer current are accepted.
    AcceptStale,
    /// Tasks of a lost worker are not redone.
    ForgetLost,
    /// Workers get more than their slots hold.
    IgnoreSlots,
    /// Answers of an earlier epoch count.
    IgnoreEpoch,
    /// A failed attempt is not repeated.
    ForgetRetry,
    /// A durable task is acknowledged before the journal has it.
    AcceptEarly,
    /// Runs that do not stop are let be.
    IgnoreHangs,
    /// Workers are given up for silence that the coordinator's own stop has made.
    NoGrace,
    /// Lost workers use up a task's own attempts.
    CountLosses,
    /// What a worker comes back with is not known to go on there.
    ForgetResumed,
    /// The tasks of a submission are recorded each for itself.
    SplitBatch,
    /// The end of a durable task is shown before the journal has it.
    EndEarly,
    /// An end whose outputs lie apart is not sent to the journal.
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
    /// Results go that nobody has read, though there is room for them.
    ForgetUnread,
    /// A key is forgotten with its first task's end.
    ForgetKeys,
    /// A silent worker is never given up.
    TrustSilence,
    /// Tasks of an earlier life are not taken from the journal.
    ForgetJournal,
    /// The loser of two rivals keeps running.
    KeepRival,
    /// Records go while later coordinators may need them to understand others.
    ForgetPins,
    /// Models are loaded where there is no room for them.
    IgnoreMemory,
    /// Models do not wait for the tasks of those whose room they take.
    EvictBusy,
    /// Models do not wait until those whose room they take have gone.
    LoadEarly,
    /// What workers hold that was not placed there is not looked at.
    ForgetStrays,
    /// A task that came back unbegun, as asked, is not queued again.
    ForgetRecalled,
    /// Coming back unbegun counts as a failure.
    RecallFails,
    /// The same attempt is asked back again and again.
    RecallTwice,
    /// A task that is asked back is sent elsewhere before its worker has agreed.
    RecallAssumed,
    /// A task that came back unbegun goes to the end of the line.
    RecallLosesPlace,
    /// Tasks that run stay where they are when another coordinator comes to lead. It takes several.
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
