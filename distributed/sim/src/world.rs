//! The run itself: one clock, one line of events, the core in the middle.

mod event;
mod handle;

pub(crate) use event::{Event, Order};

use super::disk::Disk;
use super::ledger::Ledger;
use super::network::Network;
use super::worker::Worker;
use super::workload::{Submission, load_models, millis, submissions};
use super::{SimFailure, SimReport};
use lgp_distributed::inside::Planted;
use lgp_distributed::inside::balance::by_name;
use lgp_distributed::inside::core::{Core, Found, HangTable, recollect};
use lgp_distributed::inside::state::{CoreConfig, RetentionLimits, SessionId, Timing};
use lgp_distributed::{TaskId, TaskRecord, balancing_strategies};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Length of the chaos, and of the time in which everything must then come to its end: enough
/// for the slowest worker alone with every task.
pub(super) const CHAOS: Duration = Duration::from_secs(20);
/// Time after the coordinator stood still until a worker that is gone must be noticed.
const THAWED: Duration = Duration::from_millis(4_500);
const HEALING: Duration = Duration::from_secs(900);
/// Events that a failure shows.
const TRACE: usize = 40;

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) now: Duration,
    /// By time and, within it, in the order of their making.
    pub(super) events: BTreeMap<(Duration, u64), Event>,
    pub(super) made: u64,
    pub(super) config: CoreConfig,
    pub(super) core: Core,
    /// Whether the coordinator runs, and how often it ended.
    pub(super) up: bool,
    pub(super) life: u64,
    /// The coordinator stands still until then.
    pub(super) frozen_until: Duration,
    /// What is remembered of devices on which runs did not stop.
    pub(super) hangs: HangTable,
    pub(super) disk: Disk,
    pub(super) ledger: Ledger,
    pub(super) network: Network,
    pub(super) workers: Vec<Worker>,
    pub(super) connections: u64,
    /// Connections up to this number belong to coordinators that are gone.
    pub(super) foreign: u64,
    /// The coordinator's end: sessions by connection and the reverse.
    pub(super) sessions: BTreeMap<u64, SessionId>,
    pub(super) ends: BTreeMap<SessionId, (usize, u64)>,
    pub(super) submissions: Vec<Submission>,
    pub(super) healed: bool,
    pub(super) report: SimReport,
    pub(super) planted: Option<Planted>,
    /// The last events, where a failed run is repeated to be seen.
    pub(super) trace: Option<VecDeque<(Duration, Event)>>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let config = settings(seed, &mut rng);
        let mut core = Core::new(Duration::ZERO, config.clone(), rng.random());
        load_models(&mut core, Duration::ZERO);
        let network = Network::new(&mut rng);
        // Now and then a bad driver came to almost all of them.
        let sick = if rng.random_bool(0.1) { 0.9 } else { 0.1 };
        // Devices that hold one model at a time: some, all, or none.
        let small = [0.0, 0.3, 1.0][rng.random_range(0..3)];
        let workers: Vec<Worker> =
            (0..rng.random_range(5..=8)).map(|_| Worker::new(&mut rng, sick, small)).collect();
        let submissions = submissions(&mut rng, CHAOS);
        let mut world = Self {
            seed,
            rng,
            now: Duration::ZERO,
            events: BTreeMap::new(),
            made: 0,
            ledger: Ledger::new(&config),
            config,
            core,
            up: true,
            life: 1,
            frozen_until: Duration::ZERO,
            hangs: HangTable::new(),
            disk: Disk::default(),
            network,
            workers,
            connections: 0,
            foreign: 0,
            sessions: BTreeMap::new(),
            ends: BTreeMap::new(),
            submissions,
            healed: false,
            report: SimReport::default(),
            planted: None,
            trace: None,
        };
        world.disk.open(1);
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

    /// The same, with a fault in every core of the run.
    pub(super) fn plant(mut self, fault: Planted) -> Self {
        self.planted = Some(fault);
        self.core.plant(self.planted);
        self
    }

    /// Keeps the last events, for a run that is known to fail.
    pub(super) fn watch(&mut self) {
        self.trace = Some(VecDeque::new());
    }

    pub(super) fn run(mut self) -> Result<SimReport, SimFailure> {
        match self.steps() {
            Ok(()) => {
                self.retire_core();
                self.report.workers = u64::try_from(self.workers.len()).unwrap_or(u64::MAX);
                Ok(self.report)
            }
            Err(what) => {
                let trace = self.trace.iter().flatten();
                let trace = trace.map(|(at, event)| format!("{at:?} {event:?}")).collect();
                Err(SimFailure { seed: self.seed, at: self.now, what, trace })
            }
        }
    }

    /// Adds up what a core counted, before another takes its place.
    pub(super) fn retire_core(&mut self) {
        let stats = self.core.stats(self.now);
        self.report.tasks = self.ledger.accepted_tasks();
        self.report.durable = self.ledger.durable_tasks();
        self.report.succeeded += stats.tasks.succeeded;
        self.report.failed += stats.tasks.failed;
        self.report.cancelled += stats.tasks.cancelled;
        self.report.retries += stats.retries;
        self.report.hedges += stats.hedges;
        self.report.yielded += stats.yielded;
        self.report.moved += stats.moved;
        self.report.breakers_opened += stats.breakers_opened;
        self.report.stale_completions += stats.stale_completions;
    }

    fn steps(&mut self) -> Result<(), String> {
        while self.now < CHAOS + HEALING && !(self.healed && self.up && self.core.is_idle()) {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.core.next_timeout().filter(|_| self.up);
            let timeout = timeout.map(|at| at.max(self.frozen_until));
            if timeout.is_some_and(|t| event.is_none_or(|e| t <= e)) {
                self.now = timeout.unwrap_or(self.now).max(self.now);
                self.core.tick(self.now);
            } else {
                let Some(((at, _), event)) = self.events.pop_first() else { break };
                self.now = at;
                if let Some(trace) = &mut self.trace {
                    if trace.len() == TRACE {
                        trace.pop_front();
                    }
                    trace.push_back((at, event.clone()));
                }
                self.handle(event)?;
            }
            self.report.events += 1;
            if self.is_awake() {
                self.carry_out()?;
                self.ledger.check(self.now, &self.core)?;
                #[cfg(test)]
                if self.report.events.is_multiple_of(8) {
                    self.core.check();
                }
            }
        }
        if self.up {
            self.ledger.check_results(self.now, |id| self.record(id).is_some())?;
        }
        self.ledger.check_end()
    }

    /// The record of a task, wherever it is.
    pub(super) fn record(&self, id: TaskId) -> Option<TaskRecord> {
        match self.core.find(self.now, id).ok()? {
            Found::Here(record) => Some(*record),
            Found::Stored(id) => recollect(self.disk.read(id)?),
        }
    }

    pub(super) fn at(&mut self, at: Duration, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    pub(super) fn after(&mut self, wait: Duration, event: Event) {
        self.at(self.now + wait, event);
    }
}

/// A coordinator with much room or little.
fn settings(seed: u64, rng: &mut Xoshiro256PlusPlus) -> CoreConfig {
    let balancing = balancing_strategies()[rng.random_range(0..balancing_strategies().len())];
    CoreConfig {
        epoch: 1,
        first_seq: None,
        // The table's own names are in the table.
        balancing: by_name(balancing).unwrap_or_else(|e| unreachable!("{e}")),
        queue_tasks_max: if rng.random_bool(0.2) { 20 } else { 1_000 },
        queue_bytes_max: 1 << 20,
        retention: RetentionLimits {
            retained_tasks_max: if rng.random_bool(0.3) { 10 } else { 1_000 },
            retained_bytes_max: 1 << 20,
            keys_kept_for: Duration::from_secs(if rng.random_bool(0.2) { 5 } else { 3_600 }),
            results_kept_for: Duration::from_secs(if rng.random_bool(0.2) { 5 } else { 3_600 }),
            results_bytes_max: 1 << 30,
            results_max: if rng.random_bool(0.3) { 10 } else { 10_000 },
            // All outputs of some runs lie apart.
            outputs_inline_max: if seed.is_multiple_of(2) { 0 } else { 1 << 20 },
        },
        durable: true,
        thrift: 0.0,
        // Longer than any run that ends by itself.
        run_limit: Some(Duration::from_secs(6)),
        timing: Timing { lease: Duration::from_secs(2), ..Timing::default() },
    }
}
