//! Clients that never rest: durable tasks with keys, tasks that are not durable, and inferences.

mod draw;
mod durable;
mod volatile;

use super::ledger::{Breach, Ledger};
use super::picture::Pictures;
use super::process::Site;
use super::rest::{PATIENCE, Rest};
use crate::relay::Random;
use anyhow::{Result, bail};
use draw::Draw;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of clients: two of each kind.
const CLIENTS: u64 = 6;
/// The pause between a client's requests: fixed for short tasks, and from a range where a machine gets as much as it
/// can do.
const PACE: Duration = Duration::from_millis(30);
const PACE_OF_USE_MS: (u64, u64) = (120, 760);
/// The pause before a failed request is repeated.
const AGAIN: Duration = Duration::from_millis(20);
/// How long a task that is not durable may take to end.
const VOLATILE: Duration = Duration::from_secs(90);
/// How long durable tasks may still be refused once a full disk has room again.
const ROOM: Duration = Duration::from_secs(20);

/// The state that the clients share with each other and with the faults.
pub(super) struct Load {
    pub(super) rest: Rest,
    pub(super) pictures: Pictures,
    draw: Draw,
    ledger: Mutex<Ledger>,
    /// Counts of the answers that clients got.
    told: Mutex<BTreeMap<String, u64>>,
    /// When the fault began, and how long after it a later request succeeded.
    recovery: Mutex<Option<(Instant, Option<Duration>)>>,
    /// Short tasks that were open when the fault began.
    before: Mutex<Vec<String>>,
    /// Until when durable tasks may be refused for want of room.
    full: Mutex<Option<Instant>>,
    /// Odd while no coordinator runs.
    lives: AtomicU64,
    paused: AtomicBool,
    ended: AtomicBool,
    /// The number of clients that are in a request.
    busy: AtomicU64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    /// Clients of the bundled model, whose tasks are short and many.
    pub(super) fn of_digits(site: &Site, pictures: Pictures) -> Self {
        Self::new(site, pictures, None)
    }

    /// Clients with tasks like those of users, on a machine where a thread does `pace` iterations of `work` a second.
    pub(super) fn of_use(site: &Site, pictures: Pictures, pace: f64) -> Self {
        Self::new(site, pictures, Some(pace))
    }

    fn new(site: &Site, pictures: Pictures, pace: Option<f64>) -> Self {
        Self {
            rest: Rest::new(&site.url(), &site.data()),
            draw: Draw::new(pace, pictures.count()),
            pictures,
            ledger: Mutex::default(),
            told: Mutex::default(),
            recovery: Mutex::default(),
            before: Mutex::default(),
            full: Mutex::default(),
            lives: AtomicU64::new(0),
            paused: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            busy: AtomicU64::new(0),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Counts of the answers so far.
    pub(super) fn told(&self) -> BTreeMap<String, u64> {
        lock(&self.told).clone()
    }

    /// The violations of the laws, in words.
    pub(super) fn failures(&self) -> Vec<String> {
        self.ledger().violations.iter().map(|violation| violation.what.clone()).collect()
    }

    /// Notes that the coordinator ends.
    pub(super) fn gone(&self) {
        self.lives.fetch_add(1, SeqCst);
        self.ledger().excuse.begin();
    }

    /// Notes that another coordinator runs.
    pub(super) fn back(&self) {
        self.lives.fetch_add(1, SeqCst);
        let mut ledger = self.ledger();
        ledger.excuse.end();
        ledger.next_life();
    }

    /// Notes a fault: the first success of a later request is the recovery.
    pub(super) fn hurt(&self) {
        *lock(&self.recovery) = Some((Instant::now(), None));
        *lock(&self.before) = self.ledger().open_below(Duration::from_secs(1));
    }

    /// Short tasks that were acknowledged before the last [`Load::hurt`], unless their end was seen.
    pub(super) fn acknowledged_before(&self) -> Vec<String> {
        lock(&self.before).clone()
    }

    /// How long ago the last [`Load::hurt`] was.
    pub(super) fn since_hurt(&self) -> Duration {
        lock(&self.recovery).map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    /// How long after the last [`Load::hurt`] a request made after it succeeded.
    pub(super) fn recovered(&self) -> Option<Duration> {
        lock(&self.recovery).and_then(|(_, after)| after)
    }

    /// Notes a full disk for `time`, and for some time after that.
    pub(super) fn full_for(&self, time: Duration) {
        *lock(&self.full) = Some(Instant::now() + time + ROOM);
    }

    fn is_full(&self) -> bool {
        lock(&self.full).is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn resume(&self) {
        self.paused.store(false, SeqCst);
    }

    /// Lets every client finish its request and wait.
    pub(super) fn pause(&self) -> Result<()> {
        self.paused.store(true, SeqCst);
        let until = Instant::now() + VOLATILE + 2 * PATIENCE;
        while self.busy.load(SeqCst) > 0 {
            if Instant::now() > until {
                bail!("a client hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Does `work` while clients run; a failure of `work` is a violation.
    pub(super) fn during(&self, seed: u64, work: impl FnOnce() -> Result<()>) {
        let done = std::thread::scope(|scope| {
            // The guard ends the clients also after a failure or a panic: the scope waits for them.
            let _end = End(self);
            for number in 0..CLIENTS {
                scope.spawn(move || self.client(number, seed));
            }
            work()
        });
        if let Err(error) = done {
            self.ledger().violation(Breach::Other, format!("{error:#}"));
        }
    }

    /// Runs client `number`, whose kind follows from the number.
    fn client(&self, number: u64, seed: u64) {
        let mut random = Random::new(seed ^ number.wrapping_mul(0x5851_F42D_4C95_7F2D));
        let mut count = 0;
        while !self.ended.load(SeqCst) {
            self.busy.fetch_add(1, SeqCst);
            if !self.paused.load(SeqCst) {
                count += 1;
                match number % 3 {
                    0 => self.durable(&format!("{number}-{count}"), &mut random),
                    1 => self.infer(&mut random),
                    _ => self.volatile(&mut random),
                }
            }
            self.busy.fetch_sub(1, SeqCst);
            std::thread::sleep(self.rest_for(number, &mut random));
        }
    }

    /// The pause before a client's next request.
    fn rest_for(&self, number: u64, random: &mut Random) -> Duration {
        let (least, most) = PACE_OF_USE_MS;
        match (self.draw.is_of_use(), number % 3) {
            (true, 0) => Duration::from_millis(least + random.below(most - least)),
            _ => PACE,
        }
    }

    fn tell(&self, what: impl Into<String>) {
        *lock(&self.told).entry(what.into()).or_default() += 1;
    }

    fn broken(&self, breach: Breach, what: impl Into<String>) {
        self.ledger().violation(breach, what);
    }

    fn succeeded(&self, begun: Instant) {
        if let Some((since, after)) = lock(&self.recovery).as_mut()
            && begun >= *since
            && after.is_none()
        {
            *after = Some(since.elapsed());
        }
    }

    /// Whether there was no coordinator at some time since `lives` was read.
    fn was_away(&self, lives: u64) -> bool {
        lives % 2 == 1 || self.lives.load(SeqCst) != lives
    }
}

/// Ends the clients when dropped.
struct End<'a>(&'a Load);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, SeqCst);
    }
}
