//! An authority in a folder of one machine. Whoever leads holds a lock on a file in it, which ends
//! with the process.

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

/// Locked by the one who leads.
const LOCK_FILE: &str = "lead.lock";
/// How often a lock is tried again. A program that is being started shares it with the process that starts
/// it, and may have it a moment longer.
const LOCK_TRIES: u32 = 5;
const LOCK_AGAIN: Duration = Duration::from_millis(20);
/// The epoch of the latest lead.
const LEAD_FILE: &str = "lead.json";
const LEAD_REMEDY: &str = "delete it while no coordinator runs: epochs then go on from the clock";
/// No document is longer.
const BYTES_MAX: u64 = 4 << 20;

/// The folder. Each process, and each value, leads for itself.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    /// Dropping it frees the lock.
    lock: File,
    epoch: u64,
}

/// What the file says of the latest lead.
#[derive(Debug, Serialize, Deserialize)]
struct Latest {
    epoch: u64,
}

impl Folder {
    /// The folder is there already.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), held: Mutex::new(None) }
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // It is replaced as a whole.
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
                // Epochs still refuse what an earlier leader writes.
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
        // The lock may be on a file that somebody has removed.
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
        // What a crash left of one that was not complete begins with a dot.
        names.retain(|name| name.ends_with(".json") && !name.starts_with('.') && name != LEAD_FILE);
        names.sort();
        Ok(names)
    }

    fn locate(&self, document: &str) -> PathBuf {
        self.path.join(document)
    }
}
