//! The layer between redb and the file. redb's bytes begin behind the guard, the last failure is
//! recorded, and nothing is written to a file before it was verified.

use super::guard::HEAD_BYTES;
use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The part of a journal's file that belongs to one redb database.
#[derive(Debug)]
pub(super) struct Store {
    file: Arc<dyn StorageBackend>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    failure: Option<Failure>,
}

#[derive(Debug)]
enum Mode {
    /// Writes are buffered in order, and reads see them.
    Held(Held),
    /// Writes go to the file.
    Through,
    /// Nothing more is written.
    Dead,
}

#[derive(Debug)]
struct Held {
    length: u64,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Write(u64, Vec<u8>),
    SetLength(u64),
    Sync,
}

/// The last operation on the file that failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// Whether a sync failed: then the contents of the disk are unknown.
    pub(super) in_sync: bool,
    /// The cause.
    pub(super) source: Arc<io::Error>,
}

impl Failure {
    /// Whether there was no room to write. The file is then unchanged, except for parts of an
    /// unfinished commit.
    pub(super) fn is_full(&self) -> bool {
        !self.in_sync && is_full(&self.source)
    }
}

/// Whether an error means that there is no room: on the disk, in a quota, or under a file's size
/// limit.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl Store {
    /// A view of `file` that writes at once.
    pub(super) fn through(file: Arc<dyn StorageBackend>) -> Arc<Self> {
        let state = State { mode: Mode::Through, failure: None };
        Arc::new(Self { file, state: Mutex::new(state) })
    }

    /// A view of `file` that writes nothing until [`Self::release`].
    pub(super) fn held(file: Arc<dyn StorageBackend>) -> io::Result<Arc<Self>> {
        let length = body_length(file.len()?);
        let mode = Mode::Held(Held { length, steps: Vec::new() });
        Ok(Arc::new(Self { file, state: Mutex::new(State { mode, failure: None }) }))
    }

    /// Applies the buffered writes in order, and buffers no more.
    ///
    /// # Errors
    /// That of the first step that failed. The file is then as after a crash at that step, and
    /// nothing more is written through this view.
    pub(super) fn release(&self) -> io::Result<()> {
        let mut state = self.lock();
        let Mode::Held(held) = std::mem::replace(&mut state.mode, Mode::Dead) else {
            return Err(io::Error::other("nothing is held back"));
        };
        for step in held.steps {
            let done = match &step {
                Step::Write(offset, data) => self.file.write(*offset + HEAD_BYTES, data),
                Step::SetLength(length) => self.file.set_len(*length + HEAD_BYTES),
                Step::Sync => self.file.sync_data(),
            };
            state.note(matches!(step, Step::Sync), done)?;
        }
        state.mode = Mode::Through;
        Ok(())
    }

    /// Discards all further writes.
    pub(super) fn kill(&self) {
        self.lock().mode = Mode::Dead;
    }

    /// The last failure.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// Buffers a change, or makes it at once outside the lock, so that reads continue during a
    /// sync.
    fn change(
        &self,
        in_sync: bool,
        held: impl FnOnce(&mut Held),
        through: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match &mut self.lock().mode {
            Mode::Held(log) => {
                held(log);
                return Ok(());
            }
            Mode::Through => {}
            Mode::Dead => return Err(io::Error::other("the journal is closed")),
        }
        let result = through();
        self.lock().note(in_sync, result)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Records an error, and returns it.
    fn note<T>(&mut self, in_sync: bool, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let source = Arc::new(error);
            let copy = io::Error::new(source.kind(), Arc::clone(&source));
            self.failure = Some(Failure { in_sync, source });
            copy
        })
    }
}

/// redb owns its storage. This handle lets several databases use one store in turn.
#[derive(Debug)]
pub(super) struct Handle(pub(super) Arc<Store>);

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        if let Mode::Held(held) = &self.0.lock().mode {
            return Ok(held.length);
        }
        let length = self.0.file.len().map(body_length);
        self.0.lock().note(false, length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Mode::Held(held) = &state.mode {
            let result = held.read(&*self.0.file, offset, out);
            return state.note(false, result);
        }
        drop(state);
        let result = shifted(offset).and_then(|at| self.0.file.read(at, out));
        self.0.lock().note(false, result)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let length = shifted(len)?;
        let held = |held: &mut Held| {
            held.length = len;
            held.steps.push(Step::SetLength(len));
        };
        self.0.change(false, held, || self.0.file.set_len(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        let held = |held: &mut Held| held.steps.push(Step::Sync);
        self.0.change(true, held, || self.0.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = shifted(offset)?;
        let held = |held: &mut Held| {
            held.length = held.length.max(offset.saturating_add(bytes(data.len())));
            held.steps.push(Step::Write(offset, data.to_vec()));
        };
        self.0.change(false, held, || self.0.file.write(at, data))
    }
}

impl Held {
    /// Reads as if the buffered writes were in the file.
    fn read(&self, file: &dyn StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes(out.len())).filter(|end| *end <= self.length);
        if end.is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let present = body_length(file.len()?).saturating_sub(offset);
        let present = usize::try_from(present).unwrap_or(usize::MAX).min(out.len());
        let (old, new) = out.split_at_mut(present);
        file.read(shifted(offset)?, old)?;
        new.fill(0);
        for step in &self.steps {
            if let Step::Write(at, data) = step {
                patch(offset, out, *at, data);
            }
        }
        Ok(())
    }
}

/// Copies the overlap of `data` at offset `at` into `out` at offset `offset`.
fn patch(offset: u64, out: &mut [u8], at: u64, data: &[u8]) {
    let skip = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    let into = out.iter_mut().skip(skip(offset, at));
    for (to, from) in into.zip(data.iter().skip(skip(at, offset))) {
        *to = *from;
    }
}

fn body_length(length: u64) -> u64 {
    length.saturating_sub(HEAD_BYTES)
}

fn shifted(offset: u64) -> io::Result<u64> {
    offset.checked_add(HEAD_BYTES).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    #[test]
    fn what_is_held_back_is_read_but_not_written_until_it_is_released() {
        let file: Arc<dyn StorageBackend> = Arc::new(InMemoryBackend::new());
        file.set_len(HEAD_BYTES + 8).expect("in memory");
        file.write(HEAD_BYTES, b"abcdefgh").expect("in memory");
        let store = Store::held(Arc::clone(&file)).expect("in memory");
        let handle = Handle(Arc::clone(&store));
        handle.write(2, b"XY").expect("held");
        handle.set_len(10).expect("held");
        handle.write(3, b"Z").expect("held");
        handle.sync_data().expect("held");
        let all = |expected: &[u8]| {
            let mut out = vec![1; expected.len()];
            handle.read(0, &mut out).expect("within");
            assert_eq!(out, expected);
        };
        all(b"abXZefgh\0\0");
        let mut middle = [0; 2];
        handle.read(3, &mut middle).expect("within");
        assert_eq!(&middle, b"Ze");
        assert!(handle.read(9, &mut middle).is_err(), "beyond the end");
        assert_eq!(file.len().expect("in memory"), HEAD_BYTES + 8);
        let mut raw = [0; 8];
        file.read(HEAD_BYTES, &mut raw).expect("in memory");
        assert_eq!(&raw, b"abcdefgh");
        store.release().expect("in memory");
        all(b"abXZefgh\0\0");
        assert_eq!(file.len().expect("in memory"), HEAD_BYTES + 10);
        store.kill();
        assert!(handle.write(0, b"a").is_err());
        all(b"abXZefgh\0\0");
    }
}
