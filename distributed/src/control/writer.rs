//! The thread that owns the storage of records. Changes submitted during one commit form the next
//! one, so that many tasks share the cost of a few syncs.

use super::keeper::{Keeper, Reader};
use super::log::{Change, Complete, Draft, Log, Outcome, Told};
use super::record::{Key, VALUE_BYTES_MAX};
use crate::error::JournalError;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes that a waiting change takes besides its values.
const CHANGE_BYTES: usize = 96;

/// Bytes after which a commit takes no more changes. A larger ticket gets a commit of its own.
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// The wait before a journal that a full disk closed is reopened for reading, unless a change comes
/// sooner.
const AGAIN: Duration = Duration::from_secs(2);

/// Submits changes to a keeper on its own thread. Dropping it writes the waiting changes.
#[derive(Debug)]
pub(super) struct Writer<R> {
    queue: Arc<Queue>,
    reader: R,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    path: PathBuf,
    batch_bytes: usize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(u64, Draft)>,
    last: Option<u64>,
    compactions: Vec<mpsc::Sender<Result<bool, JournalError>>>,
    closing: bool,
    failed: Option<JournalError>,
}

/// The next work of the thread.
#[derive(Default)]
struct Work {
    drafts: Vec<(u64, Draft)>,
    compactions: Vec<mpsc::Sender<Result<bool, JournalError>>>,
}

impl Work {
    fn is_empty(&self) -> bool {
        self.drafts.is_empty() && self.compactions.is_empty()
    }
}

impl<R: Reader> Writer<R> {
    /// Starts the thread `journal`, which calls `told` after each commit and each failure.
    ///
    /// # Errors
    /// [`JournalError::Io`] when the thread cannot be started.
    pub(super) fn start(
        keeper: impl Keeper<Reader = R>,
        batch_bytes: usize,
        told: Told,
    ) -> Result<Self, JournalError> {
        let path = keeper.path().to_owned();
        let reader = keeper.reader();
        let (state, wake) = (Mutex::default(), Condvar::new());
        let queue = Arc::new(Queue { path: path.clone(), batch_bytes, state, wake });
        let shared = Arc::clone(&queue);
        let run = move || shared.run(keeper, told);
        let thread = thread::Builder::new().name("journal".into()).spawn(run);
        let source = |error| JournalError::Io { path, source: Arc::new(error) };
        Ok(Self { queue, reader, thread: Some(thread.map_err(source)?) })
    }
}

impl<R: Reader> Log for Writer<R> {
    fn submit(&self, ticket: u64, draft: Draft) -> Result<(), JournalError> {
        let mut state = self.queue.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if let Some(last) = state.last.filter(|last| *last >= ticket) {
            return Err(JournalError::Ticket { given: ticket, last });
        }
        state.last = Some(ticket);
        state.waiting.push_back((ticket, draft));
        drop(state);
        self.queue.wake.notify_one();
        Ok(())
    }

    fn read(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        self.reader.get(key)
    }

    fn compact(&self) -> Result<bool, JournalError> {
        let (answer, answered) = mpsc::channel();
        {
            let mut state = self.queue.lock();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            // The thread compacts between two commits.
            state.compactions.push(answer);
        }
        self.queue.wake.notify_one();
        answered.recv().unwrap_or_else(|_| Err(self.queue.ended()))
    }

    fn back_up(&self, to: &Path, complete: Complete<'_>) -> Result<(), JournalError> {
        self.reader.backup(to, complete)
    }

    fn size_bytes(&self) -> Result<u64, JournalError> {
        self.reader.size_bytes()
    }
}

impl<R> Drop for Writer<R> {
    fn drop(&mut self) {
        self.queue.lock().closing = true;
        self.queue.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the callback was already reported.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn run(&self, mut keeper: impl Keeper, mut told: Told) {
        // However the thread ends, later callers do not wait for it.
        let _end = End(self);
        while let Some(work) = self.next(keeper.is_open()) {
            if work.is_empty() {
                // If reopening fails for good, the next change reports it.
                let _ = keeper.prepare();
                continue;
            }
            let (batch, mut outcomes) = write_down(work.drafts);
            outcomes.extend(commit(&mut keeper, batch));
            let broken = outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Failed { error: error @ JournalError::Broken { .. }, .. } => Some(error),
                _ => None,
            });
            let broken = broken.cloned();
            outcomes.into_iter().for_each(&mut told);
            for answer in work.compactions {
                // The caller may have given up.
                let _ = answer.send(keeper.compact());
            }
            if let Some(error) = broken {
                let tickets = self.fail(&error);
                if !tickets.is_empty() {
                    told(Outcome::Failed { tickets, error });
                }
                return;
            }
        }
    }

    /// Waits for work; `None` when the writer is dropped and nothing waits. The work is empty when
    /// a closed keeper should be reopened.
    fn next(&self, is_open: bool) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if !state.waiting.is_empty() || !state.compactions.is_empty() {
                break;
            }
            if state.closing {
                return None;
            }
            if is_open {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.wake.wait_timeout(state, AGAIN);
            let (waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = waiting;
            if timeout.timed_out() {
                break;
            }
        }
        let compactions = std::mem::take(&mut state.compactions);
        let mut work = Work { compactions, ..Work::default() };
        let (mut bytes, limit) = (0_usize, self.batch_bytes);
        let fits = |bytes: usize, (_, draft): &(u64, Draft)| {
            bytes == 0 || (bytes < limit && draft.bytes <= limit)
        };
        while let Some((ticket, draft)) = state.waiting.pop_front_if(|next| fits(bytes, next)) {
            bytes = bytes.saturating_add(draft.bytes) + CHANGE_BYTES;
            work.drafts.push((ticket, draft));
        }
        Some(work)
    }

    /// Refuses everything from now on; returns the waiting tickets.
    fn fail(&self, error: &JournalError) -> Vec<u64> {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| error.clone());
        state.compactions.clear();
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

/// Marks the queue as ended when the thread ends.
struct End<'a>(&'a Queue);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.fail(&JournalError::Closed { path: self.0.path.clone() });
    }
}

/// The changes of one ticket.
type Written = (u64, Vec<Change>);

/// Encodes drafts. A draft that cannot be encoded, or is too large, fails with its ticket.
fn write_down(drafts: Vec<(u64, Draft)>) -> (Vec<Written>, Vec<Outcome>) {
    let (mut batch, mut failed) = (Vec::with_capacity(drafts.len()), Vec::new());
    for (ticket, draft) in drafts {
        let written = (draft.write)().and_then(|changes| {
            let limit = VALUE_BYTES_MAX;
            match changes.iter().map(Change::value_bytes).find(|bytes| *bytes > limit) {
                Some(given) => Err(JournalError::TooLarge { given, limit }),
                None => Ok(changes),
            }
        });
        match written {
            Ok(changes) => batch.push((ticket, changes)),
            Err(error) => failed.push(Outcome::Failed { tickets: vec![ticket], error }),
        }
    }
    (batch, failed)
}

/// Appends a batch. If there is no room for it, tickets that only remove are tried alone, because
/// they make room.
fn commit(keeper: &mut impl Keeper, batch: Vec<Written>) -> Vec<Outcome> {
    let Some(last) = batch.last().map(|(ticket, _)| *ticket) else { return Vec::new() };
    let error = match keeper.append(batch.iter().flat_map(|(_, changes)| changes)) {
        Ok(()) => return vec![Outcome::Durable(last)],
        Err(error) => error,
    };
    let tickets = |batch: &[Written]| batch.iter().map(|(ticket, _)| *ticket).collect();
    let only_removes = |(_, changes): &Written| changes.iter().all(Change::is_removal);
    if !matches!(error, JournalError::Full { .. }) || batch.iter().all(only_removes) {
        return vec![Outcome::Failed { tickets: tickets(&batch), error }];
    }
    let (removals, puts): (Vec<_>, Vec<_>) = batch.into_iter().partition(only_removes);
    let mut outcomes = vec![Outcome::Failed { tickets: tickets(&puts), error }];
    outcomes.extend(commit(keeper, removals));
    outcomes
}
