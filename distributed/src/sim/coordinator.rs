//! The coordinator's end of a run: the core's actions go out, the workers' words come in.

use super::network::Way;
use super::worker::Report;
use super::world::{Event, Order, World};
use crate::error::Error;
use crate::proto::membership::Join;
use crate::proto::state::{Action, SessionId};
use crate::worker_info::WorkerId;

impl World {
    pub(super) fn tell(&mut self, worker: usize, connection: u64, order: &Order) {
        let (rng, report) = (&mut self.rng, &mut self.report);
        for at in self.network.send(self.now, worker, Way::ToWorker, rng, report) {
            self.at(at, Event::Order { worker, connection, order: order.clone() });
        }
    }

    pub(super) fn say(&mut self, worker: usize, connection: u64, message: &Report) {
        let (rng, report) = (&mut self.rng, &mut self.report);
        for at in self.network.send(self.now, worker, Way::ToCoordinator, rng, report) {
            self.at(at, Event::Report { worker, connection, report: message.clone() });
        }
    }

    /// Does what the core wants done, as the network layer would.
    pub(super) fn carry_out(&mut self) -> Result<(), String> {
        while let Some(action) = self.core.next_action() {
            match action {
                Action::Dispatch { session, id, spec, .. } => {
                    self.ledger.dispatched(session, id)?;
                    self.tell_session(session, &Order::Task(id, spec.model.clone()));
                }
                Action::Cancel { session, id } => self.tell_session(session, &Order::Cancel(id)),
                Action::Finished { seq } => {
                    let record = self.core.record(self.now, self.core.id(seq));
                    self.ledger.finished(self.now, &record.map_err(|e| e.to_string())?)?;
                }
                Action::Load { session, model } => self.tell_session(session, &Order::Load(model)),
                Action::Drain { session } => self.tell_session(session, &Order::Drain),
                Action::Dismiss { session } => self.hang_up(session, true),
                Action::Supersede { session } | Action::Abandon { session } => {
                    self.hang_up(session, false);
                }
                Action::Unload { .. } | Action::Changed => {}
            }
        }
        Ok(())
    }

    fn tell_session(&mut self, session: SessionId, order: &Order) {
        if let Some(&(worker, connection)) = self.ends.get(&session) {
            self.tell(worker, connection, order);
        }
    }

    fn hang_up(&mut self, session: SessionId, farewell: bool) {
        self.tell_session(session, &Order::Close { farewell });
        self.ledger.session_ended(session);
        self.ends.remove(&session);
    }

    /// The coordinator hears from a worker. Late words of ended sessions reach the core too:
    /// they may have been read before the end.
    pub(super) fn receive(
        &mut self,
        worker: usize,
        connection: u64,
        report: Report,
    ) -> Result<(), String> {
        let now = self.now;
        if matches!(report, Report::Hello) {
            // A connection is made once, whatever happens to its packets.
            if !self.sessions.contains_key(&connection) {
                self.join(worker, connection)?;
            }
            return Ok(());
        }
        let Some(&session) = self.sessions.get(&connection) else { return Ok(()) };
        if self.ends.contains_key(&session) {
            self.tell(worker, connection, &Order::Acknowledge);
        }
        match report {
            Report::Hello => {}
            Report::Heartbeat(heartbeat) => self.core.heartbeat(now, session, heartbeat),
            Report::Completion(id, completion) => {
                if self.core.complete(now, session, id, completion) {
                    self.ledger.accepted(session, id)?;
                }
            }
            Report::Released(id) => self.core.released(now, session, id),
            Report::Loaded(model, result) => self.core.loaded(now, session, &model, result),
            Report::Draining => self.core.worker_leaves(session),
        }
        Ok(())
    }

    fn join(&mut self, worker: usize, connection: u64) -> Result<(), String> {
        let name: WorkerId = format!("w{worker}").parse().map_err(|e: Error| e.to_string())?;
        let (slots, status) = (self.workers[worker].slots, self.workers[worker].status());
        // Joining dispatches at once: the ledger must know the session before it hears of that.
        let session = self.core.join(self.now, Join { id: name, pid: None, slots, status });
        self.ledger.session_began(session, slots);
        self.sessions.insert(connection, session);
        self.ends.insert(session, (worker, connection));
        self.tell(worker, connection, &Order::Welcome);
        Ok(())
    }
}
