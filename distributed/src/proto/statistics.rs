//! What is counted and timed since the start.

use crate::proto::histogram::Histogram;
use crate::proto::tasks::Task;
use crate::worker_info::{Percentiles, TaskCounts};
use std::collections::VecDeque;
use std::time::Duration;

/// Seconds over which the rate of finished tasks is taken.
const RATE_SECONDS: u64 = 10;

/// Counts and times since the start.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    began: Duration,
    /// Tasks of earlier coordinators, which do not count as work of this one.
    before: TaskCounts,
    pub(super) counters: Counters,
    pub(super) times: Times,
    /// Tasks that an executor ran, and the number of its runs.
    ran: f64,
    runs: f64,
    /// Tasks finished in each of the last seconds, the newest last.
    per_second: VecDeque<(u64, u32)>,
}

/// Counts of events.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) retries: u64,
    pub(super) stale: u64,
    pub(super) hedges: u64,
    /// Attempts that came back unbegun, to make room and to be done sooner elsewhere.
    pub(super) yielded: u64,
    pub(super) moved: u64,
    pub(super) breakers_opened: u64,
    pub(super) overloaded: u64,
    /// Runs that reached their limit, and runs that did not stop when they were asked to.
    pub(super) overran: u64,
    pub(super) hangs: u64,
}

/// Times of tasks that succeeded.
#[derive(Debug, Default)]
pub(super) struct Times {
    latency: Histogram,
    queued: Histogram,
    model: Histogram,
    overhead: Histogram,
}

impl Times {
    /// Percentiles of latency, time in the queue, time in the model, and the rest.
    pub(super) fn percentiles(&self) -> [Percentiles; 4] {
        [&self.latency, &self.queued, &self.model, &self.overhead].map(Histogram::percentiles)
    }

    /// Counts a task that succeeded.
    pub(super) fn record(&mut self, task: &Task) {
        let finished = task.finished().unwrap_or_default();
        self.latency.record(finished.saturating_sub(task.request().submitted()));
        self.queued.record(task.queued(finished));
        self.model.record(task.model_time().unwrap_or_default());
        self.overhead.record(task.overhead().unwrap_or_default());
    }
}

impl Statistics {
    pub(super) fn new(began: Duration) -> Self {
        Self { began, ..Self::default() }
    }

    /// The journal's tasks became known, or are not known any more: `then` are the counts before
    /// that, `now` those after it.
    pub(super) fn knew(&mut self, then: TaskCounts, now: TaskCounts) {
        let moved = |known: u64, then: u64, now: u64| (known + now).saturating_sub(then);
        let before = &mut self.before;
        before.submitted = moved(before.submitted, then.submitted, now.submitted);
        before.succeeded = moved(before.succeeded, then.succeeded, now.succeeded);
        before.failed = moved(before.failed, then.failed, now.failed);
        before.cancelled = moved(before.cancelled, then.cancelled, now.cancelled);
    }

    /// Of all known tasks, the open ones, and those that were submitted and ended since the start:
    /// tasks that a restart restores would look like work.
    pub(super) fn since_start(&self, all: TaskCounts) -> TaskCounts {
        TaskCounts {
            submitted: all.submitted - self.before.submitted,
            succeeded: all.succeeded - self.before.succeeded,
            failed: all.failed - self.before.failed,
            cancelled: all.cancelled - self.before.cancelled,
            ..all
        }
    }

    /// When the coordinator began.
    pub(super) fn began(&self) -> Duration {
        self.began
    }

    /// Counts a task that ran in a batch of so many.
    pub(super) fn count_run(&mut self, batch: u32) {
        self.ran += 1.0;
        // Each task of a batch brings its share of the one run.
        self.runs += 1.0 / f64::from(batch.max(1));
    }

    /// Mean number of tasks in a run; 0 before the first.
    pub(super) fn batch_mean(&self) -> f64 {
        if self.runs > 0.0 { self.ran / self.runs } else { 0.0 }
    }

    /// Counts a task that ended.
    pub(super) fn count_finished(&mut self, now: Duration) {
        let second = now.as_secs();
        match self.per_second.back_mut() {
            Some((s, n)) if *s == second => *n += 1,
            _ => self.per_second.push_back((second, 1)),
        }
        while self.per_second.front().is_some_and(|(s, _)| s + RATE_SECONDS < second) {
            self.per_second.pop_front();
        }
    }

    /// Drops measurements of another life of the coordinator.
    pub(super) fn forget_times(&mut self) {
        self.per_second.clear();
        self.times = Times::default();
    }

    /// Finished tasks a second, over the last whole seconds.
    pub(super) fn rate(&self, now: Duration) -> f64 {
        let second = now.as_secs();
        let span = second.saturating_sub(self.began.as_secs()).min(RATE_SECONDS);
        let recent = self.per_second.iter().filter(|(s, _)| *s < second && s + span >= second);
        let count: u32 = recent.map(|(_, n)| *n).sum();
        if span == 0 {
            // Less than a second old: the running second is all there is.
            let count: u32 = self.per_second.iter().map(|(_, n)| *n).sum();
            let age = now.saturating_sub(self.began).as_secs_f64();
            return f64::from(count) / age.max(1e-3);
        }
        // Whole numbers up to ten are exact.
        f64::from(count) / Duration::from_secs(span).as_secs_f64()
    }

    /// About how long a tenth of `tasks` takes at the rate of the busiest of the last seconds,
    /// between 50 ms and 30 s; 1 s where nothing is known of that yet.
    ///
    /// The mean rate would tell how idle the cluster was before a burst, not how fast it is.
    pub(super) fn time_for(&self, tasks: usize) -> Duration {
        let Some(busiest) = self.per_second.iter().map(|(_, count)| *count).max() else {
            return Duration::from_secs(1);
        };
        // A tenth of the queue is room enough for one more caller.
        let tasks = f64::from(u32::try_from(tasks).unwrap_or(u32::MAX));
        let seconds = 0.1 * tasks / f64::from(busiest.max(1));
        Duration::from_secs_f64(seconds.clamp(0.05, 30.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_is_told_a_time_that_the_cluster_could_keep() {
        let s = Duration::from_secs;
        let mut statistics = Statistics::new(s(0));
        assert_eq!(statistics.time_for(10_000), s(1), "nothing is known yet");
        for _ in 0..500 {
            statistics.count_finished(s(3));
        }
        assert_eq!(statistics.time_for(10_000), s(2), "a tenth of the line at 500 a second");
        assert_eq!(statistics.time_for(10), Duration::from_millis(50));
        statistics.count_finished(s(9));
        assert_eq!(statistics.time_for(10_000), s(2), "it was idle, not slow");
        statistics.count_finished(s(20));
        assert_eq!(statistics.time_for(10_000), s(30), "that was too long ago");
    }
}
