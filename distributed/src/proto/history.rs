//! Terminal states, the bounded memory of them, and the totals.

use crate::proto::core::Core;
use crate::proto::histogram::Histogram;
use crate::proto::image::End;
use crate::proto::state::{Action, Planted, Task, Timer};
use crate::proto::why::{What, note};
use crate::task::{TaskError, TaskId, TaskState};
use crate::worker_info::{Hits, Stats, TaskCounts, WorkerCounts, WorkerState};
use lgp_memory::NamedTensor;
use std::collections::VecDeque;
use std::time::Duration;

/// Seconds over which the rate of finished tasks is taken.
const RATE_SECONDS: u64 = 10;

/// Totals since the start, and the order in which records were completed.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) began: Duration,
    pub(super) submitted: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    pub(super) running: u64,
    pub(super) retries: u64,
    pub(super) stale: u64,
    pub(super) hedges: u64,
    /// Attempts that came back unbegun, to make room and to be done sooner elsewhere.
    pub(super) yielded: u64,
    pub(super) moved: u64,
    /// Tasks that an executor ran, and how often it was called for them.
    ran: f64,
    runs: f64,
    pub(super) breakers_opened: u64,
    pub(super) overloaded: u64,
    latency: Histogram,
    queued: Histogram,
    model: Histogram,
    overhead: Histogram,
    /// Tasks finished in each of the last seconds, the newest last.
    per_second: VecDeque<(u64, u32)>,
    finished: VecDeque<u64>,
    /// Of tasks with an idempotency key, which stay for a while whatever comes.
    keyed: VecDeque<u64>,
    bytes: usize,
    keyed_bytes: usize,
}

impl History {
    pub(super) fn new(began: Duration) -> Self {
        Self { began, ..Self::default() }
    }

    /// Bytes that records of tasks with a key keep alive.
    pub(super) fn keyed_bytes(&self) -> usize {
        self.keyed_bytes
    }

    /// Tasks that are not terminal.
    pub(super) fn open(&self) -> u64 {
        self.submitted - self.succeeded - self.failed - self.cancelled
    }

    /// Counts a task that ran in a batch of so many.
    pub(super) fn count_run(&mut self, batch: u32) {
        self.ran += 1.0;
        // Each task of a batch brings its share of the one run.
        self.runs += 1.0 / f64::from(batch.max(1));
    }

    /// Mean number of tasks in a run; 0 before the first.
    fn batch_mean(&self) -> f64 {
        if self.runs > 0.0 { self.ran / self.runs } else { 0.0 }
    }

    fn count_finished(&mut self, now: Duration) {
        let second = now.as_secs();
        match self.per_second.back_mut() {
            Some((s, n)) if *s == second => *n += 1,
            _ => self.per_second.push_back((second, 1)),
        }
        while self.per_second.front().is_some_and(|(s, _)| s + RATE_SECONDS < second) {
            self.per_second.pop_front();
        }
    }

    /// What was measured until now is of another life.
    pub(super) fn forget_times(&mut self) {
        self.per_second.clear();
        for times in [&mut self.latency, &mut self.queued, &mut self.model, &mut self.overhead] {
            *times = Histogram::default();
        }
    }

    /// Finished tasks a second, over the last whole seconds.
    fn rate(&self, now: Duration) -> f64 {
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
        // A tenth of the line is room enough for one more caller.
        let tasks = f64::from(u32::try_from(tasks).unwrap_or(u32::MAX));
        let seconds = 0.1 * tasks / f64::from(busiest.max(1));
        Duration::from_secs_f64(seconds.clamp(0.05, 30.0))
    }
}

impl Task {
    /// Bytes that the record keeps alive.
    fn retained_bytes(&self) -> usize {
        let outputs = self.outputs.iter().flatten().map(|o| o.tensor.as_bytes().len()).sum();
        let texts = self.key.as_ref().map_or(0, |(key, _)| key.len())
            + self.error.as_ref().map_or(0, |e| e.message.len());
        usize::saturating_add(outputs, texts)
    }

    /// Latency less waiting and model time, once both are known.
    pub(super) fn overhead(&self) -> Option<Duration> {
        let latency = self.finished?.saturating_sub(self.submitted);
        Some(latency.saturating_sub(self.queued?).saturating_sub(self.model_time?))
    }
}

impl Core {
    /// A task's end is known. Only the first one counts; that of a durable task is shown once
    /// the journal has it.
    pub(super) fn finish(
        &mut self,
        now: Duration,
        seq: u64,
        state: TaskState,
        result: Result<Vec<NamedTensor>, TaskError>,
        model_time: Option<Duration>,
    ) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        if task.has_ended() {
            return;
        }
        if let Some(deadline) = task.deadline {
            self.timers.remove(&(deadline, Timer::Deadline(seq)));
        }
        if let Some(at) = task.retry_at.take() {
            self.timers.remove(&(at, Timer::Retry(seq)));
        }
        if let Some((at, attempt)) = task.hedge_at.take() {
            self.timers.remove(&(at, Timer::Hedge(seq, attempt)));
        }
        self.queue.remove(&task.model, task.place(seq));
        let end = End {
            state,
            result,
            worker: task.worker.clone(),
            attempts: task.attempts,
            queued: task.queued.unwrap_or_else(|| now.saturating_sub(task.submitted)),
            model_time,
            finished: now,
        };
        let durable = task.durable;
        if self.planted != Planted::KeepRival {
            self.cancel_runs(seq);
        }
        if durable && self.planted != Planted::EndEarly {
            self.save_end(seq, end);
        } else {
            self.settle(now, seq, end);
        }
    }

    /// Records a terminal state.
    pub(super) fn settle(&mut self, now: Duration, seq: u64, end: End) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        match task.state {
            TaskState::Running => self.history.running -= 1,
            _ => self.queued_bytes = self.queued_bytes.saturating_sub(task.queued_bytes),
        }
        task.state = end.state;
        task.finished = Some(end.finished);
        task.runs.clear();
        task.spec = None;
        task.worker = end.worker;
        task.attempts = end.attempts;
        task.model_time = end.model_time;
        task.queued = Some(end.queued);
        note(&mut task.notes, end.finished, What::Ended(end.state));
        match end.result {
            Ok(outputs) => task.outputs = Some(outputs),
            Err(error) => task.error = Some(error),
        }
        let history = &mut self.history;
        match end.state {
            TaskState::Succeeded => {
                history.succeeded += 1;
                history.latency.record(end.finished.saturating_sub(task.submitted));
                history.queued.record(end.queued);
                history.model.record(end.model_time.unwrap_or_default());
                history.overhead.record(task.overhead().unwrap_or_default());
            }
            TaskState::Cancelled => history.cancelled += 1,
            _ => history.failed += 1,
        }
        history.count_finished(now);
        let bytes = task.retained_bytes();
        let of = if task.key.is_some() { &mut history.keyed_bytes } else { &mut history.bytes };
        *of = of.saturating_add(bytes);
        let pinned = task.pins > 0;
        if self.planted == Planted::ForgetKeys
            && let Some((key, _)) = &task.key
        {
            self.keys.remove(key);
        }
        self.actions.push_back(Action::Finished { seq });
        if self.history.open() == 0 {
            self.actions.push_back(Action::Changed);
        }
        if !pinned {
            self.retain(seq);
        }
        self.unpin(seq);
        self.settled.push_back(seq);
        // Ends bring further ends about: one after another, for chains may be long.
        if self.settled.len() == 1 {
            while let Some(&seq) = self.settled.front() {
                self.settle_dependants(now, seq);
                self.settled.pop_front();
            }
        }
    }

    /// From now on a record stays only as long as there is room, or its key's time is not over.
    pub(super) fn retain(&mut self, seq: u64) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        if std::mem::replace(&mut task.listed, true) {
            return;
        }
        let keyed = task.key.is_some();
        let of = if keyed { &mut self.history.keyed } else { &mut self.history.finished };
        of.push_back(seq);
    }

    /// A record's turn to go has come. One that others need goes when they need it no more.
    fn expire_record(&mut self, seq: u64) {
        match self.tasks.get_mut(&seq) {
            Some(task) if task.pins > 0 => task.listed = false,
            _ => self.drop_record(seq),
        }
    }

    /// Drops the oldest records until the rest is within both bounds; those of tasks with a key
    /// only when their time is over.
    pub(super) fn evict(&mut self, now: Duration) {
        let config = &self.config;
        let (tasks_max, bytes_max) = (config.retained_tasks_max, config.retained_bytes_max);
        let kept_for = config.keys_kept_for;
        while self.history.finished.len() > tasks_max || self.history.bytes > bytes_max {
            let Some(seq) = self.history.finished.pop_front() else { break };
            self.expire_record(seq);
        }
        while let Some(&seq) = self.history.keyed.front() {
            let young = |at: Duration| now.saturating_sub(at) < kept_for;
            if self.tasks.get(&seq).and_then(|task| task.finished).is_some_and(young) {
                break;
            }
            self.history.keyed.pop_front();
            self.expire_record(seq);
        }
    }

    fn drop_record(&mut self, seq: u64) {
        let Some(task) = self.tasks.remove(&seq) else { return };
        let history = &mut self.history;
        let of = if task.key.is_some() { &mut history.keyed_bytes } else { &mut history.bytes };
        *of = of.saturating_sub(task.retained_bytes());
        self.free_key(seq, &task);
        if task.durable && task.saved {
            self.forget(TaskId { epoch: task.epoch, seq });
        }
    }

    /// A task's record is gone, and with it what its key stood for.
    pub(super) fn free_key(&mut self, seq: u64, task: &Task) {
        if let Some((key, _)) = &task.key
            && self.keys.get(key).is_some_and(|(holder, _)| *holder == seq)
        {
            self.keys.remove(key);
        }
    }

    /// Tasks by state.
    pub(crate) fn counts(&self) -> TaskCounts {
        let h = &self.history;
        TaskCounts {
            submitted: h.submitted,
            queued: h.open() - h.running,
            running: h.running,
            succeeded: h.succeeded,
            failed: h.failed,
            cancelled: h.cancelled,
        }
    }

    /// Totals.
    pub(crate) fn stats(&self, now: Duration) -> Stats {
        let h = &self.history;
        let mut workers = WorkerCounts::default();
        let mut breakers_open = 0;
        for worker in self.fleet.workers.values() {
            breakers_open += worker.breakers.values().filter(|b| !b.passes()).count();
            match worker.state {
                WorkerState::Ready => workers.ready += 1,
                WorkerState::Draining => workers.draining += 1,
                WorkerState::Lost => workers.lost += 1,
            }
        }
        Stats {
            uptime_s: now.saturating_sub(h.began).as_secs_f64(),
            tasks: self.counts(),
            runnable: u64::try_from(self.queue.len()).unwrap_or(u64::MAX),
            tasks_per_s: h.rate(now),
            retries: h.retries,
            retry_budget: self.budget.left(),
            hedges: h.hedges,
            yielded: h.yielded,
            moved: h.moved,
            batch_mean: h.batch_mean(),
            breakers_open: u64::try_from(breakers_open).unwrap_or(u64::MAX),
            breakers_opened: h.breakers_opened,
            stale_completions: h.stale,
            overloaded: h.overloaded,
            capability_cache: Hits { hits: self.capabilities.hits, of: self.capabilities.lookups },
            affinity: Hits { hits: self.affinity.kept, of: self.affinity.asked },
            group_commit: Hits {
                hits: self.ledger.changes.saturating_sub(self.ledger.commits),
                of: self.ledger.changes,
            },
            // Known to those who lend them.
            shared_buffers: Hits::default(),
            workers,
            latency_ms: h.latency.percentiles(),
            queued_ms: h.queued.percentiles(),
            model_ms: h.model.percentiles(),
            overhead_ms: h.overhead.percentiles(),
            balancing: self.balancing().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_is_told_a_time_that_the_cluster_could_keep() {
        let s = Duration::from_secs;
        let mut history = History::new(s(0));
        assert_eq!(history.time_for(10_000), s(1), "nothing is known yet");
        for _ in 0..500 {
            history.count_finished(s(3));
        }
        assert_eq!(history.time_for(10_000), s(2), "a tenth of the line at 500 a second");
        assert_eq!(history.time_for(10), Duration::from_millis(50));
        history.count_finished(s(9));
        assert_eq!(history.time_for(10_000), s(2), "it was idle, not slow");
        history.count_finished(s(20));
        assert_eq!(history.time_for(10_000), s(30), "that was too long ago");
    }
}
