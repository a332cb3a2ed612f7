//! The answers that callers got about a durable task, from any coordinator, checked for
//! linearizability: there must be an order in which all of them are true, and which respects real
//! time. An external crate does the search.

use lgp_distributed::{TaskId, TaskState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use todc_utils::{Action, History as Actions, Specification, WGLChecker};

/// A caller's observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Saw {
    /// No observation.
    Nothing,
    /// The task was submitted and has this id; `None` without an answer.
    Submitted(Option<TaskId>),
    /// The task that the key stands for.
    Stands(Option<TaskId>),
    /// The task has not ended.
    Open(TaskId),
    Ended(TaskId, TaskState),
    /// The coordinator does not know the task.
    Unknown(TaskId),
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stand {
    Absent,
    /// The id is unknown while the submission has no answer.
    Open(Option<TaskId>),
    Ended(Option<TaskId>, Option<Ending>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Ending {
    Succeeded,
    Failed,
    Cancelled,
}

fn ending(state: TaskState) -> Option<Ending> {
    match state {
        TaskState::Succeeded => Some(Ending::Succeeded),
        TaskState::Failed => Some(Ending::Failed),
        TaskState::Cancelled => Some(Ending::Cancelled),
        _ => None,
    }
}

impl Stand {
    /// Whether the task may have this id.
    fn is(known: Option<TaskId>, id: TaskId) -> bool {
        known.is_none_or(|known| known == id)
    }

    /// The states that are possible after an observation.
    fn after(self, saw: &Saw) -> Vec<Self> {
        match (saw, self) {
            (Saw::Nothing, _) | (Saw::Stands(None), Self::Absent) => vec![self],
            (Saw::Submitted(None), Self::Absent) => vec![Self::Absent, Self::Open(None)],
            (Saw::Submitted(None), _) => vec![self],
            (Saw::Submitted(Some(id)), Self::Absent) => vec![Self::Open(Some(*id))],
            (
                Saw::Submitted(Some(id)) | Saw::Stands(Some(id)) | Saw::Open(id),
                Self::Open(known),
            ) if Self::is(known, *id) => vec![Self::Open(Some(*id))],
            (Saw::Submitted(Some(id)) | Saw::Stands(Some(id)), Self::Ended(known, how))
                if Self::is(known, *id) =>
            {
                vec![Self::Ended(Some(*id), how)]
            }
            (Saw::Ended(id, state), Self::Ended(known, how))
                if Self::is(known, *id) && how.is_none_or(|how| ending(*state) == Some(how)) =>
            {
                vec![Self::Ended(Some(*id), ending(*state))]
            }
            _ => Vec::new(),
        }
    }

    /// An open task may end by itself at any time.
    fn or_ended(self) -> impl Iterator<Item = Self> {
        let ended = match self {
            Self::Open(id) => Some(Self::Ended(id, None)),
            Self::Absent | Self::Ended(..) => None,
        };
        [Some(self), ended].into_iter().flatten()
    }
}

/// One task; the search follows several possible states together.
struct Task;

impl Specification for Task {
    type State = BTreeSet<Stand>;
    type Operation = Saw;

    fn init() -> Self::State {
        BTreeSet::from([Stand::Absent])
    }

    fn apply(saw: &Saw, stands: &Self::State) -> (bool, Self::State) {
        let may = stands.iter().flat_map(|stand| stand.or_ended());
        let after: BTreeSet<Stand> = may.flat_map(|stand| stand.after(saw)).collect();
        (!after.is_empty(), after)
    }
}

/// A call in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    task: usize,
    call: usize,
}

/// The observations of all tasks.
#[derive(Default)]
pub(super) struct History(Mutex<BTreeMap<usize, Told>>);

#[derive(Default)]
struct Told {
    actions: Vec<(usize, Action<Saw>)>,
    /// The observations for calls that never end, by number.
    open: BTreeMap<usize, Saw>,
    calls: usize,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins. `unheard` is its observation if it never ends.
    pub(super) fn ask(&self, task: usize, unheard: Saw) -> Asking {
        let mut tasks = self.lock();
        let told = tasks.entry(task).or_default();
        let call = told.calls;
        told.calls += 1;
        told.actions.push((call, Action::Call(Saw::Nothing)));
        told.open.insert(call, unheard);
        Asking { task, call }
    }

    /// The call ends.
    pub(super) fn tell(&self, Asking { task, call }: Asking, saw: Saw) {
        let mut tasks = self.lock();
        let told = tasks.entry(task).or_default();
        if told.open.remove(&call).is_some() {
            told.actions.push((call, Action::Response(saw)));
        }
    }

    /// The first task without a valid order, and its observations.
    pub(super) fn wrong(&self) -> Option<(usize, String)> {
        let mut tasks = self.lock();
        tasks.iter_mut().find_map(|(number, told)| {
            for (call, unheard) in std::mem::take(&mut told.open) {
                told.actions.push((call, Action::Response(unheard)));
            }
            let actions = told.actions.clone();
            let holds = WGLChecker::<Task>::is_linearizable(Actions::from_actions(actions));
            (!holds).then(|| (*number, format!("{:?}", told.actions)))
        })
    }

    /// The number of calls.
    pub(super) fn calls(&self) -> usize {
        self.lock().values().map(|told| told.calls).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_distributed::inside::task_id;

    /// Calls that begin and end one after another; a call with `true` overlaps all that follow.
    fn holds(told: &[(Saw, bool)]) -> bool {
        let history = History::default();
        for (saw, overlaps) in told {
            let asking = history.ask(0, saw.clone());
            if !overlaps {
                history.tell(asking, saw.clone());
            }
        }
        history.wrong().is_none()
    }

    #[test]
    fn what_cannot_all_be_true_is_noticed() {
        let (one, two) = (task_id(1, 1), task_id(2, 1));
        let ended = |id| Saw::Ended(id, TaskState::Succeeded);
        let cases: &[(&[(Saw, bool)], bool)] = &[
            (&[(Saw::Stands(None), false), (Saw::Submitted(Some(one)), false)], true),
            (&[(Saw::Submitted(Some(one)), false), (Saw::Stands(None), false)], false),
            (&[(Saw::Submitted(Some(one)), true), (Saw::Stands(None), false)], true),
            (&[(Saw::Submitted(Some(one)), false), (Saw::Submitted(Some(two)), false)], false),
            (&[(Saw::Submitted(None), false), (Saw::Stands(Some(two)), false)], true),
            (&[(Saw::Stands(Some(two)), false)], false),
            (
                &[(Saw::Submitted(Some(one)), false), (Saw::Open(one), false), (ended(one), false)],
                true,
            ),
            (
                &[(Saw::Submitted(Some(one)), false), (ended(one), false), (Saw::Open(one), false)],
                false,
            ),
            (&[(Saw::Submitted(Some(one)), false), (Saw::Unknown(one), false)], false),
            (
                &[
                    (Saw::Submitted(Some(one)), false),
                    (ended(one), false),
                    (Saw::Ended(one, TaskState::Failed), false),
                ],
                false,
            ),
        ];
        for (told, expected) in cases {
            assert_eq!(holds(told), *expected, "{told:?}");
        }
    }
}
