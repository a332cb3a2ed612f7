//! A log around another one, for a coordinator in simulated time. It is slow, fills up, breaks, and
//! ends with its coordinator, which never learns the outcome of the last changes.

use super::disk::Disk;
use super::scene::Scene;
use lgp_distributed::JournalError;
use lgp_distributed::inside::journal::On;
use lgp_distributed::inside::log::{
    Complete, Draft, Each, Log, Memory, Opened, Opener, Outcome, Place, Told,
};
use lgp_distributed::inside::record::Key;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The storage of the records.
#[derive(Debug, Clone)]
pub(super) enum Medium {
    Memory(Memory),
    /// The real journal with its writer, on a disk in memory.
    Disk(Arc<Disk>),
}

/// The location of the log, and its faults.
#[derive(Clone)]
pub(super) struct SimPlace {
    scene: Arc<Scene>,
    state: Arc<Mutex<PlaceState>>,
}

struct PlaceState {
    medium: Medium,
    /// The longest time of a commit.
    slow_ms_max: u64,
    break_next: bool,
    /// The open log.
    running: Option<Arc<Queue>>,
}

impl SimPlace {
    pub(super) fn new(scene: &Arc<Scene>, medium: Medium) -> Self {
        let state = PlaceState { medium, slow_ms_max: 5, break_next: false, running: None };
        Self { scene: Arc::clone(scene), state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, PlaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the longest time of a commit.
    pub(super) fn slow(&self, ms_max: u64) {
        self.lock().slow_ms_max = ms_max;
    }

    /// Fills the log, or frees its room.
    pub(super) fn full(&self, full: bool) {
        match &self.lock().medium {
            Medium::Memory(memory) => memory.limit(full.then_some(0)),
            Medium::Disk(disk) => disk.full(full),
        }
    }

    /// The next commit and all later ones fail.
    pub(super) fn break_next(&self) {
        let mut state = self.lock();
        match &state.medium {
            Medium::Memory(_) => state.break_next = true,
            Medium::Disk(disk) => disk.fail_sync(),
        }
    }

    pub(super) fn heal(&self) {
        self.full(false);
        let mut state = self.lock();
        state.slow_ms_max = 5;
        state.break_next = false;
        if let Medium::Disk(disk) = &state.medium {
            disk.heal();
        }
    }

    /// The process that has the log open crashes. Some of the waiting changes may still become
    /// durable.
    pub(super) fn crash(&self) {
        let running = self.lock().running.take();
        if let Some(queue) = running {
            queue.crash();
        }
        let mut state = self.lock();
        if let Medium::Disk(disk) = &mut state.medium {
            // The old process continues on the old disk.
            *disk = disk.after_kill();
        }
    }
}

impl Place for SimPlace {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        let medium = self.lock().medium.clone();
        let opened = match &medium {
            Medium::Memory(memory) => memory.open(opener, each)?,
            Medium::Disk(disk) => {
                disk.heal();
                On(disk.file()?).open(opener, each)?
            }
        };
        let Opened { epoch, epochs, start } = opened;
        let place = self.clone();
        let start = move |told: Told| -> Result<Arc<dyn Log>, JournalError> {
            let (tell, outcomes) = channel();
            // The receiver may be gone.
            let inner = start(Box::new(move |outcome| drop(tell.send(outcome))))?;
            let state = QueueState {
                waiting: VecDeque::new(),
                inner: Some((inner, outcomes)),
                told,
                last: 0,
                failed: None,
                rng: place.scene.rng(),
            };
            let queue = Arc::new(Queue {
                place: place.clone(),
                state: Mutex::new(state),
                wake: Notify::new(),
            });
            place.lock().running = Some(Arc::clone(&queue));
            tokio::spawn(Arc::clone(&queue).run());
            Ok(Arc::new(SimLog(queue)))
        };
        Ok(Opened { epoch, epochs, start: Box::new(start) })
    }
}

/// A coordinator's handle. Dropping it writes the waiting changes.
struct SimLog(Arc<Queue>);

struct Queue {
    place: SimPlace,
    state: Mutex<QueueState>,
    wake: Notify,
}

struct QueueState {
    waiting: VecDeque<(u64, Draft)>,
    /// `None` once the log below has ended.
    inner: Option<(Arc<dyn Log>, Receiver<Outcome>)>,
    told: Told,
    last: u64,
    failed: Option<JournalError>,
    rng: Xoshiro256PlusPlus,
}

fn path() -> PathBuf {
    "simulated".into()
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        loop {
            self.wake.notified().await;
            while !self.lock().waiting.is_empty() {
                let slow = self.place.lock().slow_ms_max;
                let wait = self.lock().rng.random_range(0..=slow);
                tokio::time::sleep(Duration::from_millis(wait)).await;
                self.commit();
            }
            if self.lock().inner.is_none() {
                return;
            }
        }
    }

    /// Submits all waiting changes to the log below, and reports the outcomes.
    fn commit(&self) {
        let broken = std::mem::take(&mut self.place.lock().break_next);
        let mut state = self.lock();
        let mut batch = std::mem::take(&mut state.waiting);
        if batch.is_empty() || state.inner.is_none() {
            return;
        }
        let mut outcomes = Vec::new();
        if broken {
            // It is unknown how many changes were made.
            let tickets: Vec<u64> = batch.iter().map(|(ticket, _)| *ticket).collect();
            let done = state.rng.random_range(0..=batch.len());
            batch.truncate(done);
            state.hand_over(batch);
            let error = JournalError::Broken { path: path(), what: "planned".into() };
            state.failed = Some(error.clone());
            outcomes.push(Outcome::Failed { tickets, error });
        } else {
            outcomes.extend(state.hand_over(batch));
        }
        for outcome in &outcomes {
            self.place.scene.note(|| format!("log: {outcome:?}"));
            if let Outcome::Failed { error: error @ JournalError::Broken { .. }, .. } = outcome {
                state.failed = Some(error.clone());
            }
        }
        // The receiver may submit more changes, so the lock is released.
        let mut told = std::mem::replace(&mut state.told, Box::new(|_| {}));
        drop(state);
        outcomes.into_iter().for_each(&mut told);
        let mut state = self.lock();
        if state.inner.is_some() {
            state.told = told;
        }
    }

    fn crash(&self) {
        let mut state = self.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        let done = state.rng.random_range(0..=waiting.len());
        waiting.truncate(done);
        state.hand_over(waiting);
        state.told = Box::new(|_| {});
        state.failed = Some(JournalError::Closed { path: path() });
        let inner = state.inner.take();
        drop(state);
        drop(inner);
        self.wake.notify_one();
    }
}

impl QueueState {
    /// Waits for the outcomes of a batch. The thread of the log below takes no simulated time.
    fn hand_over(&mut self, batch: VecDeque<(u64, Draft)>) -> Vec<Outcome> {
        let Some((log, outcomes)) = &self.inner else { return Vec::new() };
        let mut heard = Vec::new();
        let mut pending: Vec<u64> = Vec::new();
        for (ticket, draft) in batch {
            match log.submit(ticket, draft) {
                Ok(()) => pending.push(ticket),
                Err(error) => heard.push(Outcome::Failed { tickets: vec![ticket], error }),
            }
        }
        while !pending.is_empty() {
            let Ok(outcome) = outcomes.recv() else { break };
            match &outcome {
                Outcome::Durable(upto) => pending.retain(|ticket| ticket > upto),
                Outcome::Failed { tickets, .. } => pending.retain(|it| !tickets.contains(it)),
            }
            heard.push(outcome);
        }
        heard
    }
}

impl Log for SimLog {
    fn submit(&self, ticket: u64, draft: Draft) -> Result<(), JournalError> {
        let mut state = self.0.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.last >= ticket {
            return Err(JournalError::Ticket { given: ticket, last: state.last });
        }
        state.last = ticket;
        state.waiting.push_back((ticket, draft));
        drop(state);
        self.0.wake.notify_one();
        Ok(())
    }

    fn read(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        let state = self.0.lock();
        let closed = || JournalError::Closed { path: path() };
        state.inner.as_ref().ok_or_else(closed)?.0.read(key)
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

impl Drop for SimLog {
    fn drop(&mut self) {
        self.0.commit();
        let mut state = self.0.lock();
        state.failed.get_or_insert(JournalError::Closed { path: path() });
        state.told = Box::new(|_| {});
        let inner = state.inner.take();
        drop(state);
        drop(inner);
        self.0.wake.notify_one();
    }
}
