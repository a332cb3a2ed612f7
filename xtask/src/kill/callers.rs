//! Threads that use the cluster during faults.

use super::client::Client;
use super::history::{Asked, History, Known};
use crate::relay::Random;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The number of callers that use any coordinator.
const ROVERS: u64 = 3;
/// The pause between requests of a caller that stays at one coordinator.
const PACE: Duration = Duration::from_millis(120);
/// Iterations of a task, and of one of eight.
const ITERATIONS_MAX: u64 = 3_000;
const ITERATIONS_LONG: u64 = 100_000;

/// A round's load.
pub(super) struct Callers<'a> {
    pub(super) clients: &'a [Client],
    pub(super) history: &'a History,
    pub(super) stop: &'a AtomicBool,
    /// The prefix of all the round's keys.
    pub(super) name: String,
    pub(super) seed: u64,
}

impl<'a> Callers<'a> {
    /// Starts every thread.
    pub(super) fn run<'s>(&'s self, scope: &'s std::thread::Scope<'s, 'a>)
    where
        'a: 's,
    {
        for at in 0..self.clients.len() {
            scope.spawn(move || self.submit_at(at));
            scope.spawn(move || self.infer_at(at));
        }
        for number in 0..ROVERS {
            scope.spawn(move || self.rove(number));
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    /// Submits tasks with new keys to one coordinator.
    fn submit_at(&self, at: usize) {
        let mut random = Random::new(self.seed ^ at as u64);
        let mut number = 0;
        while self.goes_on() {
            let known = self.known(format!("{}-at{at}-{number}", self.name), &mut random);
            submit(self.clients, self.history, (at as u64, at), &known);
            number += 1;
            std::thread::sleep(PACE);
        }
    }

    fn infer_at(&self, at: usize) {
        while self.goes_on() {
            self.history.infer(at, || self.clients[at].infer());
            std::thread::sleep(PACE);
        }
    }

    fn known(&self, key: String, random: &mut Random) -> Known {
        let most = if random.chance(125) { ITERATIONS_LONG } else { ITERATIONS_MAX };
        Known { key, task: String::new(), iterations: random.below(most) }
    }

    /// Submits, resubmits, looks, waits and cancels, each time at a random coordinator.
    fn rove(&self, number: u64) {
        let caller = 100 + number;
        let mut random = Random::new(self.seed ^ caller);
        let mut count = 0;
        while self.goes_on() {
            let at = usize::try_from(random.below(self.clients.len() as u64)).unwrap_or(0);
            let client = &self.clients[at];
            let recent = self.history.recent(random.next());
            match (random.below(10), recent) {
                (0..=2, Some(known)) => {
                    submit(self.clients, self.history, (caller, at), &known);
                }
                (3 | 4, Some(known)) => {
                    let look = || client.look(&known.task, Duration::ZERO);
                    self.history.ask((caller, at), Asked::Look, &known, look);
                }
                (5 | 6, Some(known)) => {
                    let look = || client.look(&known.task, Duration::from_millis(1_000));
                    self.history.ask((caller, at), Asked::Look, &known, look);
                }
                (7, Some(known)) => {
                    let cancel = || client.cancel(&known.task);
                    self.history.ask((caller, at), Asked::Cancel, &known, cancel);
                }
                _ => {
                    let known =
                        self.known(format!("{}-by{number}-{count}", self.name), &mut random);
                    submit(self.clients, self.history, (caller, at), &known);
                    count += 1;
                }
            }
            std::thread::sleep(Duration::from_millis(random.below(80)));
        }
    }
}

/// Submits a key's task at a coordinator.
pub(super) fn submit(
    clients: &[Client],
    history: &History,
    (caller, at): (u64, usize),
    known: &Known,
) -> super::client::Answer {
    let ask = || clients[at].submit(&known.key, known.iterations);
    history.ask((caller, at), Asked::Submit, known, ask)
}
