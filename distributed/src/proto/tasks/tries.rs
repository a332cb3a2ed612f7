//! The course of each attempt at a task, for callers who ask where its time went.

use super::phase::Run;
use crate::attempt::AttemptRecord;
use crate::proto::histogram::ms;
use crate::task::TaskErrorKind;
use crate::worker_info::WorkerId;
use std::sync::Arc;
use std::time::Duration;

/// Most attempts that are kept of one task; those in the middle of a long story go first.
const TRIES_MAX: usize = 16;

/// An attempt, with times since the task's submission.
#[derive(Debug)]
struct Try {
    attempt: u32,
    worker: WorkerId,
    device: Arc<str>,
    sent: Duration,
    ended: Option<Duration>,
    model: Option<Duration>,
    batch: u32,
    joined: bool,
    error: Option<TaskErrorKind>,
}

/// How an attempt ended: the time in its model, and why it has no answer.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::proto) struct TryEnd {
    pub(in crate::proto) model: Option<Duration>,
    /// Attempts in the run; 0 where there was none.
    pub(in crate::proto) batch: u32,
    /// Another task of its batch accounts for the run of both.
    pub(in crate::proto) joined: bool,
    pub(in crate::proto) error: Option<TaskErrorKind>,
}

/// The attempts at a task, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Tries(Vec<Try>);

impl Tries {
    /// An attempt was sent, or goes on after it was thought to be lost.
    pub(super) fn begin(&mut self, run: &Run) {
        if let Some(known) = self.0.iter_mut().find(|it| it.attempt == run.attempt) {
            (known.ended, known.error) = (None, None);
            return;
        }
        if self.0.len() >= TRIES_MAX {
            self.0.remove(TRIES_MAX / 2);
        }
        self.0.push(Try {
            attempt: run.attempt,
            worker: run.worker.clone(),
            device: Arc::clone(&run.device),
            sent: run.queued,
            ended: None,
            model: None,
            batch: 0,
            joined: false,
            error: None,
        });
    }

    /// An attempt ended `at` after the submission.
    pub(super) fn end(&mut self, at: Duration, attempt: u32, end: TryEnd) {
        let open = |it: &&mut Try| it.attempt == attempt && it.ended.is_none();
        if let Some(known) = self.0.iter_mut().find(open) {
            let TryEnd { model, batch, joined, error } = end;
            (known.ended, known.model, known.batch) = (Some(at), model, batch);
            (known.joined, known.error) = (joined, error);
        }
    }

    /// Ends all attempts: none of them is waited for any more.
    pub(super) fn end_all(&mut self, at: Duration) {
        for known in self.0.iter_mut().filter(|it| it.ended.is_none()) {
            known.ended = Some(at);
        }
    }

    /// The attempts, as callers see them.
    pub(super) fn records(&self) -> Vec<AttemptRecord> {
        let record = |it: &Try| AttemptRecord {
            attempt: it.attempt,
            worker: it.worker.clone(),
            device: Arc::clone(&it.device),
            sent_ms: ms(it.sent),
            ended_ms: it.ended.map(ms),
            model_ms: it.model.map(ms),
            batch: it.batch,
            joined: it.joined,
            error: it.error,
        };
        self.0.iter().map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(attempt: u32) -> Run {
        let worker = "w1".parse().expect("a name");
        let queued = Duration::from_millis(u64::from(attempt));
        Run { session: 1, attempt, worker, device: "cpu:0".into(), variant: None, queued }
    }

    #[test]
    fn an_attempt_that_goes_on_is_the_same_one() {
        let mut tries = Tries::default();
        tries.begin(&run(1));
        let lost = TryEnd { error: Some(TaskErrorKind::WorkerLost), ..TryEnd::default() };
        tries.end(Duration::from_millis(5), 1, lost);
        assert_eq!(tries.records()[0].error, Some(TaskErrorKind::WorkerLost));
        tries.begin(&run(1));
        tries.end(
            Duration::from_millis(9),
            1,
            TryEnd { model: Some(Duration::from_millis(2)), batch: 3, joined: true, error: None },
        );
        tries.end(Duration::from_millis(11), 1, lost);
        let records = tries.records();
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].sent_ms, records[0].ended_ms), (1.0, Some(9.0)));
        assert_eq!((records[0].model_ms, records[0].error), (Some(2.0), None));
        assert_eq!((records[0].batch, records[0].joined), (3, true));
    }

    #[test]
    fn a_long_story_keeps_its_beginning_and_its_end() {
        let mut tries = Tries::default();
        for attempt in 1..=100 {
            tries.begin(&run(attempt));
        }
        tries.end_all(Duration::from_millis(200));
        let records = tries.records();
        assert_eq!(records.len(), TRIES_MAX);
        assert_eq!((records[0].attempt, records[TRIES_MAX - 1].attempt), (1, 100));
        assert!(records.iter().all(|it| it.ended_ms == Some(200.0)));
    }
}
