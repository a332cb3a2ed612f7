//! What the ends of attempts say about the devices: how fast they are, and whether they work.

use crate::executor::ExecErrorKind;
use crate::proto::breaker::Breaker;
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::message::AttemptId;
use crate::proto::models::ModelState;
use crate::proto::state::{Completion, Planted, SessionId, Timer};
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Learns from an attempt's end, whether its answer still counts or not.
    pub(super) fn judge(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
        completion: &Completion,
    ) {
        // What a worker answers of attempts that it does not hold is nothing to learn from.
        let Some(seat) = self.fleet.holder(session, id) else { return };
        let Some(at) = self.fleet.seats.get_mut(seat) else { return };
        let Some(model) = at.held.get(&id).map(|held| Arc::clone(&held.model)) else { return };
        if let Some(ModelState::Ready { used } | ModelState::Stray { used }) =
            at.models.get_mut(&*model)
        {
            *used = now;
        }
        if let Completion::Done { model: took, .. } = completion {
            let service = at.services.entry((*model).clone()).or_default();
            service.measure(now, *took);
            self.capabilities.measured(&model, seat, *service);
        }
        match completion {
            Completion::Error { error, .. } if error.kind == ExecErrorKind::Unavailable => {
                self.worker_failed(now, session, &model);
            }
            Completion::Broken { .. } => self.worker_failed(now, session, &model),
            Completion::Done { .. } | Completion::Error { .. } => {
                self.worker_worked(session, &model);
            }
            Completion::Refused | Completion::Unshared | Completion::NoInputs { .. } => {
                self.abandon_probe(session, id, &model);
            }
        }
    }

    /// A worker failed at a model for a reason of its own.
    pub(super) fn worker_failed(&mut self, now: Duration, session: SessionId, model: &ModelRef) {
        if self.planted == Planted::IgnoreBreakers {
            return;
        }
        let Some(worker) = self.fleet.live(session) else { return };
        let until = worker.breakers.entry(model.clone()).or_default().fail(now);
        let worker = worker.id.clone();
        if let Some(until) = until {
            self.tell(Event::BreakerOpened { worker, model: model.clone() });
            self.history.breakers_opened += 1;
            self.timers.insert((until, Timer::Probe(session, model.clone())));
            self.capabilities.forget(model);
        }
    }

    fn worker_worked(&mut self, session: SessionId, model: &ModelRef) {
        let Some(worker) = self.fleet.live(session) else { return };
        let removed = worker.breakers.remove(model);
        if removed.is_some_and(|breaker| !matches!(breaker, Breaker::Closed { .. })) {
            self.capabilities.forget(model);
        }
    }

    /// An open breaker has been open for long enough.
    pub(super) fn probe(&mut self, now: Duration, session: SessionId, model: &ModelRef) {
        let Some(worker) = self.fleet.live(session) else { return };
        if worker.breakers.get_mut(model).is_some_and(|breaker| breaker.wake(now)) {
            self.capabilities.forget(model);
        }
    }

    /// An attempt ended that says nothing about its worker.
    pub(super) fn abandon_probe(&mut self, session: SessionId, id: AttemptId, model: &ModelRef) {
        let Some(worker) = self.fleet.live(session) else { return };
        if worker.breakers.get_mut(model).is_some_and(|breaker| breaker.abandon(id)) {
            self.capabilities.forget(model);
        }
    }
}
