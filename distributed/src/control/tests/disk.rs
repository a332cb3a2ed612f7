//! A disk in memory with a cache. It dies at a chosen operation, fails to sync, or fills up, and
//! shows its contents after a killed process or a power failure.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use redb::StorageBackend;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

/// The planned fault. It counts writes, changes of length and syncs since it was planned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::control) enum Plan {
    #[default]
    Nothing,
    /// This operation is done in part, and later ones not at all.
    DieAt(u64),
    /// This operation fails if it is a sync; later operations succeed.
    FailSyncAt(u64),
    /// Nothing can be read.
    Unreadable,
    /// From this operation on there is no room, not even for overwriting.
    FullFrom(u64),
    /// There is room for this many blocks, which can be overwritten.
    Blocks(usize),
}

#[derive(Debug, Default)]
pub(in crate::control) struct Disk {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cached: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Operation>,
    blocks: BTreeSet<usize>,
    plan: Plan,
    operations: u64,
}

#[derive(Debug, Clone)]
enum Operation {
    Write(usize, Vec<u8>),
    SetLength(usize),
}

const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

impl Disk {
    pub(in crate::control) fn file(self: &Arc<Self>) -> Arc<dyn StorageBackend> {
        Arc::clone(self) as _
    }

    pub(in crate::control) fn plan(&self, plan: Plan) {
        let mut state = self.state.lock().expect("sound");
        (state.plan, state.operations) = (plan, 0);
    }

    /// Operations since the last plan.
    pub(in crate::control) fn operations(&self) -> u64 {
        self.state.lock().expect("sound").operations
    }

    pub(in crate::control) fn blocks(&self) -> usize {
        self.state.lock().expect("sound").blocks.len()
    }

    pub(in crate::control) fn bytes(&self) -> Vec<u8> {
        self.state.lock().expect("sound").cached.clone()
    }

    pub(in crate::control) fn of(bytes: Vec<u8>) -> Arc<Self> {
        let blocks = (0..bytes.len().div_ceil(BLOCK_BYTES)).collect();
        let state = State { durable: bytes.clone(), cached: bytes, blocks, ..State::default() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The disk after the process was killed: the cache survives.
    pub(in crate::control) fn after_kill(&self) -> Arc<Self> {
        Self::of(self.bytes())
    }

    /// The disk after a power failure: some of the unsynced sectors survive.
    pub(in crate::control) fn after_power_loss(&self, seed: u64) -> Arc<Self> {
        let state = self.state.lock().expect("sound");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bytes = state.durable.clone();
        for operation in &state.unsynced {
            match (rng.random_range(0..3), operation) {
                (0, _) => {}
                (_, Operation::SetLength(length)) => bytes.resize(*length, 0),
                (kept, Operation::Write(at, data)) => {
                    let mut done = 0;
                    while done < data.len() {
                        let to_boundary = SECTOR_BYTES - (at + done) % SECTOR_BYTES;
                        let end = data.len().min(done + to_boundary);
                        if kept == 1 || rng.random() {
                            overwrite(&mut bytes, at + done, &data[done..end]);
                        }
                        done = end;
                    }
                }
            }
        }
        Self::of(bytes)
    }
}

/// Writes the part that lies inside the file: data beyond its length is lost.
fn overwrite(bytes: &mut [u8], at: usize, data: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(data) {
        *to = *from;
    }
}

impl State {
    /// Counts an operation; returns how it ends, and whether half of it is done before it fails.
    fn begin(&mut self, operation: Option<&Operation>) -> Result<(), (io::ErrorKind, bool)> {
        let number = self.operations;
        self.operations += 1;
        let full = (io::ErrorKind::StorageFull, false);
        match (self.plan, operation) {
            (Plan::DieAt(k), _) if number >= k => Err((io::ErrorKind::Other, number == k)),
            (Plan::FailSyncAt(k), None) if number == k => Err((io::ErrorKind::Other, false)),
            (Plan::FullFrom(k), Some(_)) if number >= k => Err(full),
            (Plan::Blocks(limit), Some(Operation::Write(at, data))) => {
                let touched = at / BLOCK_BYTES..(at + data.len()).div_ceil(BLOCK_BYTES);
                let more = touched.filter(|block| !self.blocks.contains(block)).count();
                if self.blocks.len() + more > limit && more > 0 {
                    Err((full.0, true))
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, operation: Operation) -> io::Result<()> {
        let begun = self.begin(Some(&operation));
        let done = match (&begun, operation) {
            (Ok(()), operation) => operation,
            (Err((_, true)), Operation::Write(at, mut data)) => {
                // Less than a block, so that the write adds no block to a full disk.
                data.truncate(data.len().min(BLOCK_BYTES) / 2);
                Operation::Write(at, data)
            }
            (Err((kind, _)), _) => return Err((*kind).into()),
        };
        match &done {
            Operation::SetLength(length) => self.cached.resize(*length, 0),
            Operation::Write(at, data) => {
                assert!(at + data.len() <= self.cached.len(), "a write beyond the end");
                overwrite(&mut self.cached, *at, data);
                if begun.is_ok() {
                    self.blocks.extend(at / BLOCK_BYTES..(at + data.len()).div_ceil(BLOCK_BYTES));
                }
            }
        }
        self.unsynced.push(done);
        begun.map_err(|(kind, _)| kind.into())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.state.lock().expect("sound").cached.len()).expect("small"))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().expect("sound");
        if state.plan == Plan::Unreadable {
            return Err(io::ErrorKind::Other.into());
        }
        let at = usize::try_from(offset).expect("small");
        let from = state.cached.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let length = usize::try_from(len).expect("small");
        self.state.lock().expect("sound").change(Operation::SetLength(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock().expect("sound");
        state.begin(None).map_err(|(kind, _)| io::Error::from(kind))?;
        state.durable = state.cached.clone();
        state.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).expect("small");
        self.state.lock().expect("sound").change(Operation::Write(at, data.to_vec()))
    }
}
