//! A log in memory for tests. It outlives its openers, and a test can limit its room.

use super::log::{Change, Complete, Draft, Each, Log, Opened, Opener, Outcome, Place, Told};
use super::record::{Key, VALUE_BYTES_MAX};
use crate::error::JournalError;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;

/// The place of the log.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<Key, Vec<u8>>,
    epochs: BTreeSet<u64>,
    /// The number of times that it was opened.
    opened: u64,
    /// The opener that owns the log.
    holder: Option<u64>,
    /// Whether several coordinators share it; then the latest lead owns it.
    shared: bool,
    /// The latest lead.
    lead: u64,
    /// Bytes of values that fit.
    room: Option<usize>,
}

impl Memory {
    /// A log that several coordinators share.
    #[cfg(test)]
    pub(crate) fn shared() -> Self {
        let memory = Self::default();
        memory.lock().shared = true;
        memory
    }

    /// Limits the room for values to `room` bytes; `None` lifts the limit.
    pub fn limit(&self, room: Option<usize>) {
        self.lock().room = room;
    }

    /// The keys of its records.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.lock().records.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("sound")
    }

    fn path() -> PathBuf {
        "memory".into()
    }

    /// Applies the changes of a ticket, all or none.
    fn apply(&self, holder: u64, changes: Vec<Change>) -> Result<(), JournalError> {
        let mut state = self.lock();
        if state.holder.is_some_and(|other| other != holder) {
            let what = "another coordinator leads".to_owned();
            return Err(JournalError::Broken { path: Self::path(), what });
        }
        let mut records = state.records.clone();
        let removes = changes.iter().all(Change::is_removal);
        for change in changes {
            match change {
                Change::Put(record) => {
                    let (given, limit) = (record.bytes.len(), VALUE_BYTES_MAX);
                    if given > limit {
                        return Err(JournalError::TooLarge { given, limit });
                    }
                    records.insert((record.epoch, record.seq), record.bytes);
                }
                Change::Remove { epoch, seq } => drop(records.remove(&(epoch, seq))),
            }
        }
        let bytes: usize = records.values().map(Vec::len).sum();
        if !removes && state.room.is_some_and(|room| bytes > room) {
            let source = Arc::new(io::ErrorKind::StorageFull.into());
            return Err(JournalError::Full { path: Self::path(), source });
        }
        state.records = records;
        Ok(())
    }
}

impl Place for Memory {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        let mut state = self.lock();
        let is_free = match state.shared {
            true => opener.lead > state.lead,
            false => state.holder.is_none(),
        };
        if !is_free {
            return Err(JournalError::InUse { path: Self::path() });
        }
        for (key, bytes) in &state.records {
            let damaged = |what| JournalError::Damaged { path: Self::path(), what };
            each(*key, bytes).map_err(damaged)?;
        }
        let epoch = match state.shared {
            true => opener.epoch,
            false => state.epochs.last().map_or(1, |last| last + 1).max(opener.epoch),
        };
        state.epochs.insert(epoch);
        if state.shared {
            state.epochs.insert(opener.lead);
        }
        state.opened += 1;
        (state.holder, state.lead) = (Some(state.opened), opener.lead);
        let epochs = state.epochs.iter().copied().collect();
        let held = Held(self.clone(), state.opened);
        Ok(Opened { epoch, epochs, start: Box::new(move |told| Ok(Running::start(held, told))) })
    }
}

/// Dropping this releases the log.
struct Held(Memory, u64);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().holder.take_if(|holder| *holder == self.1);
    }
}

/// Drafts with their tickets.
type Drafts = mpsc::Sender<(u64, Draft)>;

struct Running {
    memory: Memory,
    /// The last ticket, and the channel to the thread.
    queue: Mutex<(u64, Option<Drafts>)>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(held: Held, mut told: Told) -> Arc<dyn Log> {
        let (sender, drafts) = mpsc::channel::<(u64, Draft)>();
        let memory = held.0.clone();
        let run = move || {
            let held = held;
            for (ticket, draft) in drafts {
                told(match (draft.write)().and_then(|changes| held.0.apply(held.1, changes)) {
                    Ok(()) => Outcome::Durable(ticket),
                    Err(error) => Outcome::Failed { tickets: vec![ticket], error },
                });
            }
        };
        let thread = Some(std::thread::spawn(run));
        Arc::new(Self { memory, queue: Mutex::new((0, Some(sender))), thread })
    }
}

impl Log for Running {
    fn submit(&self, ticket: u64, draft: Draft) -> Result<(), JournalError> {
        let mut queue = self.queue.lock().expect("sound");
        if queue.0 >= ticket {
            return Err(JournalError::Ticket { given: ticket, last: queue.0 });
        }
        queue.0 = ticket;
        let closed = || JournalError::Closed { path: Memory::path() };
        queue.1.as_ref().ok_or_else(closed)?.send((ticket, draft)).map_err(|_| closed())
    }

    fn read(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.memory.lock().records.get(&key).cloned())
    }

    fn compact(&self) -> Result<bool, JournalError> {
        Ok(false)
    }

    fn back_up(&self, to: &Path, complete: Complete<'_>) -> Result<(), JournalError> {
        let file = std::fs::File::create_new(to);
        file.map_err(|_| JournalError::Exists { path: to.to_owned() })?;
        complete()
    }

    fn size_bytes(&self) -> Result<u64, JournalError> {
        let bytes: usize = self.memory.lock().records.values().map(Vec::len).sum();
        Ok(bytes.try_into().expect("small"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.queue.lock().expect("sound").1 = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
