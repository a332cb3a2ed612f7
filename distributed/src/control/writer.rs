//! The thread that owns the journal: what is submitted while one commit is made durable becomes
//! the next one, so that many tasks share the price of a few syncs.

use super::journal::{Change, Journal};
use super::record::VALUE_BYTES_MAX;
use super::upkeep::Upkeep;
use crate::error::JournalError;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Bytes that a waiting change takes besides its value.
const CHANGE_BYTES: usize = 96;

/// How much a [`Writer`] takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterLimits {
    /// Bytes of changes that may wait or be under way. One larger change is taken when none is.
    pub(crate) pending_bytes_max: usize,
    /// Bytes after which a commit takes no further change.
    pub(crate) batch_bytes_max: usize,
}

impl Default for WriterLimits {
    fn default() -> Self {
        Self { pending_bytes_max: 64 << 20, batch_bytes_max: 4 << 20 }
    }
}

/// A change that the journal's thread makes of what it is given: writing down takes long for large
/// values, and whoever submits may hold a lock.
pub(crate) struct Draft {
    /// About how many bytes its value will have.
    pub(crate) bytes: usize,
    pub(crate) write: Box<dyn FnOnce() -> Result<Change, JournalError> + Send>,
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl From<Change> for Draft {
    fn from(change: Change) -> Self {
        Self { bytes: value_bytes(&change), write: Box::new(move || Ok(change)) }
    }
}

/// What became of submitted changes.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Every change up to this ticket is durable, apart from those that were reported as failed.
    Durable(u64),
    /// These did not become durable. After [`JournalError::Full`] they are surely not there, and
    /// later ones may succeed; after [`JournalError::Broken`] that is in doubt, and none will.
    Failed {
        /// In order.
        tickets: Vec<u64>,
        /// Why.
        error: JournalError,
    },
}

/// Submits changes to a journal on a thread of its own. Dropping it writes what waits.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Arc<Queue>,
    upkeep: Upkeep,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    path: PathBuf,
    limits: WriterLimits,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(u64, Draft)>,
    pending_bytes: usize,
    last: Option<u64>,
    compactions: Vec<mpsc::Sender<Result<bool, JournalError>>>,
    closing: bool,
    failed: Option<JournalError>,
}

/// What the thread does next.
#[derive(Default)]
struct Work {
    drafts: Vec<(u64, Draft)>,
    bytes: usize,
    compactions: Vec<mpsc::Sender<Result<bool, JournalError>>>,
}

impl Writer {
    /// Starts the thread `journal`; it calls `on_commit` after each commit and each failure.
    ///
    /// # Errors
    /// [`JournalError::Io`] when there can be no thread.
    pub(crate) fn start(
        journal: Journal,
        limits: WriterLimits,
        on_commit: impl FnMut(Outcome) + Send + 'static,
    ) -> Result<Self, JournalError> {
        let path = journal.shared.path.clone();
        let upkeep = journal.upkeep();
        let (state, wake) = (Mutex::default(), Condvar::new());
        let queue = Arc::new(Queue { path: path.clone(), limits, state, wake });
        let shared = Arc::clone(&queue);
        let run = move || shared.run(journal, on_commit);
        let thread = thread::Builder::new().name("journal".into()).spawn(run);
        let source = |error| JournalError::Io { path, source: Arc::new(error) };
        Ok(Self { queue, upkeep, thread: Some(thread.map_err(source)?) })
    }

    /// Hands a change over. Tickets rise, and name it in what `on_commit` is told.
    ///
    /// # Errors
    /// Nothing was accepted: [`JournalError::Backlog`] while too much waits,
    /// [`JournalError::TooLarge`], [`JournalError::Ticket`], and what ended the thread.
    pub(crate) fn submit(&self, ticket: u64, change: impl Into<Draft>) -> Result<(), JournalError> {
        let draft: Draft = change.into();
        let value_bytes = draft.bytes;
        if value_bytes > VALUE_BYTES_MAX {
            return Err(JournalError::TooLarge { given: value_bytes, limit: VALUE_BYTES_MAX });
        }
        let mut state = self.queue.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if let Some(last) = state.last.filter(|last| *last >= ticket) {
            return Err(JournalError::Ticket { given: ticket, last });
        }
        let pending_bytes = state.pending_bytes;
        let limit = self.queue.limits.pending_bytes_max;
        let after = pending_bytes.saturating_add(value_bytes).saturating_add(CHANGE_BYTES);
        if after > limit && pending_bytes > 0 {
            return Err(JournalError::Backlog { pending_bytes, limit });
        }
        state.pending_bytes = after;
        state.last = Some(ticket);
        state.waiting.push_back((ticket, draft));
        drop(state);
        self.queue.wake.notify_one();
        Ok(())
    }

    /// Compacts the journal between two commits, and waits for that.
    ///
    /// # Errors
    /// Those of [`Journal::compact`], and what ended the thread.
    pub(crate) fn compact(&self) -> Result<bool, JournalError> {
        let (answer, answered) = mpsc::channel();
        {
            let mut state = self.queue.lock();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.compactions.push(answer);
        }
        self.queue.wake.notify_one();
        answered.recv().unwrap_or_else(|_| Err(self.queue.ended()))
    }

    /// Copies and measures the journal meanwhile.
    pub(crate) fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.lock().closing = true;
        self.queue.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the callback was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn run(&self, mut journal: Journal, mut on_commit: impl FnMut(Outcome)) {
        // However the thread ends, nobody waits for it afterwards.
        let _end = End(self);
        while let Some(work) = self.next() {
            let (tickets, changes, mut outcomes) = write_down(work.drafts);
            outcomes.extend(commit(&mut journal, tickets, changes));
            self.finished(work.bytes);
            let broken = outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Failed { error: error @ JournalError::Broken { .. }, .. } => Some(error),
                _ => None,
            });
            let broken = broken.cloned();
            outcomes.into_iter().for_each(&mut on_commit);
            for answer in work.compactions {
                // Whoever asked may have gone.
                let _ = answer.send(journal.compact());
            }
            if let Some(error) = broken {
                let tickets = self.fail(&error);
                if !tickets.is_empty() {
                    on_commit(Outcome::Failed { tickets, error });
                }
                return;
            }
        }
    }

    /// Waits for something to do; `None` when the writer is dropped and nothing waits.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if !state.waiting.is_empty() || !state.compactions.is_empty() {
                break;
            }
            if state.closing {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let compactions = std::mem::take(&mut state.compactions);
        let mut work = Work { compactions, ..Work::default() };
        while work.bytes < self.limits.batch_bytes_max
            && let Some((ticket, draft)) = state.waiting.pop_front()
        {
            work.bytes = work.bytes.saturating_add(draft.bytes) + CHANGE_BYTES;
            work.drafts.push((ticket, draft));
        }
        Some(work)
    }

    fn finished(&self, bytes: usize) {
        let mut state = self.lock();
        state.pending_bytes = state.pending_bytes.saturating_sub(bytes);
    }

    /// Refuses everything from now on; answers the tickets that wait.
    fn fail(&self, error: &JournalError) -> Vec<u64> {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| error.clone());
        state.compactions.clear();
        state.pending_bytes = 0;
        state.waiting.drain(..).map(|(ticket, _)| ticket).collect()
    }

    fn ended(&self) -> JournalError {
        let failed = self.lock().failed.clone();
        failed.unwrap_or_else(|| JournalError::Closed { path: self.path.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the queue as having no thread.
struct End<'a>(&'a Queue);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.fail(&JournalError::Closed { path: self.0.path.clone() });
    }
}

/// Makes changes of drafts. Those that have no form, or too large a one, fail alone.
fn write_down(drafts: Vec<(u64, Draft)>) -> (Vec<u64>, Vec<Change>, Vec<Outcome>) {
    let (mut tickets, mut changes, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (ticket, draft) in drafts {
        let written = (draft.write)().and_then(|change| match value_bytes(&change) {
            given if given > VALUE_BYTES_MAX => {
                Err(JournalError::TooLarge { given, limit: VALUE_BYTES_MAX })
            }
            _ => Ok(change),
        });
        match written {
            Ok(change) => {
                tickets.push(ticket);
                changes.push(change);
            }
            Err(error) => failed.push(Outcome::Failed { tickets: vec![ticket], error }),
        }
    }
    (tickets, changes, failed)
}

/// Appends a batch. Where there is no room for it, its removals are tried alone: they are what
/// makes room.
fn commit(journal: &mut Journal, tickets: Vec<u64>, changes: Vec<Change>) -> Vec<Outcome> {
    let Some(last) = tickets.last().copied() else { return Vec::new() };
    let error = match journal.append(&changes) {
        Ok(()) => return vec![Outcome::Durable(last)],
        Err(error) => error,
    };
    let is_removal = |change: &Change| matches!(change, Change::Remove { .. });
    let mixed = changes.iter().any(is_removal) && !changes.iter().all(is_removal);
    if !mixed || !matches!(error, JournalError::Full { .. }) {
        return vec![Outcome::Failed { tickets, error }];
    }
    let both = tickets.into_iter().zip(changes);
    let (removals, puts): (Vec<_>, Vec<_>) = both.partition(|(_, change)| is_removal(change));
    let tickets = puts.into_iter().map(|(ticket, _)| ticket).collect();
    let mut outcomes = vec![Outcome::Failed { tickets, error }];
    outcomes.extend({
        let (tickets, changes) = removals.into_iter().unzip();
        commit(journal, tickets, changes)
    });
    outcomes
}

fn value_bytes(change: &Change) -> usize {
    match change {
        Change::Put(record) => record.bytes.len(),
        Change::Remove { .. } => 0,
    }
}
