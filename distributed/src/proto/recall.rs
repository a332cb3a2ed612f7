//! Attempts that have not begun are asked back: background work makes room for more urgent tasks,
//! and what waits at a slow worker goes to an idle one.
//!
//! A worker gives back only what no thread has taken, and until it has said so the attempt is its
//! own: asking runs nothing twice, and a question that is lost changes nothing.

mod holdings;
mod relieve;
#[cfg(test)]
mod tests;

use crate::proto::core::Core;
use crate::proto::fleet::{SeatId, Worker};
use crate::proto::message::AttemptId;
use crate::proto::queue::{Place, is_urgent};
use crate::proto::state::{Action, Planted, SessionId};
use crate::proto::why::{What, note};
use crate::task::{ModelRef, Priority, TaskError, TaskErrorKind, TaskId};
use crate::worker_info::WorkerId;
use std::fmt;
use std::time::Duration;

pub(super) use holdings::{Holdings, Tally};

/// Time until a look that found nobody to ask is repeated.
const LOOK: Duration = Duration::from_millis(10);

/// How far an attempt has come, as far as heartbeats said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unknown,
    /// It waited when the last heartbeat was sent.
    Waiting,
    Begun,
}

/// What an attempt was asked back for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Room,
    Sooner,
}

/// What matters about an attempt for asking it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    background: bool,
    stage: Stage,
    pub(super) recalled: Option<Cause>,
}

impl Standing {
    /// That of an attempt that is about to be sent.
    pub(super) fn new(priority: Priority) -> Self {
        let background = priority == Priority::Background;
        Self { background, stage: Stage::Unknown, recalled: None }
    }

    /// A heartbeat names the attempt. One that was sent earlier may come later.
    pub(super) fn hear(&mut self, begun: bool) {
        if self.stage != Stage::Begun {
            self.stage = if begun { Stage::Begun } else { Stage::Waiting };
        }
    }

    fn is_waiting(&self) -> bool {
        self.stage == Stage::Waiting
    }

    fn waits(&self) -> bool {
        self.is_waiting() && self.recalled.is_none()
    }

    fn may_yield(&self, may_wait: bool) -> bool {
        let open = self.stage == Stage::Waiting || (self.stage == Stage::Unknown && may_wait);
        self.background && open && self.recalled.is_none()
    }

    fn may_come_back(&self, cause: Cause) -> bool {
        self.recalled == Some(cause) && self.stage != Stage::Begun
    }
}

/// Why an attempt is asked back, for people.
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

impl Core {
    /// Asks background attempts back for urgent tasks that found no place: one for each of these
    /// at most, and only one that comes after it in line, else it would take the place again.
    pub(super) fn make_room(&mut self, now: Duration) {
        if self.fleet.yielding == 0 || now < self.next_recall {
            return;
        }
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let mut missing = count(self.queue.urgent(None)).saturating_sub(self.fleet.yields);
        let mut after: Option<Place> = None;
        let mut found = missing == 0;
        while missing > 0 && self.fleet.yielding > 0 {
            let Some((place, model)) = self.queue.head_after(after) else { break };
            after = Some(place);
            let Some(task) = self.tasks.get(&place.seq()).filter(|t| is_urgent(t.priority)) else {
                continue;
            };
            let waiting = TaskId { epoch: task.epoch, seq: place.seq() };
            let wanted = count(self.queue.urgent(Some(&model))).min(missing);
            let input_bytes = task.input_bytes;
            let yielding = self.least_urgent(now, &model, place, input_bytes);
            for (seat, id) in
                yielding.into_iter().take(usize::try_from(wanted).unwrap_or(usize::MAX))
            {
                self.recall(now, seat, id, Cause::Room, Recall::Room(waiting));
                missing -= 1;
                found = true;
            }
        }
        if !found {
            // Nobody may go for them now, and looking again at each event would find the same.
            self.next_recall = now + LOOK;
        }
    }

    /// The background attempts that take a place where the model's tasks could run, those first
    /// that go last, and rather those that are known to wait.
    fn least_urgent(
        &mut self,
        now: Duration,
        model: &ModelRef,
        before: Place,
        input_bytes: usize,
    ) -> Vec<(SeatId, AttemptId)> {
        let heard_since = now.saturating_sub(self.config.timing.suspect_after);
        let capable = self.capabilities.of(&self.fleet, model, self.models.get(model));
        let mut found: Vec<((bool, Place), SeatId, AttemptId)> = Vec::new();
        for capable in capable {
            let hot = self.fleet.hot.get(capable.seat);
            let seat = self.fleet.seats.get(capable.seat);
            let (Some(hot), Some(seat)) = (hot, seat) else { continue };
            let worker = self.fleet.workers.get(&seat.session);
            let able = |w: &Worker| w.last_seen >= heard_since && w.takes(input_bytes);
            if hot.yielding == 0 || !worker.is_some_and(able) {
                continue;
            }
            for (id, held) in seat.held.iter() {
                let Some(task) = self.tasks.get(&id.seq) else { continue };
                if !seat.held.may_yield(held) || !task.awaits(seat.session, id.attempt) {
                    continue;
                }
                let rank = (held.standing.waits(), task.place(id.seq));
                if rank.1 > before {
                    found.push((rank, capable.seat, *id));
                }
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, seat, id)| (seat, id)).collect()
    }

    fn recall(&mut self, now: Duration, at: SeatId, id: AttemptId, cause: Cause, why: Recall) {
        let Some(seat) = self.fleet.seats.get_mut(at) else { return };
        let session = seat.session;
        if self.planted != Planted::RecallTwice {
            seat.held.recall(&id, cause);
        }
        self.fleet.refresh(at);
        if let (Some(task), Some(worker)) =
            (self.tasks.get_mut(&id.seq), self.fleet.workers.get(&session))
        {
            let worker = worker.id.clone();
            note(&mut task.notes, now, What::Recalled { attempt: id.attempt, worker, why });
        }
        self.actions.push_back(Action::Recall { session, id });
        if self.planted == Planted::RecallAssumed {
            self.give_back(now, id, session, true);
        }
    }

    /// An attempt that was asked back was not begun: its task waits again, in its old place and
    /// without having failed.
    pub(super) fn came_back(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        cause: Cause,
    ) {
        let Some(task) = self.tasks.get_mut(&id.seq) else { return };
        match self.planted {
            Planted::ForgetRecalled => return task.drop_run(session, id.attempt),
            Planted::RecallFails => {
                let error = TaskError::new(TaskErrorKind::WorkerLost, "planted fault");
                return self.fail_attempt(now, id, session, error);
            }
            Planted::RecallLosesPlace => task.due += Duration::from_secs(100),
            _ => {}
        }
        match cause {
            Cause::Room => self.history.yielded += 1,
            Cause::Sooner => {
                self.history.moved += 1;
                task.moved = true;
                task.away_from = Some(session);
            }
        }
        self.give_back(now, id, session, true);
    }
}
