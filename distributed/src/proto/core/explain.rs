//! Explanations for people: what was decided about a task, and what it waits for now.

use super::{Core, Found};
use crate::error::Result;
use crate::proto::histogram::ms;
use crate::proto::placement::{ModelState, Seat, Worker};
use crate::proto::tasks::{Phase, Task};
use crate::task::{TaskId, TaskState};
use std::time::Duration;

/// Milliseconds since a task's submission.
fn since(task: &Task, at: Duration) -> f64 {
    ms(at.saturating_sub(task.request().submitted()))
}

/// The decisions about a task so far.
pub(super) fn story(task: &Task) -> Vec<(f64, String)> {
    let accepted = format!("accepted with priority {}", task.request().priority());
    let mut lines = vec![(0.0, accepted)];
    if !task.depends_on().is_empty() {
        let ids: Vec<String> = task.depends_on().iter().map(ToString::to_string).collect();
        lines.push((0.0, format!("depends on {}", ids.join(", "))));
    }
    lines.extend(task.notes().iter().map(|note| (since(task, note.at), note.what.to_string())));
    if let Some(error) = task.error() {
        let at = task.finished().unwrap_or_default();
        lines.push((since(task, at), format!("{}: {}", error.code.name(), error.told())));
    }
    lines
}

impl Core {
    /// Each decision about a task in the order in which it was taken, with the milliseconds since
    /// its submission; then, while it is not terminal, what it waits for.
    pub fn explain(&self, now: Duration, id: TaskId) -> Result<Found<Vec<(f64, String)>>> {
        let task = match self.whole(id)? {
            Found::Here(task) => task,
            Found::Stored(id) => return Ok(Found::Stored(id)),
        };
        let mut lines = story(task);
        let waits = self.waits_for(now, task);
        lines.extend(waits.into_iter().map(|text| (since(task, now), text)));
        Ok(Found::Here(lines))
    }

    fn waits_for(&self, now: Duration, task: &Task) -> Vec<String> {
        match task.phase() {
            Phase::Ended(_) => Vec::new(),
            Phase::Saving | Phase::Ending { .. } => vec!["waits for the journal".to_owned()],
            Phase::Running { .. } => {
                let worker = task.worker().map_or("?", |worker| worker.as_str());
                vec![format!("runs on worker {worker}")]
            }
            Phase::Waiting => {
                vec![format!("waits for {} of the tasks that it depends on", task.waits())]
            }
            Phase::Parked => {
                let why =
                    "waits to be tried again: too many tasks are being tried again at present";
                vec![why.to_owned()]
            }
            Phase::Backoff { until } => {
                let ms = until.saturating_sub(now).as_millis();
                vec![format!("waits {ms} ms for its next attempt")]
            }
            Phase::Ready if self.is_withdrawn(task.model()) => vec![self.withdrawn(task)],
            Phase::Ready => {
                let before = self.scheduler.queue().before(task.place());
                let free = format!("waits for a free device; {before} tasks go before it");
                let workers = self.placement.fleet().workers().map(|worker| {
                    let why = self.unusable(now, worker, task).unwrap_or("may take it");
                    format!("worker {}: {why}", worker.id())
                });
                std::iter::once(free).chain(workers).collect()
            }
        }
    }

    /// What a task of a withdrawn model waits for.
    fn withdrawn(&self, task: &Task) -> String {
        let model = task.model();
        format!("waits for model {model}, which was unloaded: load it, or cancel the task")
    }

    /// What a task was waiting for when its deadline passed.
    pub(super) fn overdue(&self, now: Duration, seq: u64) -> String {
        let Some(task) = self.tasks.get(seq) else { return String::new() };
        let ms = now.saturating_sub(task.request().submitted()).as_millis();
        let place = match (task.state(), task.worker()) {
            (TaskState::Running, Some(worker)) => format!("running on worker {worker}"),
            _ if task.waits() > 0 => format!("waiting for {} other tasks", task.waits()),
            _ if self.is_withdrawn(task.model()) => "waiting: its model is unloaded".into(),
            _ if !self.placement.fleet().workers().any(Worker::is_ready) => {
                "waiting: no worker is ready".into()
            }
            _ => "waiting for a free worker".into(),
        };
        format!("the deadline passed after {ms} ms, while the task was {place}")
    }

    /// Why a worker cannot take a task now.
    fn unusable(&self, now: Duration, worker: &Worker, task: &Task) -> Option<&'static str> {
        if !worker.is_ready() {
            return Some(worker.state().name());
        }
        if now.saturating_sub(worker.last_seen()) > self.config.timing.suspect_after {
            return Some("silent for a while");
        }
        if !worker.passes(task.model()) {
            return Some("failed too often at this model and gets none of its tasks for now");
        }
        if !worker.takes(task.request().input_bytes()) {
            return Some("takes inputs of fewer bytes");
        }
        let seats = || self.placement.fleet().seats_of(worker);
        if seats().all(|seat| seat.out().is_some()) {
            return Some(
                "its devices were taken out; radeon-cluster workers enable brings them back",
            );
        }
        let seats: Vec<&Seat> = seats().filter(|seat| seat.out().is_none()).collect();
        let state = |seat: &&&Seat| {
            !matches!(
                seat.state_of(task.model()),
                Some(
                    ModelState::Failed(_)
                        | ModelState::Loading { .. }
                        | ModelState::Leaving
                        | ModelState::Going { .. }
                )
            )
        };
        if !seats.iter().any(|seat| state(&seat)) {
            return Some("does not have the model");
        }
        let full = |seat: &&Seat| seat.free_for(task.model()) == 0;
        seats.iter().all(full).then_some("all of its slots are taken")
    }
}
