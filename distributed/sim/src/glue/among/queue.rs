//! The changes that a coordinator submitted to the shared log, which commits them in order.

use super::log::{Asked, Link, SharedLog, path};
use crate::glue::net::Node;
use lgp_distributed::JournalError;
use lgp_distributed::inside::log::{Change, Complete, Draft, Log, Outcome, Told, changes};
use lgp_distributed::inside::outside::on;
use lgp_distributed::inside::record::Key;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// How long, and how often, a commit with an unknown outcome is retried.
const PATIENCE: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_millis(200);

pub(super) struct Queue {
    log: SharedLog,
    node: Node,
    state: Mutex<QueueState>,
    wake: Notify,
}

struct QueueState {
    waiting: VecDeque<(u64, Draft)>,
    /// The requested commit, and the time of its first request.
    asked: Option<(Commit, Instant)>,
    last: Link,
    told: Told,
    ticket: u64,
    failed: Option<JournalError>,
    closed: bool,
    rng: Xoshiro256PlusPlus,
}

struct Commit {
    tickets: Vec<u64>,
    changes: Vec<Change>,
}

/// Whether a commit must be requested again.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Again,
}

impl Queue {
    pub(super) fn start(
        log: SharedLog,
        node: Node,
        last: Link,
        told: Told,
    ) -> (Arc<Self>, Arc<dyn Log>) {
        let state = QueueState {
            waiting: VecDeque::new(),
            asked: None,
            last,
            told,
            ticket: 0,
            failed: None,
            closed: false,
            rng: log.scene.rng(),
        };
        let queue = Arc::new(Self { log, node, state: Mutex::new(state), wake: Notify::new() });
        tokio::spawn(on(node, Arc::clone(&queue).run()));
        (Arc::clone(&queue), Arc::new(Handle(queue)))
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        loop {
            self.wake.notified().await;
            while self.lock().has_work() {
                let slow = self.log.slow_ms_max();
                let wait = self.lock().rng.random_range(0..=slow);
                sleep(Duration::from_millis(wait)).await;
                if self.commit() == Next::Again {
                    sleep(AGAIN).await;
                }
            }
            if self.lock().closed {
                return;
            }
        }
    }

    /// Requests one commit: the pending one, or a new one of everything that waits.
    fn commit(&self) -> Next {
        let mut state = self.lock();
        let mut outcomes = Vec::new();
        if state.asked.is_none() {
            outcomes = state.draft();
        }
        let Some((commit, since)) = state.asked.take() else {
            self.tell(state, outcomes);
            return Next::Go;
        };
        let next = state.next();
        let asked = self.log.ask(self.node, (state.last, next), &commit.changes);
        let again = match asked {
            Asked::Away => since.elapsed() < PATIENCE,
            // An earlier request may still be in flight.
            Asked::Full => since.elapsed() > Duration::ZERO && since.elapsed() < PATIENCE,
            Asked::Made | Asked::Refused => false,
        };
        if again {
            state.asked = Some((commit, since));
        } else {
            let broken = |what: &str| JournalError::Broken { path: path(), what: what.into() };
            let error = match asked {
                Asked::Made => None,
                Asked::Full if since.elapsed().is_zero() => {
                    let source = Arc::new(std::io::ErrorKind::StorageFull.into());
                    Some(JournalError::Full { path: path(), source })
                }
                Asked::Full | Asked::Away => Some(broken("nobody says what became of it")),
                Asked::Refused => Some(broken("another coordinator leads")),
            };
            let upto = commit.tickets.last().copied().unwrap_or_default();
            outcomes.push(match error {
                None => {
                    state.last = next;
                    Outcome::Durable(upto)
                }
                Some(error) => {
                    if matches!(error, JournalError::Broken { .. }) {
                        state.failed = Some(error.clone());
                    }
                    Outcome::Failed { tickets: commit.tickets, error }
                }
            });
        }
        self.tell(state, outcomes);
        if again { Next::Again } else { Next::Go }
    }

    /// The receiver may submit more changes, so the lock is released.
    fn tell(&self, mut state: MutexGuard<'_, QueueState>, outcomes: Vec<Outcome>) {
        let mut told = std::mem::replace(&mut state.told, Box::new(|_| {}));
        drop(state);
        for outcome in outcomes {
            self.log.scene.note(|| format!("log of machine {}: {outcome:?}", self.node));
            told(outcome);
        }
        let mut state = self.lock();
        if !state.closed {
            state.told = told;
        }
    }

    /// The process crashes. The requested commit and some of the waiting changes may have been
    /// made.
    pub(super) fn crash(&self) {
        let mut state = self.lock();
        let all = state.waiting.len();
        let keep = state.rng.random_range(0..=all);
        state.waiting.truncate(keep);
        state.told = Box::new(|_| {});
        state.closed = true;
        drop(state);
        self.commit();
        let mut state = self.lock();
        if state.asked.is_none() {
            drop(state);
            self.commit();
            state = self.lock();
        }
        state.end();
        drop(state);
        self.wake.notify_one();
    }
}

impl QueueState {
    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.asked.is_some()
    }

    fn next(&self) -> Link {
        let Link { number, by, own } = self.last;
        Link { number: number + 1, by, own: own + 1 }
    }

    /// Makes one commit of everything that waits. Returns the changes that cannot be encoded, and
    /// those that the log no longer accepts.
    fn draft(&mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut commit = Commit { tickets: Vec::new(), changes: Vec::new() };
        for (ticket, draft) in std::mem::take(&mut self.waiting) {
            let made = match &self.failed {
                Some(error) => Err(error.clone()),
                None => changes(draft),
            };
            match made {
                Ok(changes) => {
                    commit.tickets.push(ticket);
                    commit.changes.extend(changes);
                }
                Err(error) => outcomes.push(Outcome::Failed { tickets: vec![ticket], error }),
            }
        }
        if !commit.tickets.is_empty() {
            self.asked = Some((commit, Instant::now()));
        }
        outcomes
    }

    fn end(&mut self) {
        self.failed.get_or_insert(JournalError::Closed { path: path() });
        self.told = Box::new(|_| {});
        self.waiting.clear();
        self.asked = None;
        self.closed = true;
    }
}

/// A coordinator's handle. Dropping it tries to commit the waiting changes once.
struct Handle(Arc<Queue>);

impl Log for Handle {
    fn submit(&self, ticket: u64, draft: Draft) -> Result<(), JournalError> {
        let mut state = self.0.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.ticket >= ticket {
            return Err(JournalError::Ticket { given: ticket, last: state.ticket });
        }
        state.ticket = ticket;
        state.waiting.push_back((ticket, draft));
        drop(state);
        self.0.wake.notify_one();
        Ok(())
    }

    fn read(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        self.0.log.read(self.0.node, key)
    }

    fn compact(&self) -> Result<bool, JournalError> {
        Ok(false)
    }

    fn back_up(&self, _: &Path, _: Complete<'_>) -> Result<(), JournalError> {
        Err(JournalError::Busy { path: path() })
    }

    fn size_bytes(&self) -> Result<u64, JournalError> {
        Ok(0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Once for the requested commit, and once for later changes.
        for _ in 0..2 {
            if self.0.lock().has_work() {
                self.0.commit();
            }
        }
        self.0.lock().end();
        self.0.wake.notify_one();
    }
}
