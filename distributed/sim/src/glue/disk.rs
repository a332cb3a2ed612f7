//! A disk in memory below a real journal. It fills up at times, and syncs fail.

use lgp_distributed::JournalError;
use lgp_distributed::inside::journal::fill;
use redb::StorageBackend;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The journal's name in errors.
const NAME: &str = "simulated";

#[derive(Debug, Default)]
pub(super) struct Disk(Mutex<State>);

#[derive(Debug, Clone, Default)]
struct State {
    bytes: Vec<u8>,
    full: bool,
    fail_sync: bool,
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn full(&self, full: bool) {
        self.lock().full = full;
    }

    /// The next sync fails.
    pub(super) fn fail_sync(&self) {
        self.lock().fail_sync = true;
    }

    pub(super) fn heal(&self) {
        let mut state = self.lock();
        (state.full, state.fail_sync) = (false, false);
    }

    /// The disk for the next process after a kill.
    pub(super) fn after_kill(&self) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { bytes: self.lock().bytes.clone(), ..State::default() })))
    }

    /// The journal's file on the disk, created if it does not exist.
    pub(super) fn file(self: &Arc<Self>) -> Result<Arc<dyn StorageBackend>, JournalError> {
        let file: Arc<dyn StorageBackend> = Arc::clone(self) as _;
        if self.lock().bytes.is_empty() {
            fill(Path::new(NAME), &file)?;
        }
        Ok(file)
    }
}

fn at(offset: u64, length: usize) -> io::Result<std::ops::Range<usize>> {
    let from = usize::try_from(offset).map_err(io::Error::other)?;
    Ok(from..from.saturating_add(length))
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        u64::try_from(self.lock().bytes.len()).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        let from = state.bytes.get(at(offset, out.len())?).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        let length = usize::try_from(len).map_err(io::Error::other)?;
        if state.full && length > state.bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.bytes.resize(length, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match std::mem::take(&mut self.lock().fail_sync) {
            true => Err(io::Error::other("planned")),
            false => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if state.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let into = state.bytes.get_mut(at(offset, data.len())?);
        into.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }
}
