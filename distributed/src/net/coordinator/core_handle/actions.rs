//! Carries out the actions that the core asks for.

use super::{CoreHandle, State};
use crate::net::coordinator::exchange::Attempt;
use crate::net::outside;
use crate::net::transport::close::Close;
use crate::proto::message::{AttemptId, Kind, Load, Place};
use crate::proto::state::{Action, SessionId};
use std::sync::Arc;

impl CoreHandle {
    pub(super) fn perform(self: &Arc<Self>, state: &mut State, action: Action) {
        match action {
            Action::Dispatch { session, device, id, model, spec } => {
                let batching = state.core.batching(&model).cloned().map(Box::new);
                // Tracing takes extra time, so a run with a limit is not traced.
                let traced = spec.traced && state.core.said_limit(&model, spec.run_limit).is_none();
                let Some(to) = state.sessions.get_mut(&session) else { return };
                let attempt = Attempt {
                    core: Arc::clone(self),
                    connection: to.connection.clone(),
                    session,
                    device,
                    id,
                    model,
                    batching,
                    traced,
                    spec,
                    large: state.larges.get(&id.seq).cloned(),
                    shared_memory: Arc::clone(&to.shared_memory),
                };
                let task = self.runtime.spawn(outside::here(async move { attempt.run().await }));
                to.attempts.insert(id, task.abort_handle());
            }
            Action::Cancel { session, id } => state.cancel(session, id),
            Action::Stop { session, id } => state.tell(session, Kind::Stop, &id),
            Action::Replace { session, worker } => {
                state.close(session, Close::Replaced);
                // The process may be on another machine: then only the closed connection tells it.
                if let Some(supervisor) = &self.supervisor {
                    supervisor.replace(worker.as_str());
                }
            }
            Action::Hangs(table) => self.keep_hangs(table),
            Action::Recall { session, id } => state.tell(session, Kind::Recall, &id),
            Action::Record { ticket, change } => state.record(self.now(), ticket, change),
            Action::Store { seq, outputs } => state.outputs.begin(self, seq, outputs),
            Action::Accepted { seq } => state.callers.accept(seq),
            Action::Forgotten { seq } => {
                state.outputs.release(seq, state.journal.blob_store());
                state.callers.remove(seq);
            }
            Action::HandedOver { seq } => state.hand_over(seq),
            // The task may have reached the log all the same, which the next leader reads.
            Action::Rejected { seq, .. } if state.journal.is_away() => state.hand_over(seq),
            Action::Rejected { seq, reason } => {
                state.drop_inputs(seq);
                state.callers.reject(seq, &reason);
            }
            Action::Finished { seq } => {
                state.drop_inputs(seq);
                let State { callers, core, .. } = state;
                if callers.end(seq, || core.record_of(self.now(), seq)) {
                    core.given(seq);
                }
            }
            Action::Load { session, device, model } => {
                let (warm_up, run_limit_ms) = state.core.warm_up(&model);
                let load = Load { device, model, warm_up, run_limit_ms };
                state.tell(session, Kind::Load, &load);
            }
            Action::Unload { session, device, model } => {
                state.tell(session, Kind::Unload, &Place { device, model });
            }
            // This fails only without subscribers.
            Action::Tell(event) => drop(self.events.send((self.now(), event))),
            Action::Drain { session } => state.tell(session, Kind::Drain, &()),
            Action::Dismiss { session } => state.close(session, Close::Farewell),
            Action::Supersede { session } => state.close(session, Close::Superseded),
            Action::Abandon { session } => state.close(session, Close::Abandoned),
            Action::Changed => self.changed.notify_waiters(),
        }
    }
}

impl State {
    fn cancel(&mut self, session: SessionId, id: AttemptId) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        match session.attempts.remove(&id) {
            Some(attempt) => attempt.abort(),
            // The attempt's stream ended with an earlier connection.
            None => session.tell(Kind::Stop, &id),
        }
    }

    /// A task belongs to another coordinator, with its tensors outside the journal.
    fn hand_over(&mut self, seq: u64) {
        self.larges.remove(&seq);
        self.callers.hand_over(seq);
    }

    /// A task does not need its inputs any more.
    fn drop_inputs(&mut self, seq: u64) {
        if let Some(large) = self.larges.remove(&seq) {
            large.release();
        }
    }
}
