//! The run: one clock, one queue of events, the core in the middle.

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

/// The length of the chaos. In the healing time after it everything must end: it is enough for the
/// slowest worker alone with every task.
pub(super) const CHAOS: Duration = Duration::from_secs(20);
/// Time after a freeze of the coordinator until a lost worker must be noticed.
const THAWED: Duration = Duration::from_millis(4_500);
const HEALING: Duration = Duration::from_secs(900);
/// The number of events in a failure's trace.
const TRACE: usize = 40;

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) now: Duration,
    /// Events by time, then in the order of their creation.
    pub(super) events: BTreeMap<(Duration, u64), Event>,
    pub(super) made: u64,
    pub(super) config: CoreConfig,
    pub(super) core: Core,
    /// Whether the coordinator runs, and how often it crashed.
    pub(super) up: bool,
    pub(super) life: u64,
    /// The coordinator is frozen until then.
    pub(super) frozen_until: Duration,
    /// The recorded hangs of devices.
    pub(super) hangs: HangTable,
    pub(super) disk: Disk,
    pub(super) ledger: Ledger,
    pub(super) network: Network,
    pub(super) workers: Vec<Worker>,
    pub(super) connections: u64,
    /// Connections up to this number belong to earlier coordinators.
    pub(super) foreign: u64,
    /// The coordinator's side: sessions by connection, and the reverse.
    pub(super) sessions: BTreeMap<u64, SessionId>,
    pub(super) ends: BTreeMap<SessionId, (usize, u64)>,
    pub(super) submissions: Vec<Submission>,
    pub(super) healed: bool,
    pub(super) report: SimReport,
    pub(super) planted: Option<Planted>,
    /// The last events, while a failed run is repeated.
    pub(super) trace: Option<VecDeque<(Duration, Event)>>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let config = settings(seed, &mut rng);
        let mut core = Core::new(Duration::ZERO, config.clone(), rng.random());
        load_models(&mut core, Duration::ZERO);
        let network = Network::new(&mut rng);
        // Now and then almost all workers have a bad driver.
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

    /// The same run, with a fault planted in each core.
    pub(super) fn plant(mut self, fault: Planted) -> Self {
        self.planted = Some(fault);
        self.core.plant(self.planted);
        self
    }

    /// Records the last events, for a run that is known to fail.
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

    /// Adds a core's counts to the report, before another core replaces it.
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

    /// The record of a task, from memory or the disk.
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

/// Settings of a coordinator, with much room or little.
fn settings(seed: u64, rng: &mut Xoshiro256PlusPlus) -> CoreConfig {
    let balancing = balancing_strategies()[rng.random_range(0..balancing_strategies().len())];
    CoreConfig {
        epoch: 1,
        first_seq: None,
        // Every name of the table is found in it.
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
            // In some runs all outputs are kept apart.
            outputs_inline_max: if seed.is_multiple_of(2) { 0 } else { 1 << 20 },
        },
        durable: true,
        thrift: 0.0,
        // Longer than any run that ends by itself.
        run_limit: Some(Duration::from_secs(6)),
        timing: Timing { lease: Duration::from_secs(2), ..Timing::default() },
    }
}
