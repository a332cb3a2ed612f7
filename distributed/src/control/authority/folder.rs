//! An authority in a folder of one machine. The leader holds a lock on a file in it, which the
//! system releases when the process ends.

use super::Authority;
use crate::control::files;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The file that the leader locks.
const LOCK_FILE: &str = "lead.lock";
/// How often a failed lock is tried again. A process that is being spawned inherits the lock and
/// may hold it a moment longer.
const LOCK_TRIES: u32 = 5;
const LOCK_AGAIN: Duration = Duration::from_millis(20);
/// The epoch of the latest lead.
const LEAD_FILE: &str = "lead.json";
const LEAD_REMEDY: &str = "delete it while no coordinator runs: epochs then go on from the clock";
/// The largest document, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// The folder. Each value leads for itself, even in one process.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    /// Dropping the file releases the lock.
    lock: File,
    epoch: u64,
}

/// The contents of the lead file.
#[derive(Debug, Serialize, Deserialize)]
struct Latest {
    epoch: u64,
}

impl Folder {
    /// Uses a folder that exists already.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), held: Mutex::new(None) }
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // The value is only replaced as a whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest_epoch(&self) -> Result<u64> {
        let Some(bytes) = self.read(LEAD_FILE)? else { return Ok(0) };
        let latest: Latest = serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
            path: self.locate(LEAD_FILE),
            reason: error.to_string(),
            remedy: LEAD_REMEDY.to_owned(),
        })?;
        Ok(latest.epoch)
    }

    fn replace(&self, document: &str, bytes: &[u8]) -> Result<()> {
        let path = self.locate(document);
        files::write_private(&path, bytes).map_err(|error| Error::file("write", path, error))
    }

    fn take_lock(&self) -> Result<File> {
        let path = self.locate(LOCK_FILE);
        let failed = |error| Error::file("lock", path.clone(), error);
        let lock = files::open_private(&path).map_err(failed)?;
        let mut locked = lock.try_lock();
        for _ in 0..LOCK_TRIES {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            thread::sleep(LOCK_AGAIN);
            locked = lock.try_lock();
        }
        match locked {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(Error::Led { path: self.path.clone() }),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                // Without locks, epochs still refuse the writes of an earlier leader.
                tracing::warn!(path = %path.display(), "this disk has no locks");
                Ok(lock)
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Authority for Folder {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        let mut held = self.held();
        let lock = match held.take() {
            Some(held) => held.lock,
            None => self.take_lock()?,
        };
        let epoch = now_ms.max(self.latest_epoch()?.saturating_add(1));
        let latest = serde_json::to_vec(&Latest { epoch });
        let latest = latest.map_err(|e| Error::file("write", self.locate(LEAD_FILE), e.into()))?;
        self.replace(LEAD_FILE, &latest)?;
        *held = Some(Held { lock, epoch });
        Ok(epoch)
    }

    fn resign(&self, epoch: u64) {
        let mut held = self.held();
        if held.as_ref().is_some_and(|held| held.epoch == epoch) {
            *held = None;
        }
    }

    fn holds(&self, epoch: u64) -> bool {
        self.held().as_ref().is_some_and(|held| held.epoch == epoch)
    }

    fn read(&self, document: &str) -> Result<Option<Vec<u8>>> {
        let path = self.locate(document);
        match files::read_bounded(&path, BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", path, error)),
        }
    }

    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()> {
        let held = self.held();
        let holds = held.as_ref().is_some_and(|held| held.epoch == epoch);
        // The locked file may have been deleted, so another process may have locked a new one.
        if !holds || self.latest_epoch()? != epoch {
            return Err(Error::Deposed { path: self.locate(document), epoch });
        }
        self.replace(document, bytes)
    }

    fn documents(&self) -> Result<Vec<String>> {
        let failed = |error| Error::file("read", &self.path, error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        // Staging files left by a crash begin with a dot.
        names.retain(|name| name.ends_with(".json") && !name.starts_with('.') && name != LEAD_FILE);
        names.sort();
        Ok(names)
    }

    fn locate(&self, document: &str) -> PathBuf {
        self.path.join(document)
    }
}
