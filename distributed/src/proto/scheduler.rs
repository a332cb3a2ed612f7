//! Which task goes next, and to which device: the queue with a line per model, the balancing
//! strategies, the homes of affinity keys, and the retry budget.

mod affinity;
pub(crate) mod balance;
mod breaker;
mod budget;
pub(crate) mod queue;
pub(super) mod service;

pub(super) use affinity::{Affinity, Home};
pub(super) use breaker::Breaker;

use crate::proto::backoff::full_jitter;
use crate::proto::state::Timing;
use crate::proto::tasks::Task;
use crate::task::Backoff;
use balance::{Balance, Choice, Request, View};
use budget::Budget;
use queue::Queue;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::time::Duration;

/// Time until a search for attempts to recall is repeated after one that found none.
const LOOK: Duration = Duration::from_millis(10);

/// The waiting tasks, and how they are matched with devices.
pub(super) struct Scheduler {
    queue: Queue,
    strategy: &'static dyn Balance,
    /// Milliseconds of completion time that a joule is worth to the adaptive strategy.
    thrift: f64,
    rng: Xoshiro256PlusPlus,
    affinity: Affinity,
    budget: Budget,
    /// Tasks that wait for the retry budget.
    parked: VecDeque<u64>,
    dispatches: u64,
    /// When background attempts may be recalled again.
    next_recall: Duration,
}

impl Scheduler {
    /// An empty scheduler; `seed` feeds the jitter of retries and the choices of strategies.
    pub(super) fn new(
        now: Duration,
        strategy: &'static dyn Balance,
        thrift: f64,
        seed: u64,
    ) -> Self {
        Self {
            queue: Queue::default(),
            strategy,
            thrift,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            affinity: Affinity::default(),
            budget: Budget::new(now),
            parked: VecDeque::new(),
            dispatches: 0,
            next_recall: Duration::ZERO,
        }
    }

    /// The tasks that wait for nothing but a free device.
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Tasks of a model that wait for nothing but a free device.
    pub(super) fn depth(&self, model: &crate::task::ModelRef) -> usize {
        self.queue.depth(model)
    }

    /// Puts a task into the queue, if it waits only for a free device.
    pub(super) fn enqueue(&mut self, task: &Task) {
        if task.is_ready() {
            self.queue.push(task.model(), task.place(), task.request().priority());
        }
    }

    /// Takes a task out of the queue, if it is there.
    pub(super) fn dequeue(&mut self, task: &Task) {
        if task.is_ready() {
            self.queue.remove(task.model(), task.place());
        }
    }

    pub(super) fn strategy(&self) -> &'static dyn Balance {
        self.strategy
    }

    pub(super) fn set_strategy(&mut self, strategy: &'static dyn Balance) {
        self.strategy = strategy;
    }

    /// The request for a device for a task whose model takes this much memory and time to load.
    pub(super) fn request(&mut self, needs_mib: f64, load_ms: f64) -> Request {
        Request { needs_mib, load_ms, thrift: self.thrift, random: self.rng.random() }
    }

    /// The strategy's choice.
    pub(super) fn pick(&self, now: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        self.strategy.pick(now, view, request)
    }

    /// The device that tasks of an affinity key went to last.
    pub(super) fn home(&self, now: Duration, key: &str) -> Option<&Home> {
        self.affinity.home(now, key)
    }

    pub(super) fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// Notes the device that a task of an affinity key goes to.
    pub(super) fn remember_home(&mut self, now: Duration, key: String, home: Home) {
        self.affinity.remember(now, key, home);
    }

    /// The number of the next dispatch; a task's first one adds to the retry budget.
    pub(super) fn count_dispatch(&mut self, first: bool) -> u64 {
        if first {
            self.budget.deposit();
        }
        self.dispatches += 1;
        self.dispatches
    }

    /// The wait before the attempt that follows `failures` failures.
    pub(super) fn backoff(
        &mut self,
        failures: u32,
        wished: Option<Backoff>,
        timing: &Timing,
    ) -> Duration {
        let Timing { retry_base: base, retry_max: max, .. } = *timing;
        let Backoff { base, max } = wished.unwrap_or(Backoff { base, max });
        full_jitter(failures, base, max, &mut self.rng)
    }

    /// Takes a token of the retry budget for a task, unless other tasks wait for one already.
    pub(super) fn may_retry(&mut self, now: Duration) -> bool {
        self.parked.is_empty() && self.budget.take(now)
    }

    /// Makes a task wait for the retry budget. If no other one waited before, returns when there
    /// may be a token again.
    pub(super) fn park(&mut self, now: Duration, seq: u64) -> Option<Duration> {
        let first = self.parked.is_empty();
        self.parked.push_back(seq);
        first.then(|| now + self.budget.next(now))
    }

    /// The task that has waited for the retry budget for longest.
    pub(super) fn parked(&self) -> Option<u64> {
        self.parked.front().copied()
    }

    /// The first parked task waits no more; if it has not ended, it takes a token. If there is
    /// none, returns when there may be one.
    pub(super) fn unpark(&mut self, now: Duration, waits: bool) -> Result<(), Duration> {
        if waits && !self.budget.take(now) {
            return Err(now + self.budget.next(now));
        }
        self.parked.pop_front();
        Ok(())
    }

    /// Retries that may begin at once.
    pub(super) fn retries_left(&self) -> f64 {
        self.budget.left()
    }

    /// Whether attempts may be recalled to make room.
    pub(super) fn may_recall(&self, now: Duration) -> bool {
        now >= self.next_recall
    }

    /// A search found no attempt to recall: a search at each event would find the same.
    pub(super) fn found_none(&mut self, now: Duration) {
        self.next_recall = now + LOOK;
    }
}
