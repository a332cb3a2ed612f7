//! The coordinator's side of a run: carries out the core's actions, and hands it the workers'
//! messages.

use super::network::Way;
use super::worker::Report;
use super::workload::{load_models, millis};
use super::world::{Event as Happening, Order, World};
use lgp_distributed::inside::core::{Core, Found, recollect};
use lgp_distributed::inside::membership::Join;
use lgp_distributed::inside::message::Stint;
use lgp_distributed::inside::state::{Action, Completion, CoreConfig, SessionId};
use lgp_distributed::{Error, Event, ExecErrorKind, WorkerId};
use lgp_memory::NamedTensor;
use rand::RngExt;
use std::time::Duration;

/// Time after a freeze of the coordinator in which a worker's silence means nothing.
const GRACE: Duration = Duration::from_secs(1);
/// The reported time of loading a model.
const LOAD: Duration = Duration::from_millis(5);

impl World {
    pub(super) fn tell(&mut self, worker: usize, connection: u64, order: &Order) {
        let (rng, report) = (&mut self.rng, &mut self.report);
        for at in self.network.send(self.now, worker, Way::ToWorker, rng, report) {
            self.at(at, Happening::Order { worker, connection, order: order.clone() });
        }
    }

    pub(super) fn say(&mut self, worker: usize, connection: u64, message: &Report) {
        let (rng, report) = (&mut self.rng, &mut self.report);
        for at in self.network.send(self.now, worker, Way::ToCoordinator, rng, report) {
            self.at(at, Happening::Report { worker, connection, report: message.clone() });
        }
    }

    /// Carries out the core's actions, as the network layer would.
    pub(super) fn carry_out(&mut self) -> Result<(), String> {
        while let Some(action) = self.core.next_action(self.now) {
            match action {
                Action::Dispatch { session, device, id, model, spec } => {
                    self.ledger.dispatched(self.now, session, id, (device, &model), &self.core)?;
                    let model = (*model).clone();
                    self.tell_session(session, &Order::Task(device, id, model, spec.priority));
                }
                Action::Cancel { session, id } => {
                    self.ledger.let_go(session, id);
                    self.tell_session(session, &Order::Cancel(id));
                }
                Action::Stop { session, id } => self.tell_session(session, &Order::Stop(id)),
                Action::Replace { session, .. } => self.replace(session),
                Action::Hangs(table) => self.hangs = table,
                Action::Tell(Event::DeviceTakenOut { worker, .. }) => {
                    let wait = millis(&mut self.rng, 3_000);
                    self.after(wait, Happening::Enable { worker });
                }
                Action::Recall { session, id } => {
                    self.ledger.recalled(session, id, &self.core)?;
                    self.report.recalls += 1;
                    self.tell_session(session, &Order::Recall(id));
                }
                Action::Record { ticket, change } => {
                    self.disk.submit(ticket, change);
                    self.sync();
                }
                Action::Store { seq, outputs } => {
                    let life = self.life;
                    // Some writes take longer than a lease.
                    let slow = self.rng.random_bool(0.1);
                    let took = millis(&mut self.rng, if slow { 6_000 } else { 20 });
                    self.after(took, Happening::Stored { life, seq, outputs });
                }
                Action::Forgotten { seq } => self.disk.release(seq),
                Action::HandedOver { seq } => return Err(format!("task {seq} is handed over")),
                Action::Accepted { seq } => self.ledger.acknowledged(seq)?,
                Action::Rejected { seq, .. } => self.ledger.rejected(seq)?,
                Action::Finished { seq } => {
                    let record = self.core.record_of(self.now, seq).ok_or("no record")?;
                    self.ledger.finished(self.now, &record, &self.core)?;
                    // Some callers fetch the result of their tasks; others are late.
                    if seq.is_multiple_of(3) {
                        self.core.given(seq);
                        self.ledger.given(record.task_id);
                    }
                }
                Action::Load { session, device, model } => {
                    let worker = self.ends.get(&session).and_then(|(at, _)| self.workers.get(*at));
                    let memory = worker.and_then(|worker| worker.memory);
                    self.ledger.loads(session, device, &model, memory)?;
                    self.tell_session(session, &Order::Load(device, model));
                }
                Action::Drain { session } => self.tell_session(session, &Order::Drain),
                Action::Dismiss { session } => self.hang_up(session, true),
                Action::Supersede { session } => self.hang_up(session, false),
                Action::Abandon { session } => {
                    self.check_grace(session)?;
                    self.hang_up(session, false);
                }
                Action::Unload { session, device, model } => {
                    self.report.evictions += 1;
                    self.ledger.unloads(session, device, &model, &self.core)?;
                    self.tell_session(session, &Order::Unload(device, model));
                }
                Action::Tell(_) | Action::Changed => {}
            }
        }
        Ok(())
    }

    /// The core does not give up a worker for a time in which the coordinator itself was frozen.
    fn check_grace(&self, session: SessionId) -> Result<(), String> {
        let Some(&(worker, connection)) = self.ends.get(&session) else { return Ok(()) };
        let w = &self.workers[worker];
        let fine = w.alive && w.connection == connection && w.stalled_until < self.frozen_until;
        match fine && self.now < self.frozen_until + GRACE {
            true => Err(format!("session {session} is given up for the coordinator's own silence")),
            false => Ok(()),
        }
    }

    /// Replaces the process of a worker that has a run which does not stop.
    fn replace(&mut self, session: SessionId) {
        let end = self.ends.remove(&session);
        self.ledger.session_ended(session);
        let Some((worker, connection)) = end else { return };
        if !self.workers[worker].alive || self.workers[worker].connection != connection {
            return;
        }
        self.report.replaced += 1;
        self.workers[worker].crash();
        let wait = millis(&mut self.rng, 1_000);
        self.after(wait, Happening::Start { worker });
    }

    /// Commits the journal's waiting changes, one commit after another.
    pub(super) fn sync(&mut self) {
        if self.disk.busy_until.is_some() || !self.disk.has_work() {
            return;
        }
        let slow = self.rng.random_bool(0.05);
        let took = millis(&mut self.rng, if slow { 500 } else { 8 });
        self.disk.busy_until = Some(self.now + took);
        let life = self.life;
        self.after(took, Happening::Synced { life });
    }

    /// A commit of the journal ended.
    pub(super) fn synced(&mut self) {
        self.disk.busy_until = None;
        let (last, failed) = self.disk.commit(self.now);
        self.report.disk_full += u64::from(!failed.is_empty());
        for ticket in failed {
            self.core.unrecorded(self.now, ticket, "no space left on device");
        }
        self.core.recorded(self.now, last);
        self.sync();
    }

    /// Outputs were written beside the journal, if there was room for them.
    pub(super) fn stored(&mut self, seq: u64, outputs: Vec<NamedTensor>) -> Result<(), String> {
        let apart = self.disk.store(self.now, seq, outputs).map_err(|e| e.to_string())?;
        self.report.stored += u64::from(apart.is_some());
        if !self.core.stored(seq, apart) {
            self.disk.release(seq);
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

    /// Hands a worker's message to the core. Late messages of ended sessions reach the core too:
    /// they may have been read before the session ended.
    pub(super) fn receive(
        &mut self,
        worker: usize,
        connection: u64,
        report: Report,
    ) -> Result<(), String> {
        let now = self.now;
        if !self.up {
            return Ok(());
        }
        if let Report::Hello(stint) = report {
            // A connection is made once and with one coordinator, even if its packets are repeated.
            if !self.sessions.contains_key(&connection) && connection > self.foreign {
                self.join((worker, stint), connection)?;
            }
            return Ok(());
        }
        let Some(&session) = self.sessions.get(&connection) else { return Ok(()) };
        if self.ends.contains_key(&session) {
            self.tell(worker, connection, &Order::Acknowledge);
        }
        match report {
            Report::Hello(_) => {}
            Report::Heartbeat(heartbeat) => {
                let devices = heartbeat.status.iter().flat_map(|status| &status.devices);
                self.report.strays += self.ledger.listed(session, devices);
                self.core.heartbeat(now, session, heartbeat);
            }
            Report::Completion(id, completion) => {
                self.ledger.answered(session, id, &completion, &self.core);
                let unavailable = matches!(
                    &completion,
                    Completion::Error { error, .. } if error.kind == ExecErrorKind::Unavailable
                );
                let refused = matches!(&completion, Completion::Refused);
                if self.core.complete(now, session, id, completion) {
                    match refused {
                        true => self.ledger.refused(session, id)?,
                        false => self.ledger.accepted(session, id, unavailable)?,
                    }
                }
            }
            Report::Released(id) => {
                self.ledger.released(session, id, &self.core);
                self.core.released(now, session, id);
            }
            Report::Loaded(device, model, result) => {
                if result.is_err() {
                    self.ledger.failed_to_load(session, device, &model);
                }
                let took = result.is_ok().then_some(LOAD);
                self.core.loaded(now, session, device, &model, result.map(|()| None), took);
            }
            Report::Unloaded(device, model) => {
                self.ledger.unloaded(session, device, &model);
                self.core.unloaded(now, session, device, &model);
            }
            Report::Draining => self.core.worker_leaves(session),
        }
        Ok(())
    }

    fn join(
        &mut self,
        (worker, stint): (usize, Option<Stint>),
        connection: u64,
    ) -> Result<(), String> {
        let name: WorkerId = format!("w{worker}").parse().map_err(|e: Error| e.to_string())?;
        let (w, pid) = (&self.workers[worker], None);
        let (slots, threads) = (w.places(), w.threads);
        let (incarnation, status) = (w.life, w.status());
        let expected = self.core.next_session();
        // Joining dispatches tasks at once, so the ledger must know the session before.
        self.ledger.session_began(expected, slots, w);
        let input_bytes_max = u64::MAX;
        let machine = format!("m{worker}");
        let join = Join {
            id: name,
            incarnation,
            pid,
            slots,
            threads,
            status,
            input_bytes_max,
            machine,
            version: String::new(),
            stint,
        };
        let Some((session, stint)) = self.core.join(self.now, join) else {
            self.ledger.session_ended(expected);
            self.tell(worker, connection, &Order::Close { farewell: false });
            return Ok(());
        };
        if session != expected {
            return Err(format!("session {session} began, not {expected}"));
        }
        if stint.session != session {
            self.report.resumed += 1;
            self.ledger.resumed(session, &self.core);
        }
        self.sessions.insert(connection, session);
        self.ends.insert(session, (worker, connection));
        self.tell(worker, connection, &Order::Welcome(stint));
        Ok(())
    }

    /// The coordinator's process crashes.
    pub(super) fn crash_coordinator(&mut self) {
        if !self.up {
            return;
        }
        self.report.coordinator_crashes += 1;
        self.up = false;
        self.life += 1;
        // A commit in progress may have reached the disk or not.
        let committed = self.rng.random_bool(0.5);
        self.disk.crash(self.now, committed);
        self.sessions.clear();
        self.ends.clear();
        self.foreign = self.connections;
        self.ledger.coordinator_crashed();
        let soon = self.rng.random_bool(0.5);
        let wait = millis(&mut self.rng, if soon { 300 } else { 3_000 });
        self.after(wait, Happening::StartCoordinator);
    }

    /// A new coordinator continues with the contents of the journal.
    pub(super) fn start_coordinator(&mut self) -> Result<(), String> {
        if self.up {
            return Ok(());
        }
        self.up = true;
        // An empty battery or a changed clock.
        let jump = self.rng.random_bool(0.3);
        self.report.clock_jumps += u64::from(jump);
        let clock = if jump { self.rng.random_range(0..20) } else { self.life };
        let (epoch, left) = self.disk.open(clock);
        let config = CoreConfig { epoch, ..self.config.clone() };
        let mut core = Core::new(self.now, config, self.rng.random());
        core.plant(self.planted);
        core.remember_hangs(self.hangs.clone());
        load_models(&mut core, self.now);
        self.retire_core();
        self.core = core;
        self.core.restore(self.now, left, epoch);
        let record = |id| match self.core.find(self.now, id).ok()? {
            Found::Here(record) => Some(*record),
            Found::Stored(id) => recollect(self.disk.read(id)?),
        };
        self.ledger.coordinator_started(self.now, &self.core, record)?;
        // Most workers notice the crash at once.
        for worker in 0..self.workers.len() {
            if self.workers[worker].alive && self.rng.random_bool(0.7) {
                let (life, wait) = (self.workers[worker].life, millis(&mut self.rng, 300));
                self.after(wait, Happening::Connect { worker, life });
            }
        }
        // Callers without an answer ask again.
        for number in self.ledger.unanswered() {
            let wait = millis(&mut self.rng, 1_000);
            self.after(wait, Happening::Submit(number));
        }
        Ok(())
    }
}
