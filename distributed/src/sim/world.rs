//! The run itself: one clock, one line of events, the core in the middle.

use super::ledger::Ledger;
use super::network::Network;
use super::worker::{Report, Worker};
use super::workload::{MODELS, Submission, millis, model, submissions};
use super::{SimFailure, SimReport};
use crate::error::Error;
use crate::proto::balance::{balancing_strategies, by_name};
use crate::proto::core::Core;
use crate::proto::message::AttemptId;
#[cfg(test)]
use crate::proto::state::Planted;
use crate::proto::state::{CoreConfig, SessionId, Timing};
use crate::task::{ModelRef, TaskId};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Length of the chaos, and of the time in which everything must then come to its end: enough
/// for the slowest worker alone with every task.
pub(super) const CHAOS: Duration = Duration::from_secs(20);
const HEALING: Duration = Duration::from_secs(900);
/// Events that a failure shows.
const TRACE: usize = 40;

/// Messages to a worker.
#[derive(Debug, Clone)]
pub(super) enum Order {
    Welcome,
    /// The transport's acknowledgement: the other end lives.
    Acknowledge,
    Task(AttemptId, ModelRef),
    Cancel(AttemptId),
    Load(ModelRef),
    Drain,
    Close {
        farewell: bool,
    },
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    Submit(usize),
    Cancel(usize),
    Report {
        worker: usize,
        connection: u64,
        report: Report,
    },
    Order {
        worker: usize,
        connection: u64,
        order: Order,
    },
    Start {
        worker: usize,
    },
    Connect {
        worker: usize,
        life: u64,
    },
    Beat {
        worker: usize,
        connection: u64,
    },
    Executed {
        worker: usize,
        life: u64,
        id: AttemptId,
    },
    /// A session must have ended by now: its worker was gone long enough.
    Detected {
        session: SessionId,
    },
    Chaos,
    Heal,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) now: Duration,
    /// By time and, within it, in the order of their making.
    pub(super) events: BTreeMap<(Duration, u64), Event>,
    pub(super) made: u64,
    pub(super) core: Core,
    pub(super) ledger: Ledger,
    pub(super) network: Network,
    pub(super) workers: Vec<Worker>,
    pub(super) connections: u64,
    /// The coordinator's end: sessions by connection and the reverse.
    pub(super) sessions: BTreeMap<u64, SessionId>,
    pub(super) ends: BTreeMap<SessionId, (usize, u64)>,
    pub(super) submissions: Vec<Submission>,
    pub(super) ids: BTreeMap<usize, TaskId>,
    pub(super) healed: bool,
    pub(super) report: SimReport,
    pub(super) trace: VecDeque<(Duration, Event)>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let balancing = balancing_strategies()[rng.random_range(0..balancing_strategies().len())];
        let config = CoreConfig {
            epoch: 1,
            // The table's own names are in the table.
            balancing: by_name(balancing).unwrap_or_else(|e| unreachable!("{e}")),
            queue_tasks_max: if rng.random_bool(0.2) { 5 } else { 1_000 },
            queue_bytes_max: 1 << 20,
            retained_tasks_max: 1_000,
            retained_bytes_max: 1 << 20,
            timing: Timing { lease: Duration::from_secs(2), ..Timing::default() },
        };
        let mut core = Core::new(config, rng.random());
        for name in MODELS {
            core.load(Duration::ZERO, &model(name));
        }
        let network = Network::new(&mut rng);
        let workers: Vec<Worker> =
            (0..rng.random_range(1..=6)).map(|_| Worker::new(&mut rng)).collect();
        let submissions = submissions(&mut rng, CHAOS);
        let mut world = Self {
            seed,
            rng,
            now: Duration::ZERO,
            events: BTreeMap::new(),
            made: 0,
            core,
            ledger: Ledger::default(),
            network,
            workers,
            connections: 0,
            sessions: BTreeMap::new(),
            ends: BTreeMap::new(),
            submissions,
            ids: BTreeMap::new(),
            healed: false,
            report: SimReport::default(),
            trace: VecDeque::new(),
        };
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        for number in 0..self.submissions.len() {
            self.at(self.submissions[number].at, Event::Submit(number));
        }
        for worker in 0..self.workers.len() {
            let at = millis(&mut self.rng, 2_000);
            self.at(at, Event::Start { worker });
        }
        self.at(Duration::ZERO, Event::Chaos);
        self.at(CHAOS, Event::Heal);
    }

    #[cfg(test)]
    pub(super) fn plant(&mut self, planted: Planted) {
        self.core.planted = planted;
    }

    pub(super) fn run(mut self) -> Result<SimReport, SimFailure> {
        match self.steps() {
            Ok(()) => {
                let stats = self.core.stats(self.now);
                self.report.tasks = stats.tasks.submitted;
                self.report.succeeded = stats.tasks.succeeded;
                self.report.failed = stats.tasks.failed;
                self.report.cancelled = stats.tasks.cancelled;
                self.report.retries = stats.retries;
                self.report.stale_completions = stats.stale_completions;
                Ok(self.report)
            }
            Err(what) => {
                let trace = self.trace.iter().map(|(at, event)| format!("{at:?} {event:?}"));
                Err(SimFailure { seed: self.seed, at: self.now, what, trace: trace.collect() })
            }
        }
    }

    fn steps(&mut self) -> Result<(), String> {
        while self.now < CHAOS + HEALING && !(self.healed && self.core.is_idle()) {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.core.next_timeout();
            if timeout.is_some_and(|t| event.is_none_or(|e| t <= e)) {
                self.now = timeout.unwrap_or(self.now).max(self.now);
                self.core.tick(self.now);
            } else {
                let Some(((at, _), event)) = self.events.pop_first() else { break };
                self.now = at;
                if self.trace.len() == TRACE {
                    self.trace.pop_front();
                }
                self.trace.push_back((at, event.clone()));
                self.handle(event)?;
            }
            self.report.events += 1;
            self.carry_out()?;
            self.ledger.check(self.now, &self.core)?;
        }
        self.ledger.check_end()
    }

    pub(super) fn at(&mut self, at: Duration, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    pub(super) fn after(&mut self, wait: Duration, event: Event) {
        self.at(self.now + wait, event);
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Submit(number) => self.submit(number)?,
            Event::Cancel(number) => {
                if let Some(id) = self.ids.get(&number) {
                    self.ledger.cancelled(id.seq);
                    self.core.cancel(self.now, *id).map_err(|e| e.to_string())?;
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
            Event::Detected { session } => {
                if self.core.is_live(session) {
                    return Err(format!("session {session} lives on without its worker"));
                }
            }
            Event::Chaos => self.chaos(),
            Event::Heal => self.heal(),
        }
        Ok(())
    }

    fn submit(&mut self, number: usize) -> Result<(), String> {
        let Submission { spec, digest, cancel_at, .. } = self.submissions[number].clone();
        match self.core.submit(self.now, Arc::new(spec.clone()), 100, digest) {
            Ok(id) => {
                self.ledger.submitted(self.now, id, &spec, digest)?;
                self.ids.insert(number, id);
                if let Some(at) = cancel_at {
                    self.at(at, Event::Cancel(number));
                }
            }
            // Both were asked for by the workload.
            Err(Error::Conflict { .. } | Error::Overloaded { .. }) => {}
            Err(other) => return Err(other.to_string()),
        }
        Ok(())
    }
}
