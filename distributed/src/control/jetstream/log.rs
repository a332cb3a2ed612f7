//! Records of durable tasks, in the stream.

use super::along::Along;
use super::index::Index;
use super::pen::Pen;
use super::reader::{StreamReader, lock};
use super::{Stream, Trouble, frame, opening};
use crate::control::chain::Link;
use crate::control::keeper::Keeper;
use crate::control::log::{Change, Each, Log, Opened, Opener, Place, Told};
use crate::control::remembered::Remembered;
use crate::control::writer::Writer;
use crate::error::JournalError;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a commit is retried while the servers do not answer.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often the last commit is stored on this machine.
const REMEMBER: Duration = Duration::from_secs(1);
/// Bytes after which a commit takes no more changes. Reading a record reads its whole commit, and
/// most commits should fit one message.
const BATCH_BYTES: usize = 256 << 10;

/// A log that coordinators on several machines can open. The coordinator with the latest lead owns
/// it.
#[derive(Debug, Clone)]
pub(crate) struct JetStreamLog {
    stream: Stream,
    remembered: Remembered,
    pub(super) along: Arc<Along>,
}

impl JetStreamLog {
    /// `remembered` is the file with this machine's last known commit.
    pub(crate) fn new(stream: Stream, remembered: PathBuf) -> Self {
        let remembered = Remembered(remembered);
        let along = Arc::new(Along::new(stream.clone(), remembered.clone()));
        Self { stream, remembered, along }
    }
}

impl Place for JetStreamLog {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        let found =
            opening::open(&self.stream, (opener, &self.remembered, self.along.take()), each)?;
        let state = found.state;
        self.remembered.write(&state.last);
        let epochs = state.carried.epochs.iter().copied().collect();
        let mut pen = found.pen;
        pen.patience = PATIENCE;
        let keeper = JetStreamKeeper {
            path: self.stream.label(),
            last: state.last,
            carried: state.carried,
            index: Arc::new(Mutex::new(state.index)),
            first: found.first,
            bytes: found.bytes,
            slack: self.stream.slack,
            pen,
            remembered: self.remembered.clone(),
            remembered_at: Instant::now(),
            broken: None,
        };
        let batch_bytes = BATCH_BYTES.min(keeper.pen.part_bytes());
        let start = move |told: Told| -> Result<Arc<dyn Log>, JournalError> {
            Ok(Arc::new(Writer::start(keeper, batch_bytes, told)?))
        };
        Ok(Opened { epoch: opener.epoch, epochs, start: Box::new(start) })
    }

    fn follow(&self) {
        Arc::clone(&self.along).follow();
    }
}

/// Writes the log until another coordinator opens it.
pub(super) struct JetStreamKeeper {
    path: PathBuf,
    pub(super) pen: Pen,
    last: Link,
    pub(super) carried: frame::Carried,
    pub(super) index: Arc<Mutex<Index>>,
    /// The first message, and about how many bytes there are from it on.
    pub(super) first: u64,
    pub(super) bytes: u64,
    pub(super) slack: u64,
    remembered: Remembered,
    remembered_at: Instant,
    broken: Option<JournalError>,
}

impl Drop for JetStreamKeeper {
    fn drop(&mut self) {
        self.remembered.write(&self.last);
    }
}

impl JetStreamKeeper {
    /// Publishes a commit. After a permanent failure every later commit fails too.
    pub(super) fn commit<'a>(
        &mut self,
        carried: Option<&frame::Carried>,
        changes: impl IntoIterator<Item = &'a Change> + Clone,
    ) -> Result<(), JournalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let next = self.last.next(changes.clone());
        let bytes = frame::commit(carried, changes.clone());
        let seq = self.pen.tail + 1;
        match self.pen.commit(&next, &bytes) {
            Ok(taken) => {
                self.bytes += taken;
                self.last = next;
                lock(&self.index).apply(seq, changes);
                if self.remembered_at.elapsed() >= REMEMBER {
                    self.remembered.write(&self.last);
                    self.remembered_at = Instant::now();
                }
                Ok(())
            }
            Err(trouble @ Trouble::Full(_)) => Err(trouble.on_log(&self.pen.client.stream)),
            Err(trouble) => {
                let (path, what) = (self.path.clone(), trouble.text());
                let error = JournalError::Broken { path, what };
                self.broken = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl Keeper for JetStreamKeeper {
    type Reader = StreamReader;

    fn path(&self) -> &Path {
        &self.path
    }

    fn reader(&self) -> StreamReader {
        StreamReader { client: Arc::clone(&self.pen.client), index: Arc::clone(&self.index) }
    }

    fn append<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change> + Clone,
    ) -> Result<(), JournalError> {
        let made = match self.commit(None, changes.clone()) {
            Err(JournalError::Full { .. }) if self.make_room() => self.commit(None, changes),
            made => made,
        };
        if made.is_ok() && self.is_due() {
            self.sweep();
        }
        made
    }

    fn compact(&mut self) -> Result<bool, JournalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        Ok(self.make_room())
    }
}
