//! The ends of a task: exactly one, for a reason that the ledger knows.

use super::{Entry, Ledger};
use crate::worker::answer;
use crate::workload::{BAD_MODEL, MODELS};
use lgp_distributed::inside;
use lgp_distributed::inside::core::Core;
use lgp_distributed::inside::message::AttemptId;
use lgp_distributed::inside::state::SessionId;
use lgp_distributed::{TaskErrorKind, TaskRecord, TaskState};
use std::time::Duration;

/// The least number of lost workers after which a task may be given up.
const LOSSES: u32 = 20;

impl Ledger {
    /// A task ended; checks that this is its first end and an expected one.
    pub(crate) fn finished(
        &mut self,
        now: Duration,
        record: &TaskRecord,
        core: &Core,
    ) -> Result<(), String> {
        let id = record.task_id;
        let entry = self.tasks.get(&id).ok_or("an unknown task finished")?;
        if let Some((earlier, _)) = &entry.shown {
            return Err(format!("task {id} finished twice: {earlier}, then {}", record.state));
        }
        if !self.is_expected(now, entry, record) {
            return Err(format!("task {id} has no reason to end so: {record:?}"));
        }
        if let Some(at) = entry.current.iter().find(|(session, id)| core.holds(*session, *id)) {
            return Err(format!("task {id} has ended, and attempt {at:?} was not cancelled"));
        }
        let shown = Some((record.state, record.outputs.clone()));
        if let Some(deadline) = entry.spec.deadline {
            let due = entry.submitted + deadline;
            self.deadlines.remove(&(due, id));
        }
        self.begun(id);
        if let Some(entry) = self.tasks.get_mut(&id) {
            entry.shown = shown;
            entry.acknowledged = true;
        }
        self.open -= 1;
        for dependant in self.dependants.get(&id).cloned().unwrap_or_default() {
            if self.alive.get(&inside::key(dependant).1) == Some(&dependant) {
                self.may_begin(dependant);
            }
        }
        Ok(())
    }

    fn is_expected(&self, now: Duration, entry: &Entry, record: &TaskRecord) -> bool {
        let code = record.error.as_ref().map(|e| e.code);
        let bad = entry.spec.model.name == BAD_MODEL;
        let given_up = entry.spec.max_attempts < 1_000;
        match (record.state, code) {
            (TaskState::Succeeded, None) => {
                let made_by =
                    |(_, id): &(SessionId, AttemptId)| record.outputs == Some(answer(*id));
                !bad && entry.current.iter().any(made_by)
            }
            (TaskState::Cancelled, Some(TaskErrorKind::Cancelled)) => entry.cancelled,
            (TaskState::Failed, Some(TaskErrorKind::BadInput)) => bad,
            (TaskState::Failed, Some(TaskErrorKind::DeadlineExceeded)) => {
                let due = entry.spec.deadline.map(|d| entry.submitted + d);
                due.is_some_and(|due| now >= due)
            }
            (TaskState::Failed, Some(TaskErrorKind::DependencyFailed)) => {
                entry.spec.depends_on.iter().any(|id| {
                    let other = self.tasks.get(id);
                    other.is_none_or(|other| {
                        let shown = other.shown.as_ref().map(|(state, _)| *state);
                        shown.map_or(other.gone, |state| state != TaskState::Succeeded)
                    })
                })
            }
            // Lost workers do not fail a task, until there are very many. An attempt that came back
            // unbegun has not failed.
            (TaskState::Failed, Some(TaskErrorKind::WorkerLost)) => entry.attempts >= LOSSES,
            (TaskState::Failed, Some(TaskErrorKind::RunLimit)) => given_up && !entry.refused,
            (TaskState::Failed, Some(TaskErrorKind::Unavailable)) => {
                // No worker could load the second model, or the device failed too often.
                (given_up && !entry.refused) || entry.spec.model.name == MODELS[1]
            }
            _ => false,
        }
    }
}
