//! What callers were told of a durable task, wherever they asked, as if there were one coordinator: an
//! order must exist in which all of it is true, and that keeps what came after what. The search for one
//! is not ours.

use lgp_distributed::{TaskId, TaskState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use todc_utils::{Action, History as Actions, Specification, WGLChecker};

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Saw {
    /// Nothing that has to be true.
    Nothing,
    /// It was submitted, and is this task; none where nobody told.
    Submitted(Option<TaskId>),
    /// What the key stands for.
    Stands(Option<TaskId>),
    /// The task has not ended.
    Open(TaskId),
    Ended(TaskId, TaskState),
    /// Nobody knows it.
    Unknown(TaskId),
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stand {
    Absent,
    /// Of a submission without an answer the id shows later.
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
    /// The task, if it may be that one.
    fn is(known: Option<TaskId>, id: TaskId) -> bool {
        known.is_none_or(|known| known == id)
    }

    /// How it may stand after somebody was told this.
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

    /// It may end by itself at any time.
    fn or_ended(self) -> impl Iterator<Item = Self> {
        let ended = match self {
            Self::Open(id) => Some(Self::Ended(id, None)),
            Self::Absent | Self::Ended(..) => None,
        };
        [Some(self), ended].into_iter().flatten()
    }
}

/// One task; several ways in which it may stand are gone along together.
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

/// A call that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    task: usize,
    call: usize,
}

/// What is told of all tasks.
#[derive(Default)]
pub(super) struct History(Mutex<BTreeMap<usize, Told>>);

#[derive(Default)]
struct Told {
    actions: Vec<(usize, Action<Saw>)>,
    /// What the calls tell that have no answer, by their numbers.
    open: BTreeMap<usize, Saw>,
    calls: usize,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins, which tells `unheard` if it never ends.
    pub(super) fn ask(&self, task: usize, unheard: Saw) -> Asking {
        let mut tasks = self.lock();
        let told = tasks.entry(task).or_default();
        let call = told.calls;
        told.calls += 1;
        told.actions.push((call, Action::Call(Saw::Nothing)));
        told.open.insert(call, unheard);
        Asking { task, call }
    }

    /// It ends.
    pub(super) fn tell(&self, Asking { task, call }: Asking, saw: Saw) {
        let mut tasks = self.lock();
        let told = tasks.entry(task).or_default();
        if told.open.remove(&call).is_some() {
            told.actions.push((call, Action::Response(saw)));
        }
    }

    /// The first task of which no order makes everything true, and what was told of it.
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

    /// How much was told.
    pub(super) fn calls(&self) -> usize {
        self.lock().values().map(|told| told.calls).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_distributed::inside::task_id;

    /// Calls that begin and end one after another; the second of a pair overlaps all that follow.
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
