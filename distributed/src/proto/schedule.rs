//! Matching waiting tasks with free slots.

use crate::proto::affinity::{Affinity, Home};
use crate::proto::attempt::task_error;
use crate::proto::balance::{Capable, Choice, Request, View};
use crate::proto::core::Core;
use crate::proto::fleet::{Fleet, mib};
use crate::proto::models::{Outlook, Wanted};
use crate::proto::queue::Place;
use crate::proto::state::{Planted, SessionId};
use crate::proto::why::{What, note};
use crate::task::{ModelRef, TaskState};
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Dispatches tasks as long as there is one that a free device can take, then sees that
    /// background work makes room for more urgent tasks that are left.
    pub(super) fn schedule(&mut self, now: Duration) {
        if !self.moving.is_empty() {
            self.settle_moves(now);
        }
        self.assign(now);
        self.make_room(now);
    }

    fn assign(&mut self, now: Duration) {
        let mut after: Option<Place> = None;
        // Most calls find every slot taken: that is seen before the queue is looked at.
        while self.fleet.free > 0 || self.planted == Planted::IgnoreSlots {
            let Some((place, model)) = self.queue.head_after(after) else { return };
            let seq = place.seq();
            let affinity = self.tasks.get(&seq).and_then(|task| {
                let key = task.spec.as_ref()?.affinity.as_ref()?;
                Some(Affinity::key(&model.name, key))
            });
            let affinity = affinity.as_deref().map(|key| (key, seq));
            // Back to where it waited only when nobody else is free any more.
            let away = self.tasks.get(&seq).and_then(|task| task.away_from);
            let choice = away.and_then(|from| self.choose(now, &model, affinity, Some(from)));
            let choice = choice.or_else(|| self.choose(now, &model, affinity, None));
            if let Some((choice, model)) = choice
                && self.dispatch(now, seq, choice, &model)
            {
                continue;
            }
            if let Outlook::Hopeless(error) = self.outlook(&model) {
                let mut error = task_error(error);
                error.message = format!("no worker could load model {model}: {}", error.message);
                self.abort(now, seq, TaskState::Failed, error);
            } else {
                // Nobody is free for this model; the next line may be luckier.
                self.want_room(now, &model, seq);
                after = Some(place);
            }
        }
    }

    /// A device for a task of the model, or of a variant of it where the strategy compares these,
    /// and which of them it is.
    pub(crate) fn choose(
        &mut self,
        now: Duration,
        model: &Arc<ModelRef>,
        affinity: Option<(&str, u64)>,
        except: Option<SessionId>,
    ) -> Option<(Choice, Arc<ModelRef>)> {
        let own = self.choose_for(now, model, affinity, except);
        let mut best = own.map(|choice| (choice, Arc::clone(model)));
        if affinity.is_some() || !self.config.balancing.compares_variants() {
            return best;
        }
        let variants: Vec<ModelRef> = self.answers(model).skip(1).cloned().collect();
        for variant in variants {
            if let Some(choice) = self.choose_for(now, &variant, None, except)
                && best.as_ref().is_none_or(|(other, _)| choice.score < other.score)
            {
                best = Some((choice, self.shared_model(&variant)));
            }
        }
        best
    }

    /// A device for a task of the model: that of its affinity key (and the task that has it), or
    /// the strategy's choice, on any worker but that of the session `except`.
    fn choose_for(
        &mut self,
        now: Duration,
        model: &ModelRef,
        affinity: Option<(&str, u64)>,
        except: Option<SessionId>,
    ) -> Option<Choice> {
        let random = self.rng.random();
        let wanted = self.models.get(model);
        let capable = self.capabilities.of(&self.fleet, model, wanted);
        let request = Request {
            needs_mib: wanted.and_then(Wanted::bytes).map_or(0.0, mib),
            load_ms: wanted.map_or(0.0, |w| w.load_ms()),
            thrift: self.config.thrift,
            random,
        };
        let others: Vec<Capable>;
        let capable = match except {
            None => capable,
            Some(session) => {
                let elsewhere = |c: &&Capable| {
                    self.fleet.seats.get(c.seat).is_some_and(|seat| seat.session != session)
                };
                others = capable.iter().filter(elsewhere).copied().collect();
                &others
            }
        };
        let heard_since = now.saturating_sub(self.config.timing.suspect_after);
        let view = View::new(capable, &self.fleet.hot, heard_since);
        if self.planted == Planted::IgnoreSlots
            && let Some(first) = capable.first()
        {
            return Some(Choice { seat: first.seat, score: 0.0, reason: "planted fault" });
        }
        if let Some((key, seq)) = affinity
            && let Some(home) = self.affinity.home(now, key)
        {
            let kept = home_choice(&self.fleet, &view, home);
            let choice = kept.or_else(|| self.config.balancing.pick(now, &view, &request));
            let what = What::Home { worker: home.worker.clone(), kept: kept.is_some() };
            if let Some(task) = self.tasks.get_mut(&seq).filter(|_| choice.is_some()) {
                note(&mut task.notes, now, what);
            }
            return choice;
        }
        self.config.balancing.pick(now, &view, &request)
    }
}

/// The device that a key's tasks went to, while it is healthy and not much busier than others.
fn home_choice(fleet: &Fleet, view: &View<'_>, home: &Home) -> Option<Choice> {
    let session = fleet.names.get(&home.worker)?;
    let worker = fleet.workers.get(session)?;
    let seat = *worker.seats.get(usize::try_from(home.ordinal).ok()?)?;
    let at = view.capable.binary_search_by_key(&seat, |c| c.seat).ok()?;
    let candidate = view.candidate(view.capable.get(at)?)?;
    let (mut sum, mut count) = (0.0, 0.0);
    for capable in view.capable {
        let Some(hot) = view.hot.get(capable.seat) else { continue };
        sum += hot.load;
        count += 1.0;
    }
    let bearable = Affinity::is_bearable(candidate.hot.load, sum / f64::max(count, 1.0));
    bearable.then_some(Choice { seat, score: candidate.hot.load, reason: "home of its key" })
}
