//! Terminal states, the bounded memory of them, and the totals.

use crate::proto::core::Core;
use crate::proto::histogram::Histogram;
use crate::proto::state::{Action, Task, Timer};
use crate::task::{TaskError, TaskState};
use crate::worker_info::{Stats, TaskCounts, WorkerCounts, WorkerState};
use lgp_memory::NamedTensor;
use std::collections::VecDeque;
use std::time::Duration;

/// Seconds over which the rate of finished tasks is taken.
const RATE_SECONDS: u64 = 10;

/// Totals since the start, and the order in which records were completed.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) submitted: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    pub(super) running: u64,
    pub(super) retries: u64,
    pub(super) stale: u64,
    pub(super) overloaded: u64,
    latency: Histogram,
    queued: Histogram,
    model: Histogram,
    overhead: Histogram,
    /// Tasks finished in each of the last seconds, the newest last.
    per_second: VecDeque<(u64, u32)>,
    finished: VecDeque<u64>,
    bytes: usize,
}

impl History {
    /// Tasks that are not terminal.
    pub(super) fn open(&self) -> u64 {
        self.submitted - self.succeeded - self.failed - self.cancelled
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

    /// Finished tasks a second, over the last whole seconds.
    fn rate(&self, now: Duration) -> f64 {
        let second = now.as_secs();
        let span = second.min(RATE_SECONDS);
        let recent = self.per_second.iter().filter(|(s, _)| *s < second && s + span >= second);
        let count: u32 = recent.map(|(_, n)| *n).sum();
        if span == 0 {
            // Less than a second old: the running second is all there is.
            let count: u32 = self.per_second.iter().map(|(_, n)| *n).sum();
            return f64::from(count) / now.as_secs_f64().max(1e-3);
        }
        // Whole numbers up to ten are exact.
        f64::from(count) / Duration::from_secs(span).as_secs_f64()
    }

    /// About how long `tasks` take at the present rate, between 50 ms and 30 s.
    pub(super) fn time_for(&self, now: Duration, tasks: usize) -> Duration {
        let tasks = f64::from(u32::try_from(tasks).unwrap_or(u32::MAX));
        // A tenth of the line is room enough for one more caller.
        let seconds = 0.1 * tasks / self.rate(now).max(1.0);
        Duration::from_secs_f64(seconds.clamp(0.05, 30.0))
    }
}

impl Task {
    /// Bytes that the record keeps alive.
    fn retained_bytes(&self) -> usize {
        let outputs = self.outputs.iter().flatten().map(|o| o.tensor.as_bytes().len()).sum();
        let texts = self.key.as_ref().map_or(0, String::len)
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
    /// Records a terminal state. Only the first one counts.
    pub(super) fn finish(
        &mut self,
        now: Duration,
        seq: u64,
        state: TaskState,
        result: Result<Vec<NamedTensor>, TaskError>,
        model_time: Option<Duration>,
    ) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        if task.state.is_terminal() {
            return;
        }
        if task.state == TaskState::Running {
            self.history.running -= 1;
        }
        if let Some(deadline) = task.deadline {
            self.timers.remove(&(deadline, Timer::Deadline(seq)));
        }
        task.state = state;
        task.finished = Some(now);
        task.session = None;
        task.spec = None;
        task.model_time = model_time;
        task.queued.get_or_insert(now.saturating_sub(task.submitted));
        match result {
            Ok(outputs) => task.outputs = Some(outputs),
            Err(error) => task.error = Some(error),
        }
        let history = &mut self.history;
        match state {
            TaskState::Succeeded => {
                history.succeeded += 1;
                history.latency.record(now.saturating_sub(task.submitted));
                history.queued.record(task.queued.unwrap_or_default());
                history.model.record(model_time.unwrap_or_default());
                history.overhead.record(task.overhead().unwrap_or_default());
            }
            TaskState::Cancelled => history.cancelled += 1,
            _ => history.failed += 1,
        }
        history.count_finished(now);
        history.finished.push_back(seq);
        history.bytes = history.bytes.saturating_add(task.retained_bytes());
        self.actions.push_back(Action::Finished { seq });
        if self.history.open() == 0 {
            self.actions.push_back(Action::Changed);
        }
    }

    /// Drops the oldest records until the rest is within both bounds.
    pub(super) fn evict(&mut self) {
        let config = &self.config;
        while self.history.finished.len() > config.retained_tasks_max
            || self.history.bytes > config.retained_bytes_max
        {
            let Some(seq) = self.history.finished.pop_front() else { return };
            let Some(task) = self.tasks.remove(&seq) else { continue };
            self.history.bytes -= task.retained_bytes();
            if let Some(key) = task.key {
                self.keys.remove(&key);
            }
        }
    }

    /// Totals.
    pub(crate) fn stats(&self, now: Duration) -> Stats {
        let h = &self.history;
        let mut workers = WorkerCounts::default();
        for worker in &self.workers {
            match worker.state {
                WorkerState::Ready => workers.ready += 1,
                WorkerState::Draining => workers.draining += 1,
                WorkerState::Lost => workers.lost += 1,
            }
        }
        Stats {
            uptime_s: now.as_secs_f64(),
            tasks: TaskCounts {
                submitted: h.submitted,
                queued: h.open() - h.running,
                running: h.running,
                succeeded: h.succeeded,
                failed: h.failed,
                cancelled: h.cancelled,
            },
            tasks_per_s: h.rate(now),
            retries: h.retries,
            stale_completions: h.stale,
            overloaded: h.overloaded,
            workers,
            latency_ms: h.latency.percentiles(),
            queued_ms: h.queued.percentiles(),
            model_ms: h.model.percentiles(),
            overhead_ms: h.overhead.percentiles(),
            balancing: self.balancing(),
        }
    }
}
