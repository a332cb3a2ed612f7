//! Another coordinator leads, and has the journal with every durable task in it.

use super::Core;
use crate::proto::state::Action;
use crate::proto::tasks::Task;
use crate::proto::timers::Timer;
use crate::task::{TaskError, TaskErrorKind, TaskState};
use std::time::Duration;

impl Core {
    /// Forgets durable tasks as if they had never been here: the journal's next coordinator goes on
    /// with them. Submissions that the journal has not answered yet are refused. Other tasks go on.
    pub fn hand_over(&mut self, now: Duration) {
        let before = self.counts();
        self.ledger.hand_over();
        let unsaved = |task: &&Task| !task.is_saved() && !task.is_terminal();
        let unsaved: Vec<u64> = self.tasks.iter().filter(unsaved).map(|t| t.id().seq).collect();
        self.reject(now, &unsaved, "another coordinator has come to lead");
        let keeps = |task: &Task| planted!(self, KeepRunning) && !task.runs().is_empty();
        let durable = |task: &&Task| task.request().is_durable() && !keeps(task);
        let durable: Vec<u64> = self.tasks.iter().filter(durable).map(|t| t.id().seq).collect();
        // All are gone before their dependants hear of it.
        let mut left = Vec::new();
        for &seq in &durable {
            left.extend(self.hand_over_one(now, seq));
        }
        for stub in self.ledger.records_mut().take_durable() {
            if let Some(key) = &stub.key {
                self.tasks.forget_key(key, stub.id);
            }
            if !stub.gone {
                self.tasks.uncount(stub.state);
            }
            self.actions.push(Action::HandedOver { seq: stub.id.seq });
        }
        let error = || {
            let message = "a durable task on which it depends is another coordinator's now";
            TaskError::new(TaskErrorKind::DependencyFailed, message)
        };
        for seq in left {
            self.abort(now, seq, TaskState::Failed, error());
        }
        self.statistics.knew(before, self.counts());
        self.actions.changed();
        self.schedule(now);
    }

    /// Returns the tasks that depend on the task and are not durable.
    fn hand_over_one(&mut self, now: Duration, seq: u64) -> Vec<u64> {
        let Some(mut task) = self.tasks.entry(seq) else { return Vec::new() };
        let dependants = task.take_dependants();
        let is_terminal = task.is_terminal();
        if !is_terminal {
            if let Some(deadline) = task.request().deadline() {
                self.timers.clear(deadline, Timer::Deadline(seq));
            }
            if let Some((at, timer)) = task.timer() {
                self.timers.clear(at, timer);
            }
            for run in task.runs() {
                let id = task.attempt_id(run.attempt);
                self.actions.push(Action::Cancel { session: run.session, id });
                let at = now + self.config.timing.stop_grace;
                self.timers.set(at, Timer::Hang(run.session, id));
            }
            self.scheduler.dequeue(&task);
        }
        self.unpin(seq);
        if is_terminal {
            if let Some(task) = self.tasks.take(seq) {
                self.ledger.records_mut().release(task.retained_bytes());
            }
        } else {
            self.tasks.retract(seq);
        }
        self.actions.push(Action::HandedOver { seq });
        let is_left = |seq: &u64| self.tasks.get(*seq).is_some_and(|t| !t.request().is_durable());
        dependants.into_iter().filter(is_left).collect()
    }
}
