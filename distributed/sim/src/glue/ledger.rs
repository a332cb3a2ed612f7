//! The answers that callers got, and the answers that are valid afterwards.

use super::behaviour::{Behaviour, are_outputs_of};
use super::scene::Scene;
use lgp_distributed::{TaskError, TaskErrorKind, TaskId, TaskRecord, TaskSpec, TaskState};
use lgp_memory::NamedTensor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a task is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Submitted with a key until it is accepted, and then waited for.
    Durable,
    /// Like `Durable`, but its caller leaves at any time, and may come back.
    DurableLeft,
    /// Submitted and waited for in one call.
    Run,
    /// Submitted and waited for.
    Volatile,
    /// Like `Volatile`, but it does not end before the callers have left.
    Held,
}

impl Way {
    pub(super) fn is_durable(self) -> bool {
        matches!(self, Self::Durable | Self::DurableLeft)
    }
}

/// A task that callers submit.
pub(super) struct Entry {
    pub(super) way: Way,
    pub(super) behaviour: Behaviour,
    pub(super) spec: TaskSpec,
    /// The task's id, and the life of the coordinator that accepted it.
    pub(super) accepted: Option<(TaskId, u32)>,
    /// Whether it may have been cancelled.
    pub(super) cancelled: bool,
    shown: Option<Shown>,
    runs: u32,
    /// What its caller is doing.
    pub(super) doing: &'static str,
}

/// The end of a task as a caller saw it.
#[derive(Debug, Clone, PartialEq)]
struct Shown {
    id: TaskId,
    state: TaskState,
    outputs: Option<Vec<NamedTensor>>,
    error: Option<TaskError>,
}

pub(super) struct Ledger {
    scene: Arc<Scene>,
    entries: Mutex<Vec<Entry>>,
}

impl Ledger {
    pub(super) fn new(scene: &Arc<Scene>) -> Arc<Self> {
        Arc::new(Self { scene: Arc::clone(scene), entries: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task that was not submitted yet.
    pub(super) fn add(&self, way: Way, behaviour: Behaviour, spec: TaskSpec) {
        let (accepted, cancelled, shown, runs) = (None, false, None, 0);
        let doing = "nothing yet";
        self.lock().push(Entry { way, behaviour, spec, accepted, cancelled, shown, runs, doing });
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Reads or changes a task.
    pub(super) fn with<R>(&self, number: usize, look: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.lock().get_mut(number).map(look)
    }

    /// Records what a task's caller is doing, for runs that do not end.
    pub(super) fn doing(&self, number: usize, what: &'static str) {
        self.with(number, |entry| entry.doing = what);
        self.scene.note(|| format!("task {number}: {what}"));
    }

    /// A run begins; returns the number of earlier runs.
    pub(super) fn runs(&self, number: usize) -> u32 {
        let count = |entry: &mut Entry| {
            entry.runs += 1;
            entry.runs - 1
        };
        self.with(number, count).unwrap_or(0)
    }

    /// All accepted tasks.
    pub(super) fn accepted(&self) -> Vec<(usize, Way, TaskId, u32)> {
        let entries = self.lock();
        let accepted = entries.iter().enumerate().filter_map(|(number, entry)| {
            entry.accepted.map(|(id, life)| (number, entry.way, id, life))
        });
        accepted.collect()
    }

    /// A task was accepted; a key must always stand for the same task.
    pub(super) fn accept(&self, number: usize, id: TaskId, life: u32) {
        self.scene.note(|| format!("task {number} is accepted as {id}"));
        let other = self.with(number, |entry| {
            let keyed = entry.spec.idempotency_key.is_some();
            let before = entry.accepted.replace((id, life));
            before.filter(|(before, _)| keyed && *before != id)
        });
        if let Some(Some((before, _))) = other {
            self.scene.fail(format!("task {number} was accepted as {before} and as {id}"));
        }
    }

    /// A caller sees a record of a task.
    pub(super) fn show(&self, number: usize, record: TaskRecord) {
        if !record.state.is_terminal() {
            return;
        }
        let TaskRecord { task_id: id, state, outputs, error, .. } = record;
        let shown = Shown { id, state, outputs, error };
        self.scene.note(|| format!("task {number} is shown: {state:?} {:?}", shown.error));
        let wrong = self.with(number, |entry| match &entry.shown {
            Some(before) if *before != shown => {
                Some(format!("task {number} ended twice: {before:?}, then {shown:?}"))
            }
            Some(_) => None,
            None => {
                let wrong = entry.wrong(&shown);
                entry.shown = Some(shown);
                wrong.map(|what| format!("task {number} ({:?}): {what}", entry.behaviour))
            }
        });
        if let Some(Some(what)) = wrong {
            self.scene.fail(what);
        }
    }

    /// How many tasks succeeded, failed and were cancelled, and how many runs there were.
    pub(super) fn sums(&self) -> ([u64; 3], u64) {
        let entries = self.lock();
        let states = [TaskState::Succeeded, TaskState::Failed, TaskState::Cancelled];
        let shown = || entries.iter().filter_map(|entry| entry.shown.as_ref());
        let ended = |state| shown().filter(|shown| shown.state == state).map(|_| 1).sum();
        let runs = entries.iter().map(|entry| u64::from(entry.runs)).sum();
        (states.map(ended), runs)
    }
}

impl Entry {
    /// What is wrong with an end; `None` if it is valid.
    fn wrong(&self, shown: &Shown) -> Option<String> {
        match (shown.state, &shown.error) {
            (TaskState::Succeeded, _) => {
                let outputs = shown.outputs.as_deref().unwrap_or_default();
                let right = are_outputs_of(outputs, &self.spec.inputs);
                (!right).then(|| "its outputs are not those of its inputs".into())
            }
            (TaskState::Cancelled, _) if self.cancelled => None,
            (TaskState::Failed, Some(error)) => {
                let enough = self.runs >= self.spec.max_attempts;
                let may = match error.code {
                    TaskErrorKind::ModelFailed => self.behaviour == Behaviour::Fails,
                    TaskErrorKind::Unavailable | TaskErrorKind::RunLimit => enough,
                    TaskErrorKind::WorkerLost => true,
                    TaskErrorKind::Stopped => !self.way.is_durable(),
                    _ => false,
                };
                (!may).then(|| format!("it failed after {} runs with {error:?}", self.runs))
            }
            (state, error) => Some(format!("it ended as {state:?} with {error:?}")),
        }
    }
}
