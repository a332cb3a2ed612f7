//! A value and the private file that it is kept in. Whoever reads never waits for the disk.

use crate::error::{Error, Result};
use crate::net::identity::files;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const BYTES_MAX: u64 = 4 << 20;

/// A value, in memory and on the disk.
#[derive(Debug)]
pub(crate) struct Persisted<T> {
    /// `None` keeps it in memory only.
    path: Option<PathBuf>,
    value: Mutex<T>,
    /// Held by the one who changes it, until the disk has the change.
    writing: Mutex<()>,
}

impl<T: Default> Default for Persisted<T> {
    fn default() -> Self {
        Self { path: None, value: Mutex::default(), writing: Mutex::default() }
    }
}

impl<T: Clone + Serialize + DeserializeOwned> Persisted<T> {
    /// The value in a file, or `absent` where there is none. `remedy` says what to do about one that
    /// does not parse.
    pub(crate) fn open(path: &Path, remedy: &str, absent: T) -> Result<Self> {
        let value = match files::read_bounded(path, BYTES_MAX) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
                path: path.to_owned(),
                reason: error.to_string(),
                remedy: remedy.to_owned(),
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => absent,
            Err(error) => return Err(Error::file("read", path, error)),
        };
        let (path, value) = (Some(path.to_owned()), Mutex::new(value));
        Ok(Self { path, value, writing: Mutex::default() })
    }

    /// The value as it is now.
    pub(crate) fn read(&self) -> MutexGuard<'_, T> {
        // It is replaced as a whole.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes value and file, or neither: where `change` fails, and where the file cannot be
    /// written. Waits for the disk.
    pub(crate) fn change<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<Result<R, E>> {
        let _writing = self.writing();
        let mut next = self.read().clone();
        let changed = change(&mut next);
        if changed.is_ok() {
            self.write(&next)?;
            *self.read() = next;
        }
        Ok(changed)
    }

    /// Changes the value, unless `change` fails, and then the file. The second answer says whether
    /// the file could be written; where it could not, the change holds as long as the process, or
    /// until another change takes it along. Waits for the disk.
    pub(crate) fn insist<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<(R, Result<()>), E> {
        let _writing = self.writing();
        let mut next = self.read().clone();
        let changed = change(&mut next)?;
        *self.read() = next.clone();
        Ok((changed, self.write(&next)))
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, value: &T) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let failed = |error| Error::file("write", path, error);
        let text = serde_json::to_vec_pretty(value).map_err(|error| failed(error.into()))?;
        files::write_private(path, &text).map_err(failed)
    }
}
