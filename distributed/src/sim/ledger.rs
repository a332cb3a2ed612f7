//! An independent record of what was promised, and the invariants that follow from it.

use super::worker::answer;
use super::workload::{BAD_MODEL, MODELS};
use crate::proto::core::Core;
use crate::proto::message::AttemptId;
use crate::proto::state::SessionId;
use crate::task::{TaskErrorKind, TaskId, TaskRecord, TaskSpec, TaskState};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the ledger knows of a task.
struct Entry {
    spec: TaskSpec,
    submitted: Duration,
    cancelled: bool,
    /// The attempt that was dispatched last, and by which session.
    current: Option<(SessionId, AttemptId)>,
    finished: Option<TaskState>,
}

/// Everything that happened, as seen from outside of the core.
#[derive(Default)]
pub(super) struct Ledger {
    tasks: BTreeMap<u64, Entry>,
    /// Slots of the sessions that have not ended.
    sessions: BTreeMap<SessionId, u32>,
    keys: BTreeMap<String, (u64, crate::proto::state::Digest)>,
}

impl Ledger {
    pub(super) fn session_began(&mut self, session: SessionId, slots: u32) {
        self.sessions.insert(session, slots);
    }

    pub(super) fn session_ended(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// A submission was accepted. True when it is a new task.
    pub(super) fn submitted(
        &mut self,
        now: Duration,
        id: TaskId,
        spec: &TaskSpec,
        digest: crate::proto::state::Digest,
    ) -> Result<bool, String> {
        if let Some(key) = &spec.idempotency_key {
            if let Some((known, body)) = self.keys.get(key) {
                if *known != id.seq {
                    return Err(format!("key {key} stands for task {known}, not {}", id.seq));
                }
                if *body != digest {
                    return Err(format!("key {key} was accepted with another body"));
                }
                return Ok(false);
            }
            self.keys.insert(key.clone(), (id.seq, digest));
        }
        let entry = Entry {
            spec: spec.clone(),
            submitted: now,
            cancelled: false,
            current: None,
            finished: None,
        };
        if self.tasks.insert(id.seq, entry).is_some() {
            return Err(format!("task {} was given out twice", id.seq));
        }
        Ok(true)
    }

    pub(super) fn cancelled(&mut self, seq: u64) {
        if let Some(entry) = self.tasks.get_mut(&seq) {
            entry.cancelled = true;
        }
    }

    pub(super) fn dispatched(&mut self, session: SessionId, id: AttemptId) -> Result<(), String> {
        let entry = self.tasks.get_mut(&id.seq).ok_or("an unknown task was dispatched")?;
        if entry.finished.is_some() {
            return Err(format!("task {} was dispatched after its end", id.seq));
        }
        let last = entry.current.map_or(0, |(_, id)| id.attempt);
        if id.attempt != last + 1 {
            return Err(format!("task {}: attempt {} after {last}", id.seq, id.attempt));
        }
        entry.current = Some((session, id));
        Ok(())
    }

    /// The core accepted a completion.
    pub(super) fn accepted(&self, session: SessionId, id: AttemptId) -> Result<(), String> {
        let entry = self.tasks.get(&id.seq).ok_or("the completion of an unknown task")?;
        let current = entry.current == Some((session, id)) && self.sessions.contains_key(&session);
        if current && entry.finished.is_none() {
            return Ok(());
        }
        Err(format!(
            "a completion of {id:?} from session {session} was accepted, which is not the \
             current attempt {:?}",
            entry.current
        ))
    }

    /// A task reached its end: for the first time, and the right one.
    pub(super) fn finished(&mut self, now: Duration, record: &TaskRecord) -> Result<(), String> {
        let seq = record.task_id.seq;
        let entry = self.tasks.get_mut(&seq).ok_or("an unknown task finished")?;
        if let Some(earlier) = entry.finished.replace(record.state) {
            return Err(format!("task {seq} finished twice: {earlier}, then {}", record.state));
        }
        let code = record.error.as_ref().map(|e| e.code);
        let bad = entry.spec.model.name == BAD_MODEL;
        let given_up = entry.spec.max_attempts < 1_000;
        let expected = match (record.state, code) {
            (TaskState::Succeeded, None) => {
                let made_by = entry.current.map(|(_, id)| answer(id));
                !bad && record.outputs == made_by
            }
            (TaskState::Cancelled, Some(TaskErrorKind::Cancelled)) => entry.cancelled,
            (TaskState::Failed, Some(TaskErrorKind::BadInput)) => bad,
            (TaskState::Failed, Some(TaskErrorKind::DeadlineExceeded)) => {
                let due = entry.spec.deadline.map(|d| entry.submitted + d);
                due.is_some_and(|due| now >= due)
            }
            (TaskState::Failed, Some(TaskErrorKind::WorkerLost)) => given_up,
            (TaskState::Failed, Some(TaskErrorKind::Unavailable)) => {
                // No worker could load the second model, or the device failed too often.
                given_up || entry.spec.model.name == MODELS[1]
            }
            _ => false,
        };
        if expected {
            Ok(())
        } else {
            Err(format!("task {seq} has no reason to end so: {record:?}"))
        }
    }

    /// What holds after every step.
    pub(super) fn check(&self, now: Duration, core: &Core) -> Result<(), String> {
        let counts = core.stats(now).tasks;
        let open = self.tasks.values().filter(|e| e.finished.is_none()).count();
        let ended = counts.succeeded + counts.failed + counts.cancelled;
        let of = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        if counts.queued + counts.running != of(open) || counts.submitted != of(self.tasks.len()) {
            let known = self.tasks.len();
            return Err(format!("{open} of {known} tasks are open, the core says {counts:?}"));
        }
        if ended + of(open) != counts.submitted {
            return Err(format!("the core's counts do not add up: {counts:?}"));
        }
        for (session, slots) in &self.sessions {
            let running = self.running(core, *session);
            if running > of(usize::try_from(*slots).unwrap_or(usize::MAX)) {
                let what = format!("session {session} runs {running} tasks");
                return Err(format!("{what}, more than its slots, which are {slots}"));
            }
        }
        let overdue = self.tasks.iter().find(|(_, e)| {
            let due = e.spec.deadline.map(|d| e.submitted + d);
            e.finished.is_none() && due.is_some_and(|due| due < now)
        });
        overdue.map_or(Ok(()), |(seq, _)| Err(format!("task {seq} outlived its deadline")))
    }

    /// Tasks whose answer is awaited from a session.
    fn running(&self, core: &Core, session: SessionId) -> u64 {
        let awaited = |e: &&Entry| {
            let here = e.current.filter(|(s, _)| e.finished.is_none() && *s == session);
            here.is_some_and(|(s, id)| core.is_current(s, id))
        };
        u64::try_from(self.tasks.values().filter(awaited).count()).unwrap_or(u64::MAX)
    }

    /// What holds at the end, long after the last fault.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let open = self.tasks.iter().find(|(_, e)| e.finished.is_none());
        open.map_or(Ok(()), |(seq, e)| {
            Err(format!("task {seq} is still open; its last attempt was {:?}", e.current))
        })
    }
}
