//! The workers' side of a run, and their faults.

use super::worker::{IDLE_TIMEOUT, Recalled, Report};
use super::workload::{MODELS, millis, model};
use super::world::{CHAOS, Event, Order, World};
use lgp_distributed::balancing_strategies;
use lgp_distributed::inside::balance::by_name;
use lgp_distributed::inside::membership::Parting;
use lgp_distributed::inside::message::AttemptId;
use lgp_distributed::inside::state::Completion;
use rand::RngExt;
use std::time::Duration;

const HEARTBEAT: Duration = Duration::from_millis(500);
/// From a new connection until a worker with a run that does not stop ends its process.
const STUCK: Duration = Duration::from_millis(1_500);
/// From a worker's last message to the end of its session; messages in flight prolong it.
const DETECTION: Duration = Duration::from_secs(2);

impl World {
    pub(super) fn connect(&mut self, worker: usize) {
        self.connections += 1;
        let connection = self.connections;
        let w = &mut self.workers[worker];
        let hello = w.connect(connection);
        w.last_heard = self.now;
        self.say(worker, connection, &hello);
        self.after(HEARTBEAT, Event::Beat { worker, connection });
        self.see_stuck(worker);
    }

    fn see_stuck(&mut self, worker: usize) {
        let w = &self.workers[worker];
        if w.is_stuck() {
            let life = w.life;
            self.after(STUCK, Event::Stuck { worker, life });
        }
    }

    /// Runs of earlier connections were asked to stop. A worker with one that did not stop exits.
    pub(super) fn stuck(&mut self, worker: usize, life: u64) {
        let w = &self.workers[worker];
        if w.alive && w.life == life && w.is_stuck() {
            self.depart(worker);
        }
    }

    fn reconnect(&mut self, worker: usize) {
        let life = self.workers[worker].life;
        let wait = millis(&mut self.rng, 200);
        self.after(wait, Event::Connect { worker, life });
    }

    /// A worker receives an order of the coordinator.
    pub(super) fn obey(&mut self, worker: usize, connection: u64, order: Order) {
        let w = &mut self.workers[worker];
        if !w.alive || w.connection != connection {
            return;
        }
        w.last_heard = self.now;
        match order {
            Order::Acknowledge => {}
            Order::Welcome(stint) => {
                for report in w.welcomed(stint) {
                    self.say(worker, connection, &report);
                }
            }
            Order::Task(device, id, model, priority) => {
                if let Some(refusal) = w.receive(self.now, device, id, &model, priority) {
                    self.say(worker, connection, &refusal);
                }
                self.begin(worker);
            }
            Order::Cancel(id) | Order::Stop(id) => {
                let (life, stops) = (w.life, w.stops(id));
                if let Some(released) = w.cancel(id) {
                    self.say(worker, connection, &released);
                } else if stops {
                    let wait = millis(&mut self.rng, 200);
                    self.after(wait, Event::Executed { worker, life, id });
                }
            }
            Order::Recall(id) => match w.recall(id) {
                Recalled::Refused => {
                    self.say(worker, connection, &Report::Completion(id, Completion::Refused));
                }
                Recalled::Begun => self.report.recalls_late += 1,
                Recalled::Unknown => self.report.recalls_vain += 1,
            },
            Order::Load(device, model) => {
                let fails = !self.healed && self.rng.random_bool(0.1);
                let result = self.workers[worker].load(device, &model, fails);
                self.say(worker, connection, &Report::Loaded(device, model, result));
            }
            Order::Unload(device, model) => {
                self.workers[worker].unload(device, model.clone());
                self.say(worker, connection, &Report::Unloaded(device, model));
            }
            Order::Drain => {
                self.farewell(worker);
            }
            Order::Close { farewell: true } => self.depart(worker),
            Order::Close { farewell: false } => self.reconnect(worker),
        }
    }

    fn depart(&mut self, worker: usize) {
        self.workers[worker].crash();
        let wait = millis(&mut self.rng, 5_000);
        self.after(wait, Event::Start { worker });
    }

    fn begin(&mut self, worker: usize) {
        let w = &mut self.workers[worker];
        let (life, begun) = (w.life, w.begin(&mut self.rng));
        for (id, service, batch) in begun {
            self.report.batched += u64::from(batch > 1);
            if !self.healed && self.rng.random_bool(0.004) {
                self.report.hangs += 1;
                self.workers[worker].hang(id);
                self.see_stuck(worker);
                continue;
            }
            self.after(service, Event::Executed { worker, life, id });
        }
    }

    pub(super) fn executed(&mut self, worker: usize, life: u64, id: AttemptId) {
        let w = &mut self.workers[worker];
        if w.life != life {
            return;
        }
        if w.stalled_until > self.now {
            let at = w.stalled_until;
            return self.at(at, Event::Executed { worker, life, id });
        }
        let errors = if self.workers[worker].sick { 0.9 } else { 0.04 };
        let device_error = !self.healed && self.rng.random_bool(errors);
        let ended = self.workers[worker].end(id, device_error);
        if let Some((mut connection, report)) = ended {
            self.workers[worker].remember(connection, &report);
            self.report.device_errors += u64::from(device_error);
            let current = self.workers[worker].connection;
            if connection != current && self.rng.random_bool(0.5) {
                // Real workers never do this, but the answer must not count either way.
                connection = current;
                self.report.misdirected += 1;
            }
            self.say(worker, connection, &report);
        }
        self.begin(worker);
    }

    pub(super) fn beat(&mut self, worker: usize, connection: u64) {
        let w = &self.workers[worker];
        if !w.alive || w.connection != connection {
            return;
        }
        if w.stalled_until > self.now {
            let at = w.stalled_until;
            return self.at(at, Event::Beat { worker, connection });
        }
        if self.now.saturating_sub(w.last_heard) > IDLE_TIMEOUT {
            return self.reconnect(worker);
        }
        for heartbeat in w.heartbeats().into_iter().flatten() {
            self.say(worker, connection, &Report::Heartbeat(heartbeat));
        }
        if self.workers[worker].leaving {
            // It repeats that it is leaving until the coordinator answers.
            self.say(worker, connection, &Report::Draining);
        }
        self.after(HEARTBEAT, Event::Beat { worker, connection });
    }

    /// Causes one fault, and schedules the next.
    pub(super) fn chaos(&mut self) {
        if self.healed {
            return;
        }
        let worker = self.rng.random_range(0..self.workers.len());
        match self.rng.random_range(0..40) {
            0..5 => self.crash(worker),
            5..9 => {
                let long = millis(&mut self.rng, 6_000);
                self.network.partition(worker, self.now + long);
                self.report.partitions += 1;
            }
            9..13 => self.disconnect(worker),
            13..17 => {
                let long = millis(&mut self.rng, 5_000);
                self.workers[worker].stalled_until = self.now + long;
                self.report.stalls += 1;
            }
            17..20 => self.leave(worker),
            20..24 => {
                let names = balancing_strategies();
                let name = names[self.rng.random_range(0..names.len())];
                if let Ok(strategy) = by_name(name) {
                    self.core.set_balancing(strategy);
                }
            }
            24 => self.crash_coordinator(),
            26..28 => self.change_mind(),
            28 => self.freeze(),
            25 => self.disk.full_until = self.now + millis(&mut self.rng, 3_000),
            _ => {}
        }
        let wait = millis(&mut self.rng, 900);
        self.after(wait, Event::Chaos);
    }

    /// The coordinator's process is suspended for a while.
    fn freeze(&mut self) {
        if self.up {
            self.report.freezes += 1;
            self.frozen_until = self.now + Duration::from_secs(1) + millis(&mut self.rng, 4_000);
        }
    }

    /// Whether the coordinator's process is running now.
    pub(super) fn is_awake(&self) -> bool {
        self.up && self.now >= self.frozen_until
    }

    /// A caller unloads the second model, and later loads it again.
    fn change_mind(&mut self) {
        if !self.is_awake() {
            return;
        }
        self.report.unloads += 1;
        self.core.unload(self.now, &model(MODELS[1]));
        self.ledger.unwanted(MODELS[1]);
        let (life, wait) = (self.life, millis(&mut self.rng, 1_000));
        self.after(wait, Event::LoadModels { life });
    }

    fn crash(&mut self, worker: usize) {
        if !self.workers[worker].alive {
            return;
        }
        self.report.crashes += 1;
        let connection = self.workers[worker].connection;
        self.workers[worker].crash();
        if let Some(&session) = self.sessions.get(&connection) {
            let life = self.life;
            self.after(DETECTION + super::network::DELAY_MAX, Event::Detected { life, session });
            if self.rng.random_bool(0.3) && self.is_awake() {
                // A supervisor reported the exit.
                self.core.worker_exited(self.now, &format!("w{worker}"));
            }
        }
        let wait = millis(&mut self.rng, 6_000);
        self.after(wait, Event::Start { worker });
    }

    /// The connection breaks; the worker continues and reconnects.
    fn disconnect(&mut self, worker: usize) {
        let connection = self.workers[worker].connection;
        let Some(&session) = self.sessions.get(&connection) else { return };
        if !self.workers[worker].alive || !self.is_awake() {
            return;
        }
        self.report.disconnections += 1;
        let broken = self.rng.random_bool(0.8);
        let parting = if broken { Parting::Broken } else { Parting::Ended };
        self.core.disconnected(self.now, session, parting);
        if !self.core.is_live(session) {
            self.ledger.session_ended(session);
        }
        self.ends.remove(&session);
        self.reconnect(worker);
    }

    fn leave(&mut self, worker: usize) {
        if !self.workers[worker].alive || self.workers[worker].leaving {
            return;
        }
        self.report.departures += 1;
        if self.rng.random_bool(0.5) && self.is_awake() {
            self.core.drain_worker(&format!("w{worker}"));
        } else {
            self.farewell(worker);
        }
    }

    /// A worker announces that it leaves, and returns the attempts that it has not begun.
    fn farewell(&mut self, worker: usize) {
        let w = &mut self.workers[worker];
        let (connection, refused) = (w.connection, w.leave());
        self.say(worker, connection, &Report::Draining);
        for id in refused {
            self.say(worker, connection, &Report::Completion(id, Completion::Refused));
        }
    }

    /// Ends all faults: every process runs and every message arrives.
    pub(super) fn heal(&mut self) {
        debug_assert!(self.now >= CHAOS);
        self.healed = true;
        self.network.heal();
        self.disk.full_until = Duration::ZERO;
        if !self.up {
            self.after(HEARTBEAT, Event::StartCoordinator);
        }
        for worker in 0..self.workers.len() {
            self.workers[worker].stalled_until = self.now;
            self.after(HEARTBEAT, Event::Start { worker });
        }
    }
}
