//! Matching waiting tasks with free slots.

use crate::proto::attempt::task_error;
use crate::proto::balance::{Candidate, Request, View};
use crate::proto::core::Core;
use crate::proto::models::Outlook;
use crate::proto::state::Planted;
use crate::task::{TaskError, TaskState};
use std::time::Duration;

/// What to do about the queue next.
enum Step {
    Dispatch { seq: u64, worker: usize },
    Fail { seq: u64, error: TaskError },
}

impl Core {
    /// Dispatches tasks as long as there is one that a free worker can take.
    pub(super) fn schedule(&mut self, now: Duration) {
        while self.queue.len() > 0 {
            match self.next_step(now) {
                Some(Step::Dispatch { seq, worker }) => self.dispatch(now, seq, worker),
                Some(Step::Fail { seq, error }) => {
                    self.abort(now, seq, TaskState::Failed, error);
                }
                None => return,
            }
        }
    }

    fn next_step(&self, now: Duration) -> Option<Step> {
        // Most calls find every slot taken: that is seen before the queue is looked at.
        let free: Vec<usize> = self.free_workers(now);
        for (place, model) in self.queue.heads() {
            let seq = place.seq();
            let candidates: Vec<Candidate> = free
                .iter()
                .filter_map(|&index| Some((index, self.workers.get(index)?)))
                .filter(|(_, worker)| worker.takes(model))
                .map(|(index, worker)| Candidate {
                    index,
                    load: worker.load(),
                    last_dispatch: worker.last_dispatch,
                })
                .collect();
            if candidates.is_empty() {
                if let Outlook::Hopeless(error) = self.outlook(model) {
                    let mut error = task_error(error);
                    error.message =
                        format!("no worker could load model {model}: {}", error.message);
                    return Some(Step::Fail { seq, error });
                }
                continue;
            }
            let priority = self.tasks.get(&seq)?.priority;
            let request = Request { model, priority };
            let view = View { candidates: &candidates };
            if let Some(picked) = self.config.balancing.pick(now, &view, &request) {
                return Some(Step::Dispatch { seq, worker: picked.index });
            }
        }
        None
    }

    /// Ready workers with a free slot that were heard of lately.
    fn free_workers(&self, now: Duration) -> Vec<usize> {
        let suspect_after = self.config.timing.suspect_after;
        let overfill = self.planted == Planted::IgnoreSlots;
        self.workers
            .iter()
            .enumerate()
            .filter(|(_, w)| w.is_ready() && (w.has_free_slot() || overfill))
            .filter(|(_, w)| now.saturating_sub(w.last_seen) <= suspect_after)
            .map(|(index, _)| index)
            .collect()
    }
}
