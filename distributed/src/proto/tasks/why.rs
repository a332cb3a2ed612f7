//! Why a task is where it is: each decision about it, kept small and put into words on demand.

use crate::task::{ModelRef, TaskErrorKind, TaskId, TaskState};
use crate::worker_info::WorkerId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Most notes that are kept of one task; those in the middle of a long story go first.
const NOTES_MAX: usize = 24;

/// A decision, and when it was taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Note {
    pub(crate) at: Duration,
    pub(crate) what: What,
}

/// Decisions about a task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    Saved,
    DependencyDone(TaskId),
    Sent {
        worker: WorkerId,
        device: u32,
        attempt: u32,
        strategy: &'static str,
        reason: &'static str,
        score: f64,
        rival: bool,
        variant: Option<Arc<ModelRef>>,
    },
    /// A device gets its model, for which so many others are evicted.
    Room {
        worker: WorkerId,
        device: u32,
        evicted: usize,
    },
    /// The device that earlier tasks of the affinity key went to.
    Home {
        worker: WorkerId,
        kept: bool,
    },
    Failed {
        attempt: u32,
        code: TaskErrorKind,
        wait: Duration,
    },
    /// A rival still runs.
    OneLess {
        attempt: u32,
        code: TaskErrorKind,
    },
    GivenBack {
        attempt: u32,
        /// Whether the coordinator had recalled it.
        asked: bool,
    },
    /// An attempt is recalled: its worker is asked to give it back, if it has not begun.
    Recalled {
        attempt: u32,
        worker: WorkerId,
        why: Recall,
    },
    /// Its run took longer than it may.
    Overran {
        attempt: u32,
        limit: Duration,
    },
    /// Its run did not stop, and its worker's process was replaced.
    Replaced {
        attempt: u32,
        worker: WorkerId,
    },
    /// Its worker came back with the attempt.
    Resumed {
        attempt: u32,
        worker: WorkerId,
    },
    Restored,
    /// A decision in words, as the journal had it.
    Told(String),
    Unsaved {
        reason: String,
    },
    Ended(TaskState),
}

/// Adds a note.
pub(crate) fn note(notes: &mut Vec<Note>, at: Duration, what: What) {
    if notes.len() >= NOTES_MAX {
        // The beginning says how the task came here, the end why it is still here.
        notes.remove(NOTES_MAX / 2);
    }
    notes.push(Note { at, what });
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saved => write!(f, "the journal has it"),
            Self::DependencyDone(id) => write!(f, "task {id}, on which it depends, succeeded"),
            Self::Sent { worker, device, attempt, strategy, reason, score, rival, variant } => {
                let what = if *rival { "rival attempt" } else { "attempt" };
                write!(f, "{what} {attempt} sent to worker {worker}, device {device}")?;
                if let Some(variant) = variant {
                    write!(f, ", for variant {variant} of its model")?;
                }
                write!(f, ": {strategy} found the {reason} ({score:.3}) there")
            }
            Self::Room { worker, device, evicted } => {
                write!(f, "worker {worker}, device {device}, is to load its model")?;
                match evicted {
                    0 => write!(f, ": it has room"),
                    count => write!(f, " in place of {count} that are used less"),
                }
            }
            Self::Home { worker, kept: true } => {
                write!(f, "earlier tasks of its affinity key went to worker {worker}, so does it")
            }
            Self::Home { worker, kept: false } => {
                let busy = "which is busy, suspect or gone";
                write!(f, "earlier tasks of its affinity key went to worker {worker}, {busy}")
            }
            Self::Failed { attempt, code, wait } => {
                let ms = wait.as_millis();
                write!(f, "attempt {attempt} ended without an answer ({}); ", code.name())?;
                write!(f, "the next may begin after {ms} ms, unless too many are tried again then")
            }
            Self::OneLess { attempt, code } => {
                let code = code.name();
                write!(f, "attempt {attempt} ended without an answer ({code}); its rival goes on")
            }
            Self::GivenBack { attempt, asked: false } => {
                write!(
                    f,
                    "attempt {attempt} came back: its worker leaves, or memory shared with it failed"
                )
            }
            Self::GivenBack { attempt, asked: true } => {
                write!(f, "attempt {attempt} came back unbegun, as asked")
            }
            Self::Recalled { attempt, worker, why } => {
                write!(f, "attempt {attempt} is asked back from worker {worker}: {why}")
            }
            Self::Overran { attempt, limit } => {
                write!(f, "attempt {attempt} reached its limit of {limit:?} and is asked to stop")
            }
            Self::Replaced { attempt, worker } => {
                write!(
                    f,
                    "attempt {attempt} did not stop: the process of worker {worker} is replaced"
                )
            }
            Self::Resumed { attempt, worker } => {
                write!(f, "attempt {attempt} goes on: worker {worker} came back with it")
            }
            Self::Restored => write!(f, "taken from the journal after a restart"),
            Self::Told(text) => write!(f, "{text}"),
            Self::Unsaved { reason } => {
                write!(f, "the journal could not take its end ({reason}); it is tried again")
            }
            Self::Ended(state) => write!(f, "{state}"),
        }
    }
}

/// Why an attempt is recalled, for people.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Recall {
    /// A more urgent task finds no place.
    Room(TaskId),
    /// It is expected to be done sooner on an idle device of that worker.
    Sooner { there_ms: f64, here_ms: f64, worker: WorkerId },
}

impl fmt::Display for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room(task) => write!(f, "task {task}, which is more urgent, finds no place"),
            Self::Sooner { there_ms, here_ms, worker } => {
                write!(f, "it would be done in {there_ms:.0} ms there, ")?;
                write!(f, "in {here_ms:.0} ms on worker {worker}, which is idle")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_story_keeps_its_beginning_and_its_end() {
        let mut notes = Vec::new();
        for attempt in 0..100 {
            note(&mut notes, Duration::ZERO, What::GivenBack { attempt, asked: false });
        }
        let attempts: Vec<u32> = notes
            .iter()
            .map(|n| if let What::GivenBack { attempt, .. } = n.what { attempt } else { 0 })
            .collect();
        assert_eq!(attempts.len(), NOTES_MAX);
        assert_eq!((attempts[0], attempts[11], attempts[23]), (0, 11, 99));
    }
}
