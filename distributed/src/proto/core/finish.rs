//! Ends of tasks: the first one counts.

use super::Core;
use crate::proto::image::End;
use crate::proto::ledger::Stub;
use crate::proto::state::Action;
use crate::proto::timers::Timer;
use crate::task::{TaskError, TaskState};
use lgp_memory::NamedTensor;
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Ends a task early, in any phase; its attempts keep their slots until workers release them.
    pub(super) fn abort(&mut self, now: Duration, seq: u64, state: TaskState, error: TaskError) {
        self.finish(now, seq, state, Err(error), None);
    }

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
        let Some(task) = self.tasks.get(seq).filter(|task| !task.has_ended()) else { return };
        if let Some(deadline) = task.request().deadline() {
            self.timers.clear(deadline, Timer::Deadline(seq));
        }
        if let Some((at, timer)) = task.timer() {
            self.timers.clear(at, timer);
        }
        self.scheduler.dequeue(task);
        if let (true, Some(spec)) = (state != TaskState::Succeeded, task.request().spec()) {
            let bytes = task.request().input_bytes();
            self.ledger.spent_mut().keep(task.id(), Arc::clone(spec), bytes);
        }
        let end = End {
            state,
            result,
            apart: None,
            worker: task.worker().cloned(),
            attempts: task.attempts(),
            queued: task.queued(now),
            model_time,
            finished: now,
            variant: task.variant().cloned(),
            story: Vec::new(),
        };
        if !planted!(self, KeepRival) {
            // The answers of its attempts are not wanted any more.
            for run in task.runs() {
                let id = task.attempt_id(run.attempt);
                self.actions.push(Action::Cancel { session: run.session, id });
                // The loser of two rivals ends by itself: no task waits for its slot alone.
                if state != TaskState::Succeeded && !planted!(self, IgnoreHangs) {
                    let at = now + self.config.timing.stop_grace;
                    self.timers.set(at, Timer::Hang(run.session, id));
                }
            }
        }
        // Tasks that came with a durable task wait with it.
        let recorded = task.request().is_durable() || !task.is_saved();
        if recorded && !planted!(self, EndEarly) {
            self.save_end(seq, end);
        } else {
            self.settle(now, seq, end);
        }
    }

    /// Records a terminal state.
    pub(super) fn settle(&mut self, now: Duration, seq: u64, end: End) {
        let Some(mut task) = self.tasks.entry(seq) else { return };
        task.settle(end);
        self.settled(now, seq);
    }

    /// A terminal state is recorded: dependants, callers and counts hear of it.
    pub(super) fn settled(&mut self, now: Duration, seq: u64) {
        let Some(task) = self.tasks.get(seq) else { return };
        if task.state() == TaskState::Succeeded {
            self.statistics.times.record(task);
        }
        self.statistics.count_finished(now);
        let key = task.request().key().and_then(|(key, _)| self.tasks.shared_key(key));
        let stays = task.request().is_durable() || key.is_some();
        let listed = stays || !task.is_pinned();
        let records = self.ledger.records_mut();
        records.hold(task.retained_bytes());
        if stays {
            records.keep(Stub::of(task, key));
        }
        #[cfg(feature = "planted")]
        if planted!(self, ForgetKeys) {
            self.tasks.lose_key(seq);
        }
        self.actions.push(Action::Finished { seq });
        if self.tasks.open() == 0 {
            self.actions.changed();
        }
        if listed {
            self.retain(seq);
        }
        self.unpin(seq);
        if self.tasks.announce(seq) {
            while let Some(seq) = self.tasks.announced() {
                self.settle_dependants(now, seq);
                self.tasks.heard();
            }
        }
    }

    /// From now on a whole record stays in memory only as long as there is room.
    pub(super) fn retain(&mut self, seq: u64) {
        let Some(mut task) = self.tasks.entry(seq) else { return };
        if !task.list(true) {
            let is_saved = task.request().is_durable();
            self.ledger.records_mut().list(seq, is_saved);
        }
    }
}
