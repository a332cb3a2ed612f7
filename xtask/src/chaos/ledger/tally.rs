//! The ledger's counts.

use super::Entry;
use super::end::End;
use std::collections::BTreeMap;

/// Tasks of one class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::chaos) struct Class {
    pub(in crate::chaos) accepted: u64,
    pub(in crate::chaos) ended: u64,
    pub(in crate::chaos) succeeded: u64,
    /// Tasks with more than one attempt, which a fault has hit.
    pub(in crate::chaos) redone: u64,
    /// The most attempts of one task.
    pub(in crate::chaos) attempts_max: u64,
}

/// Counts of a whole run.
#[derive(Debug, Clone, Default)]
pub(in crate::chaos) struct Tally {
    pub(in crate::chaos) classes: BTreeMap<&'static str, Class>,
    /// Ends by state, or by the code of the failure.
    pub(in crate::chaos) ends: BTreeMap<String, u64>,
    /// The number of tasks by special property.
    pub(in crate::chaos) special: BTreeMap<&'static str, u64>,
    /// How often an end that had been seen was seen again, unchanged.
    pub(in crate::chaos) seen_again: u64,
    /// How often a key that had been used was used again.
    pub(in crate::chaos) keys_again: u64,
    /// Bytes of inputs and outputs.
    pub(in crate::chaos) bytes: (u64, u64),
}

impl Tally {
    /// All classes together.
    pub(in crate::chaos) fn all(&self) -> Class {
        self.classes.values().fold(Class::default(), |all, class| Class {
            accepted: all.accepted + class.accepted,
            ended: all.ended + class.ended,
            succeeded: all.succeeded + class.succeeded,
            redone: all.redone + class.redone,
            attempts_max: all.attempts_max.max(class.attempts_max),
        })
    }

    pub(super) fn accepted(&mut self, entry: &Entry) {
        let Some(spec) = entry.spec() else { return };
        self.classes.entry(spec.job.class()).or_default().accepted += 1;
        self.bytes.0 += spec.job.input_bytes();
        for (what, is) in [
            ("with a deadline", spec.deadline.is_some()),
            ("after others of their batch", !spec.within.is_empty()),
            ("after others of earlier submissions", !spec.after.is_empty()),
            ("in a batch", entry.submission.0.len() > 1),
        ] {
            *self.special.entry(what).or_default() += u64::from(is);
        }
    }

    pub(super) fn ended(&mut self, entry: &Entry, end: &End, attempts: u64) {
        let Some(spec) = entry.spec() else { return };
        let class = self.classes.entry(spec.job.class()).or_default();
        class.ended += 1;
        class.redone += u64::from(attempts > 1);
        class.attempts_max = class.attempts_max.max(attempts);
        if end.succeeded() {
            class.succeeded += 1;
            self.bytes.1 += spec.job.output_bytes();
        }
        *self.special.entry("asked to be cancelled").or_default() += u64::from(entry.cancelled);
        *self.ends.entry(end.name()).or_default() += 1;
    }
}
