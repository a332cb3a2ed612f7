//! Explanations for people: what was decided about a task, and what it waits for now.

use crate::error::Result;
use crate::proto::core::Core;
use crate::proto::fleet::{Seat, Worker};
use crate::proto::models::ModelState;
use crate::proto::state::Task;
use crate::task::{TaskId, TaskState};
use std::time::Duration;

impl Core {
    /// Each decision about a task in the order in which it was taken, with the milliseconds since
    /// its submission; then, while it is not terminal, what it waits for.
    pub(crate) fn explain(&self, now: Duration, id: TaskId) -> Result<Vec<(f64, String)>> {
        let seq = self.find(id)?;
        let task = &self.tasks[&seq];
        let since = |at: Duration| at.saturating_sub(task.submitted).as_secs_f64() * 1e3;
        let accepted = format!("accepted with priority {}", task.priority);
        let mut lines = vec![(0.0, accepted)];
        if !task.depends_on.is_empty() {
            let ids: Vec<String> = task.depends_on.iter().map(ToString::to_string).collect();
            lines.push((0.0, format!("depends on {}", ids.join(", "))));
        }
        lines.extend(task.notes.iter().map(|note| (since(note.at), note.what.to_string())));
        if let Some(error) = &task.error {
            let at = task.finished.unwrap_or(now);
            lines.push((since(at), format!("{}: {error}", error.code.name())));
        }
        let waits = self.waits_for(now, seq, task);
        lines.extend(waits.into_iter().map(|text| (since(now), text)));
        Ok(lines)
    }

    fn waits_for(&self, now: Duration, seq: u64, task: &Task) -> Vec<String> {
        if task.state.is_terminal() {
            return Vec::new();
        }
        if !task.saved || task.ending.is_some() {
            return vec!["waits for the journal".to_owned()];
        }
        if task.state == TaskState::Running {
            let worker = task.worker.as_ref().map_or("?", |worker| worker.as_str());
            return vec![format!("runs on worker {worker}")];
        }
        if task.waits > 0 {
            return vec![format!("waits for {} of the tasks that it depends on", task.waits)];
        }
        if self.parked.contains(&seq) {
            return vec!["waits for the budget for retries".to_owned()];
        }
        if let Some(at) = task.retry_at {
            let ms = at.saturating_sub(now).as_millis();
            return vec![format!("waits {ms} ms for its next attempt")];
        }
        let before = self.queue.before(task.place(seq));
        let mut lines = vec![format!("waits for a free device; {before} tasks go before it")];
        lines.extend(self.fleet.workers.values().map(|worker| {
            let why = self.unusable(now, worker, task).unwrap_or("may take it");
            format!("worker {}: {why}", worker.id)
        }));
        lines
    }

    /// Why a worker cannot take a task now.
    fn unusable(&self, now: Duration, worker: &Worker, task: &Task) -> Option<&'static str> {
        if !worker.is_ready() {
            return Some(worker.state.name());
        }
        if now.saturating_sub(worker.last_seen) > self.config.timing.suspect_after {
            return Some("silent for a while");
        }
        if worker.breakers.get(&*task.model).is_some_and(|breaker| !breaker.passes()) {
            return Some("failed too often at this model; its breaker is open");
        }
        if !worker.takes(task.input_bytes) {
            return Some("takes inputs of fewer bytes");
        }
        let seats: Vec<&Seat> =
            worker.seats.iter().filter_map(|&id| self.fleet.seats.get(id)).collect();
        let state = |seat: &&&Seat| {
            !matches!(
                seat.models.get(&*task.model),
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
        let full = |seat: &&Seat| u32::try_from(seat.held.len()).is_ok_and(|n| n >= seat.slots);
        seats.iter().all(full).then_some("all of its slots are taken")
    }
}
