//! Recalls of attempts that have not begun: background work makes room for more urgent tasks, and
//! attempts that wait at a slow worker go to an idle one.
//!
//! A worker gives back only attempts that no thread has taken, and until it has done so the attempt
//! is its own: a recall runs nothing twice, and a recall that is lost changes nothing.

use super::Core;
use crate::proto::message::AttemptId;
use crate::proto::placement::{Cause, SeatId};
use crate::proto::queue::{Place, is_urgent};
use crate::proto::state::{Action, SessionId};
use crate::proto::tasks::{Recall, What};
use crate::task::ModelRef;
use std::time::Duration;

impl Core {
    /// Recalls background attempts for urgent tasks that found no place: at most one for each of
    /// these, and only one that comes later in the queue, otherwise it would take the place again.
    pub(super) fn make_room(&mut self, now: Duration) {
        let sums = self.placement.fleet().sums();
        if sums.yielding == 0 || !self.scheduler.may_recall(now) {
            return;
        }
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let mut missing = count(self.scheduler.queue().urgent(None)).saturating_sub(sums.yields);
        let mut after: Option<Place> = None;
        let mut found = missing == 0;
        while missing > 0 && self.placement.fleet().sums().yielding > 0 {
            let queue = self.scheduler.queue();
            let Some((place, model)) = queue.head_after(after) else { break };
            after = Some(place);
            let urgent = self.tasks.get(place.seq()).filter(|t| is_urgent(t.request().priority()));
            let Some(task) = urgent else { continue };
            let (waiting, input_bytes) = (task.id(), task.request().input_bytes());
            let wanted = count(queue.urgent(Some(&model))).min(missing);
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
            self.scheduler.found_none(now);
        }
    }

    /// The background attempts in places where the model's tasks could run: those that are last in
    /// the queue first, and preferably those that are known to wait.
    fn least_urgent(
        &mut self,
        now: Duration,
        model: &ModelRef,
        before: Place,
        input_bytes: usize,
    ) -> Vec<(SeatId, AttemptId)> {
        let heard_since = now.saturating_sub(self.config.timing.suspect_after);
        let survey = self.placement.survey(model);
        let mut found: Vec<((bool, Place), SeatId, AttemptId)> = Vec::new();
        for capable in survey.capable {
            let Some((seat, worker)) = survey.at(capable.seat) else { continue };
            let able = worker.last_seen() >= heard_since && worker.takes(input_bytes);
            if seat.held().tally().yielding == 0 || !able {
                continue;
            }
            for (id, held) in seat.held().iter() {
                let Some(task) = self.tasks.get(id.seq) else { continue };
                let in_the_way = seat.share_places(&held.model, model);
                let awaited = task.awaits(seat.session(), id.attempt);
                if !seat.held().may_yield(held) || !awaited || !in_the_way {
                    continue;
                }
                let rank = (held.standing.waits(), task.place());
                if rank.1 > before {
                    found.push((rank, capable.seat, *id));
                }
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, seat, id)| (seat, id)).collect()
    }

    /// Recalls an attempt.
    pub(super) fn recall(
        &mut self,
        now: Duration,
        at: SeatId,
        id: AttemptId,
        cause: Cause,
        why: Recall,
    ) {
        let Some((session, _)) = self.placement.address(at) else { return };
        if !planted!(self, RecallTwice) {
            self.placement.recall(at, &id, cause);
        }
        let worker = self.placement.fleet().worker(session);
        if let (Some(mut task), Some(worker)) = (self.tasks.entry(id.seq), worker) {
            let worker = worker.id().clone();
            task.note(now, What::Recalled { attempt: id.attempt, worker, why });
        }
        self.actions.push(Action::Recall { session, id });
        if planted!(self, RecallAssumed) {
            self.give_back(now, id, session, true);
        }
    }

    /// A recalled attempt was not begun: its task waits again, in its old place and without having
    /// failed.
    pub(super) fn came_back(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        cause: Cause,
    ) {
        let Some(mut task) = self.tasks.entry(id.seq) else { return };
        #[cfg(feature = "planted")]
        {
            if planted!(self, ForgetRecalled) {
                task.drop_run(session, id.attempt);
                return;
            }
            if planted!(self, RecallFails) {
                let code = crate::task::TaskErrorKind::WorkerLost;
                let error = crate::task::TaskError::new(code, "planted fault");
                return self.fail_attempt(now, id, session, error);
            }
            if planted!(self, RecallLosesPlace) {
                task.delay(Duration::from_secs(100));
            }
        }
        match cause {
            Cause::Room => self.statistics.counters.yielded += 1,
            Cause::Sooner => {
                self.statistics.counters.moved += 1;
                task.move_away(session);
            }
        }
        self.give_back(now, id, session, true);
    }
}
