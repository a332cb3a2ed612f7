//! The transfers of a link that have not ended: which one the link's thread serves next, and how
//! each ends.

use super::place::Place;
use super::schedule::{Chunk, Next, Schedule, Ticket};
use super::slot::Slot;
use super::stats::LinkStats;
use crate::error::Error;
use crate::stop::Stopped;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A transfer that has not ended.
#[derive(Debug)]
struct Job {
    from: Place,
    to: Place,
    missing: usize,
    /// Chunks that are on their way.
    flying: usize,
    /// Why the transfer ends early, once these chunks have landed.
    end: Option<Error>,
    slot: Arc<Slot>,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    jobs: HashMap<Ticket, Job>,
    closed: bool,
    stats: LinkStats,
}

/// The state that the link's thread shares with its callers.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

impl State {
    /// Ends a transfer as soon as none of its chunks is on its way.
    fn end(&mut self, ticket: Ticket, why: Error) {
        self.schedule.cancel(ticket);
        if let Some(job) = self.jobs.get_mut(&ticket) {
            job.end.get_or_insert(why);
        }
        self.settle(ticket);
    }

    fn end_all(&mut self, why: impl Fn(&Job) -> Error) {
        let jobs: Vec<(Ticket, Error)> = self.jobs.iter().map(|(t, job)| (*t, why(job))).collect();
        for (ticket, why) in jobs {
            self.end(ticket, why);
        }
    }

    /// Sets the outcome of a transfer that is over, and removes the transfer.
    fn settle(&mut self, ticket: Ticket) {
        let is_over = |job: &Job| job.flying == 0 && (job.missing == 0 || job.end.is_some());
        if !self.jobs.get(&ticket).is_some_and(is_over) {
            return;
        }
        let Some(job) = self.jobs.remove(&ticket) else { return };
        let outcome = match job.end {
            Some(why) if job.missing > 0 => Err(why),
            _ => Ok(()),
        };
        match &outcome {
            Ok(()) => self.stats.arrived += 1,
            Err(Error::Stopped(_)) => self.stats.cancelled += 1,
            Err(_) => self.stats.failed += 1,
        }
        job.slot.set(outcome);
    }
}

/// The next step of the thread.
pub(super) enum Step {
    Start(Chunk, Place, Place),
    Land,
    End,
}

impl Shared {
    /// No transfers yet, for a link with these counters.
    pub(super) fn new(schedule: Schedule, stats: LinkStats) -> Self {
        let state = State { schedule, jobs: HashMap::new(), closed: false, stats };
        Self { state: Mutex::new(state), work: Condvar::new() }
    }

    /// Queues a transfer of `bytes` bytes that lie in both buffers.
    pub(super) fn send(
        &self,
        from: Place,
        to: Place,
        bytes: usize,
        priority: u8,
    ) -> (Ticket, Arc<Slot>) {
        let mut state = self.lock();
        let ticket = state.schedule.push(bytes, priority);
        let slot = Arc::new(Slot::default());
        let job = Job { from, to, missing: bytes, flying: 0, end: None, slot: Arc::clone(&slot) };
        state.jobs.insert(ticket, job);
        match state.closed {
            true => state.end(ticket, Stopped::Cancelled.into()),
            false => state.settle(ticket),
        }
        drop(state);
        self.work.notify_one();
        (ticket, slot)
    }

    pub(super) fn stats(&self) -> LinkStats {
        let state = self.lock();
        let (queued, queued_bytes) = (state.jobs.len(), state.schedule.waiting_bytes());
        LinkStats { queued, queued_bytes, ..state.stats }
    }

    /// Refuses all transfers from now on. Those on their way end when their chunks have landed.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.end_all(|_| Stopped::Cancelled.into());
        drop(state);
        self.work.notify_one();
    }

    /// Ends all transfers without waiting for chunks, for the link's thread has ended.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.jobs.values_mut().for_each(|job| job.flying = 0);
        state.end_all(|_| Stopped::Cancelled.into());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the part of a transfer that has not been sent.
    pub(super) fn cancel(&self, ticket: Ticket) {
        self.lock().end(ticket, Stopped::Cancelled.into());
    }

    /// Waits for the next step. While chunks are on their way (`flying`), it does not wait: they
    /// land first.
    pub(super) fn step(&self, flying: bool) -> Step {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let next = state.schedule.next(now);
            if let Next::Send(chunk) = next {
                let Some(job) = state.jobs.get_mut(&chunk.ticket) else { continue };
                job.flying += 1;
                return Step::Start(chunk, job.from.clone(), job.to.clone());
            }
            if flying {
                return Step::Land;
            }
            if state.closed {
                return Step::End;
            }
            state = match next {
                Next::Wait(moment) => {
                    let waited = self.work.wait_timeout(state, moment - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Records the outcome of a chunk, and the `busy` time since the last record. A lost device
    /// ends all transfers of this link.
    pub(super) fn landed(&self, chunk: Chunk, outcome: lgp_hal::Result<()>, busy: Duration) {
        let mut state = self.lock();
        state.stats.busy += busy;
        let Some(job) = state.jobs.get_mut(&chunk.ticket) else { return };
        job.flying -= 1;
        match outcome {
            Ok(()) => {
                job.missing -= chunk.bytes;
                state.stats.bytes += chunk.bytes as u64;
                state.stats.chunks += 1;
                state.settle(chunk.ticket);
            }
            Err(source) => {
                let why = job.failure(&source);
                state.end(chunk.ticket, why);
                if matches!(source, lgp_hal::Error::DeviceLost { .. }) {
                    state.end_all(|job| job.failure(&source));
                }
            }
        }
    }
}

impl Job {
    fn failure(&self, source: &lgp_hal::Error) -> Error {
        let (from, to) = (self.from.device, self.to.device);
        Error::Transfer { from, to, missing_bytes: self.missing, source: Box::new(source.clone()) }
    }
}
