//! Matching waiting tasks with free slots.

use super::Core;
use super::attempts::task_error;
use crate::proto::balance::{Capable, Choice, View};
use crate::proto::placement::{Outlook, Survey, Wanted, mib};
use crate::proto::queue::Place;
use crate::proto::scheduler::{Affinity, Home};
use crate::proto::state::SessionId;
use crate::proto::tasks::{Task, What};
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskState};
use std::sync::Arc;
use std::time::Duration;

/// Most tasks of a line that are searched for one that any worker takes.
const LOOKED_PAST: usize = 64;
/// Time that workers have to come back to a coordinator that was restarted.
const RETURN: Duration = Duration::from_secs(30);

/// What matters of a task, besides its model, for choosing its device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Errand<'a> {
    /// Its affinity key, and the number of the task that has it.
    pub(crate) affinity: Option<(&'a str, u64)>,
    /// A session whose devices are left out.
    pub(crate) except: Option<SessionId>,
    pub(crate) input_bytes: usize,
}

impl Core {
    /// Dispatches tasks as long as a free device can take one, then makes background work give way
    /// to more urgent tasks that are left.
    pub(super) fn schedule(&mut self, now: Duration) {
        if self.placement.is_moving() {
            self.settle_moves(now);
        }
        self.assign(now);
        self.make_room(now);
    }

    fn assign(&mut self, now: Duration) {
        let mut after: Option<Place> = None;
        // A head that waits for a worker which takes its many bytes: tasks behind it that any
        // worker takes need not wait.
        let mut passed: Option<(Place, Arc<ModelRef>)> = None;
        // Most calls find every slot taken: check that before the queue.
        while self.placement.fleet().sums().free > 0 || planted!(self, IgnoreSlots) {
            let smaller = passed.as_ref().and_then(|(head, model)| self.smaller(*head, model));
            let passes = smaller.is_some();
            if !passes {
                passed = None;
            }
            let head = smaller.or_else(|| self.scheduler.queue().head_after(after));
            let Some((place, model)) = head else { return };
            let seq = place.seq();
            let Some(task) = self.tasks.get(seq) else { return };
            let key = task.request().affinity().map(|key| Affinity::key(&model.name, key));
            let affinity = key.as_deref().map(|key| (key, seq));
            let (away, input_bytes) = (task.away_from(), task.request().input_bytes());
            let errand = Errand { affinity, except: None, input_bytes };
            // The task returns to where it waited only when no other device is free.
            let elsewhere = away.map(|_| Errand { except: away, ..errand });
            let choice = elsewhere.and_then(|errand| self.choose(now, &model, errand));
            let choice = choice.or_else(|| self.choose(now, &model, errand));
            if let Some((choice, model)) = choice
                && self.dispatch(now, seq, choice, &model)
            {
                continue;
            }
            if let Outlook::Hopeless(error) = self.outlook(&model, input_bytes) {
                let mut error = task_error(error);
                error.message = format!("no worker could load model {model}: {}", error.message);
                self.abort(now, seq, TaskState::Failed, error);
            } else if let Some(error) = self.too_large(now, seq, input_bytes) {
                self.abort(now, seq, TaskState::Failed, error);
            } else if passes {
                passed = None;
            } else {
                // No device is free for this model; the next line may be luckier.
                self.want_room(now, &model, seq);
                after = Some(place);
                passed = self.placement.fleet().is_large(input_bytes).then_some((place, model));
            }
        }
    }

    /// The first of a model's tasks behind `head` whose inputs any worker takes.
    fn smaller(&self, head: Place, model: &Arc<ModelRef>) -> Option<(Place, Arc<ModelRef>)> {
        let fleet = self.placement.fleet();
        let small = |place: &Place| {
            let task = self.tasks.get(place.seq());
            task.is_some_and(|task| !fleet.is_large(task.request().input_bytes()))
        };
        let place = self.scheduler.queue().behind(model, head).take(LOOKED_PAST).find(small)?;
        Some((place, Arc::clone(model)))
    }

    /// A device for a task of the model, or of a variant if the strategy compares variants; and the
    /// model that it is to run.
    pub fn choose(
        &mut self,
        now: Duration,
        model: &Arc<ModelRef>,
        errand: Errand<'_>,
    ) -> Option<(Choice, Arc<ModelRef>)> {
        let own = self.choose_for(now, model, errand);
        let mut best = own.map(|choice| (choice, Arc::clone(model)));
        if errand.affinity.is_some() || !self.compares_variants() {
            return best;
        }
        let variants: Vec<ModelRef> =
            self.placement.answers(model, true).skip(1).cloned().collect();
        for variant in variants {
            if let Some(choice) = self.choose_for(now, &variant, errand)
                && best.as_ref().is_none_or(|(other, _)| choice.score < other.score)
            {
                best = Some((choice, self.placement.shared_name(&variant)));
            }
        }
        best
    }

    /// Whether the strategy compares a model with its variants.
    pub(super) fn compares_variants(&self) -> bool {
        self.scheduler.strategy().compares_variants()
    }

    /// Whether any worker can take the model's tasks, or may be able to later.
    pub(super) fn outlook(&self, model: &ModelRef, input_bytes: usize) -> Outlook {
        self.placement.outlook(model, input_bytes, self.compares_variants())
    }

    /// The error that no worker takes inputs of so many bytes, if all known workers take less, also
    /// lost ones, which may come back. After a restart, all workers have time to come back.
    fn too_large(&self, now: Duration, seq: u64, input_bytes: usize) -> Option<TaskError> {
        let most = self.placement.fleet().input_bytes_most()?;
        let began = self.statistics.began();
        let restored = |task: &Task| task.request().submitted() < began;
        if self.tasks.get(seq).is_some_and(restored) && now.saturating_sub(began) < RETURN {
            return None;
        }
        u64::try_from(input_bytes).is_ok_and(|bytes| bytes > most).then(|| {
            let what = format!("{input_bytes} bytes of inputs, at most {most} are accepted");
            let message = format!("{what} by any worker: raise its input_bytes_max");
            TaskError::new(TaskErrorKind::TooLarge, message)
        })
    }

    /// A device for a task of the model: that of its affinity key, or the strategy's choice.
    fn choose_for(
        &mut self,
        now: Duration,
        model: &ModelRef,
        errand: Errand<'_>,
    ) -> Option<Choice> {
        let survey = self.placement.survey(model);
        let wanted = survey.wanted;
        let needs_mib = wanted.and_then(Wanted::bytes).map_or(0.0, mib);
        let load_ms = wanted.map_or(0.0, Wanted::load_ms);
        let request = self.scheduler.request(needs_mib, load_ms);
        let others: Vec<Capable>;
        let Errand { affinity, except, input_bytes } = errand;
        let capable = match except.is_some() || survey.fleet.is_large(input_bytes) {
            false => survey.capable,
            true => {
                let able = |c: &&Capable| {
                    let at = survey.at(c.seat).filter(|(seat, _)| Some(seat.session()) != except);
                    at.is_some_and(|(_, worker)| worker.takes(input_bytes))
                };
                others = survey.capable.iter().filter(able).copied().collect();
                &others
            }
        };
        let heard_since = now.saturating_sub(self.config.timing.suspect_after);
        let view = survey.view(capable, heard_since);
        if planted!(self, IgnoreSlots)
            && let Some(first) = capable.first()
        {
            return Some(Choice { seat: first.seat, score: 0.0, reason: "planted fault" });
        }
        if let Some((key, seq)) = affinity
            && let Some(home) = self.scheduler.home(now, key)
        {
            let kept = home_choice(&survey, &view, home);
            let choice = kept.or_else(|| self.scheduler.pick(now, &view, &request));
            let what = What::Home { worker: home.worker.clone(), kept: kept.is_some() };
            if let Some(mut task) = self.tasks.entry(seq).filter(|_| choice.is_some()) {
                task.note(now, what);
            }
            return choice;
        }
        self.scheduler.pick(now, &view, &request)
    }
}

/// The device that a key's tasks went to, while it is healthy and not much busier than others.
fn home_choice(survey: &Survey<'_>, view: &View<'_>, home: &Home) -> Option<Choice> {
    let worker = survey.fleet.latest(&home.worker)?;
    let seat = *worker.seats().get(usize::try_from(home.ordinal).ok()?)?;
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
