//! Handles each event.

use super::{Event, THAWED, World};
use crate::workload::load_models;
use lgp_distributed::{Error, TaskId};

impl World {
    /// Whether the coordinator would have to act on an event.
    fn is_for_coordinator(event: &Event) -> bool {
        matches!(
            event,
            Event::Submit(_)
                | Event::Cancel(_)
                | Event::Report { .. }
                | Event::Synced { .. }
                | Event::Stored { .. }
                | Event::LoadModels { .. }
                | Event::Enable { .. }
        )
    }

    pub(super) fn handle(&mut self, event: Event) -> Result<(), String> {
        if self.now < self.frozen_until && self.up && Self::is_for_coordinator(&event) {
            self.at(self.frozen_until, event);
            return Ok(());
        }
        match event {
            Event::Submit(number) => self.submit(number)?,
            Event::Cancel(number) => {
                for id in self.ledger.ids(number) {
                    if self.up && self.core.cancel(self.now, id).is_ok() {
                        self.ledger.cancelled(id);
                    }
                }
            }
            Event::Report { worker, connection, report } => {
                self.receive(worker, connection, report)?;
            }
            Event::Order { worker, connection, order } => self.obey(worker, connection, order),
            Event::Start { worker } => {
                if !self.workers[worker].alive {
                    self.workers[worker].start();
                    self.connect(worker);
                }
            }
            Event::Connect { worker, life } => {
                if self.workers[worker].alive && self.workers[worker].life == life {
                    self.connect(worker);
                }
            }
            Event::Beat { worker, connection } => self.beat(worker, connection),
            Event::Executed { worker, life, id } => self.executed(worker, life, id),
            Event::Stuck { worker, life } => self.stuck(worker, life),
            Event::Enable { worker } => {
                if self.up {
                    self.core.enable_worker(self.now, worker.as_str());
                }
            }
            // After a freeze, the coordinator grants every worker more time.
            Event::Detected { .. } if self.now < self.frozen_until + THAWED => {
                self.at(self.frozen_until + THAWED, event);
            }
            Event::Detected { life, session } => {
                if self.up && self.life == life && self.core.is_live(session) {
                    return Err(format!("session {session} lives on without its worker"));
                }
            }
            Event::Synced { life } => {
                if self.up && self.life == life {
                    self.synced();
                }
            }
            Event::Stored { life, seq, outputs } => {
                if self.up && self.life == life {
                    self.stored(seq, outputs)?;
                }
            }
            Event::LoadModels { life } => {
                if self.up && self.life == life {
                    load_models(&mut self.core, self.now);
                }
            }
            Event::StartCoordinator => self.start_coordinator()?,
            Event::Chaos => self.chaos(),
            Event::Heal => self.heal(),
        }
        Ok(())
    }

    fn submit(&mut self, number: usize) -> Result<(), String> {
        if !self.up {
            self.ledger.unheard(number);
            return Ok(());
        }
        let submission = &self.submissions[number];
        let mut orders = Vec::with_capacity(submission.wishes.len());
        for wish in &submission.wishes {
            let after = wish.after.iter().filter_map(|&n| self.ledger.ids(n).first().copied());
            // A durable task depends only on durable or ended tasks that still exist.
            let usable = |id: &TaskId| {
                let record = self.record(*id);
                record.is_some_and(|r| r.durable || !wish.spec.durable || r.state.is_terminal())
            };
            orders.push(wish.order(after.filter(usable).collect()));
        }
        match self.core.submit_all(self.now, orders.clone()) {
            Ok(ids) => self.ledger.submitted(self.now, number, &ids, &orders, &self.core)?,
            // The workload provokes both errors.
            Err(Error::Conflict { .. } | Error::Overloaded { .. }) => {}
            Err(other) => return Err(other.to_string()),
        }
        if let Some(at) = self.submissions[number].cancel_at {
            self.at(at.max(self.now), Event::Cancel(number));
        }
        Ok(())
    }
}
