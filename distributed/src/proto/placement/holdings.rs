//! The attempts at a device, with the counts that choosing and recalling need. The counts are
//! updated as attempts come, change and go, so that no look goes through all attempts.

use super::seat::Held;
use super::standing::{Cause, Standing};
use crate::proto::message::{AttemptId, Heartbeat};
use crate::task::ModelRef;
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Attempts that take a slot of a device.
#[derive(Debug)]
pub(in crate::proto) struct Holdings {
    held: BTreeMap<AttemptId, Held>,
    /// Whether an attempt not known to have begun may wait: there are more slots than threads.
    may_wait: bool,
    tally: Tally,
    /// The number of attempts of each model.
    by_model: HashMap<Arc<ModelRef>, u32>,
}

/// The number of attempts of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::proto) struct Tally {
    /// Attempts that wait at the worker, as it said.
    pub(in crate::proto) waiting: u32,
    /// Background attempts that can be recalled to make room.
    pub(in crate::proto) yielding: u32,
    /// Attempts that were recalled to make room, and may still come back.
    pub(in crate::proto) yields: u32,
    /// Attempts that were recalled to be done sooner elsewhere, and may still come back.
    pub(in crate::proto) moves: u32,
}

impl Tally {
    /// The tally of one attempt.
    fn of(standing: &Standing, may_wait: bool) -> Self {
        Self {
            waiting: u32::from(standing.is_waiting()),
            yielding: u32::from(standing.may_yield(may_wait)),
            yields: u32::from(standing.may_come_back(Cause::Room)),
            moves: u32::from(standing.may_come_back(Cause::Sooner)),
        }
    }

    /// With one attempt more, and another one less.
    fn changed(self, more: Self, less: Self) -> Self {
        Self {
            waiting: self.waiting + more.waiting - less.waiting,
            yielding: self.yielding + more.yielding - less.yielding,
            yields: self.yields + more.yields - less.yields,
            moves: self.moves + more.moves - less.moves,
        }
    }
}

/// What a heartbeat says about attempts.
#[derive(Debug, Default)]
pub(in crate::proto) struct Heard {
    /// Attempts that a thread has taken, as it says for the first time.
    pub(in crate::proto) begun: Vec<AttemptId>,
    /// Attempts that it should name but does not; each with the time since it was last confirmed.
    pub(in crate::proto) missing: Vec<(AttemptId, Duration)>,
}

impl Deref for Holdings {
    type Target = BTreeMap<AttemptId, Held>;

    fn deref(&self) -> &Self::Target {
        &self.held
    }
}

impl Holdings {
    pub(in crate::proto) fn new(may_wait: bool) -> Self {
        Self { held: BTreeMap::new(), may_wait, tally: Tally::default(), by_model: HashMap::new() }
    }

    pub(in crate::proto) fn tally(&self) -> Tally {
        self.tally
    }

    /// The number of attempts of a model.
    pub(in crate::proto) fn of(&self, model: &ModelRef) -> u32 {
        self.by_model.get(model).copied().unwrap_or_default()
    }

    /// Whether an attempt can be recalled to make room.
    pub(in crate::proto) fn may_yield(&self, held: &Held) -> bool {
        held.standing.may_yield(self.may_wait)
    }

    pub(in crate::proto) fn insert(&mut self, id: AttemptId, held: Held) {
        let more = Tally::of(&held.standing, self.may_wait);
        *self.by_model.entry(Arc::clone(&held.model)).or_default() += 1;
        let before = self.held.insert(id, held);
        if let Some(before) = &before {
            self.uncount(&before.model);
        }
        let less = before.map(|held| Tally::of(&held.standing, self.may_wait));
        self.tally = self.tally.changed(more, less.unwrap_or_default());
    }

    pub(in crate::proto) fn remove(&mut self, id: &AttemptId) -> Option<Held> {
        let held = self.held.remove(id)?;
        self.uncount(&held.model);
        let less = Tally::of(&held.standing, self.may_wait);
        self.tally = self.tally.changed(Tally::default(), less);
        Some(held)
    }

    fn uncount(&mut self, model: &ModelRef) {
        if let Some(count) = self.by_model.get_mut(model) {
            *count -= 1;
            if *count == 0 {
                self.by_model.remove(model);
            }
        }
    }

    /// Notes that an attempt was recalled.
    pub(super) fn recall(&mut self, id: &AttemptId, cause: Cause) {
        let Some(held) = self.held.get_mut(id) else { return };
        let less = Tally::of(&held.standing, self.may_wait);
        held.standing.recall(cause);
        let more = Tally::of(&held.standing, self.may_wait);
        self.tally = self.tally.changed(more, less);
    }

    /// Confirms the attempts that a heartbeat names, which wait or have begun. Adds to `heard`
    /// those of them that have begun for the first time, and those that the heartbeat should name
    /// but does not, with the time since they were last confirmed.
    pub(in crate::proto) fn confirm(
        &mut self,
        now: Duration,
        beat: &Heartbeat,
        named: &BTreeMap<AttemptId, bool>,
        heard: &mut Heard,
    ) {
        let mut tally = Tally::default();
        for (id, held) in &mut self.held {
            if let Some(begun) = named.get(id) {
                held.confirmed = now;
                if held.standing.hear(now, *begun) {
                    heard.begun.push(*id);
                }
            } else if beat.covers(*id) {
                heard.missing.push((*id, now.saturating_sub(held.confirmed)));
            }
            tally = tally.changed(Tally::of(&held.standing, self.may_wait), Tally::default());
        }
        self.tally = tally;
    }

    /// All attempts count as confirmed now.
    pub(super) fn grace(&mut self, now: Duration) {
        for held in self.held.values_mut() {
            held.confirmed = now;
        }
    }

    /// Notes that the run of an attempt did not stop; false where that was known.
    pub(super) fn hang(&mut self, id: &AttemptId) -> bool {
        self.held.get_mut(id).is_some_and(|held| held.standing.hang())
    }

    pub(super) fn answer(&mut self, id: &AttemptId) {
        if let Some(held) = self.held.get_mut(id) {
            held.standing.answer();
        }
    }

    /// Notes that an attempt's run was asked to stop.
    pub(super) fn stop(&mut self, id: &AttemptId) {
        if let Some(held) = self.held.get_mut(id) {
            held.standing.stop();
        }
    }
}
