//! Tasks that wait at a slow worker move to an idle one where they would be done much sooner.

use super::Core;
use crate::proto::message::AttemptId;
use crate::proto::placement::{Cause, Seat, SeatId, Wanted};
use crate::proto::queue::Place;
use crate::proto::state::SessionId;
use crate::proto::tasks::Recall;
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

/// A task moves when it is expected to take so many times as long where it waits as elsewhere, and
/// so many milliseconds longer: a smaller gain is not worth the move.
const SLOWER: f64 = 2.0;
const LONGER_MS: f64 = 5.0;

impl Core {
    /// Recalls attempts that wait at a worker and would be done much sooner on an idle device of
    /// another one. Devices are idle only when no task in the queue waits for them.
    pub(super) fn relieve(&mut self, now: Duration, session: SessionId) {
        if self.placement.fleet().idle().is_empty() {
            return;
        }
        for from in self.placement.seats_of(session) {
            let fleet = self.placement.fleet();
            let ready = fleet.worker(session).is_some_and(|worker| worker.is_ready());
            let waits = |seat: &Seat| seat.held().tally().waiting > 0;
            if ready && !fleet.idle().is_empty() && fleet.seat(from).is_some_and(waits) {
                self.relieve_seat(now, from, session);
            }
        }
    }

    fn relieve_seat(&mut self, now: Duration, from: SeatId, session: SessionId) {
        let mut idle = self.idle_seats(now, session);
        if idle.is_empty() {
            return;
        }
        // The attempt that waits longest gains most.
        for (ahead, id, model) in self.movable(from).into_iter().rev() {
            let Some(there_ms) = self.expected_ms(now, from, ahead, &model) else { continue };
            let input_bytes = self.tasks.get(id.seq).map_or(0, |t| t.request().input_bytes());
            let Some((at, here_ms)) = self.soonest(now, &idle, &model, input_bytes) else {
                continue;
            };
            if there_ms <= SLOWER * here_ms || there_ms - here_ms < LONGER_MS {
                continue;
            }
            let Some((to, planned)) = idle.get_mut(at) else { continue };
            *planned += 1;
            let worker = self.placement.fleet().worker_at(*to);
            let Some(worker) = worker.map(|worker| worker.id().clone()) else { continue };
            let why = Recall::Sooner { there_ms, here_ms, worker };
            self.recall(now, from, id, Cause::Sooner, why);
        }
    }

    /// Idle devices of other workers, each with the attempts that may be on their way to it.
    fn idle_seats(&self, now: Duration, session: SessionId) -> Vec<(SeatId, usize)> {
        let heard_since = now.saturating_sub(self.config.timing.suspect_after);
        let fleet = self.placement.fleet();
        let is_able = |id: &SeatId| {
            let worker = fleet.worker_at(*id).filter(|worker| worker.session() != session);
            worker.is_some_and(|worker| worker.last_seen() >= heard_since)
        };
        // Any of them may get all attempts that move.
        let moving = usize::try_from(fleet.sums().moves).unwrap_or(usize::MAX);
        let idle = fleet.idle().iter().copied().filter(is_able);
        idle.map(|id| (id, moving)).collect()
    }

    /// Attempts that wait at a device and may be done elsewhere, in their order, each with the
    /// number of turns that the device takes before it.
    fn movable(&self, from: SeatId) -> Vec<(f64, AttemptId, Arc<ModelRef>)> {
        let Some(seat) = self.placement.fleet().seat(from) else { return Vec::new() };
        let waiting = seat.held().iter().filter(|(_, held)| held.standing.waits());
        let mut waiting: Vec<(Place, AttemptId, bool)> = waiting
            .filter_map(|(id, _)| {
                let task = self.tasks.get(id.seq)?;
                let spec = task.request().spec()?;
                // It stays if it has a rival, if a key holds it here, or if it has moved before.
                let stays = task.has_moved() || spec.affinity.is_some() || task.runs().len() != 1;
                let movable = !stays && task.awaits(seat.session(), id.attempt);
                Some((task.place(), *id, movable))
            })
            .collect();
        waiting.sort_unstable();
        let begun = seat.held().values().filter(|held| !held.standing.waits());
        let mut ahead: f64 = begun.map(|held| turn(seat, &held.model)).sum();
        let mut found = Vec::new();
        for (_, id, movable) in waiting {
            let Some(held) = seat.held().get(&id) else { continue };
            if movable {
                found.push((ahead, id, Arc::clone(&held.model)));
            }
            ahead += turn(seat, &held.model);
        }
        found
    }

    /// Milliseconds until an attempt that waits behind so many turns is done, as strategies
    /// reckon; `None` where nothing was measured.
    fn expected_ms(&self, now: Duration, at: SeatId, ahead: f64, model: &ModelRef) -> Option<f64> {
        let seat = self.placement.fleet().seat(at)?;
        Some(seat.services().get(model)?.mean.expected_ms(now)? * (ahead + 1.0))
    }

    /// The idle device, by its position, that would finish one more task first, and when.
    fn soonest(
        &mut self,
        now: Duration,
        idle: &[(SeatId, usize)],
        model: &ModelRef,
        input_bytes: usize,
    ) -> Option<(usize, f64)> {
        let survey = self.placement.survey(model);
        let mut best: Option<(usize, f64)> = None;
        for (at, (id, planned)) in idle.iter().enumerate() {
            let Ok(found) = survey.capable.binary_search_by_key(id, |c| c.seat) else { continue };
            let (Some(capable), Some((seat, worker))) = (survey.capable.get(found), survey.at(*id))
            else {
                continue;
            };
            let room = u32::try_from(*planned).is_ok_and(|planned| planned < seat.free_for(model))
                && worker.takes(input_bytes);
            if !room || capable.service.expected_ms(now).is_none() {
                continue;
            }
            // Here old measurements do not fade: the hope of a faster device is no reason to move.
            let load_ms =
                if capable.resident { 0.0 } else { survey.wanted.map_or(0.0, Wanted::load_ms) };
            let ahead = f64::from(u32::try_from(*planned).unwrap_or(u32::MAX)) * turn(seat, model);
            let ms = capable.service.mean_ms().mul_add(ahead + 1.0, load_ms);
            if best.is_none_or(|(_, other)| ms < other) {
                best = Some((at, ms));
            }
        }
        best
    }
}

/// The share of a turn of the device that a task takes: a model's places all go in one turn.
fn turn(seat: &Seat, model: &ModelRef) -> f64 {
    1.0 / f64::from(seat.places(model).max(1))
}
