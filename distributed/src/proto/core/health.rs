//! What the ends of attempts say about the devices: how fast they are, and whether they work.

use super::Core;
use crate::executor::ExecErrorKind;
use crate::proto::event::Event;
use crate::proto::message::AttemptId;
use crate::proto::state::{Completion, SessionId};
use crate::proto::timers::Timer;
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
        let took = match completion {
            Completion::Done { model, .. } => Some(*model),
            _ => None,
        };
        let Some(model) = self.placement.learn(now, session, id, took) else { return };
        match completion {
            Completion::Error { error, .. } if error.kind == ExecErrorKind::Unavailable => {
                self.worker_failed(now, session, &model);
            }
            Completion::Broken { .. } => self.worker_failed(now, session, &model),
            Completion::Done { .. } | Completion::Error { .. } => {
                self.placement.worked(session, &model);
            }
            Completion::Refused | Completion::Unshared | Completion::NoInputs { .. } => {
                self.placement.abandon(session, id, &model);
            }
        }
    }

    /// A worker failed at a model for a reason of its own.
    pub(super) fn worker_failed(
        &mut self,
        now: Duration,
        session: SessionId,
        model: &Arc<ModelRef>,
    ) {
        if planted!(self, IgnoreBreakers) {
            return;
        }
        if let Some((until, worker)) = self.placement.failed(now, session, model) {
            self.tell(Event::BreakerOpened { worker, model: (**model).clone() });
            self.statistics.counters.breakers_opened += 1;
            self.timers.set(until, Timer::Probe(session, Arc::clone(model)));
        }
    }
}
